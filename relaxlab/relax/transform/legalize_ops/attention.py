"""Legalization of attention: two batched products with a softmax between them.

Counterpart: part of ``tvm.relax.transform.legalize_ops.nn``. Where several query heads share one
of key and value, TVM's kernel reads beyond the keys; here the shared heads are repeated.

Examples
--------
>>> from relaxlab.ir import Op
>>> Op.get("relax.nn.attention").has_attr("FLegalize")
True
"""

from relaxlab import topi
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.prim import FloatImm, IntImm
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.transform.legalize_ops.registration import attrs_of, register_legalize
from relaxlab.te import Tensor
from relaxlab.topi.indices import same_extent

__all__: list[str] = []


def _heads_first(x: Tensor, repeats: int) -> Tensor:
    """Return one matrix per batch and head."""
    batch, length, heads, depth = x.shape
    x = topi.transpose(x, [0, 2, 1, 3])
    if repeats > 1:
        x = topi.repeat(x, repeats, 1)
    return topi.reshape(x, (batch * heads * repeats, length, depth))


def _repeats(query: Tensor, shared: Tensor) -> int:
    a, b = query.shape[2], shared.shape[2]
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return a.value // b.value
    if same_extent(a, b):
        return 1
    raise ValueError(
        f"attention: {a} heads of the query and {b} of key and value; these numbers must be known "
        "to tell how many query heads share one of the others"
    )


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    scale: FloatImm | None,
    causal_mask: str | None,
) -> Tensor:
    """Return softmax(query x key) x value.

    Parameters
    ----------
    query, key, value
        Of shape (batch, sequence, heads, head dimension).
    bias
        Added to the products.
    scale
        Factor of the products; one over the root of the head dimension when None.
    causal_mask
        ``"TopLeft"``, ``"BottomRight"`` (for no more queries than keys), or None.
    """
    batch, queries, heads, depth = query.shape
    keys, out_depth = key.shape[1], value.shape[3]
    q = _heads_first(query, 1)
    k = _heads_first(key, _repeats(query, key))
    v = _heads_first(value, _repeats(query, value))
    p = topi.nn.batch_matmul(q, k)
    if scale is not None:
        p = topi.multiply(p, prim_ops.cast(p.dtype, scale))
    else:
        p = topi.divide(p, prim_ops.sqrt(prim_ops.cast(p.dtype, depth)))
    if bias is not None:
        p = topi.reshape(p, (batch, heads, queries, keys))
        p = topi.add(p, bias)
        p = topi.reshape(p, (batch * heads, queries, keys))
    if causal_mask is None:
        weights = topi.nn.softmax(p)
    else:
        top_left = causal_mask == "TopLeft"
        offset = prim_ops.const(0) if top_left else prim_ops.abs(queries - keys)
        p = topi.trilu(p, offset, False)
        exps = topi.exp(topi.subtract(p, topi.max(p, axis=-1, keepdims=True)))
        exps = topi.trilu(exps, offset, False)
        weights = topi.divide(exps, topi.sum(exps, axis=-1, keepdims=True))
    out = topi.nn.batch_matmul(weights, v, transpose_b=False)
    out = topi.reshape(out, (batch, heads, queries, out_depth))
    return topi.transpose(out, [0, 2, 1, 3])


def _legalize(bb: BlockBuilder, call: Call, name: str) -> Expr:
    attrs = attrs_of(call)
    if attrs.window_size is not None:
        raise AssertionError("Legalization for sliding-window attention is not supported yet.")
    if attrs.causal_mask not in (None, "TopLeft", "BottomRight"):
        raise ValueError(
            "attention: causal_mask must be TopLeft, BottomRight or None, got "
            f"{attrs.causal_mask!r}"
        )

    def te_attention(
        query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None
    ) -> Tensor:
        return attention(query, key, value, bias, attrs.scale, attrs.causal_mask)

    return bb.call_te(te_attention, *call.args, primfunc_name_hint=name)


@register_legalize("nn.attention")
def _attention(bb: BlockBuilder, call: Call) -> Expr:
    return _legalize(bb, call, "attention")


@register_legalize("nn.attention_bias")
def _attention_bias(bb: BlockBuilder, call: Call) -> Expr:
    return _legalize(bb, call, "attention_bias")


@register_legalize("nn.attention_var_len")
def _attention_var_len(bb: BlockBuilder, call: Call) -> Expr:
    raise RuntimeError("Legalization of attention_var_len op is not supported yet.")
