"""Names that are unique where they are visible.

Nodes carry hints; two variables may carry the same one. A name is given when its variable is
first printed, with ``_1``, ``_2``, ... behind the hint when the hint is taken, and is free again
when its scope ends. Counterpart: the naming rules of TVM's script printer.

Examples
--------
>>> from relaxlab.ir import Var
>>> names = Names()
>>> names.define(Var("x"), "x"), names.define(Var("x"), "x"), names.define(Var("if"), "if")
('x', 'x_1', 'if_1')
"""

import keyword
import re
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Names"]

#: Taken from the start: the three languages and the module's alias.
_RESERVED = frozenset({"I", "R", "T", "cls"})
_VALID = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Names:
    """Names of variables, by identity, in nested scopes."""

    def __init__(self) -> None:
        self._names: dict[object, str] = {}
        self._taken: set[str] = set(_RESERVED)
        # where to go on counting for a hint; without it, 5,000 variables of one hint would cost
        # as many tries each
        self._counters: dict[str, int] = {}
        # per open scope: what was defined in it, and how its counters stood before
        self._scopes: list[list[tuple[object, str, str, int]]] = [[]]

    def find(self, variable: object) -> str | None:
        """Return the name of a variable that is in scope, else None."""
        return self._names.get(variable)

    def reserve(self, name: str) -> None:
        """Take a name away from all variables."""
        self._taken.add(name)

    def define(self, variable: object, hint: str) -> str:
        """Give ``variable`` a name in the innermost scope and return it.

        Characters that a Python name cannot have become underscores; a hint that is a Python
        keyword counts as taken.
        """
        base = _identifier(hint)
        before = self._counters.get(base, 0)
        count = before
        name = base if count == 0 else f"{base}_{count}"
        while name in self._taken or (count == 0 and keyword.iskeyword(name)):
            count += 1
            name = f"{base}_{count}"
        self._counters[base] = count
        self._scopes[-1].append((variable, name, base, before))
        self._taken.add(name)
        self._names[variable] = name
        return name

    def call(self, variable: object, text: str) -> None:
        """Let a variable that has no name print as ``text`` in the innermost scope."""
        self._scopes[-1].append((variable, text, text, self._counters.get(text, 0)))
        self._names[variable] = text

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Free again, at the end, what is defined inside."""
        self._scopes.append([])
        try:
            yield
        finally:
            for variable, name, base, before in reversed(self._scopes.pop()):
                # a variable may have been defined twice (an ill-formed program prints too)
                if self._names.get(variable) == name:
                    del self._names[variable]
                self._taken.discard(name)
                self._counters[base] = before


def _identifier(hint: str) -> str:
    if _VALID.fullmatch(hint):
        return hint
    if not hint:
        return "v"
    # a character outside ASCII becomes one underscore per byte of its UTF-8 form, as in TVM
    name = "".join(
        chr(byte) if chr(byte).isalnum() and byte < 128 else "_" for byte in hint.encode()
    )
    return f"_{name}" if name[0].isdigit() else name
