"""Operators: named, with declared arguments and attributes, and a table of what is known of each.

Counterpart: ``tvm.ir.Op``. Keys of the table are TVM's (``FInferType``, ``FPurity``,
``FLegalize``, ``FCallPacked``, ``FNormalize``, ``FValidate``, ``FDataDependent``,
``RequiresArgumentShapes``, ``TAllocator``, ...).

Examples
--------
>>> op = register_op("demo.twice", arguments=("x",))
>>> op.set_attr("FPurity", True)
>>> Op.get("demo.twice").get_attr("FPurity")
True
"""

from dataclasses import dataclass, field
from typing import Any

from relaxlab.ir.expr import Expr
from relaxlab.ir.node import IGNORED
from relaxlab.registry import Registry

__all__ = ["Op", "register_op"]

_OPS: "Registry[Op]" = Registry("operator", AttributeError)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Op(Expr):
    """An operator; one object per name.

    Attributes
    ----------
    name
        Full name, such as ``"relax.add"`` or ``"tirx.exp"``.
    arguments
        Names of the positional arguments.
    attribute_names
        Names of the attributes, in declaration (and printing) order.
    num_inputs
        Number of arguments, -1 when it varies.
    """

    name: str
    arguments: tuple[str, ...] = field(metadata=IGNORED, default=())
    attribute_names: tuple[str, ...] = field(metadata=IGNORED, default=())
    num_inputs: int = field(metadata=IGNORED, default=-1)
    _table: dict[str, Any] = field(default_factory=dict, metadata=IGNORED, init=False)

    @staticmethod
    def get(name: str) -> "Op":
        """Return the operator called ``name``; AttributeError (naming the nearest) if none."""
        return _OPS.get(name)

    @staticmethod
    def find(name: str) -> "Op | None":
        """Return the operator called ``name``, or None."""
        return _OPS.find(name)

    @staticmethod
    def list_op_names() -> list[str]:
        """Names of all operators registered so far."""
        return _OPS.names()

    def has_attr(self, key: str) -> bool:
        """Whether the table has ``key``."""
        return key in self._table

    def get_attr(self, key: str, default: Any = None) -> Any:
        """Return what the table holds under ``key``, else ``default``."""
        return self._table.get(key, default)

    def set_attr(self, key: str, value: Any, *, override: bool = False) -> None:
        """Put ``value`` into the table; a taken key needs ``override=True``.

        Raises
        ------
        ValueError
            If the key is taken and ``override`` is False.
        """
        if key in self._table and not override:
            raise ValueError(
                f"operator {self.name!r} already has {key!r}; pass override=True to replace it"
            )
        self._table[key] = value


def register_op(
    name: str,
    *,
    arguments: tuple[str, ...] = (),
    attribute_names: tuple[str, ...] = (),
    num_inputs: int | None = None,
    **table: Any,
) -> Op:
    """Declare an operator; ``table`` entries are set on it (``FPurity=True``, ...)."""
    count = len(arguments) if num_inputs is None else num_inputs
    op = Op(name, arguments, attribute_names, count)
    for key, value in table.items():
        op.set_attr(key, value)
    return _OPS.register(name, op)
