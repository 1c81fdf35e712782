"""Kernels that move rows: the same in every family as in plain loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxlab.codegen.attention import is_available
from relaxlab.errors import InternalError
from relaxlab.runtime import tensor
from relaxlab.runtime.kv.attention import (
    FAMILIES,
    KernelSpec,
    kernel_arguments,
    mla_kernel_arguments,
    pick,
)
from tests.runtime.kv.dense_attention import DTYPES, TOLERANCE, index

SIZE, HEADS, DIM = 4, 2, 6
SPEC = KernelSpec(HEADS, HEADS, DIM, page_size=SIZE)


@pytest.fixture(params=FAMILIES.names())
def family(request):
    return request.param


def pages(seed=0, dtype="float32"):
    random = np.random.default_rng(seed).standard_normal((5, 2, HEADS, SIZE, DIM))
    return random.astype(DTYPES[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("slots", [[3, -1, 17, 8], [5], [-1], [-1, -1], [], [0, 1, 2, 3]])
def test_append(family, slots, dtype):
    pool, rows = pages(0, dtype), pages(1, dtype).reshape(-1, 2, HEADS, DIM)[: len(slots)]
    want = pool.copy()
    for i, slot in enumerate(slots):
        if slot >= 0:
            want[slot // SIZE, :, :, slot % SIZE] = rows[i]
    pick("transpose_append", SPEC, family)(pool, rows[:, 0], rows[:, 1], index(*slots))
    assert pool.tobytes() == want.tobytes()


@pytest.mark.parametrize("slots", [[3, -1, 17, 8], [5], [-1]])
def test_append_latent(family, slots):
    pool = pages().reshape(5, SIZE, -1)
    rows = pages(1).reshape(-1, pool.shape[2])[: len(slots)]
    want = pool.copy()
    for i, slot in enumerate(slots):
        if slot >= 0:
            want[slot // SIZE, slot % SIZE] = rows[i]
    pick("transpose_append_mla", SPEC, family)(pool, rows, index(*slots))
    assert pool.tobytes() == want.tobytes()


@pytest.mark.parametrize("count", range(SIZE + 1))
def test_copy_of_a_page(family, count):
    pool, want = pages(), pages()
    want[1, :, :, :count] = want[3, :, :, :count]
    pick("copy_single_page", SPEC, family)(pool, 3, 1, count)
    assert pool.tobytes() == want.tobytes()
    latent, want_latent = pages().reshape(5, SIZE, -1), pages().reshape(5, SIZE, -1)
    want_latent[1, :count] = want_latent[3, :count]
    pick("copy_single_page_mla", SPEC, family)(latent, 3, 1, count)
    assert latent.tobytes() == want_latent.tobytes()


MOVES = st.lists(st.tuples(st.integers(0, 19), st.integers(0, 19)), max_size=8)


@pytest.mark.parametrize("name", FAMILIES.names())
@given(MOVES, MOVES)
def test_compaction_in_order(name, first, second):
    """Whatever is moved where: as if one row were moved after the other."""
    pool, want = pages(), pages()
    for source, target in [*first, *second]:
        row = want[source // SIZE, :, :, source % SIZE].copy()
        want[target // SIZE, :, :, target % SIZE] = row
    pairs = np.array([*first, *second], "int32").reshape(-1, 2).T.copy()
    bounds = index(0, len(first), len(first), len(first) + len(second))
    pick("compact_copy", SPEC, name)(pool, bounds, pairs, 3)
    assert pool.tobytes() == want.tobytes()


def test_reading_back(family):
    pool = pages()
    k, v = (np.zeros((2, 3, HEADS, DIM), "float32") for _ in range(2))
    pick("debug_get_kv", SPEC, family)(pool, index(5, 19, 0), k, v, 1)
    for i, slot in enumerate((5, 19, 0)):
        assert (k[1, i] == pool[slot // SIZE, 0, :, slot % SIZE]).all()
        assert (v[1, i] == pool[slot // SIZE, 1, :, slot % SIZE]).all()
    assert not k[0].any()
    latent, rows = pages().reshape(5, SIZE, -1), np.zeros((2, 2, 48 // SIZE * 2), "float32")
    pick("debug_get_kv_mla", SPEC, family)(latent, index(7, 2), rows, 0)
    assert (rows[0] == latent[[1, 0], [3, 2]]).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_merge(family, dtype):
    rng = np.random.default_rng(3)
    outs = [rng.standard_normal((4, 2, 8)).astype(DTYPES[dtype]) for _ in range(2)]
    sums = [np.array(x, "float32") for x in ([[0, -5e4], [3, 90], [-40, -5e4], [-5e4, 1]],
                                             [[1, 2], [3, -90], [-5e4, -5e4], [5, 1]])]  # fmt: skip
    weights = [np.exp2(s.astype(np.float64) - np.maximum(*sums)) for s in sums]
    total = weights[0] + weights[1]
    want = sum(
        o.astype(np.float64) * (w / total)[..., None] for o, w in zip(outs, weights, strict=True)
    )
    want_sum = np.maximum(*sums) + np.log2(total)
    pick("merge_state_inplace", KernelSpec(2, 2, 8, dtype=dtype), family)(
        outs[0], sums[0], outs[1], sums[1]
    )
    np.testing.assert_allclose(outs[0].astype(np.float64), want, atol=TOLERANCE[dtype])
    np.testing.assert_allclose(sums[0], want_sum, atol=1e-5)


def test_kernels_take_tensors_as_well_as_arrays(family):
    pool = tensor(pages())
    rows = tensor(np.ones((1, HEADS, DIM), "float32"))
    pick("transpose_append", SPEC, family)(pool, rows, rows, tensor(index(6)))
    assert (pool.array[1, :, :, 2] == 1).all()


def test_all_arguments_of_a_cache(family):
    arguments = kernel_arguments(SPEC, family)
    assert len(arguments) == 15
    assert arguments[1] is None
    assert arguments[9] == []
    assert all(entry[0] == "tirx" and callable(entry[1]) for entry in arguments[2:9])
    latent = mla_kernel_arguments(KernelSpec(2, 1, 12, v_head_dim=8), family)
    assert len(latent) == 15
    assert latent[0] is None
    assert callable(latent[1])
    with pytest.raises(InternalError, match=r"a latent .* cache takes no fused queries"):
        latent[11]()
    with pytest.raises(InternalError, match="has no token trees"):
        latent[14]()


def test_the_compiled_family_is_among_them():
    assert is_available() == ("llvm" in FAMILIES)
