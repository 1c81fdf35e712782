"""The cuda family: the kernels of the caches on a GPU, with TVM's arguments.

Each callable prepares sizes and launches one kernel of the text in ``cuda_source.py``. Counterpart:
TVM's attention kernels for CUDA.

Examples
--------
>>> sorted(FACTORIES)[:3]
['compact_copy', 'copy_single_page', 'copy_single_page_mla']
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from relaxlab.codegen.attention.cuda_launch import Device
from relaxlab.codegen.attention.cuda_source import LAYOUTS, MASKS, MOST_FEATURES
from relaxlab.errors import InternalError
from relaxlab.runtime.kv.attention import Kernel, KernelSpec, Kind
from relaxlab.runtime.kv.attention.spec import array
from relaxlab.runtime.kv.exact import is_exact
from relaxlab.runtime.kv.rope import Rope

__all__ = ["CudaKernels", "FACTORIES"]

_I, _F = np.int32, np.float32
_Floats = NDArray[np.float32]


class CudaKernels:
    """The kernels for one specification, on one device; each method takes TVM's arguments."""

    def __init__(self, spec: KernelSpec, device: Device) -> None:
        if max(spec.qk_head_dim, spec.v_head_dim) > MOST_FEATURES:
            raise InternalError(
                f"CUDA attention: expected at most {MOST_FEATURES} features, "
                f"got {spec.qk_head_dim} and {spec.v_head_dim}"
            )
        self._device, self._window = device, spec.layer_window
        self._rope, self._inline = spec.rope, spec.inline_rope
        self._tables: dict[Any, _Floats] = {}

    # ---- attention -----------------------------------------------------------------------

    def ragged_prefill(
        self, q: Any, q_indptr: Any, k: Any, v: Any, kv_indptr: Any, q_rope_position: Any,
        k_rope_pos_offset: Any, output: Any, lse: Any, causal: int, *rope_and_scale: Any,
    ) -> None:  # fmt: skip
        """Attend from new queries to new keys."""
        mask = "causal" if causal else "none"
        self._ragged(
            (q, q_indptr, k, v, kv_indptr, k_rope_pos_offset, q_rope_position, None, None),
            output, lse, mask, rope_and_scale,
        )  # fmt: skip

    def ragged_prefill_tree(
        self, q: Any, q_indptr: Any, k: Any, v: Any, kv_indptr: Any, q_rope_position: Any,
        mn_indptr: Any, mask: Any, output: Any, lse: Any, *rope_and_scale: Any,
    ) -> None:  # fmt: skip
        """Attend from tree nodes to tree nodes."""
        self._ragged(
            (q, q_indptr, k, v, kv_indptr, None, q_rope_position, mn_indptr, mask),
            output, lse, "ragged_tree", rope_and_scale,
        )  # fmt: skip

    def _ragged(
        self, given: tuple[Any, ...], output: Any, lse: Any, mask: str, rest: tuple[Any, ...]
    ) -> None:
        q, q_indptr, k, v, kv_indptr, offsets, positions, tree_indptr, tree = map(_given, given)
        tensors = (
            q, q_indptr, k, v, kv_indptr, None, None, None, offsets, positions, tree_indptr, tree,
        )  # fmt: skip
        sizes = (len(q_indptr) - 1, q.shape[1], k.shape[1], k.shape[2], v.shape[2], 1)
        self._attend(tensors, output, lse, sizes, "ragged", 1, mask, rest)

    def paged_decode(
        self, q: Any, pages: Any, page_indptr: Any, page_values: Any, length_info: Any,
        k_rope_pos_offset: Any, q_rope_position: Any, output: Any, lse: Any, *rope_and_scale: Any,
    ) -> None:  # fmt: skip
        """Attend from one query per chunk to pages."""
        tables = (page_indptr, page_values, length_info, k_rope_pos_offset, q_rope_position)
        self._paged(q, None, pages, tables, (None, None), output, lse, "none", rope_and_scale)

    def paged_prefill(
        self, q: Any, q_indptr: Any, pages: Any, page_indptr: Any, page_values: Any,
        length_info: Any, k_rope_pos_offset: Any, q_rope_position: Any, output: Any, lse: Any,
        causal: int, *rope_and_scale: Any,
    ) -> None:  # fmt: skip
        """Attend from the queries of chunks to pages."""
        tables = (page_indptr, page_values, length_info, k_rope_pos_offset, q_rope_position)
        mask = "causal" if causal else "none"
        self._paged(q, q_indptr, pages, tables, (None, None), output, lse, mask, rope_and_scale)

    def paged_prefill_sliding(
        self, q: Any, q_indptr: Any, pages: Any, page_indptr: Any, page_values: Any,
        length_info: Any, k_rope_pos_offset: Any, q_rope_position: Any, output: Any, lse: Any,
        causal: int, *rope_and_scale: Any,
    ) -> None:  # fmt: skip
        """Attend from the queries of chunks to pages, within a layer's window if it has one."""
        tables = (page_indptr, page_values, length_info, k_rope_pos_offset, q_rope_position)
        mask = ("window" if self._window else "causal") if causal else "none"
        self._paged(q, q_indptr, pages, tables, (None, None), output, lse, mask, rope_and_scale)

    def paged_prefill_tree(
        self, q: Any, q_indptr: Any, pages: Any, page_indptr: Any, page_values: Any,
        length_info: Any, k_rope_pos_offset: Any, q_rope_position: Any, output: Any, lse: Any,
        rotary_mode: int, rope_scale: float, rope_theta: float, sm_scale: float,
        tree_order_indptr: Any, tree_order: Any,
    ) -> None:  # fmt: skip
        """Attend from tree nodes to pages that end with the tree."""
        tables = (page_indptr, page_values, length_info, k_rope_pos_offset, q_rope_position)
        rest = (rotary_mode, rope_scale, rope_theta, sm_scale)
        tree = (tree_order_indptr, tree_order)
        self._paged(q, q_indptr, pages, tables, tree, output, lse, "paged_tree", rest)

    def mla_prefill(
        self, q: Any, q_indptr: Any, pages: Any, page_indptr: Any, page_values: Any,
        length_info: Any, output: Any, lse: Any, causal: int, sm_scale: float,
    ) -> None:  # fmt: skip
        """Attend from the queries of chunks to latent rows."""
        tables = (page_indptr, page_values, length_info, None, None)
        mask = "causal" if causal else "none"
        rest = (0, 1.0, 1e4, sm_scale)
        self._paged(q, q_indptr, pages, tables, (None, None), output, lse, mask, rest)

    def _paged(
        self,
        q: Any,
        q_indptr: Any,
        pages: Any,
        tables: tuple[Any, ...],
        tree: tuple[Any, Any],
        output: Any,
        lse: Any,
        mask: str,
        rest: tuple[Any, ...],
    ) -> None:
        q, pages, out = array(q), array(pages), array(output)
        indptr, values, info, offsets, positions = map(_given, tables)
        tensors = (
            q, _given(q_indptr), pages, None, None, indptr, values, info, offsets, positions,
            *map(_given, tree),
        )  # fmt: skip
        latent = len(pages.shape) == 3
        kv_heads, size = (1, pages.shape[1]) if latent else (pages.shape[2], pages.shape[3])
        sizes = (len(indptr) - 1, q.shape[1], kv_heads, q.shape[2], out.shape[2], size)
        layout = "latent" if latent else "pages"
        self._attend(tensors, out, lse, sizes, layout, len(info.shape) * 2 - 1, mask, rest)

    def _attend(
        self,
        tensors: tuple[Any, ...],
        output: Any,
        lse: Any,
        sizes: tuple[int, ...],
        layout: str,
        info_rows: int,
        mask: str,
        rest: tuple[Any, ...],
    ) -> None:
        rotary_mode, rope_scale, rope_theta, sm_scale = rest
        q, inline = tensors[0], self._inline
        rotates = bool(rotary_mode) and inline is not None
        table, interleaved = None, False
        if rotates and inline is not None:
            table = self._frequencies(inline, rope_theta)
            interleaved = inline.interleaved(inline=True)
        numbers = (LAYOUTS[layout], info_rows, MASKS[mask], self._window, rotates, interleaved)
        self._device.launch(
            str(q.dtype),
            "attend",
            (q.shape[0], q.shape[1]),
            [
                *tensors, array(output), array(lse), table, *map(_I, sizes), *map(_I, numbers),
                _F(rope_scale), _F(1.0), _F(sm_scale),
            ],
        )  # fmt: skip

    def _frequencies(self, rope: Rope, theta: float | None, **longrope: Any) -> _Floats:
        if longrope:
            return rope.frequencies(**longrope)
        key = (rope.features, theta, is_exact())
        if key not in self._tables:
            self._tables[key] = rope.frequencies(theta=theta)
        return self._tables[key]

    # ---- rows that move ------------------------------------------------------------------

    def split_rotary(
        self, qkv: Any, position_map: Any, q: Any, k: Any, v: Any, apply_rope: Any
    ) -> None:
        """Split queries, keys and values; rotate the first two."""
        qkv, q, k, v = map(array, (qkv, q, k, v))
        rope = self._rope
        factors = None if isinstance(apply_rope, int) else np.asarray(array(apply_rope))
        rotates = rope is not None and (factors is not None or bool(apply_rope))
        table = None
        if rotates and rope is not None:
            given = {} if factors is None else {"ext_factors": factors, "tokens": len(qkv)}
            table = self._frequencies(rope, None, **given)
        numbers = (
            q.shape[1], k.shape[1], q.shape[2], 0 if rope is None else rope.features, rotates,
            rope is not None and rope.interleaved(),
        )  # fmt: skip
        scale, magnitude = (1.0, 1.0) if rope is None else (rope.scale, rope.magnitude())
        self._device.launch(
            str(q.dtype),
            "split_rotary",
            (qkv.shape[0], qkv.shape[1]),
            [qkv, array(position_map), q, k, v, table, *map(_I, numbers), _F(scale), _F(magnitude)],
        )

    def transpose_append(self, pages: Any, k_data: Any, v_data: Any, position_map: Any) -> None:
        """Store keys and values in their slots."""
        pages, slots = array(pages), array(position_map)
        sizes = map(_I, pages.shape[2:])
        given = [pages, array(k_data), array(v_data), slots, *sizes]
        self._device.launch(str(pages.dtype), "append", (len(slots), pages.shape[2]), given)

    def transpose_append_mla(self, pages: Any, kv_data: Any, position_map: Any) -> None:
        """Store latent rows in their slots."""
        pages, slots = array(pages), array(position_map)
        given = [pages, array(kv_data), slots, _I(pages.shape[2])]
        self._device.launch(str(pages.dtype), "append_latent", (len(slots), 1), given)

    def merge_state_inplace(self, v: Any, s: Any, v_other: Any, s_other: Any) -> None:
        """Combine two partial results into the first."""
        v, s = array(v), array(s)
        given = [v, s, array(v_other), array(s_other), _I(v.shape[2])]
        self._device.launch(str(v.dtype), "merge", (s.shape[0] * s.shape[1], 1), given)

    def copy_single_page(self, pages: Any, src_page: int, tgt_page: int, copy_length: int) -> None:
        """Copy the first rows of a page, latent or not."""
        pages = array(pages)
        parts = 1 if len(pages.shape) == 3 else 2 * pages.shape[2]
        numbers = (src_page, tgt_page, copy_length, parts, *pages.shape[-2:])
        self._device.launch(str(pages.dtype), "copy_page", (parts, 1), [pages, *map(_I, numbers)])

    def compact_copy(
        self, pages: Any, copy_length_indptr: Any, copy_src_dst_pos: Any, batch_size: int
    ) -> None:
        """Move rows from slot to slot, in order."""
        pages, pairs = array(pages), array(copy_src_dst_pos)
        count = int(array(copy_length_indptr)[batch_size])
        parts = 2 * pages.shape[2]
        numbers = (count, pairs.shape[1], parts, *pages.shape[-2:])
        given = [pages, pairs, *map(_I, numbers)]
        self._device.launch(str(pages.dtype), "compact", (parts, 1), given)

    def debug_get_kv(
        self, pages: Any, position_map: Any, k_data: Any, v_data: Any, layer_id: int
    ) -> None:
        """Copy keys and values of some slots out."""
        pages, slots = array(pages), array(position_map)
        numbers = (layer_id, len(slots), *pages.shape[2:])
        given = [pages, slots, array(k_data), array(v_data), *map(_I, numbers)]
        self._device.launch(str(pages.dtype), "read_back", (len(slots), pages.shape[2]), given)

    def debug_get_kv_mla(self, pages: Any, position_map: Any, kv_data: Any, layer_id: int) -> None:
        """Copy latent rows of some slots out."""
        pages, slots = array(pages), array(position_map)
        given = [pages, slots, array(kv_data), *map(_I, (layer_id, len(slots), pages.shape[2]))]
        self._device.launch(str(pages.dtype), "read_back_latent", (len(slots), 1), given)


