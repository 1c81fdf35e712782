"""Which kernels run, in which order and with which arrays, when a layer attends.

An attention call is a short programme: split and rotate, store, attend to the new tokens, attend
to the pages depth by depth, merge the partial results. What happens when depends on the round
only, so the programme can be read here from top to bottom. Nothing is computed here.
Counterpart: kv.md 3.7.

Examples
--------
A decode round runs ``split_rotary``, ``transpose_append_mha``, and for each depth
``paged_decode``, with ``merge`` after all but the first.
"""

from typing import Any, Final, Literal, NoReturn

from relaxlab.errors import InternalError
from relaxlab.runtime.device import Device
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.kv import flashinfer
from relaxlab.runtime.kv.block import BlockTree
from relaxlab.runtime.kv.cache_config import AttnKind, CacheConfig, RopeMode
from relaxlab.runtime.kv.forward_round import ForwardRound
from relaxlab.runtime.kv.kernel_table import Backend, Kernel, KernelTable
from relaxlab.runtime.kv.observer import KernelRan, RowsStored
from relaxlab.runtime.kv.transfer import Transfer
from relaxlab.runtime.tensor import Tensor, empty
from relaxlab.runtime.values import as_value

__all__ = ["Attention"]

_FLOAT32: Final = DataType("float32")

_NOTHING_SEEN: Final = -5e4
"""Base-2 logarithm of the weight sum of a row that saw no key."""


