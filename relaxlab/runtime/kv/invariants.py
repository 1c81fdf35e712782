"""What is always true of a paged cache, as a function that tests and debuggers call.

There is no TVM counterpart. Each broken rule is one sentence with the numbers in it.

Examples
--------
>>> broken = violations(CacheState(num_pages=2, page_size=4, fresh=1, freed=(0, 0)))
>>> broken[0]
'pages [0] are on the free stack more than once'
"""

from collections import Counter

from relaxlab.errors import InternalError
from relaxlab.runtime.kv.paged_kv_cache import PagedAttentionKVCache
from relaxlab.runtime.kv.snapshot import BlockState, CacheState, snapshot

__all__ = ["check", "page_counts", "violations"]


def check(cache: PagedAttentionKVCache) -> None:
    """Raise if something is wrong with a cache.

    Raises
    ------
    InternalError
        Lists every broken rule.
    """
    state = snapshot(cache)
    broken = violations(state)
    owned = cache.blocks.pool.owned()
    for block in state.blocks:
        wrong = [page for page in block.pages if owned.pop(page, None) != block.index]
        if wrong:
            broken.append(f"the pool does not say that block {block.index} has pages {wrong}")
    if owned:
        broken.append(f"the pool gives owners to pages that no block has: {owned}")
    counts = page_counts(state)
    if counts["evictable"] != cache.get_num_evictable_pages():
        broken.append(
            f"the cache says that {cache.get_num_evictable_pages()} pages are evictable, "
            f"but {counts['evictable']} are"
        )
    if broken:
        raise InternalError("a paged cache is broken: " + "; ".join(broken))


def page_counts(state: CacheState) -> dict[str, int]:
    """Return how many pages are free, owned (by sequences in use) and evictable.

    A page is evictable if only retained sequences pass through its block.
    """
    by_number = {block.index: block for block in state.blocks}
    used: set[int] = set()
    for sequence in state.sequences:
        if not sequence.retained:
            used.update(block.index for block in _chain(by_number, sequence.last_block))
    owned = sum(len(block.pages) for block in state.blocks if block.index in used)
    evictable = sum(len(block.pages) for block in state.blocks if block.index not in used)
    return {"free": state.available, "owned": owned, "evictable": evictable}


def violations(state: CacheState) -> list[str]:
    """Return a sentence for each broken rule; none for a sound state."""
    broken: list[str] = []
    by_number = {block.index: block for block in state.blocks}
    _check_pages(state, broken)
    _check_tree(state, by_number, broken)
    for sequence in state.sequences:
        if sequence.last_block not in by_number:
            continue  # said already
        chain = _chain(by_number, sequence.last_block)
        name = f"sequence {sequence.seq_id}"
        total = sum(block.length for block in chain)
        if total != sequence.length:
            broken.append(f"{name} says {sequence.length} tokens, its blocks hold {total}")
        position = 0
        for block in chain:
            if block.start != position:
                broken.append(
                    f"block {block.index} starts at {block.start}, but {name} has {position} "
                    "tokens before it"
                )
            position += block.length
        if chain[-1].references != 1:
            broken.append(
                f"{name} ends in block {chain[-1].index}, which has "
                f"{chain[-1].references} references"
            )
        if len(sequence.tree) > chain[-1].length:
            broken.append(
                f"{name} has a tree of {len(sequence.tree)} nodes in a block of "
                f"{chain[-1].length} tokens"
            )
        if sequence.window != -1 and sequence.last_block_sink != max(
            sequence.sink - (sequence.length - chain[-1].length), 0
        ):
            broken.append(
                f"{name} has {sequence.last_block_sink} sink tokens in its last block, expected "
                f"those of {sequence.sink} that are not before it"
            )
    return broken


def _check_pages(state: CacheState, broken: list[str]) -> None:
    free = Counter(state.freed)
    twice = sorted(page for page, count in free.items() if count > 1)
    if twice:
        broken.append(f"pages {twice} are on the free stack more than once")
    held = Counter(page for block in state.blocks for page in block.pages)
    shared = sorted(page for page, count in held.items() if count > 1)
    if shared:
        broken.append(f"pages {shared} belong to more than one block")
    both = sorted(set(free) & set(held))
    if both:
        broken.append(f"pages {both} are free and belong to a block")
    wrong = sorted(page for page in {*free, *held} if not 0 <= page < state.fresh)
    if wrong:
        broken.append(f"pages {wrong} were never taken, but are freed or held")
    counts = page_counts(state) if not _dangling(state) else None
    if counts is not None and sum(counts.values()) != state.num_pages:
        broken.append(
            f"free, owned and evictable pages are {counts}, together not {state.num_pages}"
        )


def _check_tree(state: CacheState, by_number: dict[int, BlockState], broken: list[str]) -> None:
    broken.extend(_dangling(state))
    children = Counter(block.parent for block in state.blocks)
    ends = Counter(sequence.last_block for sequence in state.sequences)
    if set(state.free_blocks) & set(by_number):
        broken.append("the number of a block that exists is free")
    for block in by_number.values():
        name = f"block {block.index}"
        expected = children[block.index] + ends[block.index]
        if block.references != expected:
            broken.append(f"{name} counts {block.references} references, there are {expected}")
        if not expected:
            broken.append(f"{name} is referred to by nothing")
        rows = block.length - block.sink + block.offset
        if block.length < block.sink:
            broken.append(f"{name} has {block.length} tokens, less than its sink of {block.sink}")
        pages = -(-rows // state.page_size) if block.length else 0
        if len(block.pages) != pages:
            broken.append(
                f"{name} has {len(block.pages)} pages, its {block.length} tokens need {pages}"
            )
        if children[block.index] and (not block.length or block.length % state.page_size):
            broken.append(f"{name} is shared and has {block.length} tokens: no full pages")
        if ends[block.index] > 1:
            broken.append(f"{ends[block.index]} sequences end in {name}")


def _dangling(state: CacheState) -> list[str]:
    known = {-1, *(block.index for block in state.blocks)}
    broken = [
        f"block {block.index} follows block {block.parent}, which does not exist"
        for block in state.blocks
        if block.parent not in known
    ]
    broken += [
        f"sequence {sequence.seq_id} ends in block {sequence.last_block}, which does not exist"
        for sequence in state.sequences
        if sequence.last_block not in known - {-1}
    ]
    return broken


def _chain(by_number: dict[int, BlockState], last: int) -> list[BlockState]:
    chain: list[BlockState] = []
    number = last
    while number in by_number and len(chain) <= len(by_number):
        chain.append(by_number[number])
        number = by_number[number].parent
    chain.reverse()
    return chain
