"""Storage builtins and builtins on whole tensors."""

import numpy as np
import pytest

from relaxlab.errors import InternalError
from relaxlab.runtime import (
    DataType,
    ShapeTuple,
    Tensor,
    VirtualMachine,
    cpu,
    get_global_func,
    tensor,
)
from relaxlab.runtime.vm import VMExecutable

U8, F32 = DataType("uint8"), DataType("float32")


def call(name, *args):
    return get_global_func(f"vm.builtin.{name}")(*args)


@pytest.fixture
def vm():
    return VirtualMachine(VMExecutable(), [cpu(0), cpu(1)], "naive")


def test_alloc_storage_multiplies_shape_and_hint(vm):
    storage = call("alloc_storage", vm, ShapeTuple((3, 5)), 0, F32, "global")
    assert storage.nbytes == 60
    assert storage.device == cpu(0)
    x = call("alloc_tensor", storage, 20, ShapeTuple((10,)), F32)
    assert (x.byte_offset, x.shape, x.dtype) == (20, (10,), "float32")
    assert call("alloc_tensor", storage, 0, [2], "int8", "anything").shape == (2,)


def test_device_minus_one_is_the_host(vm):
    assert call("alloc_storage", vm, ShapeTuple((1,)), -1, U8, "").device == cpu(1)


@pytest.mark.parametrize("index", [2, -2, 99])
def test_other_devices_are_out_of_range(vm, index):
    message = rf"device index {index} is out of range: the machine has 2 devices \(cpu:0, cpu:1\)"
    with pytest.raises(InternalError, match=message):
        call("alloc_storage", vm, ShapeTuple((1,)), index, U8, "global")


def test_bad_storage_arguments(vm):
    with pytest.raises(InternalError, match="memory scope 'texture'"):
        call("alloc_storage", vm, ShapeTuple((1,)), 0, U8, "texture")
    with pytest.raises(InternalError, match="an extent is negative"):
        call("alloc_storage", vm, ShapeTuple((-1, -4096)), 0, U8, "global")
    with pytest.raises(TypeError, match=r"storage: expected vm\.Storage, got None"):
        call("alloc_tensor", None, 0, ShapeTuple((1,)), F32)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'memory_scope'"):
        call("alloc_storage", vm, ShapeTuple((1,)), 0, U8)
    nowhere = VirtualMachine(VMExecutable(), [])
    with pytest.raises(InternalError, match="the machine has 0 devices"):
        call("alloc_storage", nowhere, ShapeTuple((1,)), -1, U8, "global")


def test_ensure_zero_offset():
    x = tensor(np.arange(32, dtype="float32"))
    assert call("ensure_zero_offset", x) is x
    aligned = call("ensure_zero_offset", x.view((4,), byte_offset=64))
    assert np.shares_memory(aligned.array, x.array)
    moved = call("ensure_zero_offset", x.view((4,), byte_offset=4))
    assert not np.shares_memory(moved.array, x.array)
    assert (aligned.byte_offset, moved.byte_offset) == (0, 0)
    assert moved.numpy().tolist() == [1, 2, 3, 4]


def test_reshape_shares_memory_and_keeps_the_offset():
    x = tensor(np.arange(8, dtype="float32")).view((6,), byte_offset=8)
    y = call("reshape", x, ShapeTuple((3, 2)))
    y.array[0, 0] = 9
    assert x.array[0] == 9
    assert y.byte_offset == 8
    assert call("reshape", np.zeros(4), (2, 2)).shape == (2, 2)
    with pytest.raises(InternalError, match="compact memory"):
        call("reshape", Tensor(np.zeros((2, 3)).T), ShapeTuple((6,)))
    with pytest.raises(ValueError, match="an extent is negative, and -1 does not stand for"):
        call("reshape", x, ShapeTuple((-1, 2)))


@pytest.mark.parametrize("name", ["shape_of", "tensor_to_shape", "ensure_zero_offset"])
def test_none_is_a_type_error(name):
    with pytest.raises(TypeError, match="Tensor, got None"):
        call(name, None)


def test_shape_of_a_heap_and_of_an_array():
    heap = call("alloc_shape_heap", None, 3)
    assert call("shape_of", heap) == (3,)
    assert call("shape_of", np.zeros((2, 1))) == (2, 1)


def test_to_device_copies_always():
    x = tensor([1, 2])
    y = call("to_device", x, 1, 1, "global")
    assert y.device == cpu(1)
    assert not np.shares_memory(x.array, y.array)
    with pytest.raises(InternalError, match="cannot allocate on cuda:77"):
        call("to_device", x, 2, 77)
    with pytest.raises(ValueError, match="unknown device type number 50"):
        call("to_device", x, 50, 0)


@pytest.mark.parametrize("machine", [None, 3, "vm", ShapeTuple((1,)), len])
def test_storage_is_allocated_by_a_machine(machine):
    with pytest.raises(TypeError, match=r"alloc_storage: machine: expected %vm, got "):
        call("alloc_storage", machine, ShapeTuple((1,)), 0, U8, "global")
