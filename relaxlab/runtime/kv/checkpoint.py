"""One sequence out of a cache and into another: metadata, a layout hash, a tensor per layer.

The metadata say what the bytes mean; the hash of the layout is the lock that a wrong key does not
open, checked before anything moves. Pages are written in the order of the sequence, a shared
prefix included, so the target needs neither the same pool size nor the same page numbers.
Counterpart: kv.md 3.12 (TVM's page-group checkpoint, format version 1).

Examples
--------
>>> from relaxlab.runtime.kv.cache_config import CacheConfig, RopeMode
>>> config = CacheConfig(
...     reserved_num_seqs=8, total_token_capacity=64, prefill_chunk_size=64, page_size=4,
...     num_qo_heads=4, num_kv_heads=2, qk_head_dim=8, layer_end=2, rope_mode=RopeMode.NORMAL,
... )
>>> layout_hash(config)
'33e96a3e6ca99d94'
"""

import json
from typing import Any, Final

from relaxlab.errors import InternalError
from relaxlab.runtime.kv.cache_config import AttnKind, CacheConfig

__all__ = [
    "check_metadata",
    "check_supported",
    "group_shape",
    "layout_hash",
    "metadata_text",
]

_VERSION: Final = 1
_CACHE_TYPE: Final = "relax.vm.PagedAttentionKVCache"
_GROUP_LAYOUT: Final = "1,num_logical_pages,2,num_kv_heads,page_size,qk_head_dim"
_FNV_OFFSET: Final = 14695981039346656037
_FNV_PRIME: Final = 1099511628211
_POOL_FIELDS: Final = ("reserved_num_seqs", "num_total_pages", "prefill_chunk_size")


def check_supported(config: CacheConfig) -> None:
    """Refuse caches whose sequences cannot be written out this way.

    Raises
    ------
    InternalError
        If a layer is not plain multi-head, sizes of keys and values differ, or there are
        windows, rotation factors or KV transfer.
    """
    me = "checkpoint of a paged cache"
    kinds = [config.kind(layer) for layer in range(config.num_layers)]
    if any(kind is not AttnKind.MHA for kind in kinds):
        raise InternalError(
            f"{me}: expected layers of kind MHA (full context) only, "
            f"got {', '.join(kind.name for kind in kinds)}"
        )
    if config.qk_head_dim != config.v_head_dim:
        raise InternalError(
            f"{me}: expected equal head sizes of keys and values, got {config.qk_head_dim} and "
            f"{config.v_head_dim}"
        )
    if config.support_sliding_window or config.layer_sliding:
        raise InternalError(f"{me}: caches with sliding windows are not supported")
    if config.has_rope_ext_factors:
        raise InternalError(f"{me}: rotation factors (rope_ext_factors) are not supported")
    if config.enable_kv_transfer:
        raise InternalError(f"{me}: caches with KV transfer are not supported")


def layout_hash(config: CacheConfig) -> str:
    """Return 16 hexadecimal digits that stand for everything that gives the bytes a meaning."""
    fields = _layout(config)
    ordered = [*_HASHED, "page_group_layout"]
    text = ";".join(f"{key}={_spelled(fields[key])}" for key in ordered)
    text += f";attn_kinds={','.join(fields['attn_kinds'])}"
    value = _FNV_OFFSET
    for byte in text.encode():
        value = ((value ^ byte) * _FNV_PRIME) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


_HASHED: Final = (
    "format_version",
    "cache_type",
    "page_size",
    "num_layers",
    "layer_begin",
    "layer_end",
    "num_qo_heads",
    "num_kv_heads",
    "qk_head_dim",
    "v_head_dim",
    "dtype",
    "rope_mode",
    "rotary_scale",
    "rotary_theta",
    "has_rope_ext_factors",
    "support_sliding_window",
    "support_layer_sliding_window",
)


def _layout(config: CacheConfig) -> dict[str, Any]:
    return {
        "format_version": _VERSION,
        "cache_type": _CACHE_TYPE,
        "page_size": config.page_size,
        "num_layers": config.num_layers,
        "layer_begin": config.layer_begin,
        "layer_end": config.layer_end,
        "num_qo_heads": config.num_qo_heads,
        "num_kv_heads": config.num_kv_heads,
        "qk_head_dim": config.qk_head_dim,
        "v_head_dim": config.v_head_dim,
        "reserved_num_seqs": config.reserved_num_seqs,
        "num_total_pages": config.num_total_pages,
        "prefill_chunk_size": config.prefill_chunk_size,
        "dtype": str(config.dtype),
        "attn_kinds": ["mha"] * config.num_layers,
        "rope_mode": config.effective_rope_mode.name.lower(),
        "rotary_scale": float(config.rotary_scale),
        "rotary_theta": float(config.rotary_theta),
        "has_rope_ext_factors": config.has_rope_ext_factors,
        "support_sliding_window": config.support_sliding_window,
        "support_layer_sliding_window": config.layer_sliding,
        "page_group_layout": _GROUP_LAYOUT,
    }


