"""All kernels of one cache, picked from one family.

Counterpart: what TVM's ``TIRPagedKVCache`` puts into arguments 13 to 27 of
``vm.builtin.paged_attention_kv_cache_create``.

Examples
--------
>>> from relaxlab.runtime.kv.attention.spec import KernelSpec
>>> arguments = kernel_arguments(KernelSpec(num_qo_heads=2, num_kv_heads=1, qk_head_dim=4), "numpy")
>>> len(arguments), arguments[1], arguments[2][0], len(arguments[10])
(15, None, 'tirx', 2)
"""

from typing import Any

from relaxlab.runtime.kv.attention.families import pick
from relaxlab.runtime.kv.attention.moves import refuse_compact_copy, refuse_split_rotary
from relaxlab.runtime.kv.attention.spec import Kernel, KernelSpec, Kind

__all__ = ["kernel_arguments", "mla_kernel_arguments"]


def kernel_arguments(spec: KernelSpec, family: str | None = None) -> list[Any]:
    """Return arguments 13 to 27 for a cache of heads: MHA, MQA or GQA, windows included.

    Parameters
    ----------
    spec
        Sizes and rotation of the cache.
    family
        Who makes the kernels; the best registered family when None.
    """

    def backend(kind: Kind) -> list[Any]:
        return ["tirx", pick(kind, spec, family)]

    merge = pick("merge_state_inplace", spec, family)
    return [
        pick("transpose_append", spec, family),
        None,
        backend("ragged_prefill"),
        backend("paged_prefill"),
        backend("paged_decode"),
        backend("paged_prefill_sliding"),
        backend("paged_decode_sliding"),
        backend("paged_prefill_tree"),
        backend("ragged_prefill_tree"),
        [],
        [merge, merge],
        pick("split_rotary", spec, family),
        pick("copy_single_page", spec, family),
        pick("debug_get_kv", spec, family),
        pick("compact_copy", spec, family),
    ]


def mla_kernel_arguments(spec: KernelSpec, family: str | None = None) -> list[Any]:
    """Return arguments 13 to 27 for a cache of latent rows.

    ``spec.qk_head_dim`` is the size of a row. The self part runs on decompressed heads, whose
    sizes come with the tensors.
    """
    merge = pick("merge_state_inplace", spec, family)
    append: Kernel = pick("transpose_append_mla", spec, family)
    return [
        None,
        append,
        ["tirx", pick("ragged_prefill", spec, family)],
        *[[] for _ in range(6)],
        ["tirx", pick("mla_prefill", spec, family)],
        [merge, merge],
        refuse_split_rotary,
        pick("copy_single_page_mla", spec, family),
        pick("debug_get_kv_mla", spec, family),
        refuse_compact_copy,
    ]
