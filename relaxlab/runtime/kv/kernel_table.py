"""The kernels of a paged cache: plain callables with TVM's kernel arguments.

A cache computes nothing itself. It is given a function for each piece of work, and calls it with
tensors whose shapes and order are TVM's (kv.md 4.2), so any Python callable, a compiled kernel or
a recording double will do. Counterpart: arguments 13 to 27 of
``vm.builtin.paged_attention_kv_cache_create``.

====================  =========================================================================
field                 arguments, in order
====================  =========================================================================
transpose_append_mha  pages, k, v, position_map
transpose_append_mla  pages, kv, position_map
ragged_prefill        q, q_indptr, k, v, kv_indptr, q_rope_position, k_rope_pos_offset, output,
                      lse, causal, rotary_mode, rope_scale, rope_theta, sm_scale
paged_prefill         q, q_indptr, pages, page_indptr, page_values, length_info,
(and _sliding)        k_rope_pos_offset, q_rope_position, output, lse, causal, rotary_mode,
                      rope_scale, rope_theta, sm_scale
paged_decode          q, pages, page_indptr, page_values, length_info, k_rope_pos_offset,
(and _sliding)        q_rope_position, output, lse, rotary_mode, rope_scale, rope_theta,
                      sm_scale
ragged_prefill_tree   q, q_indptr, k, v, kv_indptr, q_rope_position, mn_indptr, mask, output,
                      lse, rotary_mode, rope_scale, rope_theta, sm_scale
paged_prefill_tree    q, q_indptr, pages, page_indptr, page_values, length_info,
                      k_rope_pos_offset, q_rope_position, output, lse, rotary_mode, rope_scale,
                      rope_theta, sm_scale, tree_order_indptr, tree_order
mla_prefill           q, q_indptr, pages, page_indptr, page_values, length_info, output, lse,
                      causal, sm_scale
merge                 v, s, v_other, s_other
split_rotary          qkv, position_map, q, k, v, apply_rope (or the tensor of factors)
copy_single_page      pages, source page, target page, number of rows
debug_get_kv          pages, position_map, k, v, layer; MLA: pages, position_map, kv, layer
compact_copy          pages, copy_length_indptr, copy_src_dst_pos, batch_size
====================  =========================================================================

Examples
--------
>>> Backend.parse(["tirx", print], "paged decode").run is print
True
>>> Backend.parse([], "paged decode") is None
True
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from relaxlab.errors import InternalError

__all__ = ["Backend", "Kernel", "KernelTable"]

Kernel = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Backend:
    """One attention kernel and how it wants to be called.

    Attributes
    ----------
    kind
        ``"tirx"``: called with the arguments above. ``"flashinfer"``: planned once per round,
        then called with FlashInfer's arguments.
    run, plan
        The functions; ``plan`` belongs to FlashInfer.
    qk_head_dim, v_head_dim
        Sizes that replace the cache's for decompressed MLA heads; 0 keeps them.
    """

    kind: Literal["tirx", "flashinfer"]
    run: Kernel
    plan: Kernel | None = None
    qk_head_dim: int = 0
    v_head_dim: int = 0

    @staticmethod
    def parse(
        spec: Sequence[Any], role: str, *, allow_plan: bool = True, allow_sizes: bool = False
    ) -> "Backend | None":
        """Read TVM's form: ``[]``, ``["tirx", run]`` or ``["flashinfer", run, plan, ...]``.

        Raises
        ------
        InternalError
            If the form is another one.
        """
        if not isinstance(spec, list | tuple):
            raise TypeError(f"{role} kernel: expected Tuple, got {type(spec).__name__}")
        match list(spec):
            case []:
                return None
            case ["tirx", run] if callable(run):
                return Backend("tirx", run)
            case ["flashinfer", run, plan] if allow_plan and callable(run) and callable(plan):
                return Backend("flashinfer", run, plan)
            case ["flashinfer", run, plan, int(qk), int(v)] if (
                allow_plan and allow_sizes and callable(run) and callable(plan)
            ):
                return Backend("flashinfer", run, plan, qk, v)
        forms = '[], ["tirx", run]' + (' or ["flashinfer", run, plan]' if allow_plan else "")
        raise InternalError(f"{role} kernel: expected {forms}, got {list(spec)!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTable:
    """The functions a paged cache calls; see the module for their arguments.

    Attributes
    ----------
    merge
        One or two functions: the first is used inside the cache, the second by
        ``merge_attn_output_inplace``.
    rope_ext_factors
        Given to ``split_rotary`` instead of the flag, when present.
    """

    merge: tuple[Kernel, ...]
    split_rotary: Kernel
    copy_single_page: Kernel
    debug_get_kv: Kernel
    compact_copy: Kernel
    transpose_append_mha: Kernel | None = None
    transpose_append_mla: Kernel | None = None
    ragged_prefill: Backend | None = None
    paged_prefill: Backend | None = None
    paged_decode: Backend | None = None
    paged_prefill_sliding: Backend | None = None
    paged_decode_sliding: Backend | None = None
    paged_prefill_tree: Backend | None = None
    ragged_prefill_tree: Backend | None = None
    mla_prefill: Backend | None = None
    rope_ext_factors: Any = None

    def __post_init__(self) -> None:
        if not self.merge:
            raise InternalError("paged cache: expected at least one merge function, got none")

    @staticmethod
    def from_arguments(arguments: Sequence[Any], rope_ext_factors: Any = None) -> "KernelTable":
        """Read TVM's 15 creation arguments for kernels, in TVM's order.

        Parameters
        ----------
        arguments
            Appending (of heads, of latent rows; each may be None), eight backends, a list of
            merge functions, rotary, page copy, debug and compaction.
        rope_ext_factors
            The tensor of rotation factors, if there is one.

        Raises
        ------
        TypeError
            If a function is none.
        InternalError
            If a backend is given in another form, or there is no merge function.
        """
        if len(arguments) != 15:
            raise TypeError(f"kernels: expected 15 arguments, got {len(arguments)}")
        mha, latent, *backends = arguments[:10]
        merge, split_rotary, copy, debug, compact = arguments[10:]
        if not isinstance(merge, list | tuple):
            raise TypeError(f"merge functions: expected Tuple, got {type(merge).__name__}")
        ragged = Backend.parse(backends[0], "ragged prefill", allow_sizes=True)
        prefill, decode, prefill_sliding, decode_sliding = (
            Backend.parse(spec, f"paged {name}")
            for spec, name in zip(
                backends[1:5],
                ("prefill", "decode", "prefill with window", "decode with window"),
                strict=True,
            )
        )
        paged_tree, ragged_tree = (
            Backend.parse(spec, f"{name} prefill with tree mask", allow_plan=False)
            for spec, name in zip(backends[5:7], ("paged", "ragged"), strict=True)
        )
        return KernelTable(
            merge=tuple(_function(kernel, "merge") for kernel in merge),
            split_rotary=_function(split_rotary, "split_rotary"),
            copy_single_page=_function(copy, "copy_single_page"),
            debug_get_kv=_function(debug, "debug_get_kv"),
            compact_copy=_function(compact, "compact_copy"),
            transpose_append_mha=None if mha is None else _function(mha, "transpose_append_mha"),
            transpose_append_mla=(
                None if latent is None else _function(latent, "transpose_append_mla")
            ),
            ragged_prefill=ragged,
            paged_prefill=prefill,
            paged_decode=decode,
            paged_prefill_sliding=prefill_sliding,
            paged_decode_sliding=decode_sliding,
            paged_prefill_tree=paged_tree,
            ragged_prefill_tree=ragged_tree,
            mla_prefill=Backend.parse(backends[7], "MLA prefill"),
            rope_ext_factors=rope_ext_factors,
        )

    @property
    def needs_plan(self) -> bool:
        """Whether some kernel must be planned once per round."""
        backends = (
            self.ragged_prefill,
            self.paged_prefill,
            self.paged_decode,
            self.paged_prefill_sliding,
            self.paged_decode_sliding,
            self.mla_prefill,
        )
        return any(backend is not None and backend.kind == "flashinfer" for backend in backends)


def _function(value: Any, role: str) -> Kernel:
    if not callable(value):
        kind = "None" if value is None else type(value).__name__
        raise TypeError(f"{role}: expected Function, got {kind}")
    found: Kernel = value
    return found
