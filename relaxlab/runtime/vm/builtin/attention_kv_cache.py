"""Builtins of attention caches: attention itself, trees, windows, looking in, export and import.

The scale comes right after the layer; outputs are filled in place. Counterpart: TVM's
``vm.builtin.attention_kv_cache_*`` (kv.md 2.2); those of the legacy cache are in
``legacy_kv_cache``.

Examples
--------
>>> from relaxlab.runtime.packed_func import get_global_func
>>> get_global_func("vm.builtin.attention_kv_cache_get_num_available_pages")(None)
Traceback (most recent call last):
TypeError: ...: cache: expected relax.vm.AttentionKVCache, got None
"""

from typing import Any

from relaxlab.runtime.container import Array
from relaxlab.runtime.kv.kv_state import AttentionKVCache
from relaxlab.runtime.kv.paged_kv_cache import PagedAttentionKVCache
from relaxlab.runtime.tensor import Tensor
from relaxlab.runtime.vm.builtin.table import (
    as_float,
    as_int,
    as_shape,
    as_string,
    as_tensor,
    builtin,
    refusal,
)

__all__: list[str] = []

_PREFIX = "vm.builtin.attention_kv_cache_"


# ---- sequences -------------------------------------------------------------------------------


@builtin(_PREFIX + "enable_sliding_window_for_seq")
def enable_sliding_window_for_seq(cache: Any, seq_id: Any, window: Any, sink: Any, /) -> None:
    """Give a sequence a window: (cache, sequence id, window size, sink size)."""
    me = _PREFIX + "enable_sliding_window_for_seq"
    as_cache(cache, me).enable_sliding_window_for_seq(
        as_int(seq_id, me, "sequence id"),
        as_int(window, me, "window size"),
        as_int(sink, me, "sink size"),
    )


@builtin(_PREFIX + "commit_accepted_token_tree_nodes")
def commit_accepted_token_tree_nodes(cache: Any, seq_ids: Any, leaf_indices: Any, /) -> None:
    """Keep the accepted path of each tree."""
    me = _PREFIX + "commit_accepted_token_tree_nodes"
    as_cache(cache, me).commit_accepted_token_tree_nodes(
        as_shape(seq_ids, me, "sequence ids"), as_shape(leaf_indices, me, "leaf indices")
    )


@builtin(_PREFIX + "empty")
def empty(cache: Any, /) -> bool:
    """Return whether nothing is in the cache."""
    return as_cache(cache, _PREFIX + "empty").empty()


@builtin(_PREFIX + "get_num_available_pages")
def get_num_available_pages(cache: Any, /) -> int:
    """Return the number of free pages."""
    return as_cache(cache, _PREFIX + "get_num_available_pages").get_num_available_pages()


@builtin(_PREFIX + "get_total_sequence_length")
def get_total_sequence_length(cache: Any, /) -> int:
    """Return the sum of all lengths."""
    return as_cache(cache, _PREFIX + "get_total_sequence_length").get_total_sequence_length()


@builtin(_PREFIX + "get_sequence_length")
def get_sequence_length(cache: Any, seq_id: Any, /) -> int:
    """Return the length of a sequence."""
    me = _PREFIX + "get_sequence_length"
    return as_cache(cache, me).get_sequence_length(as_int(seq_id, me, "sequence id"))


@builtin(_PREFIX + "get_query_positions")
def get_query_positions(cache: Any, /) -> Tensor:
    """Return the positions of the appended tokens."""
    return as_cache(cache, _PREFIX + "get_query_positions").get_query_positions()


@builtin(_PREFIX + "debug_get_kv")
def debug_get_kv(cache: Any, seq_id: Any, start: Any, end: Any, k: Any, v: Any, /) -> None:
    """Copy keys and values of some positions to k and v."""
    me = _PREFIX + "debug_get_kv"
    as_cache(cache, me).debug_get_kv(
        as_int(seq_id, me, "sequence id"),
        as_int(start, me, "start"),
        as_int(end, me, "end"),
        as_tensor(k, me, "k"),
        as_tensor(v, me, "v"),
    )


@builtin(_PREFIX + "debug_get_kv_mla")
def debug_get_kv_mla(cache: Any, seq_id: Any, start: Any, end: Any, kv: Any, /) -> None:
    """Copy latent rows of some positions to kv."""
    me = _PREFIX + "debug_get_kv_mla"
    as_cache(cache, me).debug_get_kv_mla(
        as_int(seq_id, me, "sequence id"),
        as_int(start, me, "start"),
        as_int(end, me, "end"),
        as_tensor(kv, me, "kv"),
    )


# ---- attention -------------------------------------------------------------------------------


@builtin(_PREFIX + "attention_with_fused_qkv")
def attention_with_fused_qkv(cache: Any, layer: Any, sm_scale: Any, qkv: Any, o: Any, /) -> None:
    """Split, rotate, append and attend: (cache, layer, scale, qkv, output)."""
    me = _PREFIX + "attention_with_fused_qkv"
    as_cache(cache, me).attention_with_fused_qkv(
        as_int(layer, me, "layer"),
        as_tensor(qkv, me, "qkv"),
        as_tensor(o, me, "output"),
        as_float(sm_scale, me, "scale"),
    )


