"""Kernels that move rows and merge results: no attention in them.

Each exists twice: row by row (``reference``), and as one NumPy statement. Counterpart: TVM's
append, copy, compaction, debug and merge kernels.

Examples
--------
>>> pages = np.zeros((2, 2, 1, 4, 1), "float32")
>>> rows = np.ones((1, 1, 1), "float32")
>>> transpose_append(pages, rows, 2 * rows, np.array([5], "int32"))
>>> pages[1, :, 0, 1, 0].tolist()
[1.0, 2.0]
"""

from typing import Any

import numpy as np

from relaxlab.errors import InternalError
from relaxlab.runtime.kv.attention.spec import array

__all__ = [
    "compact_copy",
    "compact_copy_rows",
    "copy_single_page",
    "copy_single_page_mla",
    "copy_single_page_rows",
    "debug_get_kv",
    "debug_get_kv_mla",
    "debug_get_kv_rows",
    "merge_state_inplace",
    "merge_state_inplace_rows",
    "rnn_get",
    "rnn_set",
    "transpose_append",
    "transpose_append_mla",
    "transpose_append_mla_rows",
    "transpose_append_rows",
]


def transpose_append(pages: Any, k_data: Any, v_data: Any, position_map: Any) -> None:
    """Store keys and values ``[tokens, heads, dim]`` in their slots; slot -1 means nowhere."""
    pages, k, v, slots = array(pages), array(k_data), array(v_data), array(position_map)
    if len(slots) == 1:  # the decode round of one sequence: plain indexing is much faster
        if slots[0] >= 0:
            page, row = divmod(int(slots[0]), pages.shape[3])
            pages[page, 0, :, row] = k[0]
            pages[page, 1, :, row] = v[0]
        return
    if slots.min(initial=0) < 0:
        stored = slots >= 0
        slots, k, v = slots[stored], k[: len(stored)][stored], v[: len(stored)][stored]
    page, row = np.divmod(slots, pages.shape[3])
    pages[page, 0, :, row] = k[: len(slots)]
    pages[page, 1, :, row] = v[: len(slots)]


def transpose_append_rows(pages: Any, k_data: Any, v_data: Any, position_map: Any) -> None:
    """Do as :func:`transpose_append`, a number at a time."""
    pages, k, v = array(pages), array(k_data), array(v_data)
    for token, slot in enumerate(array(position_map).tolist()):
        if slot < 0:
            continue
        page, row = divmod(slot, pages.shape[3])
        for head in range(pages.shape[2]):
            for d in range(pages.shape[4]):
                pages[page, 0, head, row, d] = k[token, head, d]
                pages[page, 1, head, row, d] = v[token, head, d]


def transpose_append_mla(pages: Any, kv_data: Any, position_map: Any) -> None:
    """Store latent rows ``[tokens, dim]`` in their slots; slot -1 means nowhere."""
    pages, rows, slots = array(pages), array(kv_data), array(position_map)
    stored = slots >= 0
    page, row = np.divmod(slots[stored], pages.shape[1])
    pages[page, row] = rows[: len(slots)][stored]


def transpose_append_mla_rows(pages: Any, kv_data: Any, position_map: Any) -> None:
    """Do as :func:`transpose_append_mla`, a row at a time."""
    pages, rows = array(pages), array(kv_data)
    for token, slot in enumerate(array(position_map).tolist()):
        if slot >= 0:
            page, row = divmod(slot, pages.shape[1])
            pages[page, row] = rows[token]


def copy_single_page(pages: Any, src_page: int, tgt_page: int, copy_length: int) -> None:
    """Copy the first rows of a page, keys and values of all heads."""
    pages = array(pages)
    pages[tgt_page, :, :, :copy_length] = pages[src_page, :, :, :copy_length]


def copy_single_page_rows(pages: Any, src_page: int, tgt_page: int, copy_length: int) -> None:
    """Do as :func:`copy_single_page`, a row at a time."""
    pages = array(pages)
    for kv in range(2):
        for head in range(pages.shape[2]):
            for row in range(copy_length):
                pages[tgt_page, kv, head, row] = pages[src_page, kv, head, row]


def copy_single_page_mla(pages: Any, src_page: int, tgt_page: int, copy_length: int) -> None:
    """Copy the first rows of a latent page."""
    pages = array(pages)
    pages[tgt_page, :copy_length] = pages[src_page, :copy_length]


def compact_copy(
    pages: Any, copy_length_indptr: Any, copy_src_dst_pos: Any, batch_size: int
) -> None:
    """Move rows from slot to slot within each sequence, in order.

    ``copy_src_dst_pos`` is ``[2, total]``. A slot may be both source and target; sources lie
    behind their targets, so reading everything before writing gives what moving in order gives,
    unless a later source was an earlier target, in which case rows are moved one by one.
    """
    pages, pairs = array(pages), array(copy_src_dst_pos)
    end = int(array(copy_length_indptr)[batch_size])
    source, target = pairs[0, :end], pairs[1, :end]
    if np.intersect1d(source, target).size:
        compact_copy_rows(pages, copy_length_indptr, copy_src_dst_pos, batch_size)
        return
    from_page, from_row = np.divmod(source, pages.shape[3])
    to_page, to_row = np.divmod(target, pages.shape[3])
    pages[to_page, :, :, to_row] = pages[from_page, :, :, from_row]


