"""What a tensor says of itself at run time."""

from typing import Any

import numpy as np
import pytest

import relaxlab
from relaxlab import relax, runtime
from relaxlab.errors import InternalError
from relaxlab.ir import Call
from relaxlab.relax.op import inspect


def infer(call: Call) -> str:
    builder = relax.BlockBuilder()
    builder.begin_scope([x for x in call.args if isinstance(x, relax.Var)])
    builder.begin_block(is_dataflow=True)
    return str(builder.normalize(call).ty)


UNKNOWN = relax.TensorType(None, None)
MATRIX = relax.TensorType([2, 3], "float32")


@pytest.mark.parametrize("ty", [UNKNOWN, MATRIX, relax.TensorType(None, "int8", ndim=2)])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("tensor_ndim", "int32"),
        ("tensor_dtype_code", "uint8"),
        ("tensor_dtype_bits", "uint8"),
        ("tensor_dtype_lanes", "uint16"),
        ("tensor_byte_offset", "uint64"),
        ("tensor_elem_offset", "uint64"),
    ],
)
def test_types(ty: relax.TensorType, name: str, dtype: str) -> None:
    assert infer(getattr(inspect, name)(relax.Var("x", ty))) == dtype


@pytest.mark.parametrize("name", ["tensor_shape_i", "tensor_stride_i"])
def test_types_along_an_axis(name: str) -> None:
    op = getattr(inspect, name)
    x = relax.Var("x", MATRIX)
    assert infer(op(x, 1)) == infer(op(relax.Var("x", UNKNOWN), 5)) == "int64"
    with pytest.raises(ValueError, match=r"access x.shape\[2\], but x.shape only has 2 elements"):
        infer(op(x, 2))
    with pytest.raises(InternalError, match="negative axis -1"):
        infer(op(x, -1))
    with pytest.raises(TypeError, match="expects an int64 scalar as axis"):
        infer(op(x, relax.const(1, "int64")))
    with pytest.raises(TypeError, match="expects a tensor argument, but argument s has type"):
        infer(op(relax.Var("s", relax.ShapeType([2])), 0))


def run(op: Any, tensor: runtime.Tensor, *axis: int) -> Any:
    x = relax.Var("x", UNKNOWN)
    params = [x, *(relax.Var("axis", "int64") for _ in axis)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(op(*params)))
    machine = relax.VirtualMachine(relaxlab.compile(builder.get()), runtime.cpu())
    return machine["main"](tensor, *axis)


def test_a_tensor_of_which_nothing_is_known() -> None:
    x = runtime.tensor(np.zeros((4, 5, 6), "int16"))
    assert run(inspect.tensor_ndim, x) == 3
    assert run(inspect.tensor_dtype_code, x) == 0
    assert run(inspect.tensor_dtype_bits, x) == 16
    assert run(inspect.tensor_dtype_lanes, x) == 1
    assert [run(inspect.tensor_shape_i, x, i) for i in range(3)] == [4, 5, 6]
    assert [run(inspect.tensor_stride_i, x, i) for i in range(3)] == [30, 6, 1]
    view = x.view((5, 6), byte_offset=60)
    assert run(inspect.tensor_byte_offset, view) == 60
    assert run(inspect.tensor_elem_offset, view) == 30


@pytest.mark.parametrize(("axis", "message"), [(-1, "negative"), (2, "larger than the tensor's")])
def test_an_axis_that_is_wrong_at_run_time(axis: int, message: str) -> None:
    x = runtime.tensor(np.zeros((4, 5), "float32"))
    for op in (inspect.tensor_shape_i, inspect.tensor_stride_i):
        with pytest.raises(RuntimeError, match=message):
            run(op, x, axis)