class Attention:
    """Runs the attention calls of one cache.

    Parameters
    ----------
    config, kernels
        Of the cache.
    tree
        Whose observer is told which kernels ran.
    pages
        One tensor per local layer.
    transfer
        The functions that send rows; None if the cache was made without.
    device
        Where the pages are.

    Attributes
    ----------
    kernels
        The functions that compute; they may be exchanged between calls.
    """

    def __init__(
        self,
        config: CacheConfig,
        kernels: KernelTable,
        tree: BlockTree,
        pages: list[Tensor],
        transfer: Transfer | None,
        device: Device,
    ) -> None:
        self._config = config
        self.kernels = kernels
        self._tree = tree
        self._pages = pages
        self._transfer = transfer
        self._device = device
        self._temporaries: dict[str, Tensor] = {}
        self._rows: dict[str, Tensor] = {}
        self._plans = flashinfer.Plans(config, device) if kernels.needs_plan else None
        # what each call would ask the configuration for, layer after layer
        self._rotary_mode = int(config.effective_rope_mode is RopeMode.INLINE)
        self._rotate_first = int(config.effective_rope_mode is RopeMode.NORMAL)
        self._rotation = (self._rotary_mode, config.rotary_scale, config.rotary_theta)
        self._sequence_sliding = config.sequence_sliding
        self._dtype = config.dtype
        self._begin = config.layer_begin
        self._kinds = [config.kind(layer) for layer in range(config.num_layers)]
        self._windowed = [kind is AttnKind.MHA_SLIDING for kind in self._kinds]
        self._q_row = (config.num_qo_heads, config.qk_head_dim)
        self._k_row = (config.num_kv_heads, config.qk_head_dim)
        self._qkv_row = (config.num_qo_heads + 2 * config.num_kv_heads, config.qk_head_dim)

    # ---- the calls -----------------------------------------------------------------------------

    def fused_qkv(self, batch: ForwardRound, layer: int, qkv: Any, o: Any, sm_scale: float) -> None:
        """Split, rotate, store and attend."""
        local = self.local_layer(layer, "attention_with_fused_qkv")
        qkv, o = as_value(qkv), as_value(o)
        self._check_fused(local, batch.total, qkv, o)
        total = batch.total
        qkv, o = _first_rows(qkv, total), _first_rows(o, total)
        if not total:
            return
        q = self._temporary("q", batch, self._q_row)
        k = self._temporary("k", batch, self._k_row)
        v = self._temporary("v", batch, self._k_row)
        lse = self._temporary("lse", batch, self._q_row[:1], _FLOAT32)
        kernels = self.kernels
        factors = kernels.rope_ext_factors
        rotate = self._rotate_first if factors is None else factors
        kernels.split_rotary(qkv, batch.arrays.tensor("q_rope_position_map"), q, k, v, rotate)
        self._tell("split_rotary", layer)
        if batch.append_before:
            self._store(batch, layer, k, v)
        self._send(batch, layer, k, v)
        ran = False
        if not batch.append_before:
            self._self_part(batch, layer, q, k, v, o, lse, sm_scale)
            ran = True
        ran = self._cross_part(batch, layer, q, o, lse, sm_scale, have_result=ran) or ran
        if not ran:
            raise InternalError(
                "attention_with_fused_qkv: there is nothing to attend to: neither tokens nor pages"
            )
        if not batch.append_before:
            self._store(batch, layer, k, v)

    def _check_fused(self, local: int, total: int, qkv: Any, o: Any) -> None:
        if (
            type(qkv) is Tensor
            and type(o) is Tensor
            and qkv.dtype is o.dtype is self._dtype
            and qkv.shape[1:] == self._qkv_row
            and o.shape[1:] == self._q_row
            and qkv.shape[0] == o.shape[0] >= total
            and self._kinds[local] is AttnKind.MHA
        ):
            return
        me = "attention_with_fused_qkv"
        self._expect_kind(local, me, AttnKind.MHA, AttnKind.MHA_SLIDING)
        self._expect(me, "qkv", qkv, (None, *self._qkv_row))
        self._expect(me, "o", o, (qkv.shape[0], *self._q_row))
        if qkv.shape[0] < total:
            raise InternalError(
                f"{me}: expected at least {total} rows, one per token of the batch, "
                f"got {qkv.shape[0]}"
            )

    def self_attention(
        self,
        batch: ForwardRound,
        layer: int,
        q: Any,
        k: Any,
        v: Any,
        o: Any,
        lse: Any,
        sm_scale: float,
    ) -> None:
        """Attend to the new tokens only."""
        me = "self_attention"
        local = self.local_layer(layer, me)
        q, k, v, o, lse = map(as_value, (q, k, v, o, lse))
        total = batch.total
        for name, tensor in (("q", q), ("k", k), ("v", v), ("o", o)):
            self._expect(me, name, tensor, (total, None, None))
        self._expect(me, "lse", lse, (total, q.shape[1]), "float32")
        if self._multi_head(local, batch):
            self._self_part(batch, layer, q, k, v, o, lse, sm_scale)
            return
        if not batch.plain[0]:
            raise InternalError(
                f"{me}: a layer of kind {self._kinds[local].name} has no attention over token trees"
            )
        self._ragged(batch, layer, q, k, v, o, lse, sm_scale, rotary_mode=0)

    def cross_attention(
        self, batch: ForwardRound, layer: int, q: Any, o: Any, lse: Any, sm_scale: float
    ) -> None:
        """Attend to the pages only."""
        me, config = "cross_attention", self._config
        local = self.local_layer(layer, me)
        q, o, lse = map(as_value, (q, o, lse))
        total, heads = batch.total, config.num_qo_heads
        self._expect(me, "q", q, (total, heads, config.qk_head_dim))
        self._expect(me, "o", o, (total, heads, config.v_head_dim))
        self._expect(me, "lse", lse, (total, heads), "float32")
        if self._multi_head(local, batch):
            ran = self._cross_part(batch, layer, q, o, lse, sm_scale, have_result=False)
        else:
            ran = self._latent_cross_part(batch, layer, q, o, lse, sm_scale)
        if not ran and not batch.exact:
            o.array[...] = 0
            lse.array[...] = _NOTHING_SEEN

    def shared_kv(
        self,
        batch: ForwardRound,
        source_layer: int,
        q: Any,
        current_k: Any,
        current_v: Any,
        o: Any,
        sm_scale: float,
    ) -> None:
        """Attend to another layer's pages and to this round's keys; store nothing."""
        me, config = "attention_with_shared_kv", self._config
        local = self.local_layer(source_layer, me)
        self._expect_kind(local, me, AttnKind.MHA, AttnKind.MHA_SLIDING)
        q, k, v, o = map(as_value, (q, current_k, current_v, o))
        total, size = batch.total, config.qk_head_dim
        self._expect(me, "q", q, (total, config.num_qo_heads, size))
        self._expect(me, "current_k", k, (total, config.num_kv_heads, size))
        self._expect(me, "current_v", v, (total, config.num_kv_heads, size))
        self._expect(me, "o", o, (total, config.num_qo_heads, size))
        lse = self._temporary("lse", batch, self._q_row[:1], _FLOAT32)
        ran = False
        if not batch.append_before:
            self._self_part(batch, source_layer, q, k, v, o, lse, sm_scale)
            ran = True
        ran = self._cross_part(batch, source_layer, q, o, lse, sm_scale, have_result=ran) or ran
        if not ran:
            raise InternalError(f"{me}: there is nothing to attend to")

    def append_mla(self, batch: ForwardRound, layer: int, kv: Any) -> None:
        """Store the rows of a latent layer."""
        me, config = "append_mla_kv", self._config
        local = self.local_layer(layer, me)
        kv = as_value(kv)
        self._expect_kind(local, me, AttnKind.MLA)
        self._expect(me, "kv", kv, (None, config.qk_head_dim))
        if kv.shape[0] > batch.total:
            raise InternalError(
                f"{me}: expected at most {batch.total} rows, one per token of the batch, "
                f"got {kv.shape[0]}"
            )
        append = self.kernels.transpose_append_mla
        if append is None:
            self._refuse_missing("transpose_append_mla")
        slots = _first_rows(batch.arrays.tensor("append_position_map"), kv.shape[0])
        append(self._pages[local], kv, slots)
        self._stored(batch, layer, "transpose_append_mla")

    def merge(self, o1: Any, lse1: Any, o2: Any, lse2: Any) -> None:
        """Combine two partial results into the first."""
        me = "merge_attn_output_inplace"
        o1, lse1, o2, lse2 = map(as_value, (o1, lse1, o2, lse2))
        if len(self.kernels.merge) < 2:
            raise InternalError(
                f"{me}: the cache was made with one merge function; it needs a second one for this"
            )
        if o1.ndim != 3:
            raise InternalError(f"{me}: o1: expected 3 dimensions, got shape {tuple(o1.shape)}")
        self._expect(me, "o2", o2, tuple(o1.shape), str(o1.dtype))
        for name, lse in (("lse1", lse1), ("lse2", lse2)):
            self._expect(me, name, lse, (o1.shape[0], o1.shape[1]), "float32")
        self.kernels.merge[1](o1, lse1, o2, lse2)
        self._tell("merge", -1)

    # ---- the parts -----------------------------------------------------------------------------

    def _self_part(
        self,
        batch: ForwardRound,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        o: Tensor,
        lse: Tensor,
        sm_scale: float,
    ) -> None:
        arrays = batch.arrays
        mask = indptr = ""
        if not batch.plain[0]:
            mask = "tree_attn_mask.0"
            indptr = "tree_attn_mn_indptr.0"
        elif self._windowed[layer - self._begin]:
            # a tree mask says which new tokens lie within the layer's window
            mask, indptr = "window.mask", "window.mn_indptr"
        if not mask or mask not in arrays:
            self._ragged(batch, layer, q, k, v, o, lse, sm_scale, rotary_mode=self._rotary_mode)
            return
        appended = arrays.tensor("cur_append_length_indptr")
        self._run(self.kernels.ragged_prefill_tree, "ragged_prefill_tree")(
            q,
            appended,
            k,
            v,
            appended,
            arrays.tensor("q_rope_position_map"),
            arrays.tensor(indptr),
            arrays.tensor(mask),
            o,
            lse,
            *self._rotation,
            sm_scale,
        )
        self._tell("ragged_prefill_tree", layer, "self", 0)

    def _ragged(
        self,
        batch: ForwardRound,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        o: Tensor,
        lse: Tensor,
        sm_scale: float,
        *,
        rotary_mode: int,
    ) -> None:
        arrays, backend = batch.arrays, self.kernels.ragged_prefill
        if backend is not None and backend.kind == "flashinfer":
            assert self._plans is not None  # it exists if some kernel has to be planned
            self._plans.ragged(batch, backend, q, k, v, o, lse, sm_scale)
        else:
            appended = arrays.tensor("cur_append_length_indptr")
            self._run(backend, "ragged_prefill")(
                q,
                appended,
                k,
                v,
                appended,
                arrays.tensor("q_rope_position_map"),
                arrays.tensor("k_ragged_rope_pos_offset"),
                o,
                lse,
                1,
                rotary_mode,
                self._config.rotary_scale,
                self._config.rotary_theta,
                sm_scale,
            )
        self._tell("ragged_prefill", layer, "self", 0, causal=True)

    def _cross_part(
        self,
        batch: ForwardRound,
        layer: int,
        q: Tensor,
        o: Tensor,
        lse: Tensor,
        sm_scale: float,
        *,
        have_result: bool,
    ) -> bool:
        """Attend to each depth that has pages; return whether there was one."""
        windowed = self._windowed[layer - self._begin]
        needs_mask = batch.append_before and not all(batch.plain)
        by_window = windowed and not batch.exact and not needs_mask
        tables = batch.window_tables if by_window else batch.tables
        ran = False
        for depth, table in enumerate(tables):
            if not table.page_indices:
                continue
            result, log = o, lse
            if have_result or ran:
                result = self._temporary("o2", batch, (q.shape[1], o.shape[2]))
                log = self._temporary("lse2", batch, (q.shape[1],), _FLOAT32)
            if by_window:
                self._by_window(batch, layer, depth, q, result, log, sm_scale)
            else:
                self._paged(batch, layer, depth, q, result, log, sm_scale)
            if result is not o:
                self.kernels.merge[0](o, lse, result, log)
                self._tell("merge", layer, "cross", depth)
            ran = True
        return ran

    def _paged(
        self,
        batch: ForwardRound,
        layer: int,
        depth: int,
        q: Tensor,
        o: Tensor,
        lse: Tensor,
        sm_scale: float,
    ) -> None:
        """One depth of a layer, by the kernel that the round chose."""
        arrays, kernels = batch.arrays, self.kernels
        windowed = self._windowed[layer - self._begin]
        masked = batch.append_before and not batch.plain[depth]
        cut = windowed and batch.exact  # TVM cuts the window from every block
        sliding = self._sequence_sliding or cut
        pages = self._pages[layer - self._begin]
        page_table = arrays.page_table("window." if cut else "", depth)
        rotation = (self._rotary_mode, 1.0, 10000.0) if cut else self._rotation
        rows = arrays.tensor(f"qo_indptr.{depth}")
        if masked:
            self._run(kernels.paged_prefill_tree, "paged_prefill_tree")(
                q,
                rows,
                pages,
                *page_table,
                o,
                lse,
                *rotation,
                sm_scale,
                arrays.tensor(f"tree_attn_mn_indptr.{depth}"),
                arrays.tensor(f"tree_attn_mask.{depth}"),
            )
            self._tell("paged_prefill_tree", layer, "cross", depth)
            return
        if batch.use_decode[depth]:
            name = "paged_decode_sliding" if sliding else "paged_decode"
            backend = kernels.paged_decode_sliding if sliding else kernels.paged_decode
            if backend is not None and backend.kind == "flashinfer":
                assert self._plans is not None  # it exists if some kernel has to be planned
                self._plans.decode(batch, backend, depth, q, pages, o, lse, sm_scale)
            else:
                self._run(backend, name)(q, pages, *page_table, o, lse, *rotation, sm_scale)
            self._tell(name, layer, "cross", depth)
            return
        causal = windowed and not batch.append_before
        name = "paged_prefill_sliding" if sliding else "paged_prefill"
        backend = kernels.paged_prefill_sliding if sliding else kernels.paged_prefill
        if backend is not None and backend.kind == "flashinfer":
            assert self._plans is not None  # it exists if some kernel has to be planned
            self._plans.prefill(batch, backend, depth, q, pages, o, lse, sm_scale)
        else:
            self._run(backend, name)(
                q, rows, pages, *page_table, o, lse, int(causal), *rotation, sm_scale
            )
        self._tell(name, layer, "cross", depth, causal=causal)

    def _by_window(
        self,
        batch: ForwardRound,
        layer: int,
        depth: int,
        q: Tensor,
        o: Tensor,
        lse: Tensor,
        sm_scale: float,
    ) -> None:
        """A layer with a window of its own, over one table per sequence."""
        arrays, kernels = batch.arrays, self.kernels
        pages = self._pages[layer - self._begin]
        page_table = arrays.page_table("window.", depth)
        if batch.append_before:
            self._run(kernels.paged_decode_sliding, "paged_decode_sliding")(
                q, pages, *page_table, o, lse, *self._rotation, sm_scale
            )
            self._tell("paged_decode_sliding", layer, "cross", depth)
            return
        rows = arrays.tensor("cur_append_length_indptr")
        self._run(kernels.paged_prefill_sliding, "paged_prefill_sliding")(
            q, rows, pages, *page_table, o, lse, 1, *self._rotation, sm_scale
        )
        self._tell("paged_prefill_sliding", layer, "cross", depth, causal=True)

    def _latent_cross_part(
        self, batch: ForwardRound, layer: int, q: Tensor, o: Tensor, lse: Tensor, sm_scale: float
    ) -> bool:
        arrays, backend = batch.arrays, self.kernels.mla_prefill
        pages = self._pages[layer - self._begin]
        ran = False
        for depth, table in enumerate(batch.tables):
            if not table.page_indices:
                continue
            result, log = o, lse
            if ran:
                result = self._temporary("o2", batch, (q.shape[1], o.shape[2]))
                log = self._temporary("lse2", batch, (q.shape[1],), _FLOAT32)
            if backend is not None and backend.kind == "flashinfer":
                assert self._plans is not None  # it exists if some kernel has to be planned
                self._plans.latent(batch, backend, depth, q, pages, result, log, sm_scale)
            else:
                self._run(backend, "mla_prefill")(
                    q,
                    arrays.tensor(f"qo_indptr.{depth}"),
                    pages,
                    arrays.tensor(f"page_indptr.{depth}"),
                    arrays.tensor(f"page_indices.{depth}"),
                    arrays.tensor(f"length_info.{depth}"),
                    result,
                    log,
                    0,
                    sm_scale,
                )
            self._tell("mla_prefill", layer, "cross", depth)
            if ran:
                self.kernels.merge[0](o, lse, result, log)
                self._tell("merge", layer, "cross", depth)
            ran = True
        return ran

    def _store(self, batch: ForwardRound, layer: int, k: Tensor, v: Tensor) -> None:
        append = self.kernels.transpose_append_mha
        if append is None:
            self._refuse_missing("transpose_append_mha")
        pages = self._pages[layer - self._begin]
        append(pages, k, v, batch.arrays.tensor("append_position_map"))
        self._stored(batch, layer, "transpose_append_mha")

    def _stored(self, batch: ForwardRound, layer: int, kernel: str) -> None:
        batch.stored.add(layer)
        self._tell(kernel, layer)
        if self._tree.observer is not None:
            slots = batch.arrays.tensor("append_position_map").array.tolist()
            self._tree.observer(RowsStored(layer, tuple(slots)))

    def _send(self, batch: ForwardRound, layer: int, k: Tensor, v: Tensor) -> None:
        if self._transfer is None or not (batch.sends_pages or batch.sends_tokens):
            return
        pages = self._pages[layer - self._begin]
        self._transfer.send(batch, layer, pages, k, v, self._tree.observer)

    # ---- checks --------------------------------------------------------------------------------

    def local_layer(self, layer: int, me: str) -> int:
        """Return the local number of a layer.

        Raises
        ------
        InternalError
            If it is not held here.
        """
        local = layer - self._begin
        if not 0 <= local < len(self._kinds):
            last = self._begin + len(self._kinds) - 1
            raise InternalError(f"{me}: layer: expected {self._begin} to {last}, got {layer}")
        return local

    def _multi_head(self, local: int, batch: ForwardRound) -> bool:
        kind = self._kinds[local]
        return kind is AttnKind.MHA or (kind is AttnKind.MHA_SLIDING and not batch.exact)

    def _expect_kind(self, local: int, me: str, *kinds: AttnKind) -> None:
        kind = self._kinds[local]
        if kind not in kinds:
            raise InternalError(
                f"{me}: expected a layer of kind {' or '.join(k.name for k in kinds)}, "
                f"got {kind.name}"
            )

    def _expect(
        self,
        me: str,
        name: str,
        tensor: Any,
        shape: tuple[int | None, ...],
        dtype: str | None = None,
    ) -> None:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{me}: {name}: expected Tensor, got {type(tensor).__name__}")
        wanted = DataType(dtype) if dtype is not None else self._dtype
        if tensor.dtype != wanted:
            raise InternalError(
                f"{me}: {name}: expected dtype {str(wanted)!r}, got {str(tensor.dtype)!r}"
            )
        fits = len(tensor.shape) == len(shape) and all(
            expected is None or expected == got
            for expected, got in zip(shape, tensor.shape, strict=True)
        )
        if not fits:
            spelled = ", ".join("any" if extent is None else str(extent) for extent in shape)
            raise InternalError(
                f"{me}: {name}: expected shape ({spelled}), got {tuple(tensor.shape)}"
            )

    def _run(self, backend: Backend | None, name: str) -> Kernel:
        if backend is None:
            self._refuse_missing(name)
        return backend.run

    def _refuse_missing(self, name: str) -> NoReturn:
        raise InternalError(f"the cache was made without a {name} kernel, which this call needs")

    def _temporary(
        self, name: str, batch: ForwardRound, inner: tuple[int, ...], dtype: DataType | None = None
    ) -> Tensor:
        """Return room for one row per token of the batch; the same tensor for the same number."""
        total, chunk = batch.total, self._config.prefill_chunk_size
        if total > chunk and batch.exact:
            raise ValueError(f"a batch of {total} tokens exceeds the prefill chunk size {chunk}")
        rows = self._rows.get(name)
        if rows is not None and rows.shape[0] == total and rows.shape[1:] == inner:
            return rows
        found = self._temporaries.get(name)
        if found is None or found.shape[1:] != inner or found.shape[0] < total:
            found = empty((max(chunk, total), *inner), dtype or self._dtype, self._device)
            self._temporaries[name] = found
        rows = self._rows[name] = _first_rows(found, total)
        return rows

    def _tell(
        self,
        kernel: str,
        layer: int,
        part: Literal["self", "cross", ""] = "",
        depth: int = -1,
        *,
        causal: bool = False,
    ) -> None:
        if self._tree.observer is not None:
            self._tree.observer(KernelRan(kernel, layer, part, depth, causal))


def _first_rows(tensor: Tensor, count: int) -> Tensor:
    """Return the first rows of a tensor, as a view."""
    if tensor.shape[0] == count:
        return tensor
    return Tensor(tensor.array[:count], tensor.dtype, tensor.device, tensor.byte_offset)
