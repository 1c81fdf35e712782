"""Named attributes of operators' calls and of functions and modules.

An attribute map has value equality and keeps its order, which for operators is the declaration
order and therefore the printing order. Counterpart: ``tvm.ir.Attrs`` and ``tvm.ir.DictAttrs``.

Examples
--------
>>> a = Attrs({"axis": (1,), "keepdims": False})
>>> a.axis, a["keepdims"], a == Attrs({"keepdims": False, "axis": (1,)})
((1,), False, True)
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from relaxlab.ir.node import Node, structural_equal, structural_hash

__all__ = ["Attrs", "DictAttrs"]


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Attrs(Node, Mapping[str, Any]):
    """An immutable map from attribute names to values; ``attrs.name`` reads one too.

    Lists become tuples, so that attributes can be hashed and shared.
    """

    fields: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        frozen = {key: _freeze(value) for key, value in self.fields.items()}
        object.__setattr__(self, "fields", frozen)

    def __getitem__(self, key: str) -> Any:
        return self.fields[key]

    def __getattr__(self, name: str) -> Any:
        # reached only for names that are no slot
        if name.startswith("__") or name == "fields":
            raise AttributeError(name)
        try:
            return self.fields[name]
        except KeyError:
            known = ", ".join(self.fields) or "none"
            raise AttributeError(f"no attribute {name!r}; present: {known}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Attrs) and structural_equal(self.fields, other.fields)

    def __hash__(self) -> int:
        return structural_hash(self.fields)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self.fields)!r})"

    def with_attr(self, key: str, value: Any) -> "Attrs":
        """Return a copy with one attribute set."""
        return type(self)({**self.fields, key: value})

    def without_attr(self, key: str) -> "Attrs":
        """Return a copy without one attribute; a missing one is fine."""
        return type(self)({k: v for k, v in self.fields.items() if k != key})


class DictAttrs(Attrs):
    """Attributes of a function or a module: any names."""

    __slots__ = ()


def _freeze(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_freeze(item) for item in value)
    return value
