"""Drawing from distributions. Counterpart: ``tvm.relax.op.sampling``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> prob, u = Var("prob", TensorType([2, 3])), Var("u", TensorType([4, 1]))
>>> multinomial_from_uniform(prob, u, Var("i", TensorType([4, 1], "int64"))).attrs
Attrs({'dtype': DataType("int64")})
"""

from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.prim import IntImm
from relaxlab.ir.type import PrimType, Type
from relaxlab.relax.op.datatype import to_dtype
from relaxlab.relax.op.declare import InferenceContext, call_op, declare
from relaxlab.relax.op.inference import attributes, dims_of, dtype_name, tensor_argument
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import TensorType
from relaxlab.relax.type_relations import dims_equal
from relaxlab.runtime.dtype import DataType

__all__ = ["multinomial_from_uniform"]

_OP = "Multinomial_from_uniform op requires the input"


def _infer_multinomial(call: Call, ctx: InferenceContext) -> Type:
    names = ("prob", "uniform_sample", "sample_indices")
    types = [tensor_argument(call, i) for i in range(3)]
    for name, ty, kind in zip(names, types, ("float", "float", "int"), strict=True):
        right = ty.dtype is None or (ty.dtype.is_float if kind == "float" else ty.dtype.is_int)
        if not right:
            raise TypeError(
                f"{_OP} {name} to have {kind} dtype. However, the given {name} dtype is "
                f"{dtype_name(ty.dtype)}"
            )
    for name, ty in zip(names, types, strict=True):
        if ty.ndim not in (-1, 2):
            raise ValueError(
                f"{_OP} {name} to be a 2D tensor. However, the given {name} tensor has ndim "
                f"{ty.ndim}"
            )
    dtype, vdevice = attributes(call).dtype, types[0].vdevice
    samples, indices = dims_of(types[1]), dims_of(types[2])
    if dims_of(types[0]) is None or samples is None or indices is None:
        return TensorType(None, dtype, vdevice, 2)
    if not (_is_one(samples[1]) and _is_one(indices[1])):
        raise ValueError(
            f"{_OP} uniform_sample and sample_indices to be 2D tensors with the second dimension "
            f"being 1. However, the given uniform_sample tensor has shape {types[1].shape} and "
            f"the given sample_indices tensor has shape {types[2].shape}"
        )
    if not dims_equal(samples[0], indices[0], ctx.analyzer):
        raise ValueError(
            f"{_OP} uniform_sample and sample_indices to have the same batch size. However, the "
            f"given uniform_sample tensor has batch size `{samples[0]}` and the given "
            f"sample_indices tensor has batch size `{indices[0]}`"
        )
    return TensorType(ShapeExpr((samples[0], 1)), dtype, vdevice)


def _is_one(dim: Expr) -> bool:
    return isinstance(dim, IntImm) and dim.value == 1


_MULTINOMIAL = declare(
    "multinomial_from_uniform",
    ("prob", "uniform_sample", "sample_indices"),
    _infer_multinomial,
    attributes=("dtype",),
)


def multinomial_from_uniform(
    prob: Expr,
    uniform_sample: Expr,
    sample_indices: Expr,
    dtype: DataType | PrimType | str = "int64",
) -> Call:
    """Draw a category for each uniform sample.

    Parameters
    ----------
    prob
        Probabilities, float of shape (batch, categories); each row adds up to 1.
    uniform_sample
        Numbers from [0, 1), float of shape (n, 1).
    sample_indices
        The row that each sample draws from, integer of shape (n, 1).
    dtype
        Integer dtype of the result, of shape (n, 1).
    """
    return call_op(_MULTINOMIAL, prob, uniform_sample, sample_indices, dtype=to_dtype(dtype))
