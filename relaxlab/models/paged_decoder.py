"""A Llama decoder as a Relax module that leaves keys and values to a paged cache.

Two functions come out; ``t`` tokens of any number of sequences are the round that the cache's
``begin_forward`` was told of, ``cache`` is the cache itself, ``params`` the tuple of weights:

``prefill(tokens (t,), rows (r,), cache, params)``
    returns the logits ``(r, vocab)`` after the tokens numbered ``rows``;
``decode(tokens (t,), cache, params)``
    returns the logits ``(t, vocab)`` after every token.

Compiled once, they serve every batch size, length and page size: what belongs to which sequence,
at which position and in which page, only the cache knows. It rotates queries and keys, stores keys
and values, and attends, all behind one call per layer. Counterpart: MLC's ``batch_prefill``,
``batch_decode`` and ``batch_verify``.

Examples
--------
>>> from relaxlab.models import tiny
>>> sorted(g.name_hint for g in paged_decoder(tiny.CONFIG).get_global_vars())
['decode', 'prefill']
"""

from relaxlab import relax
from relaxlab.ir import AnyType, Expr, IRModule, TupleType, Var
from relaxlab.models.config import LlamaConfig
from relaxlab.models.layers import Layers
from relaxlab.models.weights import parameter_shapes
from relaxlab.relax import op

__all__ = ["paged_decoder"]

_ATTENTION = "vm.builtin.attention_kv_cache_attention_with_fused_qkv"


def paged_decoder(config: LlamaConfig) -> IRModule:
    """Build the module of ``prefill`` and ``decode`` for these sizes."""
    builder = relax.BlockBuilder()
    _emit_function(builder, config, "prefill")
    _emit_function(builder, config, "decode")
    return builder.get()


def _emit_function(builder: relax.BlockBuilder, config: LlamaConfig, name: str) -> None:
    new = Var("t", "int64")
    tokens = Var("tokens", relax.TensorType([new], "int64"))
    wanted = Var("rows", relax.TensorType([Var("r", "int64")], "int64"))
    rows = wanted if name == "prefill" else None
    cache = Var("cache", AnyType())
    shapes = parameter_shapes(config)
    params = Var(
        "params", TupleType(tuple(relax.TensorType(s, "float32") for s in shapes.values()))
    )
    inputs = [tokens, *([rows] if rows is not None else []), cache]
    with builder.function(name, [*inputs, params], attrs={"num_input": len(inputs)}):
        with builder.dataflow():
            network = _Network(builder, config, params, list(shapes))
            logits = builder.emit_output(network.forward(tokens, new, rows, cache))
        builder.emit_func_output(logits)


class _Network(Layers):
    """The layers, emitted in order into the builder's current dataflow block."""

    def forward(self, tokens: Var, new: Expr, rows: Var | None, cache: Var) -> Expr:
        """Emit the whole network and return the logits."""
        x = self.emit(op.take(self.param("embed"), tokens, axis=0), "x")
        for layer in range(self.config.layers):
            x = self.emit(op.add(x, self.attention(layer, x, new, cache)), "x")
            x = self.emit(op.add(x, self.feed_forward(layer, x)), "x")
        if rows is not None:
            x = self.emit(op.take(x, rows, axis=0), "wanted")
        return self.emit(op.matmul(self.norm("norm", x), self.param("head")), "logits")

    def attention(self, layer: int, x: Expr, new: Expr, cache: Var) -> Var:
        """Emit one attention layer: the cache does everything between the two projections."""
        c = self.config
        x = self.norm(f"layers.{layer}.attn_norm", x)
        qkv = self.emit(op.matmul(x, self.param(f"layers.{layer}.qkv")), "qkv")
        qkv = self.emit(op.reshape(qkv, (new, c.heads + 2 * c.kv_heads, c.head_dim)))
        out = self.emit(
            op.call_dps_packed(
                _ATTENTION,
                (cache, layer, float(c.head_dim) ** -0.5, qkv),
                relax.TensorType([new, c.heads, c.head_dim], "float32"),
            ),
            f"attended{layer}",
        )
        out = self.emit(op.reshape(out, (new, c.heads * c.head_dim)))
        return self.emit(op.matmul(out, self.param(f"layers.{layer}.out")))
