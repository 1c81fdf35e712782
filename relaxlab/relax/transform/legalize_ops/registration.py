"""How an operator says what kernel it becomes.

A legalization function takes the block builder and the call and returns an expression, nearly
always ``bb.call_te(topi.<something>, ...)``; it is put into the operator's table under
``FLegalize``. Counterpart: ``tvm.relax.transform.legalize_ops.common``.

Examples
--------
>>> from relaxlab.relax import const
>>> int(scalar_or_tensor(const(2, "int64")))
2
"""

from collections.abc import Callable
from typing import Any

from relaxlab.ir.attrs import Attrs
from relaxlab.ir.expr import Call, Expr, GenericConst, Tuple, TupleGetItem, Var
from relaxlab.ir.op import Op
from relaxlab.ir.prim_ops import const
from relaxlab.ir.type import TupleType
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.type import TensorType
from relaxlab.runtime.dtype import DataType

__all__ = [
    "LegalizeFunc",
    "attrs_of",
    "legalize_with",
    "register_legalize",
    "scalar_or_tensor",
    "tuple_fields",
]

LegalizeFunc = Callable[[BlockBuilder, Call], Expr]


def register_legalize(name: str) -> Callable[[LegalizeFunc], LegalizeFunc]:
    """Decorate the legalization function of the operator ``relax.<name>``."""

    def register(function: LegalizeFunc) -> LegalizeFunc:
        Op.get(f"relax.{name}").set_attr("FLegalize", function)
        return function

    return register


def legalize_with(name: str, te_func: Callable[..., Any], kernel_name: str) -> None:
    """Let ``relax.<name>`` become ``te_func`` of its arguments, in a kernel of the given name."""

    def legalize(bb: BlockBuilder, call: Call) -> Expr:
        return bb.call_te(te_func, *call.args, primfunc_name_hint=kernel_name)

    register_legalize(name)(legalize)


def attrs_of(call: Call) -> Attrs:
    """Return the attributes of a call whose operator has some."""
    if call.attrs is None:
        raise TypeError(f"a call of {call.op!r} needs attributes")
    return call.attrs


def tuple_fields(bb: BlockBuilder, expr: Expr) -> list[Expr]:
    """Return the fields of a tuple: those it was made of if that is known, else emitted ones."""
    found: Expr | None = expr
    while isinstance(found, Var):
        found = bb.lookup_binding(found)
    if isinstance(found, Tuple):
        return list(found.fields)
    assert isinstance(expr.ty, TupleType)
    return [bb.emit(TupleGetItem(expr, i)) for i in range(len(expr.ty.fields))]


def scalar_or_tensor(expr: Expr) -> Expr:
    """Turn a tensor constant without dimensions into a literal, so that kernels contain it."""
    if not (isinstance(expr, GenericConst) and isinstance(expr.ty, TensorType)):
        return expr
    if expr.ty.ndim != 0 or expr.ty.dtype is None:
        return expr
    value = expr.value.numpy()[()]
    dtype: DataType = expr.ty.dtype
    if dtype.is_float:
        return const(float(value), dtype)
    return const(bool(value) if dtype.is_bool else int(value), dtype)
