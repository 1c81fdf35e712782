"""The output of one entry as it grows: text, and why it ends.

Counterpart: the delta outputs of MLC's request state.

Examples
--------
>>> from relaxlab.models.tokenizer import ByteTokenizer
>>> from relaxlab.serve.request import Request
>>> request = Request(0, prompt=(1,), max_tokens=8, stop=("!",))
>>> answer = Answer(request, ByteTokenizer())
>>> [answer.push(byte) for byte in b"hi!"], answer.finished, answer.text
([None, None, 'stop'], 'stop', 'hi')
"""

from typing import Literal

from relaxlab.models.tokenizer import Tokenizer
from relaxlab.serve.request import Request
from relaxlab.serve.stop import StopText

__all__ = ["Answer", "EndReason"]

EndReason = Literal["stop", "length"]


class Answer:
    """Tokens in, text out.

    Parameters
    ----------
    request
        What ends the output.
    tokenizer
        None for tokens without text; stop strings then never match.

    Attributes
    ----------
    tokens
        How many were pushed.
    text
        All text that is certain.
    finished
        Why the output ended; None while it goes on.
    error
        What went wrong when a token was chosen.
    """

    def __init__(self, request: Request, tokenizer: Tokenizer | None) -> None:
        self._request = request
        self._stream = None if tokenizer is None else tokenizer.stream(special=False)
        self._stop = StopText(request.stop)
        self._told = 0
        self.tokens = 0
        self.text = ""
        self.finished: EndReason | None = None
        self.error: str | None = None

    def push(self, token: int) -> EndReason | None:
        """Take the next token and return whether, and why, the output ends with it."""
        self.tokens += 1
        if self._stream is not None:
            self.text += self._stop.push(self._stream.push(token))
        if token in self._request.stop_tokens or self.tokens == self._request.max_tokens:
            self.cut()
        if token in self._request.stop_tokens or self._stop.found is not None:
            self.finished = "stop"
        return self.finished

    def cut(self) -> None:
        """End the output here: there is no room for more."""
        if self.finished is None:
            self.finished = "length"
            if self._stream is not None:
                self.text += self._stop.push(self._stream.finish()) + self._stop.finish()

    def news(self) -> str:
        """Return the text that became certain since the last call."""
        news = self.text[self._told :]
        self._told = len(self.text)
        return news
