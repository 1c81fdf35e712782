"""A Llama decoder as a Relax module, with symbolic lengths and a dense key/value cache.

Two functions come out, both pure; ``L`` layers, ``K`` key/value heads, ``D`` values per head,
``t`` tokens in the cache, ``n`` new ones:

``prefill(tokens (n,), positions (n,), mask (n, t + n), caches, params)``
    any number of tokens on top of any cache, an empty one (``t = 0``) included;
``decode(tokens (1,), positions (1,), caches, params)``
    one token.

Both return the logits ``(1, vocab)`` after the last token and the longer caches. ``caches`` is a
tuple of ``2 L`` tensors, per layer keys ``(K, D, t)``, transposed so that scores are one matmul,
and values ``(K, t, D)``. Nothing is changed in place: a step of the machine can be undone and
replayed. ``params`` is the tuple of :func:`parameter_names`. Counterpart: MLC's model definitions
on ``tvm.relax.frontend.nn``.

Examples
--------
>>> from relaxlab.models import tiny
>>> sorted(g.name_hint for g in decoder(tiny.CONFIG).get_global_vars())
['decode', 'prefill']
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from relaxlab import relax
from relaxlab.ir import Expr, IRModule, TupleType, Var
from relaxlab.models.config import LlamaConfig
from relaxlab.models.layers import Layers
from relaxlab.models.weights import parameter_shapes
from relaxlab.relax import op

__all__ = ["decoder", "parameter_names", "rope_tables"]


def parameter_names(config: LlamaConfig) -> list[str]:
    """Names of the module's parameters in order: the weights, then the tables of rotary angles."""
    return [*parameter_shapes(config), "rope_cos", "rope_sin"]


