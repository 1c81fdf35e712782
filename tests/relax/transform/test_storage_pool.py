"""The pool of released storages: which one serves the next tensor."""

from hypothesis import given
from hypothesis import strategies as st

from relaxlab.ir import IntImm, Var
from relaxlab.relax.transform.storage_pool import StorageKey, StoragePool
from relaxlab.runtime.dtype import DataType

FLOAT = StorageKey(0, "global", DataType("float32"))


def size(number):
    return IntImm("int64", number)


def pool_of(*sizes, key=FLOAT):
    """Return a pool and its released storages, in order of release."""
    pool = StoragePool()
    storages = [pool.allocate(key, size(number), 1) for number in sizes]
    for storage in storages:
        pool.release(storage)
    return pool, storages


def test_the_smallest_that_is_large_enough():
    pool, (_, middle, _) = pool_of(64, 32, 128)
    assert pool.request(FLOAT, size(20), 1) is middle
    assert middle.size.value == 32


def test_equal_sizes_are_taken_in_order_of_release():
    pool, (first, second) = pool_of(32, 32)
    assert pool.request(FLOAT, size(32), 1) is first
    assert pool.request(FLOAT, size(32), 1) is second
    assert pool.request(FLOAT, size(32), 1) is None


def test_at_most_sixteen_times_too_large():
    pool, (storage,) = pool_of(160)
    assert pool.request(FLOAT, size(9), 1) is None
    assert pool.request(FLOAT, size(10), 1) is storage


def test_the_largest_that_is_too_small_is_enlarged():
    pool, (_, larger) = pool_of(8, 16)
    assert pool.request(FLOAT, size(100), 2) is larger
    assert (larger.size.value, larger.pending) == (100, 2)


def test_at_most_sixteen_times_too_small():
    pool, (storage,) = pool_of(4)
    assert pool.request(FLOAT, size(100), 1) is None
    assert pool.request(FLOAT, size(64), 1) is storage


def test_device_scope_and_dtype_keep_storages_apart():
    pool, (storage,) = pool_of(32)
    for other in (FLOAT._replace(device=1), FLOAT._replace(scope="shared")):
        assert pool.request(other, size(32), 1) is None
    assert pool.request(FLOAT._replace(dtype=DataType("int32")), size(32), 1) is None
    assert pool.request(FLOAT, size(32), 1) is storage


def test_a_tensor_that_nobody_uses_shares_nothing():
    pool, _ = pool_of(32)
    assert pool.request(FLOAT, size(32), 0) is None


def test_symbolic_sizes_must_be_provably_equal():
    n, m = Var("n", "int64"), Var("m", "int64")
    pool = StoragePool()
    storage = pool.allocate(FLOAT, n * 4 * m, 1)
    pool.release(storage)
    assert pool.request(FLOAT, n * 4, 1) is None
    assert pool.request(FLOAT, size(64), 1) is None
    assert pool.request(FLOAT, 4 * (m * n), 1) is storage


def test_storages_of_a_branch_stay_in_it():
    pool, (outer,) = pool_of(32)
    pool.enter_branch()
    assert pool.request(FLOAT, size(64), 1) is outer  # and is enlarged
    inner = pool.allocate(FLOAT, size(64), 1)
    pool.release(inner)
    pool.release(outer)
    pool.leave_branch()
    pool.enter_branch()
    assert pool.request(FLOAT, size(64), 1) is outer
    assert pool.request(FLOAT, size(64), 1) is None
    pool.release(outer)
    pool.leave_branch()
    assert pool.request(FLOAT, size(64), 1) is outer


@given(st.lists(st.integers(1, 200), max_size=30))
def test_a_storage_never_serves_two_tensors_and_is_always_large_enough(sizes):
    pool, held = StoragePool(), []
    for number in sizes:
        storage = pool.request(FLOAT, size(number), 1) or pool.allocate(FLOAT, size(number), 1)
        assert storage not in held
        assert storage.size.value >= number
        held.append(storage)
        if len(held) > 3:
            pool.release(held.pop(0))
    assert [storage.index for storage in pool.storages] == list(range(len(pool.storages)))
