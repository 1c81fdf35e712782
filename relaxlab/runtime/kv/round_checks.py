"""What ``begin_forward`` refuses, found out before anything changes.

Counterpart: the checks that TVM makes while it is already changing the cache (kv.md 3.5, quirk 13).

Examples
--------
A batch that needs 3 pages when 1 is free is refused with both numbers and a list of who holds the
others; lengths, pages and the index arrays of the round before stay as they were.
"""

from collections.abc import Sequence

from relaxlab.errors import InternalError
from relaxlab.runtime.kv import sequence as sequences
from relaxlab.runtime.kv.cache_config import AttnKind, CacheConfig, RopeMode
from relaxlab.runtime.kv.sliding_window import plan
from relaxlab.runtime.kv.token_tree import check_tree, is_chain

__all__ = [
    "check_committed",
    "check_pages",
    "check_round",
    "check_tree_supported",
    "pages_needed",
    "refuse_latent_tree",
    "split_tree",
]


def check_round(
    table: sequences.SequenceTable,
    config: CacheConfig,
    seq_ids: Sequence[int],
    append_lengths: Sequence[int],
    tree: Sequence[int] | None,
) -> None:
    """Refuse a batch that cannot be computed.

    Raises
    ------
    InternalError
        If ids are unknown or repeated, lengths are not positive, trees are none or cannot be
        had, a tree waits for its commit, rows have no slot at their receiver, or pages lack.
    """
    found = [table.find(seq_id) for seq_id in seq_ids]
    if len(set(seq_ids)) < len(seq_ids):
        twice = sorted({seq_id for seq_id in seq_ids if list(seq_ids).count(seq_id) > 1})
        raise InternalError(
            f"The batch has sequences {twice} more than once, with others between: "
            "give each sequence one append length"
        )
    for seq_id, length in zip(seq_ids, append_lengths, strict=True):
        if length <= 0:
            raise InternalError(
                f"Append with length {length} is not allowed, expected at least 1 for sequence "
                f'"{seq_id}"'
            )
    if tree is None:
        for sequence in found:
            check_committed(sequence)
    else:
        check_tree_supported(config)
        wholes = []
        for sequence, part in zip(found, split_tree(tree, append_lengths), strict=True):
            wholes.append(part if sequence.committed else (*sequence.tree, *part))
            check_tree(wholes[-1], len(wholes) - 1)
        if config.layer_sliding:
            _check_layer_window(found, wholes, config.layer_sliding_window_size)
    for sequence, length in zip(found, append_lengths, strict=True):
        _check_receiver(sequence, length)
    check_pages(table, config, found, append_lengths)


def check_committed(sequence: sequences.Sequence) -> None:
    """Refuse to go on without a tree while one waits for its commit."""
    if not sequence.committed:
        raise InternalError(
            "The batch has no token trees, but the tree of an earlier round has not been "
            "committed: call commit_accepted_token_tree_nodes for sequence "
            f"{sequence.seq_id}"
        )


def check_tree_supported(config: CacheConfig) -> None:
    """Refuse trees for caches that cannot have them."""
    if config.sequence_sliding:
        raise InternalError("Tree attention does not support sliding windows")
    if config.effective_rope_mode is RopeMode.INLINE:
        raise InternalError("Tree attention does not support inline RoPE mode")


def refuse_latent_tree(config: CacheConfig) -> None:
    """Refuse trees for models whose first layer is latent."""
    if config.attn_kinds[0] is AttnKind.MLA:
        raise InternalError("Tree attention is not supported yet for MLA")


def split_tree(tree: Sequence[int], append_lengths: Sequence[int]) -> list[tuple[int, ...]]:
    """Return each sequence's part of the parents.

    Raises
    ------
    InternalError
        If there is not one parent per appended token.
    """
    total = sum(append_lengths)
    if len(tree) != total:
        raise InternalError(
            f'Invalid token tree size. The sum of "append_lengths" is {total} while there are '
            f'{len(tree)} elements in "token_tree_parent_ptr"'
        )
    parts, at = [], 0
    for length in append_lengths:
        parts.append(tuple(tree[at : at + length]))
        at += length
    return parts


def check_pages(
    table: sequences.SequenceTable,
    config: CacheConfig,
    batch: Sequence[sequences.Sequence],
    append_lengths: Sequence[int],
) -> None:
    """Refuse a batch for which there are not enough pages."""
    available = table.tree.pool.available
    for sequence, length in zip(batch, append_lengths, strict=True):
        would = plan(sequence, length, available, sliding=config.sequence_sliding)
        if would.missing:
            pages = pages_needed(table, config, batch, append_lengths)
            table.refuse_full(_need(batch, append_lengths, pages), pages)
        available -= would.net


def pages_needed(
    table: sequences.SequenceTable,
    config: CacheConfig,
    batch: Sequence[sequences.Sequence],
    append_lengths: Sequence[int],
) -> int:
    """Return the least number of free pages with which a batch is accepted.

    A sequence that slides gives pages back while others still take some, so this is searched for.
    """

    def enough(available: int) -> bool:
        for sequence, length in zip(batch, append_lengths, strict=True):
            would = plan(sequence, length, available, sliding=config.sequence_sliding)
            if would.missing:
                return False
            available -= would.net
        return True

    most = sum(
        plan(sequence, length, 0, sliding=False).missing
        for sequence, length in zip(batch, append_lengths, strict=True)
    )
    if not config.sequence_sliding:
        return most
    least = 0
    while least < most:
        middle = (least + most) // 2
        if enough(middle):
            most = middle
        else:
            least = middle + 1
    return least


def _need(batch: Sequence[sequences.Sequence], append_lengths: Sequence[int], pages: int) -> str:
    tokens = ", ".join(
        f"{length} to sequence {sequence.seq_id} ({sequence.length} so far)"
        for sequence, length in list(zip(batch, append_lengths, strict=True))[:4]
    )
    more = ", ..." if len(batch) > 4 else ""
    return f"appending tokens, {tokens}{more}, needs {pages} page{'s' if pages != 1 else ''}"


def _check_receiver(sequence: sequences.Sequence, length: int) -> None:
    send = sequence.send
    if send is None:
        return
    end = sequence.length + length
    if end > send.begin + len(send.slots):
        raise InternalError(
            f'Sequence "{sequence.seq_id}" would have {end} tokens, but its receiver has slots '
            f"for positions {send.begin} to {send.begin + len(send.slots) - 1} only: "
            "prepare more there and mark again"
        )


def _check_layer_window(
    batch: Sequence[sequences.Sequence], trees: Sequence[tuple[int, ...]], window: int
) -> None:
    """Refuse trees where the window of a layer would have to cut into them or their past.

    No kernel has a mask for both. Chains are plain rounds, unless another tree of the batch is
    none; then their new tokens must fit into the window.
    """
    if all(s.committed and is_chain(tree) for s, tree in zip(batch, trees, strict=True)):
        return
    for sequence, tree in zip(batch, trees, strict=True):
        plain = sequence.committed and is_chain(tree)
        past = 0 if plain else sequence.length - len(sequence.tree)
        if past + len(tree) > window:
            raise InternalError(
                f'The token tree of sequence "{sequence.seq_id}" has {len(tree)} nodes after '
                f"{past} tokens, more than the window of {window} tokens that some layers have: "
                "such trees cannot be masked; append a chain instead"
            )
