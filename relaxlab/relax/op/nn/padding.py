"""Padding. Counterpart: part of ``tvm.relax.op.nn``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> pad(Var("x", TensorType([2])), [1, 0]).attrs.pad_mode
'constant'
"""

from collections.abc import Sequence

from relaxlab.errors import InternalError
from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.type import Type
from relaxlab.relax.op.declare import InferenceContext, call_op, declare
from relaxlab.relax.op.inference import attributes, dims_of, tensor_argument
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import TensorType

__all__ = ["pad"]

_MODES = ("constant", "reflect", "replicate", "circular")


def _infer_pad(call: Call, ctx: InferenceContext) -> Type:
    ty = tensor_argument(call, 0)
    widths = attributes(call).pad_width
    if ty.ndim == -1:
        return ty
    if len(widths) != 2 * ty.ndim:
        raise InternalError(
            f"Illegal pad_width: expected {2 * ty.ndim} numbers, two for each dimension of the "
            f"data, got {len(widths)}"
        )
    dims = dims_of(ty)
    if dims is None:
        return TensorType(None, ty.dtype, ty.vdevice, ty.ndim)
    padded = [
        ctx.analyzer.simplify(dim + before + after)
        for dim, before, after in zip(dims, widths[::2], widths[1::2], strict=True)
    ]
    return TensorType(ShapeExpr(tuple(padded)), ty.dtype, ty.vdevice)


_PAD = declare("nn.pad", ("data",), _infer_pad, attributes=("pad_width", "pad_value", "pad_mode"))


def pad(
    data: Expr,
    pad_width: Sequence[int],
    pad_mode: str | None = "constant",
    pad_value: float | None = 0.0,
) -> Call:
    """Extend a tensor at its borders.

    Parameters
    ----------
    data
        A tensor.
    pad_width
        How many elements before and after, for each dimension: ``[before0, after0, ...]``.
    pad_mode
        ``"constant"``, ``"reflect"``, ``"replicate"`` or ``"circular"``.
    pad_value
        What to put there in constant mode.

    Raises
    ------
    ValueError
        If the mode is unknown (TVM takes any word for "constant").
    """
    if pad_mode not in _MODES:
        raise ValueError(f"pad_mode must be one of {', '.join(_MODES)}, got {pad_mode!r}")
    return call_op(
        _PAD,
        data,
        pad_width=tuple(int(width) for width in pad_width),
        pad_value=float(pad_value or 0.0),
        pad_mode=pad_mode,
    )
