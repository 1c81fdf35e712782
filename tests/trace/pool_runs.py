"""Random use of a paged cache whose kernels do nothing, recorded with names for all tokens."""

import contextlib
import warnings
from random import Random

from relaxlab.errors import InternalError
from relaxlab.relax.exec_builder import ExecBuilder
from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.kv.cache_config import CacheConfig
from relaxlab.runtime.kv.kernel_table import KernelTable
from relaxlab.runtime.kv.misuse import KVCacheWarning
from relaxlab.runtime.kv.paged_kv_cache import PagedAttentionKVCache
from relaxlab.trace.pool_recorder import PoolRecorder

__all__ = ["new_cache", "paged_program", "random_run", "story"]


def nothing(*arguments):
    """Compute nothing."""


def new_cache(pages=12, page_size=4, *, window=False):
    """Return an empty cache of one layer."""
    config = CacheConfig(
        reserved_num_seqs=4,
        total_token_capacity=(pages - 1) * page_size,
        prefill_chunk_size=64,
        page_size=page_size,
        num_qo_heads=4,
        num_kv_heads=2,
        qk_head_dim=8,
        support_sliding_window=window,
    )
    kernels = KernelTable(
        merge=(nothing,),
        split_rotary=nothing,
        copy_single_page=nothing,
        debug_get_kv=nothing,
        compact_copy=nothing,
    )
    return PagedAttentionKVCache(config, kernels)


def random_run(seed, operations=60, limit=None):
    """Return a cache and its recorder after random calls, refused ones included."""
    random = Random(seed)
    window = random.random() < 0.3
    cache = new_cache(random.choice([6, 12, 40]), random.choice([1, 2, 4, 5]), window=window)
    recorder = PoolRecorder.of(cache)
    recorder.limit = limit
    names = (f"t{number}" for number in range(10**9))
    for _ in range(operations):
        _operate(random, cache, recorder, names, window)
    return cache, recorder


def _operate(random, cache, recorder, names, window):
    ids = cache.sequence_ids()
    some = random.choice(ids) if ids else 0
    kind = random.choice(
        ["add", "forward", "forward", "forward", "fork", "fork", "popn", "remove", "retain"]
        + ["revive", "window", "clear"] * (random.random() < 0.2)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KVCacheWarning)
        try:
            match kind:
                case "add":
                    cache.add_sequence(random.randrange(12))
                case "forward":
                    _forward(random, cache, recorder, names, ids)
                case "fork":
                    length = cache.get_sequence_length(some) if ids else 0
                    cache.fork_sequence(some, random.randrange(12), random.randint(-1, length + 1))
                case "popn":
                    cache.popn(some, random.randint(0, 9))
                case "remove":
                    cache.remove_sequence(random.randrange(12))
                case "retain":
                    cache.retain_sequence(some)
                case "revive":
                    cache.revive_sequence(some)
                case "window":
                    if window:
                        cache.enable_sliding_window_for_seq(some, random.randint(3, 9), 2)
                case _:
                    if random.random() < 0.1:
                        cache.clear()
        except InternalError:
            pass  # refused: nothing has changed, and the recording says so


def _forward(random, cache, recorder, names, ids):
    batch = random.sample(ids, min(len(ids), random.randint(1, 3)))
    if not batch:
        return
    lengths = [random.choice([1, 1, 2, 5, 9]) for _ in batch]
    for seq_id, length in zip(batch, lengths, strict=True):
        recorder.name_tokens(seq_id, [next(names) for _ in range(length)])
    tree = None
    if random.random() < 0.2 and len(batch) == 1 and not cache.config.support_sliding_window:
        tree = [-1] + [random.randrange(number) for number in range(1, lengths[0])]
    cache.begin_forward(batch, lengths, tree)
    cache.end_forward()
    if tree is not None:
        cache.commit_accepted_token_tree_nodes(batch, [random.randrange(-1, lengths[0])])


def story():
    """Return the recorder of a short story: two forks, a copied page, a shared one, a removal."""
    cache = new_cache(16)
    recorder = PoolRecorder.of(cache, name="story")
    words = ["The", "capital", "of", "France", "is", "Paris", ",", "and", "the"]
    cache.add_sequence(0)
    recorder.name_tokens(0, words)
    cache.begin_forward([0], [9])
    cache.end_forward()
    cache.fork_sequence(0, 1, 6)
    cache.fork_sequence(0, 2)
    for seq_id, word in enumerate(["x", "y", "z"]):
        recorder.name_tokens(seq_id, [word])
    cache.begin_forward([0, 1, 2], [1, 1, 1])
    cache.end_forward()
    with contextlib.suppress(InternalError):
        cache.fork_sequence(77, 3)
    cache.remove_sequence(1)
    cache.retain_sequence(2)
    return recorder


def paged_program(tokens=2):
    """Return a program that is given a cache: a prompt, a fork, and tokens in a called function.

    ``main`` calls ``decode`` once a token, so steps that change the cache lie in two functions
    between steps that do not; at the end one sequence leaves, and another shrinks.
    """
    ib = ExecBuilder()

    def call(name, *args):
        words = [
            ib.convert_constant(ShapeTuple(one)) if isinstance(one, list) else one for one in args
        ]
        ib.emit_call(f"vm.builtin.kv_state_{name}", [ib.r(0), *words])

    with ib.function("decode", num_inputs=1, param_names=["cache"]):
        call("begin_forward", [0, 1], [1, 1])
        call("end_forward")
        ib.emit_call("vm.builtin.make_tuple", [ib.imm(1)], dst=1)
        ib.emit_ret(ib.r(1))
    with ib.function("main", num_inputs=1, param_names=["cache"]):
        call("add_sequence", ib.imm(0))
        call("begin_forward", [0], [6])
        call("end_forward")
        ib.emit_call("vm.builtin.make_tuple", [ib.imm(7)], dst=1)
        call("fork_sequence", ib.imm(0), ib.imm(1), ib.imm(-1))
        for _ in range(tokens):
            ib.emit_call("decode", [ib.r(0)], dst=1)
        call("popn", ib.imm(1), ib.imm(3))
        call("remove_sequence", ib.imm(0))
        ib.emit_ret(ib.r(1))
    return ib.get()
