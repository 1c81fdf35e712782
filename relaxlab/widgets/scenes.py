"""Ready-made runs of a paged cache, each about one thing; every one is a real cache at work.

The scenes of one cache need no model: their kernels compute nothing, since what moves is pages.
Those about serving run the tiny model under the real engine. ``scenes.names()`` lists them,
``scenes.scene(name)`` makes one. There is no TVM counterpart.

Examples
--------
>>> names()[:4]
['prefill', 'decode', 'contiguous', 'page_table']
>>> scene("prefill")
PagePool(a prompt takes pages, event 11 of 11)
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Final

from relaxlab.errors import InternalError
from relaxlab.models.language_model import open_model
from relaxlab.models.paged_llama import PagedLlama
from relaxlab.registry import Registry
from relaxlab.runtime.kv.cache_config import CacheConfig, RopeMode
from relaxlab.runtime.kv.kernel_table import Backend, KernelTable
from relaxlab.runtime.kv.paged_kv_cache import PagedAttentionKVCache
from relaxlab.runtime.tensor import empty
from relaxlab.serve.engine import Engine
from relaxlab.serve.scheduler import Limits
from relaxlab.trace.pool_recorder import PoolRecorder
from relaxlab.widgets.page_pool import PagePool

__all__ = ["names", "scene", "title"]

_TEXT: Final = (
    "The capital of France is Paris , and the capital of Spain is Madrid , but nobody knows what "
    "the capital of the moon would be called if there were one at all"
)
_WORDS: Final = tuple(_TEXT.split())

_Scene = tuple[str, Callable[[], PagePool]]
_SCENES: Registry[_Scene] = Registry("scene", KeyError)


def names() -> list[str]:
    """Return the names of all scenes, in the order in which one would show them."""
    return _SCENES.names()


def title(name: str) -> str:
    """Return what a scene is about, in a sentence."""
    return _SCENES.get(name)[0]


def scene(name: str) -> PagePool:
    """Run a scene and return its view, at the end of the run.

    Raises
    ------
    KeyError
        If there is no such scene; the message names similar ones.
    """
    return _SCENES.get(name)[1]()


def _about(sentence: str) -> Callable[[Callable[[], PagePool]], Callable[[], PagePool]]:
    """Register a scene under its function's name."""

    def register(make: Callable[[], PagePool]) -> Callable[[], PagePool]:
        _SCENES.register(make.__name__.strip("_"), (sentence, make))
        return make

    return register


class _Actor:
    """A cache whose kernels compute nothing, its recorder, and words for its tokens."""

    def __init__(
        self, name: str, pages: int = 16, page_size: int = 4, layers: int = 1, **options: Any
    ) -> None:
        config = CacheConfig(
            reserved_num_seqs=8,
            total_token_capacity=(pages - 1) * page_size,
            prefill_chunk_size=256,
            page_size=page_size,
            num_qo_heads=2,
            num_kv_heads=1,
            qk_head_dim=4,
            layer_end=layers,
            **options,
        )
        kernels = KernelTable(
            merge=(_nothing,),
            split_rotary=_nothing,
            copy_single_page=_nothing,
            debug_get_kv=_nothing,
            compact_copy=_nothing,
            transpose_append_mha=_nothing,
            paged_prefill=Backend.parse(["tirx", _nothing], "paged prefill"),
            paged_decode=Backend.parse(["tirx", _nothing], "paged decode"),
            ragged_prefill=Backend.parse(["tirx", _nothing], "ragged prefill"),
        )
        self.cache = PagedAttentionKVCache(config, kernels)
        self.recorder = PoolRecorder.of(self.cache, name=name)
        self._said: dict[int, int] = {}

    def add(self, *seq_ids: int) -> None:
        """Begin sequences."""
        for seq_id in seq_ids:
            self.cache.add_sequence(seq_id)

    def fork(self, parent: int, child: int, position: int = -1) -> None:
        """Fork, and go on with the parent's words."""
        self.cache.fork_sequence(parent, child, position)
        said = self._said.get(parent, 0)
        self._said[child] = said if position < 0 else position

    def round(self, tokens: dict[int, int], tree: Sequence[int] | None = None) -> None:
        """Run a round: so many tokens for each sequence; a call that is refused is recorded."""
        for seq_id, count in tokens.items():
            first = self._said.get(seq_id, 0)
            words = [_WORDS[(first + at) % len(_WORDS)] for at in range(count)]
            self.recorder.name_tokens(seq_id, words)
            self._said[seq_id] = first + count
        with contextlib.suppress(InternalError):
            self.cache.begin_forward(
                list(tokens), list(tokens.values()), None if tree is None else list(tree)
            )
            self.cache.end_forward()


