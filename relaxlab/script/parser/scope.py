"""Which names mean what, while a function is being parsed.

Examples
--------
>>> scope = Scope({"T": "kernels"})
>>> with scope.frame():
...     scope.define("i", 1)
...     scope.find("i"), scope.find("T")
(1, 'kernels')
>>> scope.find("i") is MISSING
True
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

__all__ = ["MISSING", "Scope"]


class _Missing:
    """No value, not even None."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()


class Scope:
    """Names in nested frames; the innermost wins.

    Parameters
    ----------
    outside
        What is visible from the start: the languages, and for a decorated object the names of
        the place where it stands.
    """

    def __init__(self, outside: Mapping[str, Any]) -> None:
        self._outside = outside
        self._frames: list[dict[str, Any]] = []

    def find(self, name: str) -> Any:
        """Return the value of a name, or MISSING."""
        for frame in reversed(self._frames):
            if name in frame:
                return frame[name]
        return self._outside.get(name, MISSING)

    def define(self, name: str, value: Any) -> None:
        """Give a name a value in the innermost frame."""
        self._frames[-1][name] = value

    def is_local(self, name: str) -> bool:
        """Whether the program itself defined the name, in any open frame."""
        return any(name in frame for frame in self._frames)

    def local_names(self) -> list[str]:
        """Names that the program itself defined, in all open frames."""
        return [name for frame in self._frames for name in frame]

    def is_in_frame(self, name: str) -> bool:
        """Whether the name is defined in the innermost frame."""
        return name in self._frames[-1]

    @contextmanager
    def frame(self) -> Iterator[None]:
        """Forget, at the end, what is defined inside."""
        self._frames.append({})
        try:
            yield
        finally:
            self._frames.pop()
