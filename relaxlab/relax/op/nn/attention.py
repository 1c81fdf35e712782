"""Attention. Counterpart: part of ``tvm.relax.op.nn``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> q = Var("q", TensorType([1, 8, 2, 4]))
>>> attention(q, q, q, causal_mask="TopLeft").op.name
'relax.nn.attention'
"""

from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.prim import FloatImm, IntImm
from relaxlab.ir.type import Type
from relaxlab.relax.op.declare import InferenceContext, call_op, declare
from relaxlab.relax.op.inference import dims_of, tensor_argument
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import TensorType
from relaxlab.runtime.dtype import DataType

__all__ = ["attention", "attention_var_len"]

_ALWAYS = 0
_AXES = "[batch size, sequence length, number of heads, dimension of heads]"


def _literals(a: Expr, b: Expr) -> tuple[int, int] | None:
    return (a.value, b.value) if isinstance(a, IntImm) and isinstance(b, IntImm) else None


class _Shapes:
    """The extents of the operands, with checks that name what differs."""

    def __init__(self, call: Call, names: tuple[str, ...]) -> None:
        self.dims: dict[str, tuple[Expr, ...] | None] = {}
        for i, name in enumerate(names):
            ty = tensor_argument(call, i)
            if ty.ndim != 4 and not (ty.ndim == -1 and i > 0):
                raise ValueError(f"The {name} should have 4 dimension, namely {_AXES}.")
            self.dims[name] = dims_of(ty)

    def same(self, first: str, second: str, axis: int, short: str, long: str) -> None:
        """Refuse two extents that differ."""
        a, b = self.dims[first], self.dims[second]
        pair = None if a is None or b is None else _literals(a[axis], b[axis])
        if a is not None and b is not None and pair is not None and pair[0] != pair[1]:
            raise ValueError(
                f"The {first} {short} and the {second} {short} should be the same. However, the "
                f"{long} of {first} is {a[axis]} while the {long} of {second} is {b[axis]}"
            )

    def multiple(self, second: str) -> None:
        """Refuse a number of heads that does not divide that of the query."""
        a, b = self.dims["query"], self.dims[second]
        pair = None if a is None or b is None else _literals(a[2], b[2])
        if a is not None and b is not None and pair is not None and pair[0] % pair[1]:
            raise ValueError(
                f"The query number of heads should be a multiple of {second} number of heads. "
                f"However, the number of heads of query is {a[2]} while the number of heads of "
                f"{second} is {b[2]}"
            )


def _check_bias(call: Call, shapes: _Shapes) -> None:
    bias = tensor_argument(call, 3)
    if bias.ndim not in (-1, 4):
        raise ValueError(
            f"The bias should have 4 dimensions.However, the bias input has {bias.ndim} dimensions."
        )
    dims = dims_of(bias)
    if dims is None:
        return
    for i, (operand, axis, short, long) in enumerate(
        (
            ("query", 0, "batch size", "batch size"),
            ("query", 2, "number of heads", "number of heads"),
            ("query", 1, "sequence length", "sequence length"),
        )
    ):
        own = shapes.dims[operand]
        pair = None if own is None else _literals(own[axis], dims[i])
        if own is not None and pair is not None and pair[0] != pair[1] and pair[1] != 1:
            raise ValueError(
                f"The {operand} {short} and the bias {short} should be the same or "
                f"broadcastable. However, the {long} of {operand} is {own[axis]} while the {long} "
                f"of bias is {dims[i]}"
            )
    keys = shapes.dims["key"]
    pair = None if keys is None else _literals(keys[1], dims[3])
    if keys is not None and pair is not None and pair[0] != pair[1]:
        raise ValueError(
            "The key sequence length and the bias sequence length should be the same. However, "
            f"the sequence length of key is {keys[1]} while the sequence length of bias is "
            f"{dims[3]}"
        )


