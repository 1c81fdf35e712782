"""Bring every Relax function into normal form.

What is nested is bound to variables, neighbouring blocks of one kind are merged, empty ones
removed, and every expression has a type. Counterpart: ``tvm.relax.transform.Normalize``.

Examples
--------
>>> Normalize().info.name, Normalize().info.opt_level
('Normalize', 1)
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from relaxlab.ir import IRModule, PassContext
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.expr import Function
from relaxlab.relax.transform.pass_base import FunctionPass

__all__ = ["Normalize"]


@dataclass(frozen=True)
class Normalize(FunctionPass):
    """Bring functions into normal form."""

    opt_level: ClassVar[int] = 1

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return the function in normal form, itself when it is already."""
        result: Any = BlockBuilder(mod).normalize(func)
        return result  # type: ignore[no-any-return]  # a function stays one