def _nothing(*arguments: Any) -> None:
    """Compute nothing."""


@_about("A prompt takes pages, not memory for the longest sequence there could be.")
def _prefill() -> PagePool:
    actor = _Actor("a prompt takes pages")
    actor.add(0)
    actor.round({0: 10})
    return PagePool(actor.recorder)


@_about("One token a round: a new page is taken only when the last one is full.")
def _decode() -> PagePool:
    actor = _Actor("one token a round")
    actor.add(0)
    actor.round({0: 6})
    for _ in range(9):
        actor.round({0: 1})
    return PagePool(actor.recorder)


@_about("The same requests in slabs for the longest sequence, and in pages: what is wasted.")
def _contiguous() -> PagePool:
    slabs = _Actor("slabs of 32 tokens", pages=4, page_size=32)
    pages = _Actor("pages of 4 tokens", pages=32, page_size=4)
    for actor in (slabs, pages):
        for seq_id, length in enumerate((5, 9, 3)):
            actor.add(seq_id)
            actor.round({seq_id: length})
        actor.cache.remove_sequence(1)
        for seq_id, length in ((3, 7), (4, 2), (5, 6)):
            with contextlib.suppress(InternalError):
                actor.add(seq_id)
                actor.round({seq_id: length})
    return PagePool(slabs.recorder, pages.recorder)


@_about("Freed pages are used again in the order of a stack, so a page table need not ascend.")
def _page_table() -> PagePool:
    actor = _Actor("a batch and its page tables", pages=12)
    actor.add(0, 1, 2)
    actor.round({0: 5, 1: 9, 2: 3})
    actor.cache.remove_sequence(1)
    actor.add(7)
    actor.round({0: 1, 2: 1, 7: 14})
    return PagePool(actor.recorder)


@_about("Forks: on a page boundary nothing is copied, in mid-page the rows of one page are.")
def _fork() -> PagePool:
    actor = _Actor("fork on a boundary, fork in mid-page")
    actor.add(0)
    actor.round({0: 11})
    actor.fork(0, 1, 8)
    actor.fork(0, 2, 6)
    actor.round({0: 1, 1: 1, 2: 1})
    return PagePool(actor.recorder)


@_about("Taking tokens back: pages return from the tail; in a shared block it is a fork.")
def _popn() -> PagePool:
    actor = _Actor("taking tokens back")
    actor.add(0)
    actor.round({0: 10})
    actor.fork(0, 1)
    actor.round({0: 3, 1: 6})
    actor.cache.popn(1, 5)
    actor.cache.popn(0, 7)
    return PagePool(actor.recorder)


@_about("A sliding window with a sink: tokens fade behind it, whole pages come back.")
def _window() -> PagePool:
    actor = _Actor(
        "a sliding window with a sink",
        pages=8,
        support_sliding_window=True,
        rope_mode=RopeMode.INLINE,
    )
    actor.add(0)
    actor.cache.enable_sliding_window_for_seq(0, 10, 2)
    actor.round({0: 8})
    for _ in range(10):
        actor.round({0: 1})
    return PagePool(actor.recorder)


@_about("A pool that is too small: what is refused changes nothing, and says what it lacks.")
def _refusal() -> PagePool:
    actor = _Actor("refused, and nothing has changed", pages=6)
    actor.add(0, 1)
    actor.round({0: 9, 1: 9})
    actor.round({0: 4, 1: 4})
    actor.cache.remove_sequence(1)
    actor.round({0: 4})
    return PagePool(actor.recorder)