def _infer_attention(call: Call, ctx: InferenceContext) -> Type:
    shapes = _Shapes(call, ("query", "key", "value"))
    shapes.same("query", "key", 0, "batch size", "batch size")
    shapes.same("query", "value", 0, "batch size", "batch size")
    shapes.multiple("key")
    shapes.multiple("value")
    shapes.same("key", "value", 1, "sequence length", "sequence length")
    shapes.same("query", "key", 3, "dimension of heads", "dimension of heads")
    if len(call.args) == 4:
        _check_bias(call, shapes)
    query, dims, values = tensor_argument(call, 0), shapes.dims["query"], shapes.dims["value"]
    if dims is None or values is None:
        return TensorType(None, query.dtype, query.vdevice, 4)
    return TensorType(ShapeExpr((*dims[:3], values[3])), query.dtype, query.vdevice)


_ATTRIBUTES = ("scale", "causal_mask", "window_size")
_ATTENTION = declare(
    "nn.attention",
    ("query", "key", "value"),
    _infer_attention,
    attributes=_ATTRIBUTES,
    TMixedPrecisionPolicy=_ALWAYS,
)
_ATTENTION_BIAS = declare(
    "nn.attention_bias",
    ("query", "key", "value", "bias"),
    _infer_attention,
    attributes=_ATTRIBUTES,
    TMixedPrecisionPolicy=_ALWAYS,
)
_VAR_LEN_ARGUMENTS = (
    "query",
    "key",
    "value",
    "seqstart_q",
    "seqstart_k",
    "max_seqlen_q",
    "max_seqlen_k",
)
_ATTENTION_VAR_LEN = declare(
    "nn.attention_var_len",
    _VAR_LEN_ARGUMENTS,
    _infer_attention,
    attributes=_ATTRIBUTES,
    TMixedPrecisionPolicy=_ALWAYS,
)


def _scale(scale: float | FloatImm | None) -> FloatImm | None:
    if scale is None or isinstance(scale, FloatImm):
        return scale
    return FloatImm(DataType("float32"), float(scale))


def _window(size: int | IntImm | None) -> IntImm | None:
    return IntImm(DataType("int32"), size) if isinstance(size, int) else size


def attention(
    query: Expr,
    key: Expr,
    value: Expr,
    bias: Expr | None = None,
    scale: float | FloatImm | None = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> Call:
    """Softmax of the scaled products of queries and keys, times the values.

    Parameters
    ----------
    query, key, value
        Of shape (batch, sequence, heads, head dimension). Several query heads may share one of
        key and value.
    bias
        Added to the products, of shape (batch, heads, query, key) or broadcast to it.
    scale
        Factor of the products; one over the root of the head dimension when None.
    causal_mask
        ``"TopLeft"`` (query i sees keys up to i), ``"BottomRight"`` (the last query sees all
        keys), or None for all.
    window_size
        How many keys back a query sees; None for all.
    """
    attrs = {
        "scale": _scale(scale),
        "causal_mask": causal_mask,
        "window_size": _window(window_size),
    }
    if bias is not None:
        return call_op(_ATTENTION_BIAS, query, key, value, bias, **attrs)
    return call_op(_ATTENTION, query, key, value, **attrs)


def attention_var_len(
    queries: Expr,
    keys: Expr,
    values: Expr,
    seqstart_q: Expr,
    max_seqlen_q: Expr,
    seqstart_k: Expr | None = None,
    max_seqlen_k: Expr | None = None,
    scale: float | FloatImm | None = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> Call:
    """:func:`attention` over sequences of several lengths, one behind the other.

    Parameters
    ----------
    queries, keys, values
        As there, with a batch of 1.
    seqstart_q, seqstart_k
        Where each sequence begins, the end last; those of the keys are those of the queries when
        None.
    max_seqlen_q, max_seqlen_k
        The longest sequence.
    scale, causal_mask, window_size
        As there.
    """
    return call_op(
        _ATTENTION_VAR_LEN,
        queries,
        keys,
        values,
        seqstart_q,
        seqstart_q if seqstart_k is None else seqstart_k,
        max_seqlen_q,
        max_seqlen_q if max_seqlen_k is None else max_seqlen_k,
        scale=_scale(scale),
        causal_mask=causal_mask,
        window_size=_window(window_size),
    )
