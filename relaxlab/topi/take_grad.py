"""The gradient of taking elements.

Counterpart: the take_backward computation of ``tvm.relax.transform.legalize_ops.grad``.

Examples
--------
>>> from relaxlab import te
>>> g, x = te.placeholder((2, 3), name="g"), te.placeholder((4, 3), name="x")
>>> take_grad(g, x, te.placeholder((2,), "int32", name="i"), 0).op.name
'take_backward'
"""

from collections.abc import Sequence

from relaxlab import te
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Var
from relaxlab.runtime.dtype import DataType
from relaxlab.te import Tensor
from relaxlab.tirx import Stmt, decl_buffer, seq
from relaxlab.topi.flat import flat_load, flat_store, loop, sequential
from relaxlab.topi.indices import normalize_axis, product

__all__ = ["take_grad"]

_INT64 = DataType("int64")


def take_grad(grad: Tensor, data: Tensor, indices: Tensor, axis: int | None = None) -> Tensor:
    """Return the gradient of ``take(data, indices, axis)`` towards ``data``.

    Parameters
    ----------
    grad
        The gradient towards the result.
    data
        What was taken from.
    indices
        Which elements were taken; TVM allows a vector only.
    axis
        Along which dimension.
    """
    if axis is None:
        before, after = prim_ops.const(1, _INT64), prim_ops.const(1, _INT64)
        length = product(data.shape)
    else:
        place = normalize_axis(axis, data.ndim)
        before, after = product(data.shape[:place]), product(data.shape[place + 1 :])
        length = data.shape[place]
    count = product(indices.shape)
    zero = prim_ops.const(0, data.dtype)

    def body(inputs: Sequence[Var], outputs: Sequence[Var]) -> Stmt:
        source, _, chosen = inputs
        result = outputs[0]
        every, row, which = (Var("v", _INT64) for _ in range(3))
        clear = loop(every, product(data.shape), flat_store(result, every, zero))
        at = prim_ops.cast(_INT64, flat_load(chosen, which))
        if axis is None:
            added = flat_load(result, at) + flat_load(source, which)
            return sequential(seq([clear, loop(which, count, flat_store(result, at, added))]))
        outer = prim_ops.floordiv(row, after) * after
        inner = prim_ops.floormod(row, after)
        to = outer * length + at * after + inner
        origin = outer * count + which * after + inner
        added = flat_load(result, to) + flat_load(source, origin)
        scatter = loop(row, before * after, loop(which, count, flat_store(result, to, added)))
        return sequential(seq([clear, scatter]))

    out_buf = decl_buffer(data.shape, data.dtype, "out_buf")
    result: Tensor = te.extern(
        [data.shape],
        [grad, data, indices],
        body,
        name="take_backward",
        dtype=[data.dtype],
        out_buffers=[out_buf],
    )[0]
    return result
