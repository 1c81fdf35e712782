"""A group of names that a program reaches with a dot, such as ``T.axis``.

Examples
--------
>>> axis = Namespace("T.axis", {"spatial": min})
>>> axis.spatial is min
True
"""

from typing import Any

__all__ = ["Namespace"]


class Namespace:
    """Members by name; a missing one names the group."""

    def __init__(self, name: str, members: dict[str, Any]) -> None:
        self.name = name
        self.members = members

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked for by copy and pickle, before there are members
            raise AttributeError(name)
        try:
            return self.members[name]
        except KeyError:
            raise AttributeError(f"{self.name} has no {name!r}") from None

    def __repr__(self) -> str:
        return self.name