def rope_tables(config: LlamaConfig) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return cosine and sine of every position, each ``[context, head_dim]`` float32.

    Halves are repeated and the first half of the sine is negative, so that rotating a row ``x``
    is ``x * cos + swap_halves(x) * sin``.
    """
    exponents = np.arange(0, config.head_dim, 2) / config.head_dim
    angles = np.arange(config.context)[:, None] * config.rope_theta**-exponents
    cos = np.concatenate([np.cos(angles)] * 2, axis=1)
    sin = np.concatenate([-np.sin(angles), np.sin(angles)], axis=1)
    return cos.astype(np.float32), sin.astype(np.float32)


def decoder(config: LlamaConfig) -> IRModule:
    """Build the module of ``prefill`` and ``decode`` for these sizes."""
    builder = relax.BlockBuilder()
    _emit_function(builder, config, "prefill")
    _emit_function(builder, config, "decode")
    return builder.get()


def _tensor(name: str, shape: Sequence[Expr | int], dtype: str = "float32") -> Var:
    return Var(name, relax.TensorType(shape, dtype))


def _emit_function(builder: relax.BlockBuilder, config: LlamaConfig, name: str) -> None:
    past = Var("t", "int64")
    new: Expr | int = Var("n", "int64") if name == "prefill" else 1
    tokens = _tensor("tokens", [new], "int64")
    positions = _tensor("positions", [new], "int64")
    mask = _tensor("mask", [new, past + new]) if name == "prefill" else None
    keys = relax.TensorType([config.kv_heads, config.head_dim, past], "float32")
    values = relax.TensorType([config.kv_heads, past, config.head_dim], "float32")
    caches = Var("caches", TupleType((keys, values) * config.layers))
    shapes = parameter_shapes(config)
    shapes |= dict.fromkeys(("rope_cos", "rope_sin"), (config.context, config.head_dim))
    params = Var(
        "params", TupleType(tuple(relax.TensorType(s, "float32") for s in shapes.values()))
    )
    inputs = [tokens, positions, *([mask] if mask is not None else []), caches]
    with builder.function(name, [*inputs, params], attrs={"num_input": len(inputs)}):
        with builder.dataflow():
            network = _Network(builder, config, past, new, params, positions)
            logits, updated = network.forward(tokens, caches, mask)
            result = builder.emit_output(relax.Tuple((logits, relax.Tuple(updated))))
        builder.emit_func_output(result)


class _Network(Layers):
    """The layers, emitted in order into the builder's current dataflow block."""

    def __init__(
        self,
        builder: relax.BlockBuilder,
        config: LlamaConfig,
        past: Var,
        new: Expr | int,
        params: Var,
        positions: Var,
    ) -> None:
        super().__init__(builder, config, params, parameter_names(config))
        self.past, self.new = past, new
        self.cos, self.sin = (
            self.emit(
                op.reshape(
                    self.emit(op.take(self.param(table), positions, axis=0)),
                    (new, 1, config.head_dim),
                )
            )
            for table in ("rope_cos", "rope_sin")
        )

    def forward(self, tokens: Var, caches: Var, mask: Var | None) -> tuple[Expr, tuple[Expr, ...]]:
        """Emit the whole network; return the logits and the updated caches."""
        x = self.emit(op.take(self.param("embed"), tokens, axis=0), "x")
        updated: list[Expr] = []
        for layer in range(self.config.layers):
            keys = self.emit(relax.TupleGetItem(caches, 2 * layer))
            values = self.emit(relax.TupleGetItem(caches, 2 * layer + 1))
            attended, keys, values = self.attention(layer, x, keys, values, mask)
            x = self.emit(op.add(x, attended), "x")
            x = self.emit(op.add(x, self.feed_forward(layer, x)), "x")
            updated += [keys, values]
        if mask is not None:  # only the last token's logits are wanted
            x = self.emit(op.strided_slice(x, [0], [self.new - 1], [self.new]), "last")
        return self.emit(op.matmul(self.norm("norm", x), self.param("head")), "logits"), (*updated,)

    def rotate(self, rows: Expr) -> Var:
        """Emit the rotation of ``rows`` ``(n, heads, D)`` by their positions."""
        halves = self.emit(op.split(rows, 2, axis=2))
        first = self.emit(relax.TupleGetItem(halves, 0))
        second = self.emit(relax.TupleGetItem(halves, 1))
        swapped = self.emit(op.concat((second, first), axis=2))
        straight = self.emit(op.multiply(rows, self.cos))
        crossed = self.emit(op.multiply(swapped, self.sin))
        return self.emit(op.add(straight, crossed))

    def attention(
        self, layer: int, x: Expr, keys: Expr, values: Expr, mask: Var | None
    ) -> tuple[Var, Var, Var]:
        """Emit one attention layer; return its output and the longer cache."""
        c, n = self.config, self.new
        h, k, g, d = c.heads, c.kv_heads, c.group, c.head_dim
        x = self.norm(f"layers.{layer}.attn_norm", x)
        qkv = self.emit(op.matmul(x, self.param(f"layers.{layer}.qkv")), "qkv")
        parts = self.emit(op.split(qkv, [(h + k) * d], axis=1))
        qk = self.emit(op.reshape(self.emit(relax.TupleGetItem(parts, 0)), (n, h + k, d)))
        qk = self.emit(op.split(self.rotate(qk), [h], axis=1))
        q = self.emit(relax.TupleGetItem(qk, 0), "q")
        new_keys = self.emit(relax.TupleGetItem(qk, 1))
        new_values = self.emit(op.reshape(self.emit(relax.TupleGetItem(parts, 1)), (n, k, d)))
        # a group's queries stand together, so that each key/value head is one matrix product
        q = self.emit(op.reshape(q, (n, k, g, d)))
        q = self.emit(op.permute_dims(q, [1, 2, 0, 3]))
        q = self.emit(op.reshape(q, (k, g * n, d)))
        new_keys = self.emit(op.permute_dims(new_keys, [1, 2, 0]))
        new_values = self.emit(op.permute_dims(new_values, [1, 0, 2]))
        keys = self.emit(op.concat((keys, new_keys), axis=2), f"keys{layer}")
        values = self.emit(op.concat((values, new_values), axis=1), f"values{layer}")
        scores = self.emit(op.matmul(q, keys))
        scores = self.emit(op.multiply(scores, relax.const(float(d) ** -0.5, "float32")), "scores")
        if mask is not None:
            total = self.past + n
            scores = self.emit(op.reshape(scores, (k, g, n, total)))
            scores = self.emit(op.add(scores, mask))
            scores = self.emit(op.reshape(scores, (k, g * n, total)))
        weights = self.emit(op.nn.softmax(scores, axis=-1), "weights")
        out = self.emit(op.matmul(weights, values))
        out = self.emit(op.reshape(out, (k, g, n, d)))
        out = self.emit(op.permute_dims(out, [2, 0, 1, 3]))
        out = self.emit(op.reshape(out, (n, h * d)))
        out = self.emit(op.matmul(out, self.param(f"layers.{layer}.out")), "attended")
        return out, keys, values