def _spelled(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return format(value, ".17g") if isinstance(value, float) else str(value)


def group_shape(config: CacheConfig, length: int) -> tuple[int, ...]:
    """Return the shape of one group of a sequence: ``[1, pages, 2, H, P, D]``."""
    pages = -(-length // config.page_size)
    return (1, pages, 2, config.num_kv_heads, config.page_size, config.qk_head_dim)


def metadata_text(config: CacheConfig, seq_id: int, length: int) -> str:
    """Return the metadata of a sequence as JSON, byte for byte as TVM writes it."""
    return _json(_metadata(config, seq_id, length))


def _metadata(config: CacheConfig, seq_id: int, length: int) -> dict[str, Any]:
    size, shape = config.page_size, group_shape(config, length)
    count = 1
    for extent in shape:
        count *= extent
    bits = config.dtype.bits * config.dtype.lanes
    return {
        **_layout(config),
        "layout_hash": layout_hash(config),
        "seq_id": seq_id,
        "seq_length": length,
        "logical_pages": [
            {
                "logical_page_index": page,
                "start_pos": page * size,
                "length": min(size, length - page * size),
            }
            for page in range(shape[1])
        ],
        "groups": [
            {
                "group_index": layer,
                "layer_begin": config.layer_begin + layer,
                "layer_end": config.layer_begin + layer + 1,
                "num_logical_pages": shape[1],
                "dtype": str(config.dtype),
                "shape": list(shape),
                "nbytes": count * bits // 8,
            }
            for layer in range(config.num_layers)
        ],
    }


def _json(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            text = format(value, ".17g")
            return text if any(c in text for c in ".einf") else f"{text}.0"
        case dict():
            return "{" + ",".join(f"{json.dumps(k)}:{_json(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ",".join(map(_json, value)) + "]"
        case _:
            return json.dumps(value)


def check_metadata(config: CacheConfig, seq_id: int, text: str) -> int:
    """Refuse metadata that do not fit a cache; return the length of the sequence.

    Raises
    ------
    InternalError
        Names the first thing that is wrong; layout fields come first, then pool sizes, the hash,
        kinds, the sequence, its pages and its groups.
    """
    me = "checkpoint import"
    try:
        given = json.loads(text)
    except ValueError as error:
        raise InternalError(f"{me}: the metadata are no JSON: {error}") from None
    if not isinstance(given, dict):
        raise InternalError(f"{me}: expected a JSON object, got {type(given).__name__}")
    expected = _layout(config)
    for key, value in expected.items():
        if key not in (*_POOL_FIELDS, "attn_kinds"):
            _expect(me, f"field {key!r}", given.get(key), value)
    for key in _POOL_FIELDS:
        size = given.get(key)
        if not isinstance(size, int) or isinstance(size, bool) or size <= 0:
            raise InternalError(f"{me}: field {key!r}: expected a number above 0, got {size!r}")
    if given.get("layout_hash") != layout_hash(config):
        raise InternalError(
            f"{me}: layout hash: expected {layout_hash(config)}, got {given.get('layout_hash')}"
        )
    _expect(me, "field 'attn_kinds'", given.get("attn_kinds"), expected["attn_kinds"])
    _expect(me, "field 'seq_id'", given.get("seq_id"), seq_id)
    length = given.get("seq_length")
    if not isinstance(length, int) or isinstance(length, bool) or length < 0:
        raise InternalError(f"{me}: field 'seq_length': expected at least 0, got {length!r}")
    pages = -(-length // config.page_size)
    for owner, count in (
        ("the source", given["num_total_pages"]),
        ("this cache", config.num_total_pages),
    ):
        if pages > count:
            raise InternalError(
                f"{me}: {length} tokens need {pages} pages, but {owner} has {count} in all"
            )
    wanted = _metadata(config, seq_id, length)
    for key in ("logical_pages", "groups"):
        rows = given.get(key)
        if not isinstance(rows, list) or len(rows) != len(wanted[key]):
            raise InternalError(
                f"{me}: field {key!r}: expected {len(wanted[key])} entries, got {rows!r:.80}"
            )
        for index, (row, right) in enumerate(zip(rows, wanted[key], strict=True)):
            _expect(me, f"entry {index} of {key!r}", row, right)
    return length


def _expect(me: str, what: str, got: Any, expected: Any) -> None:
    if isinstance(got, bool) != isinstance(expected, bool) or got != expected:
        raise InternalError(f"{me}: {what}: expected {expected!r}, got {got!r}")