def _given(value: Any) -> Any:
    return None if value is None else array(value)


FACTORIES: Final[dict[Kind, Callable[[CudaKernels], Kernel]]] = {
    "compact_copy": lambda kernels: kernels.compact_copy,
    "copy_single_page": lambda kernels: kernels.copy_single_page,
    "copy_single_page_mla": lambda kernels: kernels.copy_single_page,
    "debug_get_kv": lambda kernels: kernels.debug_get_kv,
    "debug_get_kv_mla": lambda kernels: kernels.debug_get_kv_mla,
    "merge_state_inplace": lambda kernels: kernels.merge_state_inplace,
    "mla_prefill": lambda kernels: kernels.mla_prefill,
    "paged_decode": lambda kernels: kernels.paged_decode,
    "paged_decode_sliding": lambda kernels: kernels.paged_decode,
    "paged_prefill": lambda kernels: kernels.paged_prefill,
    "paged_prefill_sliding": lambda kernels: kernels.paged_prefill_sliding,
    "paged_prefill_tree": lambda kernels: kernels.paged_prefill_tree,
    "ragged_prefill": lambda kernels: kernels.ragged_prefill,
    "ragged_prefill_tree": lambda kernels: kernels.ragged_prefill_tree,
    "split_rotary": lambda kernels: kernels.split_rotary,
    "transpose_append": lambda kernels: kernels.transpose_append,
    "transpose_append_mla": lambda kernels: kernels.transpose_append_mla,
}
"""Each kind of kernel, from the kernels of a specification."""
