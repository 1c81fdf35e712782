"""Stop strings over text that comes in pieces.

A stop string may begin in one token and end in another. Text that may still become part of one is
held back, so that a reader never sees what is cut off afterwards. Counterpart: MLC's stop-string
handler.

Examples
--------
>>> stop = StopText(["END"])
>>> [stop.push(piece) for piece in ("ab", "cE", "N", "x", "END", "late")]
['ab', 'c', '', 'ENx', '', '']
>>> stop.found
'END'
"""

from collections.abc import Iterable

__all__ = ["StopText"]


class StopText:
    """Passes text through until a stop string appears in it.

    Parameters
    ----------
    strings
        Any of them ends the text; none is part of it. The one that begins first wins, then the
        one given first.

    Attributes
    ----------
    found
        The stop string that ended the text, or None.

    Raises
    ------
    ValueError
        A stop string is empty.
    """

    def __init__(self, strings: Iterable[str] = ()) -> None:
        self._strings = tuple(strings)
        if "" in self._strings:
            raise ValueError("a stop string must have at least one character")
        self._held = ""
        self.found: str | None = None

    @property
    def held(self) -> str:
        """Text that is held back because it may be the beginning of a stop string."""
        return self._held

    def push(self, piece: str) -> str:
        """Take more text and return what is now certain; nothing once a stop string was found."""
        if self.found is not None:
            return ""
        text = self._held + piece
        places = [(at, n) for n, s in enumerate(self._strings) if (at := text.find(s)) >= 0]
        if places:
            at, which = min(places)
            self.found, self._held = self._strings[which], ""
            return text[:at]
        keep = max((_overlap(text, s) for s in self._strings), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """Return what was held back: no more text comes, so it is no stop string."""
        rest, self._held = self._held, ""
        return rest


def _overlap(text: str, string: str) -> int:
    """Length of the longest end of the text which is a proper beginning of the string."""
    return next(
        (n for n in range(min(len(text), len(string) - 1), 0, -1) if text.endswith(string[:n])), 0
    )