@builtin(_PREFIX + "self_attention")
def self_attention(
    cache: Any, layer: Any, sm_scale: Any, q: Any, k: Any, v: Any, o: Any, lse: Any, /
) -> None:
    """Attend to the new tokens only."""
    me = _PREFIX + "self_attention"
    as_cache(cache, me).self_attention(
        as_int(layer, me, "layer"),
        as_tensor(q, me, "q"),
        as_tensor(k, me, "k"),
        as_tensor(v, me, "v"),
        as_tensor(o, me, "output"),
        as_tensor(lse, me, "lse"),
        as_float(sm_scale, me, "scale"),
    )


@builtin(_PREFIX + "cross_attention")
def cross_attention(cache: Any, layer: Any, sm_scale: Any, q: Any, o: Any, lse: Any, /) -> None:
    """Attend to the pages only."""
    me = _PREFIX + "cross_attention"
    as_cache(cache, me).cross_attention(
        as_int(layer, me, "layer"),
        as_tensor(q, me, "q"),
        as_tensor(o, me, "output"),
        as_tensor(lse, me, "lse"),
        as_float(sm_scale, me, "scale"),
    )


@builtin(_PREFIX + "attention_with_shared_kv")
def attention_with_shared_kv(
    cache: Any, source_layer: Any, sm_scale: Any, q: Any, cur_k: Any, cur_v: Any, o: Any, /
) -> None:
    """Attend to another layer's pages and the new keys; nothing is stored."""
    me = _PREFIX + "attention_with_shared_kv"
    as_cache(cache, me).attention_with_shared_kv(
        as_int(source_layer, me, "source layer"),
        as_tensor(q, me, "q"),
        as_tensor(cur_k, me, "current k"),
        as_tensor(cur_v, me, "current v"),
        as_tensor(o, me, "output"),
        as_float(sm_scale, me, "scale"),
    )


@builtin(_PREFIX + "append_mla_kv")
def append_mla_kv(cache: Any, layer: Any, kv: Any, /) -> AttentionKVCache:
    """Store latent rows; return the cache, so that later calls can depend on it."""
    me = _PREFIX + "append_mla_kv"
    found = as_cache(cache, me)
    found.append_mla_kv(as_int(layer, me, "layer"), as_tensor(kv, me, "kv"))
    return found


@builtin(_PREFIX + "merge_attn_output_inplace")
def merge_attn_output_inplace(cache: Any, o1: Any, lse1: Any, o2: Any, lse2: Any, /) -> Array:
    """Combine two partial results into the first; return it as (o1, lse1)."""
    me = _PREFIX + "merge_attn_output_inplace"
    first, log = as_tensor(o1, me, "o1"), as_tensor(lse1, me, "lse1")
    as_cache(cache, me).merge_attn_output_inplace(
        first, log, as_tensor(o2, me, "o2"), as_tensor(lse2, me, "lse2")
    )
    return Array([first, log])


# ---- export and import -------------------------------------------------------------------------


@builtin(_PREFIX + "get_checkpoint_metadata")
def get_checkpoint_metadata(cache: Any, seq_id: Any, /) -> str:
    """Return the description of an exported sequence as JSON."""
    me = _PREFIX + "get_checkpoint_metadata"
    return as_paged(cache, me).get_checkpoint_metadata(as_int(seq_id, me, "sequence id"))


@builtin(_PREFIX + "get_layout_hash")
def get_layout_hash(cache: Any, /) -> str:
    """Return the hash of the layout, 16 hexadecimal digits."""
    return as_paged(cache, _PREFIX + "get_layout_hash").get_layout_hash()


@builtin(_PREFIX + "export_page_group")
def export_page_group(cache: Any, seq_id: Any, group: Any, target: Any, /) -> None:
    """Copy one layer's pages of a sequence to a tensor."""
    me = _PREFIX + "export_page_group"
    as_paged(cache, me).export_page_group(
        as_int(seq_id, me, "sequence id"),
        as_int(group, me, "group"),
        as_tensor(target, me, "target"),
    )


@builtin(_PREFIX + "prepare_import")
def prepare_import(cache: Any, seq_id: Any, metadata: Any, /) -> None:
    """Clear the cache and make room for an exported sequence."""
    me = _PREFIX + "prepare_import"
    as_paged(cache, me).prepare_import(
        as_int(seq_id, me, "sequence id"), as_string(metadata, me, "metadata")
    )


@builtin(_PREFIX + "import_page_group")
def import_page_group(cache: Any, seq_id: Any, group: Any, source: Any, /) -> None:
    """Copy one layer's pages from a tensor."""
    me = _PREFIX + "import_page_group"
    as_paged(cache, me).import_page_group(
        as_int(seq_id, me, "sequence id"),
        as_int(group, me, "group"),
        as_tensor(source, me, "source"),
    )


@builtin(_PREFIX + "finish_import")
def finish_import(cache: Any, seq_id: Any, /) -> None:
    """End an import."""
    me = _PREFIX + "finish_import"
    as_paged(cache, me).finish_import(as_int(seq_id, me, "sequence id"))


def as_cache(value: Any, me: str) -> AttentionKVCache:
    """Cast to an attention cache."""
    # the exact type first: asking an abstract class takes a while, and every layer asks
    if type(value) is PagedAttentionKVCache or isinstance(value, AttentionKVCache):
        return value
    raise refusal(value, me, "cache", "relax.vm.AttentionKVCache")


def as_paged(value: Any, me: str) -> PagedAttentionKVCache:
    """Cast to a paged cache."""
    if isinstance(value, PagedAttentionKVCache):
        return value
    raise refusal(value, me, "cache", "relax.vm.PagedAttentionKVCache")
