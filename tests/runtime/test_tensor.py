"""Tensors: what is copied, what is shared, what is refused; DLPack in both directions."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxlab.errors import InternalError
from relaxlab.runtime import DataType, ShapeTuple, Tensor, cpu, cuda, empty, from_dlpack, tensor

PLAIN = ["int8", "int16", "int32", "int64", "uint8", "uint64", "float16", "float32", "float64"]
NARROW = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e8m0fnu"]


# ---- what is copied and what is shared -------------------------------------------------------


def test_tensor_copies_and_wrapping_does_not():
    array = np.zeros(3, "float32")
    copy, wrapped = tensor(array), Tensor(array)
    array[0] = 5
    assert copy.numpy().tolist() == [0, 0, 0]
    assert wrapped.numpy().tolist() == [5, 0, 0]


def test_numpy_returns_a_copy_and_array_the_memory():
    x = tensor([1.0, 2.0])
    x.numpy()[0] = 9
    assert x.array.tolist() == [1, 2]
    x.array[0] = 9
    assert x.numpy().tolist() == [9, 2]
    assert np.shares_memory(np.asarray(x), x.array)
    assert not np.shares_memory(np.array(x), x.array)
    assert np.asarray(x, dtype="int32").tolist() == [9, 2]


def test_copyfrom_converts_and_checks_the_shape():
    x = empty((2, 2), "float32")
    assert x.copyfrom([[1, 2], [3, 4]]) is x
    assert x.copyfrom(tensor([[5, 6], [7, 8]], dtype="int64")).numpy().tolist() == [[5, 6], [7, 8]]
    with pytest.raises(ValueError, match=r"expected an array of shape \(2, 2\), got shape \(4,\)"):
        x.copyfrom(np.zeros(4))
    assert x.numpy().tolist() == [[5, 6], [7, 8]]


def test_copyto():
    x = tensor([1, 2])
    other = x.copyto(cpu())
    assert other is not x
    assert not np.shares_memory(other.array, x.array)
    assert x.copyto(empty((2,), "int64")).numpy().tolist() == [1, 2]


@pytest.mark.parametrize("dtype", [*PLAIN, *NARROW, "bool", "int4", "uint4"])
def test_every_element_type_makes_a_tensor(dtype):
    x = empty((2, 3), dtype)
    assert x.dtype == dtype
    assert x.shape == (2, 3)
    assert type(x.shape) is ShapeTuple
    assert x.nbytes == (6 * DataType(dtype).bits + 7) // 8
    assert f'dtype="{dtype}"' in repr(x)
    assert tensor(x.numpy()).dtype == dtype


def test_vector_types_have_their_lanes_last_in_memory():
    x = empty((2,), "float32x4")
    assert x.shape == (2,)
    assert x.array.shape == (2, 4)
    assert x.strides == (1,)
    assert x.nbytes == 32
    assert x.copyto(cpu()).dtype == "float32x4"


def test_facts_about_a_tensor():
    x = tensor(np.zeros((2, 3, 4), "int16"))
    assert (x.ndim, x.size, x.nbytes, x.strides) == (3, 24, 48, (12, 4, 1))
    assert x.is_contiguous()
    assert not Tensor(x.array[:, ::2]).is_contiguous()
    assert x.same_as(x)
    assert not x.same_as(Tensor(x.array))
    assert x.data_ptr() == x.array.ctypes.data


@pytest.mark.parametrize("bad", [np.array(["a"]), np.array([object()]), np.array([1], ">i4")])
def test_wrapping_refuses_elements_that_no_tensor_has(bad):
    with pytest.raises(TypeError, match=r"native byte order|no tensor element type"):
        Tensor(bad)


def test_another_byte_order_is_converted_when_copying():
    assert tensor(np.array([1, 256], ">i4")).numpy().tolist() == [1, 256]


def test_a_device_without_an_allocator_is_named():
    with pytest.raises(InternalError, match="cannot allocate on cuda:99: none found"):
        tensor([1], cuda(99))
    with pytest.raises(InternalError, match="memory scope 'texture' on cpu:0"):
        empty((1,), "float32", cpu(), "texture")
    with pytest.raises(ValueError, match="negative extent"):
        empty((2, -1))


# ---- views -----------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 4), max_size=3), st.lists(st.integers(0, 4), max_size=3))
def test_a_view_shows_a_prefix_or_is_refused(old, new):
    x = tensor(np.arange(np.prod(old, dtype=int)).reshape(old))
    if np.prod(new, dtype=int) <= x.size:
        view = x.view(new)
        assert view.shape == tuple(new)
        assert view.array.ravel().tolist() == x.array.ravel()[: view.size].tolist()
    else:
        with pytest.raises(ValueError, match="bytes"):
            x.view(new)


def test_a_view_can_change_type_and_begin_later():
    x = tensor(np.arange(4, dtype="int32"))
    view = x.view((2,), "int64", 0)
    assert view.numpy().tolist() == [1 << 32, (3 << 32) + 2]
    later = x.view((2,), byte_offset=8)
    assert (later.byte_offset, later.numpy().tolist()) == (8, [2, 3])
    later.array[0] = 9
    assert x.array[2] == 9
    with pytest.raises(ValueError, match="needs 8 bytes at offset 12, but the memory has 16"):
        x.view((2,), byte_offset=12)
    with pytest.raises(ValueError, match="compact"):
        Tensor(x.array[::2]).view((1,))


@pytest.mark.parametrize(("shape", "size"), [((2, 2), 16), ((), 4), ((0, 3), 0)])
def test_from_bytes(shape, size):
    x = Tensor.from_bytes(bytes(range(size)), shape, "float32")
    assert x.array.tobytes() == bytes(range(size))
    assert x.array.flags.writeable
    with pytest.raises(ValueError, match="bytes"):
        Tensor.from_bytes(bytes(size + 1), shape, "float32")


# ---- DLPack ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*PLAIN, *NARROW, "bool"])
def test_dlpack_shares_memory_both_ways_and_can_be_written(dtype):
    x = tensor(np.ones((2, 3), "int8"), dtype=dtype)
    y = from_dlpack(x)
    assert y.dtype == dtype
    assert y.shape == x.shape
    assert np.shares_memory(x.array, y.array)
    y.array[0, 0] = 0.5 if dtype != "bool" else False
    assert x.array[0, 0] == y.array[0, 0] != x.array[1, 1]


@pytest.mark.parametrize("dtype", PLAIN)
def test_numpy_takes_a_tensor_and_gives_one(dtype):
    x = tensor([1, 2], dtype=dtype)
    array = np.from_dlpack(x)
    array[0] = 7
    assert x.array[0] == 7
    y = from_dlpack(array)
    y.array[1] = 8
    assert x.array.tolist() == [7, 8]


def test_a_shared_tensor_outlives_its_maker():
    y = from_dlpack(tensor(np.arange(1000)))
    narrow = from_dlpack(tensor(np.arange(100), dtype="bfloat16"))
    assert y.numpy().tolist() == list(range(1000))
    assert narrow.array[99] == 99


def test_strides_survive():
    x = Tensor(np.arange(6).reshape(2, 3).T)
    assert from_dlpack(x).strides == x.strides


def test_read_only_memory_stays_read_only():
    array = np.zeros(2)
    array.flags.writeable = False
    assert not from_dlpack(array).array.flags.writeable


class Legacy:
    """An exporter from before DLPack 1.0: it knows no max_version and no read-only flag."""

    def __init__(self, x):
        self.x = x

    def __dlpack__(self, stream=None):
        return self.x.__dlpack__()

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_exporter_of_the_old_kind_is_writable(dtype):
    x = tensor([1, 2], dtype=dtype)
    y = from_dlpack(Legacy(x))
    assert y.dtype == dtype
    y.array[0] = 5
    assert x.array[0] == 5


def test_what_dlpack_cannot_share_is_refused():
    with pytest.raises(BufferError, match="'float32x4' without a copy"):
        empty((1,), "float32x4").__dlpack__()
    with pytest.raises(BufferError, match="'int4' without a copy"):
        empty((1,), "int4").__dlpack__()

    class Elsewhere:
        def __dlpack_device__(self):
            return (2, 0)

    with pytest.raises(BufferError, match=r"on the CPU \(device type 1\), got \(2, 0\)"):
        from_dlpack(Elsewhere())


def test_a_used_capsule_is_refused():
    capsule = np.zeros(2).__dlpack__()

    class Twice:
        def __dlpack__(self, **_):
            return capsule

        def __dlpack_device__(self):
            return (1, 0)

    from_dlpack(Twice())
    with pytest.raises(BufferError, match="unused DLPack capsule"):
        from_dlpack(Twice())


def test_ml_dtypes_arrays_are_tensors():
    x = Tensor(np.zeros(2, ml_dtypes.bfloat16))
    assert x.dtype == "bfloat16"
