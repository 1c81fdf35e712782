"""A conversation with a model: turns in, streamed replies out, branches that share pages.

The tokens of past turns are kept as they were, never made again from text. So every new prompt
begins with exactly what was computed before: the prefix cache has it, and only the new turn runs.
A fork is a copy of that list; the pages it shares are found the same way. Counterpart: MLC's
conversation templates and chat loop.

Examples
--------
>>> from relaxlab.models.language_model import open_model
>>> from relaxlab.models.paged_llama import PagedLlama
>>> from relaxlab.serve.engine import Engine
>>> model = open_model("tiny")
>>> engine = Engine(PagedLlama(model, page_size=8, capacity=512), tokenizer=model.tokenizer)
>>> talk = Conversation(engine, model.tokenizer)
>>> reply = "".join(talk.say("hello there", max_tokens=8))
>>> branch = talk.fork()
>>> _ = "".join(branch.say("again", max_tokens=8))
>>> len(talk.turns), len(branch.turns), engine.snapshot().hit_tokens
(2, 4, 32)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from relaxlab.models.tokenizer import Tokenizer
from relaxlab.serve.engine import Engine
from relaxlab.serve.sampler import Sampling

__all__ = ["Conversation", "Template", "Turn", "template_of"]


@dataclass(frozen=True, slots=True)
class Template:
    """What stands around the turns.

    Attributes
    ----------
    begin
        Before everything.
    user, reply
        Before what the user said, and before the reply.
    end, rest
        After either; and what is left of it when the model itself has ended its reply.
    stop
        Strings that end a reply, for models without a token for it.
    """

    begin: str
    user: str
    reply: str
    end: str
    rest: str = ""
    stop: tuple[str, ...] = ()


CHATML = Template(
    begin="<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
    "Face<|im_end|>\n",
    user="<|im_start|>user\n",
    reply="<|im_start|>assistant\n",
    end="<|im_end|>\n",
    rest="\n",
)
PLAIN = Template(begin="", user="User: ", reply="Reply: ", end="\n", stop=("\n",))


def template_of(tokenizer: Tokenizer) -> Template:
    """Return ChatML if the vocabulary has its marks as single tokens, else plain lines."""
    single = len(tokenizer.encode("<|im_start|>", special=True)) == 1
    return CHATML if single else PLAIN


@dataclass(frozen=True, slots=True)
class Turn:
    """Who said what."""

    role: str
    text: str


class Conversation:
    """Turns on one engine.

    Parameters
    ----------
    engine
        Which answers; other requests may be under way.
    tokenizer
        The model's.
    template
        Found from the tokenizer when None.

    Attributes
    ----------
    turns
        Said so far.
    tokens
        The same as the model reads it.
    """

    def __init__(
        self, engine: Engine, tokenizer: Tokenizer, template: Template | None = None
    ) -> None:
        self._engine, self._tokenizer = engine, tokenizer
        self.template = template_of(tokenizer) if template is None else template
        self.turns: list[Turn] = []
        self.tokens = self._marks(self.template.begin)

    def say(
        self, text: str, *, max_tokens: int = 256, sampling: Sampling | None = None
    ) -> Iterator[str]:
        """Say something and yield the reply as it comes.

        Nothing is added to the conversation if the engine refuses; a reply that the caller does
        not read to the end is cancelled and stays as far as it came.

        Raises
        ------
        ValueError
            There is no room left for a reply.
        """
        template = self.template
        prompt = [
            *self.tokens,
            *self._marks(template.user),
            *self._tokenizer.encode(text),
            *self._marks(template.end + template.reply),
        ]
        room = self._engine.room - len(prompt)
        if room < 1:
            raise ValueError(
                f"the conversation is full: {len(prompt)} tokens with this turn, and there is "
                f"room for {self._engine.room}"
            )
        request = self._engine.submit(
            prompt,
            max_tokens=min(max_tokens, room),
            sampling=sampling,
            stop=template.stop,
            stop_tokens=sorted(self._tokenizer.ends),
        )
        finished: str | None = None
        try:
            for output in self._engine.stream():
                if output.entry == (request.number, 0):
                    finished = output.finished
                    if output.text:
                        yield output.text
                    if finished is not None:
                        break
        finally:
            self._engine.cancel(request)  # does nothing to a finished one
            end = template.rest if finished == "stop" else template.end
            self.tokens = [*prompt, *self._engine.output(request), *self._marks(end)]
            self.turns += [Turn("user", text), Turn("reply", self._engine.text(request))]

    def fork(self) -> "Conversation":
        """Return a second conversation that has said the same so far."""
        branch = Conversation(self._engine, self._tokenizer, self.template)
        branch.turns, branch.tokens = list(self.turns), list(self.tokens)
        return branch

    def _marks(self, text: str) -> list[int]:
        """Return the tokens of the template's own text: only there marks are special."""
        return _without_bos(self._tokenizer.encode(text, special=True), self._tokenizer.bos)


def _without_bos(tokens: Sequence[int], bos: int | None) -> list[int]:
    return list(tokens[1:] if bos is not None and tokens[:1] == [bos] else tokens)
