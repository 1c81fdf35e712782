"""Fresh names, one supply for each builder. Counterpart: TVM's ``UniqueNameSupply``.

Examples
--------
>>> names = UniqueNames()
>>> [names.fresh(hint) for hint in ("x", "x", "x1", "a.b", "")]
['x', 'x1', 'x11', 'a_b', 'v']
"""

__all__ = ["UniqueNames"]


class UniqueNames:
    """Gives each name once: a hint as it is, then with 1, 2, ... behind it."""

    def __init__(self) -> None:
        #: The number last put behind each name given so far.
        self._taken: dict[str, int] = {}

    def fresh(self, hint: str) -> str:
        """Return a name that was not given before; dots become underscores."""
        name = base = hint.replace(".", "_") or "v"
        while name in self._taken:
            self._taken[base] += 1
            name = f"{base}{self._taken[base]}"
        self._taken[name] = 0
        return name
