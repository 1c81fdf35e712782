"""Builtins that make a paged cache, and that move sequences between two of them.

Counterpart: ``vm.builtin.paged_attention_kv_cache_create`` with its 28 arguments (kv.md 2.3) and
``vm.builtin.kv_cache_disagg_*``.

Examples
--------
>>> create(1, 2, 3)
Traceback (most recent call last):
TypeError: ...: expected 28 arguments, got 3
"""

from typing import Any

from relaxlab.errors import InternalError
from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.kv.cache_config import AttnKind, CacheConfig, RopeMode
from relaxlab.runtime.kv.kernel_table import KernelTable
from relaxlab.runtime.kv.paged_kv_cache import PagedAttentionKVCache
from relaxlab.runtime.tensor import Tensor
from relaxlab.runtime.values import as_value
from relaxlab.runtime.vm.builtin.attention_kv_cache import as_paged
from relaxlab.runtime.vm.builtin.table import (
    as_float,
    as_int,
    as_shape,
    as_tensor,
    builtin,
)

__all__: list[str] = []

_CREATE = "vm.builtin.paged_attention_kv_cache_create"
_ARGUMENTS = 28
_DEFAULT_WINDOW = 1024


@builtin(_CREATE)
def create(*args: Any) -> PagedAttentionKVCache:
    """Return a paged cache from TVM's 28 positional arguments; a 29th is ignored.

    In order: sizes, layer partition, query heads, key heads, size of query and key heads, of value
    heads, kinds of all layers, whether KV transfer is on, RoPE mode, scale, theta, rotation
    factors, a tensor whose dtype and device are used; then the kernels of
    :class:`~relaxlab.runtime.kv.kernel_table.KernelTable` in TVM's order.
    """
    if not _ARGUMENTS <= len(args) <= _ARGUMENTS + 1:
        raise TypeError(f"{_CREATE}: expected {_ARGUMENTS} arguments, got {len(args)}")
    factors = as_value(args[11])
    init = as_tensor(args[12], _CREATE, "init")
    config = _config(args[:11], init, has_factors=isinstance(factors, Tensor))
    try:
        kernels = KernelTable.from_arguments(
            args[13:28], factors if isinstance(factors, Tensor) else None
        )
    except (TypeError, InternalError) as error:
        raise type(error)(f"{_CREATE}: {error}") from None
    return PagedAttentionKVCache(config, kernels, init.device)


@builtin("vm.builtin.kv_cache_disagg_prepare_recv")
def disagg_prepare_recv(cache: Any, seq_id: Any, append_length: Any, /) -> ShapeTuple:
    """Reserve slots for rows that are sent here; return them as a compressed map."""
    me = "vm.builtin.kv_cache_disagg_prepare_recv"
    return as_paged(cache, me).disagg_prepare_recv(
        as_int(seq_id, me, "sequence id"), as_int(append_length, me, "append length")
    )


@builtin("vm.builtin.kv_cache_disagg_mark_send")
def disagg_mark_send(cache: Any, seq_id: Any, begin: Any, positions: Any, receiver: Any, /) -> None:
    """Send rows of a sequence: (cache, sequence id, begin, compressed map, receiver)."""
    me = "vm.builtin.kv_cache_disagg_mark_send"
    as_paged(cache, me).disagg_mark_send(
        as_int(seq_id, me, "sequence id"),
        as_int(begin, me, "begin"),
        as_shape(positions, me, "compressed position map"),
        as_int(receiver, me, "receiver"),
    )


def _config(args: tuple[Any, ...], init: Tensor, *, has_factors: bool) -> CacheConfig:
    sizes = as_shape(args[0], _CREATE, "cache config")
    if not 5 <= len(sizes) <= 6:
        raise InternalError(
            f"{_CREATE}: cache config: expected 5 or 6 numbers (sequences, capacity, chunk, page, "
            f"sliding window support [, window of layers]), got {tuple(sizes)}"
        )
    layers = as_shape(args[1], _CREATE, "layer partition")
    if len(layers) != 2:
        raise InternalError(
            f"{_CREATE}: layer partition: expected 2 numbers, first and one past the last layer, "
            f"got {tuple(layers)}"
        )
    mode = as_int(args[8], _CREATE, "RoPE mode")
    try:
        kinds = tuple(map(AttnKind, as_shape(args[6], _CREATE, "attention kinds")))
        rope_mode = RopeMode(mode)
    except ValueError as error:
        raise InternalError(f"{_CREATE}: {error}") from None
    return CacheConfig(
        reserved_num_seqs=sizes[0],
        total_token_capacity=sizes[1],
        prefill_chunk_size=sizes[2],
        page_size=sizes[3],
        support_sliding_window=bool(sizes[4]),
        layer_sliding_window_size=sizes[5] if len(sizes) == 6 else _DEFAULT_WINDOW,
        layer_begin=layers[0],
        layer_end=layers[1],
        num_qo_heads=as_int(args[2], _CREATE, "number of query heads"),
        num_kv_heads=as_int(args[3], _CREATE, "number of key heads"),
        qk_head_dim=as_int(args[4], _CREATE, "size of query and key heads"),
        v_head_dim=as_int(args[5], _CREATE, "size of value heads"),
        attn_kinds=kinds,
        enable_kv_transfer=bool(as_int(args[7], _CREATE, "KV transfer")),
        rope_mode=rope_mode,
        rotary_scale=as_float(args[9], _CREATE, "rotary scale"),
        rotary_theta=as_float(args[10], _CREATE, "rotary theta"),
        has_rope_ext_factors=has_factors,
        dtype=init.dtype,
    )