def compact_copy_rows(
    pages: Any, copy_length_indptr: Any, copy_src_dst_pos: Any, batch_size: int
) -> None:
    """Do as :func:`compact_copy`, a row at a time."""
    pages, starts, pairs = array(pages), array(copy_length_indptr), array(copy_src_dst_pos)
    for b in range(batch_size):
        for i in range(int(starts[b]), int(starts[b + 1])):
            from_page, from_row = divmod(int(pairs[0, i]), pages.shape[3])
            to_page, to_row = divmod(int(pairs[1, i]), pages.shape[3])
            pages[to_page, :, :, to_row] = pages[from_page, :, :, from_row]


def debug_get_kv(pages: Any, position_map: Any, k_data: Any, v_data: Any, layer_id: int) -> None:
    """Copy the keys and values of some slots into entry ``layer_id`` of the outputs."""
    pages, k_data, v_data = map(array, (pages, k_data, v_data))
    page, row = np.divmod(array(position_map), pages.shape[3])
    k_data[layer_id] = pages[page, 0, :, row]
    v_data[layer_id] = pages[page, 1, :, row]


def debug_get_kv_rows(
    pages: Any, position_map: Any, k_data: Any, v_data: Any, layer_id: int
) -> None:
    """Do as :func:`debug_get_kv`, a row at a time."""
    pages, k_data, v_data = map(array, (pages, k_data, v_data))
    for token, slot in enumerate(array(position_map).tolist()):
        page, row = divmod(slot, pages.shape[3])
        for head in range(pages.shape[2]):
            k_data[layer_id, token, head] = pages[page, 0, head, row]
            v_data[layer_id, token, head] = pages[page, 1, head, row]


def debug_get_kv_mla(pages: Any, position_map: Any, kv_data: Any, layer_id: int) -> None:
    """Copy the latent rows of some slots into entry ``layer_id`` of the output."""
    pages = array(pages)
    page, row = np.divmod(array(position_map), pages.shape[1])
    array(kv_data)[layer_id] = pages[page, row]


def merge_state_inplace(v: Any, s: Any, v_other: Any, s_other: Any) -> None:
    """Combine two partial results ``[tokens, heads, dim]`` into the first, by their LSEs."""
    v, s, v_other, s_other = map(array, (v, s, v_other, s_other))
    top = np.maximum(s, s_other)
    mine, other = np.exp2(s - top), np.exp2(s_other - top)
    both = mine + other
    weight, other_weight = (mine / both)[..., None], (other / both)[..., None]
    v[...] = v.astype(np.float32) * weight + v_other.astype(np.float32) * other_weight
    s[...] = top + np.log2(both)


def merge_state_inplace_rows(v: Any, s: Any, v_other: Any, s_other: Any) -> None:
    """Do as :func:`merge_state_inplace`, a row and head at a time."""
    v, s, v_other, s_other = map(array, (v, s, v_other, s_other))
    for token in range(s.shape[0]):
        for head in range(s.shape[1]):
            mine, other = s[token, head], s_other[token, head]
            top = max(mine, other)
            a, b = np.exp2(mine - top), np.exp2(other - top)
            row = v[token, head].astype(np.float32) * a
            row += v_other[token, head].astype(np.float32) * b
            v[token, head] = row / (a + b)
            s[token, head] = top + np.log2(a + b)


def refuse_compact_copy(*_: Any) -> None:
    """Stand in for compaction where there are no token trees."""
    raise InternalError("compact_copy: a latent (MLA) cache has no token trees to compact")


def refuse_split_rotary(*_: Any) -> None:
    """Stand in for split_rotary where queries and keys do not come fused."""
    raise InternalError(
        "split_rotary: a latent (MLA) cache takes no fused queries, keys and values; "
        "append with append_mla_kv and attend with self_attention and cross_attention"
    )


def rnn_get(storage: Any, seq_slot_ids: Any, history_slot_ids: Any, out: Any) -> None:
    """Gather the current values ``[batch, *shape]`` of a recurrent state."""
    array(out)[...] = array(storage)[array(seq_slot_ids), array(history_slot_ids)]


def rnn_set(storage: Any, seq_slot_ids: Any, history_slot_ids: Any, data: Any) -> None:
    """Write ``data`` ``[batch, *shape]`` to the ring position after the current one."""
    rings = array(storage)
    rings[array(seq_slot_ids), (array(history_slot_ids) + 1) % rings.shape[1]] = array(data)
