"""Finding where values belong in a sorted vector, by bisection.

Counterpart: ``tvm.topi.searchsorted``.

Examples
--------
>>> from relaxlab import te
>>> edges, x = te.placeholder((3,), name="edges"), te.placeholder((2, 3), name="x")
>>> searchsorted(edges, x).op.name
'searchsorted'
"""

from collections.abc import Sequence

from relaxlab import te
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr, Var
from relaxlab.ir.prim import TensorLoad
from relaxlab.runtime.dtype import DataType
from relaxlab.te import Tensor
from relaxlab.tirx import (
    AllocBuffer,
    BufferStore,
    ForKind,
    IfThenElse,
    Stmt,
    While,
    decl_buffer,
    seq,
)
from relaxlab.topi.flat import flat_index, loop
from relaxlab.topi.indices import product

__all__ = ["searchsorted"]

_INT64 = DataType("int64")


def searchsorted(
    sorted_sequence: Tensor,
    values: Tensor,
    right: bool = False,
    out_dtype: DataType | str = "int64",
) -> Tensor:
    """Return, for every value, how many elements of the sequence lie before it.

    Parameters
    ----------
    sorted_sequence
        A vector in ascending order.
    values
        What is looked for, of any shape.
    right
        Whether equal elements lie before the value.
    out_dtype
        Dtype of the result.

    Raises
    ------
    ValueError
        If ``sorted_sequence`` has not one dimension.
    """
    if sorted_sequence.ndim != 1:
        raise ValueError(
            f"searchsorted needs a sequence of one dimension, got {sorted_sequence.ndim}"
        )
    target = DataType(out_dtype)
    length = sorted_sequence.shape[0]
    zero = prim_ops.const(0, _INT64)

    def body(inputs: Sequence[Var], outputs: Sequence[Var]) -> Stmt:
        sequence, sought = inputs
        low, high = (
            decl_buffer((prim_ops.const(1, _INT64),), target, "buffer", scope="local")
            for _ in range(2)
        )

        def get(buffer: Var) -> Expr:
            return TensorLoad(buffer, (zero,))

        def put(buffer: Var, value: Expr) -> Stmt:
            return BufferStore(buffer, value, (zero,))

        at = Var("v", _INT64)
        index = flat_index(at, values.shape)
        middle = get(low) + prim_ops.shift_right(get(high) - get(low), 1)
        place = prim_ops.cast(_INT64, get(low)) + prim_ops.shift_right(
            prim_ops.cast(_INT64, get(high) - get(low)), 1
        )
        compare = prim_ops.less_equal if right else prim_ops.less
        before = compare(TensorLoad(sequence, (place,)), TensorLoad(sought, index))
        step = IfThenElse(before, put(low, middle + 1), put(high, middle))
        search = While(prim_ops.less(get(low), get(high)), step)
        statements = [
            AllocBuffer(low),
            AllocBuffer(high),
            put(low, prim_ops.const(0, target)),
            put(high, prim_ops.cast(target, length)),
            search,
            BufferStore(outputs[0], get(low), index),
        ]
        return loop(at, product(values.shape), seq(statements), ForKind.PARALLEL)

    result: Tensor = te.extern(
        [values.shape],
        [sorted_sequence, values],
        body,
        name="searchsorted",
        dtype=[target],
    )[0]
    return result
