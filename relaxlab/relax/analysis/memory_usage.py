"""How much memory the allocations of a module ask for, before and after planning.

A static estimate: control flow is ignored, so the allocations of both branches of an If count.
For who shares what from when to when see ``storage_liveness.py``. Counterpart:
``tvm.relax.analysis.estimate_memory_usage``, same text; TVM's fails on storages of symbolic size,
which are counted here.

Examples
--------
>>> from relaxlab.ir import IRModule
>>> estimate_memory_usage(IRModule())
''
"""

from dataclasses import dataclass
from typing import Final

from relaxlab.ir import Call, Expr, GenericConst, IntImm, IRModule, Op
from relaxlab.relax.expr import Function, ShapeExpr
from relaxlab.relax.expr_functor import ExprVisitor
from relaxlab.runtime.dtype import DataType

__all__ = ["estimate_memory_usage", "tensor_bytes"]

_GIGABYTE: Final = 2**30


def estimate_memory_usage(mod: IRModule | Function) -> str:
    """Return, for each Relax function, how much memory it allocates with and without planning.

    Parameters
    ----------
    mod
        A module after CallTIRRewrite (nothing is allocated before) and before LowerRuntimeBuiltin,
        best after StaticPlanBlockMemory; or a single function.

    Returns
    -------
    str
        A paragraph for each function, by name. Sizes are in GB of 2**30 bytes.
    """
    if isinstance(mod, Function):
        mod = IRModule({str(mod.attrs.get("global_symbol", "foo")): mod})
    parts = []
    for gvar, func in mod.functions_items():
        if isinstance(func, Function):
            total = _Total()
            total.visit_expr(func)
            parts.append(f"- Function {gvar.name_hint}:\n{total.text()}")
    return "Memory usage estimation:\n" + "".join(parts) if parts else ""


def tensor_bytes(shape: Expr, dtype: DataType) -> int | None:
    """Return the bytes of a tensor; None when its shape is not constant."""
    if not isinstance(shape, ShapeExpr):
        return None
    size = (dtype.bits + 7) // 8 * dtype.lanes
    for dim in shape.values:
        if not isinstance(dim, IntImm):
            return None
        size *= dim.value
    return size


@dataclass(slots=True)
class _Sum:
    """Allocations of one kind."""

    constant: int = 0
    size: int = 0
    dynamic: int = 0

    def add(self, size: int | None) -> None:
        if size is None:
            self.dynamic += 1
        else:
            self.constant += 1
            self.size += size

    def text(self, how: str) -> str:
        dynamic = f", and {self.dynamic} dynamic-size allocation(s)" if self.dynamic else ""
        return (
            f" * {how} memory planning, there are {self.constant} constant-size memory "
            f"allocation(s) with total size {self.size / _GIGABYTE:.4} GB{dynamic}.\n"
        )


class _Total(ExprVisitor):
    """Sums up the allocations of a function."""

    def __init__(self) -> None:
        self.without = _Sum()
        self.planned = _Sum()

    def visit_call_(self, op: Call) -> None:
        match op:
            case Call(op=Op(name="relax.memory.alloc_storage"), args=(ShapeExpr() as size, *_)):
                first = size.values[0]
                self.planned.add(first.value if isinstance(first, IntImm) else None)
            case Call(
                op=Op(name="relax.memory.alloc_tensor"),
                args=(_, _, shape, GenericConst() as dtype, *_),
            ):
                self.without.add(tensor_bytes(shape, DataType(dtype.value)))
            case Call(
                op=Op(name="relax.builtin.alloc_tensor"), args=(shape, GenericConst() as dtype, *_)
            ):
                nbytes = tensor_bytes(shape, DataType(dtype.value))
                self.without.add(nbytes)
                if nbytes is not None:  # a dynamic one is not planned, and not counted twice
                    self.planned.add(nbytes)
            case _:
                pass

    def text(self) -> str:
        lines = self.without.text("Without") + self.planned.text("With")
        if self.without.size == 0:
            return lines + "\n"
        share = 100 * self.planned.size / self.without.size
        return f"{lines} * Memory planning reduces constant memory size to {share:.1f}%.\n"
