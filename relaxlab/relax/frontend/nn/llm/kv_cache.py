"""The paged cache as a model sees it: one method per builtin, and a function that makes one.

A model's function takes a cache as an argument and calls its methods; each flattens batch and
sequence to tokens, calls the builtin, and gives the result its leading sizes back. The texts that
come out are TVM's. What differs is where the kernels of a new cache come from: TVM compiles them
into the model's module, here the module asks the runtime for them by kind and specification, so
that the same module uses whatever is best where it runs.

Counterpart: ``tvm.relax.frontend.nn.llm.kv_cache``.

Examples
--------
>>> from relaxlab import relax
>>> builder = relax.BlockBuilder()
>>> cache = relax.Var("cache", relax.AnyType())
>>> qkv = relax.Var("qkv", relax.TensorType([1, 5, 8, 4], "float32"))
>>> with builder.function("main", [qkv, cache]):
...     with builder.dataflow():
...         seen = PagedKVCache(_expr=cache, _name="cache")
...         o = seen.attention_with_fused_qkv(0, Tensor(_expr=qkv), 4, 0.5)
...         out = builder.emit_output(o._expr)
...     main = builder.emit_func_output(out)
>>> o.shape
[1, 5, 4, 4]
"""

import json
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

from relaxlab.errors import InternalError
from relaxlab.ir.expr import Expr, StringImm, Tuple, TupleGetItem
from relaxlab.ir.target import Target
from relaxlab.ir.type import AnyType, TupleType
from relaxlab.relax.frontend.nn.values import Object, Tensor, emit
from relaxlab.relax.op.closures import null_value
from relaxlab.relax.op.create import zeros
from relaxlab.relax.op.packed_calls import call_dps_packed, call_pure_packed
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import TensorType
from relaxlab.runtime.kv.attention.spec import Kind
from relaxlab.runtime.kv.rope import RopeMode

__all__ = ["AttnKind", "PagedKVCache", "RopeMode", "TIRPagedKVCache"]

_PREFIX: Final = "vm.builtin.attention_kv_cache_"


class AttnKind(IntEnum):
    """What a layer attends with; the numbers are the runtime's."""

    MHA = 0
    MLA = 1
    MHA_SLIDING = 3


_KINDS: Final[Mapping[str, AttnKind]] = {
    "mha": AttnKind.MHA,
    "mla": AttnKind.MLA,
    "mha_sliding": AttnKind.MHA_SLIDING,
}


