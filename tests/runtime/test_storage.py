"""Allocators and storages: sizes, reuse, and memory that lives as long as it is seen."""

import gc

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from relaxlab.errors import InternalError
from relaxlab.runtime import DataType, ShapeTuple, cpu, cuda, get_global_func
from relaxlab.runtime.storage import NaiveAllocator, PooledAllocator, allocator_for

F32 = DataType("float32")


class Pool(RuleBasedStateMachine):
    """A pooled allocator beside a model: sizes, owners, and the order of the free blocks."""

    storages = Bundle("storages")

    def __init__(self):
        super().__init__()
        self.pool = PooledAllocator(cpu())
        self.free: dict[int, list[int]] = {}  # size -> addresses, the last freed last
        self.used: dict[int, int] = {}  # address of a live block with bytes -> size
        self.holders: list[dict] = []

    @rule(target=storages, nbytes=st.integers(0, 20_000))
    def allocate(self, nbytes):
        storage = self.pool.storage(nbytes)
        size = -(-nbytes // 4096) * 4096
        assert storage.nbytes == size
        whole = storage.tensor(ShapeTuple((size,)), DataType("uint8"))
        address = whole.data_ptr()
        assert address % 64 == 0
        if size:
            expected = self.free.get(size)
            if expected:
                assert address == expected.pop(), "the last freed block of that size comes first"
            assert address not in self.used, "one block was given out twice"
            self.used[address] = size
        mark = np.uint8(len(self.holders) % 251)
        whole.array[...] = mark
        holder = {
            "storage": storage,
            "views": [],
            "address": address,
            "size": size,
            "mark": mark,
        }
        self.holders.append(holder)
        return holder

    @rule(holder=storages, data=st.data())
    def cut(self, holder, data):
        if holder["size"]:
            offset = data.draw(st.integers(0, holder["size"] // 4 - 1)) * 4
            count = data.draw(st.integers(0, (holder["size"] - offset) // 4))
            view = holder["storage"].tensor(ShapeTuple((count,)), F32, offset)
            assert view.byte_offset == offset
            # a NumPy view of a view keeps the block alive too
            holder["views"].append(view.array[: count // 2])

    @rule(holder=consumes(storages))
    def drop(self, holder):
        self.holders.remove(holder)
        last = holder["views"].pop() if holder["views"] else None
        address, size = holder["address"], holder["size"]
        before = self.pool.free_blocks().count(size)
        holder.clear()
        if last is not None:
            assert self.pool.free_blocks().count(size) == before, "a view is still alive"
        del last
        assert self.pool.free_blocks().count(size) == before + 1
        if size:
            self.used.pop(address)
            self.free.setdefault(size, []).append(address)

    @rule()
    def clear(self):
        self.pool.clear()
        self.free.clear()
        assert self.pool.free_blocks() == []

    @invariant()
    def nobody_wrote_into_anothers_memory(self):
        for holder in self.holders:
            whole = holder["storage"].tensor(ShapeTuple((holder["size"],)), DataType("uint8"))
            assert (whole.array == holder["mark"]).all()


TestPool = Pool.TestCase


@pytest.fixture(autouse=True)
def _no_cycles_needed():
    gc.disable()
    yield
    gc.enable()


def test_the_naive_allocator_gives_exactly_what_is_asked_for():
    storage = NaiveAllocator(cpu()).storage(24)
    assert storage.nbytes == 24
    storage.tensor(ShapeTuple((6,)), F32)
    with pytest.raises(InternalError, match="needs 4 bytes, but the region size of the storage"):
        storage.tensor(ShapeTuple((1,)), F32, 24)
    assert repr(storage) == "Storage(24 bytes on cpu:0)"


def test_the_pool_gives_whole_pages():
    storage = PooledAllocator(cpu()).storage(24)
    assert storage.tensor(ShapeTuple((1,)), F32, 4092).shape == (1,)
    with pytest.raises(InternalError, match="offset 4092"):
        storage.tensor(ShapeTuple((2,)), F32, 4092)


@pytest.mark.parametrize("dtype", ["int4", "float4_e2m1fn", "float6_e2m3fn", "void", "int24"])
def test_types_without_whole_bytes_are_refused(dtype):
    storage = NaiveAllocator(cpu()).storage(64)
    with pytest.raises(InternalError, match="cannot allocate a tensor of dtype"):
        storage.tensor(ShapeTuple((1,)), DataType(dtype))


@pytest.mark.parametrize(("dtype", "shape"), [("uint1", (8,)), ("float32x4", (2,)), ("bool", ())])
def test_other_types_fit(dtype, shape):
    storage = NaiveAllocator(cpu()).storage(64)
    x = storage.tensor(ShapeTuple(shape), DataType(dtype))
    assert (x.dtype, x.shape) == (dtype, shape)


def test_bad_places_are_refused():
    storage = NaiveAllocator(cpu()).storage(64)
    with pytest.raises(InternalError, match="offset -4"):
        storage.tensor(ShapeTuple((1,)), F32, -4)
    with pytest.raises(InternalError, match="an extent is negative"):
        storage.tensor(ShapeTuple((-1,)), F32)
    with pytest.raises(InternalError, match="region size"):
        storage.tensor(ShapeTuple((2**62,)), F32)
    with pytest.raises(InternalError, match="the size is negative"):
        NaiveAllocator(cpu()).storage(-1)
    with pytest.raises(InternalError, match="cannot allocate on cuda"):
        PooledAllocator(cuda(999))


def test_running_out_of_memory_empties_the_pool_and_then_says_so():
    pool = PooledAllocator(cpu())
    del (spare := [pool.storage(1)])[0]
    assert pool.free_blocks() == [4096]
    with pytest.raises(MemoryError, match=f"cannot allocate {2**60} bytes on cpu:0"):
        pool.storage(2**60)
    assert pool.free_blocks() == []
    assert spare == []


def test_allocators_are_shared_by_the_process_and_cleared_together():
    pool = allocator_for(cpu(), "pooled")
    assert allocator_for(cpu(), "pooled") is pool
    assert allocator_for(cpu(), "naive") is not pool
    pool.storage(10_000_000)
    assert pool.free_blocks()
    get_global_func("vm.builtin.memory_manager.clear")()
    assert pool.free_blocks() == []


def test_a_view_handed_to_numpy_keeps_the_memory():
    pool = PooledAllocator(cpu())
    array = np.from_dlpack(pool.storage(16).tensor(ShapeTuple((4,)), F32))
    array[...] = 3
    other = pool.storage(16).tensor(ShapeTuple((4,)), F32)
    other.array[...] = 5
    assert array.tolist() == [3, 3, 3, 3]
    assert pool.free_blocks() == []
