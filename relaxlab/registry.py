"""A table of named things that refuses duplicates.

Operators, global functions, passes, pipelines and printers are all looked up by name. One class
owns the rules: registering a taken name is an error unless ``override`` is said explicitly, and
looking up a missing name names its nearest neighbours. Counterpart: TVM's global function,
operator and pass registries.

Examples
--------
>>> colours: Registry[int] = Registry("colour")
>>> colours.register("red", 1)
1
>>> colours.get("red")
1
"""

import difflib
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

__all__ = ["Registry"]

T = TypeVar("T")


class Registry(Generic[T]):
    """Names of one kind mapped to values.

    Parameters
    ----------
    kind
        What an entry is called in messages, for example ``"operator"``.
    error
        Exception class raised for a missing or a taken name.
    """

    def __init__(self, kind: str, error: type[Exception] = ValueError) -> None:
        self.kind = kind
        self._error = error
        self._entries: dict[str, T] = {}

    def register(self, name: str, value: T, *, override: bool = False) -> T:
        """Add ``value`` under ``name`` and return it; a taken name needs ``override=True``."""
        if not override and name in self._entries:
            raise self._error(
                f"{self.kind} {name!r} is already registered; pass override=True to replace it"
            )
        self._entries[name] = value
        return value

    def registered(self, name: str, *, override: bool = False) -> Callable[[T], T]:
        """Decorate a value with its name: ``@registry.registered("name")``."""

        def add(value: T) -> T:
            return self.register(name, value, override=override)

        return add

    def get(self, name: str) -> T:
        """Return the entry called ``name``; a missing one names the nearest known names."""
        try:
            return self._entries[name]
        except KeyError:
            near = difflib.get_close_matches(name, self._entries, n=3)
            hint = f"; did you mean {', '.join(map(repr, near))}?" if near else ""
            raise self._error(f"{self.kind} {name!r} is not registered{hint}") from None

    def find(self, name: str) -> T | None:
        """Return the entry called ``name``, or None."""
        return self._entries.get(name)

    def remove(self, name: str) -> None:
        """Drop the entry called ``name``; a missing one is an error."""
        self.get(name)
        del self._entries[name]

    def names(self) -> list[str]:
        """Every registered name, in order of registration."""
        return list(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