class PagedKVCache(Object):
    """A paged cache that a function of a model gets as an argument.

    Tensors are ``[b, s, heads, features]``: ``[1, tokens, ...]`` in prefill, ``[batch, 1, ...]`` in
    decode.
    """

    def attention_with_fused_qkv(
        self, layer_id: int, qkv: Tensor, num_qo_heads: int, sm_scale: float
    ) -> Tensor:
        """Append this round's keys and values and attend: ``[b, s, Hq + 2 Hkv, D]`` → Hq heads."""
        b, s, _, d = qkv.shape
        flat = qkv.reshape(b * s, qkv.shape[2], d)
        out = TensorType([b * s, num_qo_heads, d], qkv.dtype)
        return self._attended("attention_with_fused_qkv", layer_id, sm_scale, [flat], out, b, s)

    def self_attention(
        self, layer_id: int, q: Tensor, k: Tensor, v: Tensor, sm_scale: float
    ) -> tuple[Tensor, Tensor]:
        """Attend to this round's keys only; return the output and its log-sum-exp."""
        b, s, heads, _ = q.shape
        flat = [x.reshape(b * s, *x.shape[2:]) for x in (q, k, v)]
        return self._partial("self_attention", layer_id, sm_scale, flat, (b, s, heads, v.shape[3]))

    def cross_attention(
        self, layer_id: int, q: Tensor, v_head_dim: int, sm_scale: float
    ) -> tuple[Tensor, Tensor]:
        """Attend to the pages only; return the output and its log-sum-exp."""
        b, s, heads, d = q.shape
        flat = [q.reshape(b * s, heads, d)]
        return self._partial("cross_attention", layer_id, sm_scale, flat, (b, s, heads, v_head_dim))

    def attention_with_shared_kv(
        self, source_layer_id: int, q: Tensor, current_k: Tensor, current_v: Tensor, sm_scale: float
    ) -> Tensor:
        """Attend to another layer's pages and this round's keys and values; store nothing."""
        b, s, heads, _ = q.shape
        flat = [x.reshape(b * s, *x.shape[2:]) for x in (q, current_k, current_v)]
        out = TensorType([b * s, heads, current_v.shape[3]], q.dtype)
        name = "attention_with_shared_kv"
        return self._attended(name, source_layer_id, sm_scale, flat, out, b, s)

    def append_mla_kv(self, layer_id: int, kv: Tensor) -> "PagedKVCache":
        """Store latent rows ``[b, s, 1, D]``; later calls go to the cache that is returned."""
        b, s, _, d = kv.shape
        flat = kv.reshape(b * s, d)
        call = call_pure_packed(
            _PREFIX + "append_mla_kv", self._expr, layer_id, flat._expr, ty_args=AnyType()
        )
        return PagedKVCache(_expr=call, _name="paged_kv_cache")

    def merge_attn_output_inplace(
        self,
        o_self_attn: Tensor,
        lse_self_attn: Tensor,
        o_cross_attn: Tensor,
        lse_cross_attn: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Combine two partial results in the memory of the first."""
        b, s, heads, d = o_self_attn.shape
        given = (o_self_attn, lse_self_attn, o_cross_attn, lse_cross_attn)
        flat = [x.reshape(b * s, *x.shape[2:])._expr for x in given]
        merged = TupleType(
            (
                TensorType([b * s, heads, d], o_self_attn.dtype),
                TensorType([b * s, heads], lse_self_attn.dtype),
            )
        )
        name = _PREFIX + "merge_attn_output_inplace"
        call = call_pure_packed(name, self._expr, *flat, ty_args=merged)
        return _unflattened(call, (b, s, heads, d))

    def get_query_positions(self, total_length: Expr | int) -> Tensor:
        """Return the position of each token of the round, int32 ``[total_length]``."""
        out = TensorType([total_length], "int32")
        call = call_pure_packed(_PREFIX + "get_query_positions", self._expr, ty_args=out)
        return Tensor(_expr=emit(call))

    def _attended(
        self,
        name: str,
        layer: int,
        sm_scale: float,
        tensors: Sequence[Tensor],
        out: TensorType,
        b: Any,
        s: Any,
    ) -> Tensor:
        call = self._call(name, layer, sm_scale, tensors, out)
        result = Tensor(_expr=emit(call))
        return result.reshape(b, s, *result.shape[1:])

    def _partial(
        self,
        name: str,
        layer: int,
        sm_scale: float,
        tensors: Sequence[Tensor],
        sizes: tuple[Any, Any, Any, Any],
    ) -> tuple[Tensor, Tensor]:
        b, s, heads, d = sizes
        out = TensorType([b * s, heads, d], tensors[0].dtype)
        lse = TensorType([b * s, heads], "float32")
        return _unflattened(self._call(name, layer, sm_scale, tensors, [out, lse]), sizes)

    def _call(
        self, name: str, layer: int, sm_scale: float, tensors: Sequence[Tensor], out: Any
    ) -> Expr:
        arguments = [self._expr, layer, float(sm_scale), *(x._expr for x in tensors)]
        return call_dps_packed(_PREFIX + name, tuple(arguments), out)


def _unflattened(call: Expr, sizes: tuple[Any, Any, Any, Any]) -> tuple[Tensor, Tensor]:
    """Bind a pair of output and log-sum-exp and return it with leading sizes."""
    b, s, heads, d = sizes
    pair = emit(call)
    out = Tensor(_expr=emit(TupleGetItem(pair, 0))).reshape(b, s, heads, d)
    lse = Tensor(_expr=emit(TupleGetItem(pair, 1))).reshape(b, s, heads)
    return out, lse


class TIRPagedKVCache(PagedKVCache):
    """A new paged cache, made where the model's function runs.

    Parameters are those of TVM's class of this name. Kernels come from the runtime
    (:func:`relaxlab.runtime.kv.attention.pick`): compiled ones where they can be compiled, and the
    numpy family for ``target`` ``numpy``.

    Parameters
    ----------
    attn_kind
        ``"mha"``, ``"mla"``, or one per layer: ``"mha"``, ``"mla"`` or ``"mha_sliding"``.
    max_batch_size, max_total_seq_len, prefill_chunk_size, page_size, support_sliding_window
        Sizes; variables of the function under construction, or numbers.
    layer_partition
        Shape of the first layer and the one after the last.
    num_hidden_layers, num_attention_heads, num_key_value_heads, qk_head_dim, v_head_dim
        Sizes of the model.
    mla_original_qk_head_dim, mla_original_v_head_dim
        Sizes of decompressed heads; the kernels read them from the tensors.
    rope_mode, rope_scale, rope_theta, rope_scaling, rope_ext_factors, rotary_dim
        The rotation; ``rope_ext_factors`` is a tensor, or a number for none.
    enable_disaggregation
        Whether keys and values can be sent to another process.
    dtype
        Element type of the cache.
    target
        Where it will run.
    name
        Name of the variable.
    layer_sliding_window_size
        Window of ``"mha_sliding"`` layers.

    Raises
    ------
    ValueError
        If a kind of attention is unknown, or ``"mla"`` is mixed with others.
    """

    def __init__(
        self,
        attn_kind: str | Sequence[str],
        max_batch_size: Expr | int,
        max_total_seq_len: Expr | int,
        prefill_chunk_size: Expr | int,
        page_size: Expr | int,
        support_sliding_window: Expr | int,
        layer_partition: Expr,
        num_hidden_layers: int,
        num_attention_heads: int,
        num_key_value_heads: int,
        qk_head_dim: int,
        v_head_dim: int,
        mla_original_qk_head_dim: int,
        mla_original_v_head_dim: int,
        rope_mode: RopeMode,
        rope_scale: float,
        rope_theta: float,
        rope_scaling: Mapping[str, Any] | None,
        rope_ext_factors: Expr,
        rotary_dim: int,
        enable_disaggregation: bool,
        dtype: str,
        target: Target | str,
        name: str = "paged_kv_cache",
        *,
        layer_sliding_window_size: int = 1024,
    ) -> None:
        kinds = _kinds_of(attn_kind, num_hidden_layers)
        latent = AttnKind.MLA in kinds
        spec = {
            "num_qo_heads": num_attention_heads,
            "num_kv_heads": num_key_value_heads,
            "qk_head_dim": qk_head_dim,
            "v_head_dim": v_head_dim,
            "dtype": dtype,
            "layer_window": layer_sliding_window_size if AttnKind.MHA_SLIDING in kinds else 0,
            "rope": {
                "head_dim": qk_head_dim,
                "theta": float(rope_theta),
                "scale": float(rope_scale),
                "rotary_dim": rotary_dim or None,
                "scaling": dict(rope_scaling or {}),
            },
        }
        sizes = [
            max_batch_size,
            max_total_seq_len,
            prefill_chunk_size,
            page_size,
            support_sliding_window,
            layer_sliding_window_size,
        ]
        init = emit(zeros(ShapeExpr([]), dtype))
        kernels = _Kernels(json.dumps(spec, sort_keys=True), _family_of(target))
        call = call_pure_packed(
            "vm.builtin.paged_attention_kv_cache_create",
            ShapeExpr(sizes),
            layer_partition,
            num_attention_heads,
            num_key_value_heads,
            qk_head_dim,
            v_head_dim,
            ShapeExpr([int(kind) for kind in kinds]),
            enable_disaggregation,
            int(rope_mode),
            rope_scale,
            rope_theta,
            rope_ext_factors,
            init,
            *(kernels.latent() if latent else kernels.of_heads()),
            ty_args=AnyType(),
        )
        super().__init__(_expr=call, _name=name)


class _Kernels:
    """Emits the calls that fetch kernels, and the arguments made of them."""

    def __init__(self, spec: str, family: str) -> None:
        call = call_pure_packed("relaxlab.kv.kernel_spec", spec, ty_args=AnyType())
        self._spec, self._family = emit(call, "kernel_spec"), family

    def one(self, kind: Kind) -> Expr:
        """Return a variable for a kernel."""
        call = call_pure_packed(
            "relaxlab.kv.kernel", kind, self._spec, self._family, ty_args=AnyType()
        )
        return emit(call, kind)

    def backend(self, kind: Kind) -> Expr:
        """Return a kernel in the form of an attention backend."""
        return Tuple((StringImm("tirx"), self.one(kind)))

    def of_heads(self) -> list[Expr]:
        """Return the last fifteen arguments for a cache of heads."""
        append = self.one("transpose_append")
        attention: tuple[Kind, ...] = (
            "ragged_prefill",
            "paged_prefill",
            "paged_decode",
            "paged_prefill_sliding",
            "paged_decode_sliding",
            "paged_prefill_tree",
            "ragged_prefill_tree",
        )
        backends = [self.backend(kind) for kind in attention]
        merge = self.one("merge_state_inplace")
        rest: tuple[Kind, ...] = (
            "split_rotary",
            "copy_single_page",
            "debug_get_kv",
            "compact_copy",
        )
        last = [self.one(kind) for kind in rest]
        nothing = emit(null_value())
        return [append, nothing, *backends, Tuple(()), Tuple((merge, merge)), *last]

    def latent(self) -> list[Expr]:
        """Return the last fifteen arguments for a cache of latent rows."""
        append = self.one("transpose_append_mla")
        ragged, prefill = self.backend("ragged_prefill"), self.backend("mla_prefill")
        merge = self.one("merge_state_inplace")
        copy, debug = self.one("copy_single_page_mla"), self.one("debug_get_kv_mla")
        split, compact = self.one("split_rotary"), self.one("compact_copy")
        nothing, absent = emit(null_value()), Tuple(())
        backends = [ragged, *[absent] * 6, prefill, Tuple((merge, merge))]
        return [nothing, append, *backends, split, copy, debug, compact]


def _kinds_of(attn_kind: str | Sequence[str], layers: int) -> list[AttnKind]:
    names = [attn_kind] * layers if isinstance(attn_kind, str) else list(attn_kind)
    unknown = [name for name in names if name not in _KINDS]
    if unknown or len(names) != layers:
        raise ValueError(
            f"attn_kind: expected one of {', '.join(_KINDS)} for each of {layers} layers, "
            f"got {attn_kind!r}"
        )
    kinds = [_KINDS[name] for name in names]
    if AttnKind.MLA in kinds and len(set(kinds)) > 1:
        raise ValueError("attn_kind: latent layers cannot be mixed with others in one cache")
    return kinds


def _family_of(target: Target | str) -> str:
    """Return the family of kernels that a target asks for; empty: the best there is."""
    kind = target if isinstance(target, str) else target.kind.name
    if kind not in ("llvm", "numpy", "interpreter"):
        raise InternalError(f"a paged cache: no kernels for target {kind!r}; use llvm or numpy")
    return "" if kind == "llvm" else "numpy"
