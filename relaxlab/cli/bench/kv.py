"""Rows of the paged cache: page operations at a million pages, beginning a round, attention.

A page operation must cost the pages it touches, whatever the size of the pool, so its peer is the
same operation in a pool of a thousand pages. ``begin_forward_b8`` is the round that generation
repeats: eight sequences, one token each. Our index arrays are written when something first asks
for them, TVM's at once; ``begin_forward_b8_arrays`` has both with the arrays in it.

Examples
--------
>>> from relaxlab.cli.bench.kv import rows
"""

import time
from collections.abc import Callable, Iterator
from typing import Final

from relaxlab.cli.bench import attention
from relaxlab.cli.bench.rows import Bar, Row
from relaxlab.cli.bench.tvm_peer import run_tvm
from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.kv.cache_config import CacheConfig
from relaxlab.runtime.kv.kernel_table import KernelTable
from relaxlab.runtime.kv.paged_kv_cache import PagedAttentionKVCache
from relaxlab.runtime.packed_func import get_global_func

__all__ = ["rows"]

_PAGE: Final = 16
_BATCH: Final = 8
_TOUCHED: Final = 8
_ROUNDS: Final = 60
_REPEATS: Final = 40

_TVM: Final = """
import tvm_ffi
call = lambda name: tvm.get_global_func("vm.builtin." + name)
nothing = tvm_ffi.convert(lambda *arguments: None)
shape = tvm_ffi.Shape
backends = [["tirx", nothing]] * 7
cache = call("paged_attention_kv_cache_create")(
    shape([8, 32768, 512, 16, 0]), shape([0, 1]), 9, 3, 64, 64, shape([0]), False, 1, 1.0, 1e4,
    None, tvm.runtime.empty((), "float32"), nothing, None, *backends, [], [nothing],
    nothing, nothing, nothing, nothing)
begin, end = call("kv_state_begin_forward"), call("kv_state_end_forward")
popn = call("kv_state_popn")
positions = call("attention_kv_cache_get_query_positions")
for i in range(8):
    call("kv_state_add_sequence")(cache, i)
    begin(cache, shape([i]), shape([100 + 13 * i])); end(cache)
ids, ones = shape(range(8)), shape([1] * 8)
times = []
for _ in range(REPEATS):
    start = time.perf_counter()
    for _ in range(ROUNDS):
        begin(cache, ids, ones)
        if ARRAYS: positions(cache)
        end(cache)
    times.append((time.perf_counter() - start) / ROUNDS)
    for i in range(8): popn(cache, i, ROUNDS)
result(min(times) * 1e6)
"""


def rows() -> Iterator[Row]:
    """Yield the rows of ``relaxlab bench kv``."""
    for arrays, name in ((False, "begin_forward_b8"), (True, "begin_forward_b8_arrays")):
        script = _TVM.replace("REPEATS", str(_REPEATS)).replace("ROUNDS", str(_ROUNDS))
        peer = run_tvm(script.replace("ARRAYS", str(arrays)))
        bar = None if arrays else Bar("<=", 2.0)
        yield Row(name, "us", _begin_forward(arrays=arrays) * 1e6, "tvm", peer, bar)
    few, many = _half_full(1_000), _half_full(1_000_000)
    for name, operation in (
        ("page_allocate_1m", _allocate),
        ("page_fork_1m", _fork),
        ("page_evict_1m", _evict),
    ):
        ours, peer = _side_by_side(operation, many, few)
        yield Row(name, "us", ours * 1e6, "1k pages", peer * 1e6, Bar("<=", 1.5))
    yield from attention.rows()


def _nothing(*_: object) -> None:
    """Stand in for a kernel: only the bookkeeping is timed."""


def _cache(tokens: int, head_dim: int = 64) -> PagedAttentionKVCache:
    return PagedAttentionKVCache(
        CacheConfig(
            reserved_num_seqs=_BATCH,
            total_token_capacity=tokens,
            prefill_chunk_size=tokens,
            page_size=_PAGE,
            num_qo_heads=1,
            num_kv_heads=1,
            qk_head_dim=head_dim,
        ),
        KernelTable(
            merge=(_nothing,),
            split_rotary=_nothing,
            copy_single_page=_nothing,
            debug_get_kv=_nothing,
            compact_copy=_nothing,
        ),
    )


def _begin_forward(*, arrays: bool) -> float:
    """Seconds of one decode round of eight sequences, without its attention."""
    cache = _cache(32768)
    begin = get_global_func("vm.builtin.kv_state_begin_forward")
    end = get_global_func("vm.builtin.kv_state_end_forward")
    positions = get_global_func("vm.builtin.attention_kv_cache_get_query_positions")
    for seq_id in range(_BATCH):
        cache.add_sequence(seq_id)
        cache.begin_forward([seq_id], [100 + 13 * seq_id])
        cache.end_forward()
    ids, ones = ShapeTuple(range(_BATCH)), ShapeTuple([1] * _BATCH)
    times = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        for _ in range(_ROUNDS):
            begin(cache, ids, ones)
            if arrays:
                positions(cache)
            end(cache)
        times.append((time.perf_counter() - start) / _ROUNDS)
        for seq_id in range(_BATCH):
            cache.popn(seq_id, _ROUNDS)
    return min(times)


def _half_full(pages: int) -> PagedAttentionKVCache:
    """Return a cache whose pool is half used, in several sequences, with pages given back."""
    cache = _cache((pages - 1) * _PAGE, head_dim=1)
    share = pages // 2 // _BATCH * _PAGE
    for seq_id in range(_BATCH):
        cache.add_sequence(seq_id)
        cache.begin_forward([seq_id], [share])
        cache.end_forward()
    cache.popn(0, share // 2)
    cache.add_sequence(100)
    cache.begin_forward([100], [_TOUCHED * _PAGE - 3])
    cache.end_forward()
    return cache


def _allocate(cache: PagedAttentionKVCache) -> None:
    cache.add_sequence(101)
    cache.begin_forward([101], [_TOUCHED * _PAGE])
    cache.end_forward()
    cache.remove_sequence(101)


def _fork(cache: PagedAttentionKVCache) -> None:
    cache.fork_sequence(100, 101, _TOUCHED * _PAGE - 5)
    cache.remove_sequence(101)


def _evict(cache: PagedAttentionKVCache) -> None:
    cache.fork_sequence(100, 101, _TOUCHED * _PAGE - 5)
    cache.retain_sequence(101)
    cache.remove_sequence(101, cause="evicted", reason="the only retained sequence")


def _side_by_side(
    operation: Callable[[PagedAttentionKVCache], None],
    many: PagedAttentionKVCache,
    few: PagedAttentionKVCache,
) -> tuple[float, float]:
    """Time an operation on two caches in turn, so that a busy moment hits both; return the best."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(_REPEATS):
        for cache, results in zip((many, few), times, strict=True):
            start = time.perf_counter()
            for _ in range(_ROUNDS):
                operation(cache)
            results.append((time.perf_counter() - start) / _ROUNDS)
    return min(times[0]), min(times[1])
