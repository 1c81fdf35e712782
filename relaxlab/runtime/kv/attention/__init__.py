"""Kernels of the paged caches: attention over pages, and everything around it.

A kernel is a plain callable with TVM's arguments; :func:`pick` finds one by kind and family.

Examples
--------
>>> from relaxlab.runtime.kv.attention import KernelSpec, pick
>>> spec = KernelSpec(num_qo_heads=4, num_kv_heads=2, qk_head_dim=8)
>>> callable(pick("paged_decode", spec, "numpy"))
True
"""

from functools import partial

from relaxlab.runtime.kv.attention import (
    decode,
    moves,
    named,
    reference,
    split_rotary,
    vectorised,
)
from relaxlab.runtime.kv.attention.families import FAMILIES, Family, default_family, pick
from relaxlab.runtime.kv.attention.spec import KINDS, Kernel, KernelSpec, Kind
from relaxlab.runtime.kv.attention.tables import kernel_arguments, mla_kernel_arguments

__all__ = [
    "FAMILIES",
    "Family",
    "KINDS",
    "Kernel",
    "KernelSpec",
    "Kind",
    "default_family",
    "kernel_arguments",
    "mla_kernel_arguments",
    "named",
    "pick",
]

FAMILIES.register(
    "reference",
    Family(
        "reference",
        {
            "compact_copy": lambda _: moves.compact_copy_rows,
            "copy_single_page": lambda _: moves.copy_single_page_rows,
            "copy_single_page_mla": lambda _: moves.copy_single_page_mla,
            "debug_get_kv": lambda _: moves.debug_get_kv_rows,
            "debug_get_kv_mla": lambda _: moves.debug_get_kv_mla,
            "merge_state_inplace": lambda _: moves.merge_state_inplace_rows,
            "mla_prefill": reference.make_mla_prefill,
            "paged_decode": reference.make_paged_decode,
            "paged_decode_sliding": partial(reference.make_paged_decode, sliding=True),
            "paged_prefill": reference.make_paged_prefill,
            "paged_prefill_sliding": partial(reference.make_paged_prefill, sliding=True),
            "paged_prefill_tree": reference.make_paged_prefill_tree,
            "ragged_prefill": reference.make_ragged_prefill,
            "ragged_prefill_tree": reference.make_ragged_prefill_tree,
            "split_rotary": split_rotary.make_split_rotary_rows,
            "transpose_append": lambda _: moves.transpose_append_rows,
            "transpose_append_mla": lambda _: moves.transpose_append_mla_rows,
        },
        rank=-1,
    ),
)
FAMILIES.register(
    "numpy",
    Family(
        "numpy",
        {
            "compact_copy": lambda _: moves.compact_copy,
            "copy_single_page": lambda _: moves.copy_single_page,
            "copy_single_page_mla": lambda _: moves.copy_single_page_mla,
            "debug_get_kv": lambda _: moves.debug_get_kv,
            "debug_get_kv_mla": lambda _: moves.debug_get_kv_mla,
            "merge_state_inplace": lambda _: moves.merge_state_inplace,
            "mla_prefill": vectorised.MLAPrefill,
            "paged_decode": decode.PagedDecode,
            "paged_decode_sliding": decode.PagedDecode,
            "paged_prefill": vectorised.PagedPrefill,
            "paged_prefill_sliding": partial(vectorised.PagedPrefill, sliding=True),
            "paged_prefill_tree": vectorised.PagedPrefillTree,
            "ragged_prefill": vectorised.RaggedPrefill,
            "ragged_prefill_tree": vectorised.RaggedPrefillTree,
            "split_rotary": split_rotary.SplitRotary,
            "transpose_append": lambda _: moves.transpose_append,
            "transpose_append_mla": lambda _: moves.transpose_append_mla,
        },
    ),
)