@_about("Page size 4 beside page size 16: fewer, larger pages waste more and share less.")
def _page_size() -> PagePool:
    actors = [_Actor(f"page size {size}", pages=1 + 64 // size, page_size=size) for size in (4, 16)]
    for actor in actors:
        actor.add(0)
        actor.round({0: 21})
        for child, position in ((1, 18), (2, 21)):
            with contextlib.suppress(InternalError):
                actor.fork(0, child, position)
        actor.round({0: 1, 1: 1, 2: 1})
    return PagePool(*(actor.recorder for actor in actors))


@_about("Speculation: a tree of guesses, one path is kept, its rows move together.")
def _speculation() -> PagePool:
    actor = _Actor("a tree of guesses")
    actor.add(0)
    actor.round({0: 6})
    #   0 -> 1 -> 3, 0 -> 2 -> 4 -> 5
    actor.round({0: 6}, tree=[-1, 0, 0, 1, 2, 4])
    actor.cache.commit_accepted_token_tree_nodes([0], [5])
    actor.round({0: 5}, tree=[-1, 0, 1, 1, 0])
    actor.cache.commit_accepted_token_tree_nodes([0], [2])
    return PagePool(actor.recorder)


@_about("A sequence leaves one cache and enters another, layer by layer, locked by a hash.")
def _checkpoint() -> PagePool:
    source, target = _Actor("exports", layers=2), _Actor("imports", pages=10, layers=2)
    source.add(0)
    source.round({0: 6})
    source.fork(0, 1)
    source.round({0: 5, 1: 1})
    metadata = source.cache.get_checkpoint_metadata(0)
    config = source.cache.config
    length = source.cache.get_sequence_length(0)
    pages = -(-length // config.page_size)
    shape = (1, pages, 2, config.num_kv_heads, config.page_size, config.qk_head_dim)
    target.cache.prepare_import(0, metadata)
    for group in range(2):
        rows = empty(shape, str(config.dtype))
        source.cache.export_page_group(0, group, rows)
        target.cache.import_page_group(0, group, rows)
    target.cache.finish_import(0)
    return PagePool(source.recorder, target.recorder)


def _served(
    name: str,
    prompts: Sequence[str],
    *,
    capacity: int,
    policy: str = "lru",
    prefix: str = "radix",
    limits: Limits | None = None,
    max_tokens: int = 6,
) -> PoolRecorder:
    """Return the recorder of the tiny model that answers prompts under the engine."""
    model = open_model("tiny")
    llama = PagedLlama(model, page_size=8, capacity=capacity)
    recorder = PoolRecorder.of_model(
        llama, lambda token: model.tokenizer.decode([token]), name=name
    )
    engine = Engine(
        llama,
        tokenizer=model.tokenizer,
        limits=limits or Limits(),
        policy=policy,
        prefix=prefix,
        observer=recorder.note,
    )
    for prompt in prompts:
        engine.submit(prompt, max_tokens=max_tokens)
        if limits is None:
            engine.run()  # one after the other: what one leaves, the next may find
    engine.run()
    return recorder


@_about("A prefix that is in the cache is not computed again; the last token always is.")
def _prefix_hit() -> PagePool:
    prompts = ["the capital of france is", "the capital of france is", "the capital of spain"]
    return PagePool(_served("a prefix is found again", prompts, capacity=128))


@_about("A radix tree beside hashes of full blocks, as vLLM has them, on the same requests.")
def _prefix_trees() -> PagePool:
    prompts = ["the capital of france is", "the capital of spain", "the capital of france was"]
    return PagePool(
        *(
            _served(f"prefixes by {prefix}", prompts, capacity=128, prefix=prefix, max_tokens=2)
            for prefix in ("radix", "hash")
        )
    )


@_about("Eviction: least recently used beside least frequently used, on the same requests.")
def _eviction() -> PagePool:
    often, once = "the capital of france", "somewhere over the rainbow"
    prompts = [often, often, once, "a quick brown fox jumps", often]
    return PagePool(
        *(
            _served(f"evicts by {policy}", prompts, capacity=48, policy=policy, max_tokens=2)
            for policy in ("lru", "lfu")
        )
    )


@_about("Pressure: requests queue, one gives its pages back, and computes again later.")
def _pressure() -> PagePool:
    prompts = ["a quick brown fox", "somewhere over it", "once upon a time", "the capital"]
    limits = Limits(running=3)
    return PagePool(_served("pressure", prompts, capacity=48, limits=limits, max_tokens=12))
