"""Normalizations. Counterpart: part of ``tvm.relax.op.nn``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> x, g = Var("x", TensorType([2, 3])), Var("g", TensorType([3]))
>>> rms_norm(x, g).attrs.axes
(-1,)
"""

from collections.abc import Sequence

from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.prim import IntImm
from relaxlab.ir.type import TupleType, Type
from relaxlab.relax.op.declare import InferenceContext, call_op, declare
from relaxlab.relax.op.inference import (
    attributes,
    dtype_name,
    known_dims,
    normalize_axes,
    op_name,
    require_float,
    tensor_argument,
)
from relaxlab.relax.op.statistical import to_axes
from relaxlab.relax.type import TensorType
from relaxlab.relax.type_relations import dims_equal

__all__ = ["dropout", "infer_normalization", "layer_norm", "rms_norm"]


def _shown(dims: Sequence[Expr]) -> str:
    return "(" + ", ".join(map(str, dims)) + ("," if len(dims) == 1 else "") + ")"


def infer_normalization(
    call: Call, ctx: InferenceContext, names: Sequence[str], axes: Sequence[int] | None = None
) -> Type:
    """Infer the data's type after checking parameters that cover its ``axes``.

    The shape is dropped when it cannot be proved that the parameters have the right lengths.
    """
    data, name = tensor_argument(call, 0), op_name(call)
    params = [tensor_argument(call, i + 1) for i in range(len(names))]
    axes = attributes(call).axes if axes is None else axes
    if data.ndim != -1:
        axes = normalize_axes(name, axes, data.ndim)
    require_float(f"{name} requires the input data", data.dtype, "data")
    for label, param in zip(names, params, strict=True):
        if param.dtype is not data.dtype:
            raise TypeError(
                f"{name} requires all the input tensors to have the same dtype. However, the "
                f"{label} has dtype {dtype_name(param.dtype)} which is other than the input "
                f"data's dtype {dtype_name(data.dtype)}"
            )
        if param.ndim != len(axes):
            raise ValueError(
                f"{name} requires the input {label} to have as many dimensions as the length of "
                f"input axes. However, the given one has ndim {param.ndim}, which is other than "
                f"the length of axes {len(axes)}"
            )
    dims = known_dims(data)
    known: list[Sequence[Expr]] = [] if dims is None else [[dims[axis] for axis in axes]]
    known.extend(shape for shape in map(known_dims, params) if shape is not None)
    provable = True
    for other in known[1:]:
        for a, b in zip(known[0], other, strict=True):
            if dims_equal(a, b, ctx.analyzer):
                continue
            if isinstance(a, IntImm) and isinstance(b, IntImm):
                raise ValueError(
                    f"{name} requires the input gamma, beta, etc., to have size same as the "
                    f"lengths of the data on the given axes. However, there exists "
                    f"{_shown(known[0])} and {_shown(other)} that are unequal."
                )
            provable = False
    return data if provable else TensorType(None, data.dtype, data.vdevice, data.ndim)


_LAYER_NORM = declare(
    "nn.layer_norm",
    ("data", "gamma", "beta"),
    lambda call, ctx: infer_normalization(call, ctx, ("gamma", "beta")),
    attributes=("axes", "epsilon", "center", "scale"),
)
_RMS_NORM = declare(
    "nn.rms_norm",
    ("data", "weight"),
    lambda call, ctx: infer_normalization(call, ctx, ("weight",)),
    attributes=("axes", "epsilon"),
)


def layer_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    axes: int | Sequence[int],
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Call:
    """Shift and scale to mean 0 and variance 1 over axes, then times ``gamma`` plus ``beta``.

    Parameters
    ----------
    data
        A float tensor.
    gamma, beta
        Tensors that cover the axes.
    axes
        What to normalize over.
    epsilon
        Added to the variance.
    center, scale
        Whether ``beta`` and ``gamma`` are applied.
    """
    return call_op(
        _LAYER_NORM,
        data,
        gamma,
        beta,
        axes=to_axes(axes),
        epsilon=float(epsilon),
        center=bool(center),
        scale=bool(scale),
    )


def rms_norm(
    data: Expr, weight: Expr, axes: int | Sequence[int] = -1, epsilon: float = 1e-5
) -> Call:
    """Divide by the root mean square over axes, then times ``weight``."""
    return call_op(_RMS_NORM, data, weight, axes=to_axes(axes), epsilon=float(epsilon))


def _infer_dropout(call: Call, ctx: InferenceContext) -> Type:
    ty = tensor_argument(call, 0)
    return TupleType((ty, ty))


_DROPOUT = declare("nn.dropout", ("data",), _infer_dropout, attributes=("rate",))


def dropout(data: Expr, rate: float = 0.5) -> Call:
    """Training-time dropout: a tuple of the result and the mask."""
    return call_op(_DROPOUT, data, rate=float(rate))
