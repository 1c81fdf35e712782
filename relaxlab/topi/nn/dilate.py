"""Spreading a tensor out: zeros between its elements.

Counterpart: ``tvm.topi.nn.dilate``.

Examples
--------
>>> from relaxlab import te
>>> y = dilate(te.placeholder((2, 3), name="x"), [1, 2])
>>> [d.value for d in y.shape]
[2, 5]
"""

from collections.abc import Sequence

from relaxlab import te
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr
from relaxlab.ir.sym import Analyzer
from relaxlab.te import Tensor

__all__ = ["dilate"]


def dilate(
    data: Tensor,
    strides: Sequence[int],
    dilation_value: float = 0.0,
    name: str = "DilatedInput",
) -> Tensor:
    """Put ``strides[a] - 1`` times ``dilation_value`` between neighbours on axis ``a``.

    Raises
    ------
    ValueError
        If there is not one stride for each axis.
    """
    if len(strides) != data.ndim:
        raise ValueError(f"dilate needs {data.ndim} stride(s), one per axis, got {len(strides)}")
    analyzer = Analyzer()
    dims = [
        analyzer.simplify((extent - 1) * stride + 1)
        for extent, stride in zip(data.shape, strides, strict=True)
    ]
    filler = prim_ops.const(dilation_value, data.dtype)

    def body(*indices: Expr) -> Expr:
        place = [
            index if stride == 1 else prim_ops.indexdiv(index, stride)
            for index, stride in zip(indices, strides, strict=True)
        ]
        real = [
            prim_ops.equal(prim_ops.indexmod(index, stride), 0)
            for index, stride in zip(indices, strides, strict=True)
            if stride != 1
        ]
        value = data(*place)
        return prim_ops.if_then_else(prim_ops.all(*real), value, filler) if real else value

    result: Tensor = te.compute(dims, body, name=name, tag="injective,dilate")
    return result
