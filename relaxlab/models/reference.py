"""The forward pass of a Llama decoder in plain NumPy: what the compiled model must equal.

Short and obvious, and as fast as plain NumPy gets without giving that up, because it is also the
yardstick that ``relaxlab bench llm`` measures the compiled module against. Counterpart: none in
TVM; it plays the part that a framework's eager model plays in its tests.

Examples
--------
>>> from relaxlab.models import tiny
>>> model = ReferenceLlama(tiny.CONFIG, tiny.weights())
>>> cache = model.cache(8)
>>> model.forward([104, 105], cache).shape, cache.length
((256,), 2)
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relaxlab.models.config import LlamaConfig
from relaxlab.models.weights import parameter_shapes

__all__ = ["DenseCache", "ReferenceLlama", "greedy"]

Floats = NDArray[np.float32]

_QUERY_BLOCK = 128  # queries of a prompt are taken so many at a time: their scores stay in cache


@dataclass(slots=True)
class DenseCache:
    """Keys and values of every layer, ``[layers, kv_heads, capacity, head_dim]``.

    `length` counts the positions in use; `ReferenceLlama.forward` appends and advances it.
    """

    keys: Floats
    values: Floats
    length: int = 0

    @property
    def capacity(self) -> int:
        """Positions there is room for."""
        return int(self.keys.shape[2])


class ReferenceLlama:
    """A Llama decoder, one sequence, float32.

    Parameters
    ----------
    config
        Sizes; both rotary forms are computed.
    weights
        Arrays by name, see `relaxlab.models.weights`. Taken as they are, not copied.

    Raises
    ------
    ValueError
        A parameter is missing or has another shape.
    """

    def __init__(self, config: LlamaConfig, weights: Mapping[str, Floats]) -> None:
        self.config = config
        self.weights = {name: weights[name] for name in weights}
        for name, shape in parameter_shapes(config).items():
            found = self.weights[name].shape if name in self.weights else "no such parameter"
            if found != shape:
                raise ValueError(f"parameter {name!r}: expected shape {shape}, got {found}")

    def cache(self, capacity: int) -> DenseCache:
        """Return an empty cache with room for ``capacity`` positions."""
        c = self.config
        shape = (c.layers, c.kv_heads, capacity, c.head_dim)
        return DenseCache(np.zeros(shape, np.float32), np.zeros(shape, np.float32))

    def forward(
        self, tokens: Sequence[int], cache: DenseCache, *, all_positions: bool = False
    ) -> Floats:
        """Append tokens to the cached sequence and return the logits after the last one.

        Parameters
        ----------
        tokens
            A whole prompt, or the one token just chosen.
        cache
            Grows by ``len(tokens)`` positions.
        all_positions
            Return logits ``[len(tokens), vocab]`` after every token instead of ``[vocab]``.

        Raises
        ------
        ValueError
            No tokens, a token outside the vocabulary, or no room in the cache.
        """
        c, w, start = self.config, self.weights, cache.length
        end = start + len(tokens)
        if not tokens or end > cache.capacity:
            raise ValueError(f"expected 1 to {cache.capacity - start} tokens, got {len(tokens)}")
        if not 0 <= min(tokens) <= max(tokens) < c.vocab:
            raise ValueError(f"tokens must be from 0 to {c.vocab - 1}, got {list(tokens)!r:.80}")

        angles = self._angles(start, end)
        x = w["embed"][list(tokens)]
        for layer in range(c.layers):
            name = f"layers.{layer}"
            qkv = _rms_norm(x, w[f"{name}.attn_norm"], c.eps) @ w[f"{name}.qkv"]
            q, k, v = np.split(qkv, [c.q_width, c.q_width + c.kv_width], axis=1)
            q = self._rotate(q, angles)
            keys, values = cache.keys[layer, :, :end], cache.values[layer, :, :end]
            keys[:, start:] = self._rotate(k, angles)
            values[:, start:] = self._heads(v)
            x = x + self._attend(q, keys, values, start) @ w[f"{name}.out"]
            gate_up = _rms_norm(x, w[f"{name}.mlp_norm"], c.eps) @ w[f"{name}.gate_up"]
            gate, up = gate_up[:, : c.ff], gate_up[:, c.ff :]
            x = x + (gate / (1 + np.exp(-gate)) * up) @ w[f"{name}.down"]
        cache.length = end
        rows = x if all_positions else x[-1:]
        logits: Floats = _rms_norm(rows, w["norm"], c.eps) @ w["head"]
        return logits if all_positions else logits[0]

    def _heads(self, rows: Floats) -> Floats:
        """``[n, heads * head_dim]`` to ``[heads, n, head_dim]``."""
        return rows.reshape(len(rows), -1, self.config.head_dim).swapaxes(0, 1)

    def _angles(self, start: int, end: int) -> tuple[Floats, Floats]:
        """Cosines and sines ``[end - start, head_dim / 2]`` of the rotary positions."""
        half = np.arange(0, self.config.head_dim, 2) / self.config.head_dim
        angles = np.arange(start, end)[:, None] * self.config.rope_theta**-half
        return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)

    def _rotate(self, rows: Floats, angles: tuple[Floats, Floats]) -> Floats:
        """Turn each pair of every head by its position's angle, ``[heads, n, head_dim]``."""
        heads, (cos, sin), half = self._heads(rows), angles, self.config.head_dim // 2
        if self.config.rope_interleaved:
            first, second = slice(0, None, 2), slice(1, None, 2)
        else:
            first, second = slice(0, half), slice(half, None)
        a, b = heads[..., first], heads[..., second]
        turned = np.empty(heads.shape, np.float32)
        turned[..., first] = a * cos - b * sin
        turned[..., second] = b * cos + a * sin
        return turned

    def _attend(self, q: Floats, keys: Floats, values: Floats, start: int) -> Floats:
        """Causal attention of queries ``[heads, n, d]`` at positions ``start...``; ``[n, q]``."""
        c, n = self.config, q.shape[1]
        out = np.empty((n, c.q_width), np.float32)
        grouped = q.reshape(c.kv_heads, c.group, n, c.head_dim) * np.float32(c.head_dim**-0.5)
        for first in range(0, n, _QUERY_BLOCK):
            last = min(first + _QUERY_BLOCK, n)
            seen = start + last  # later keys are masked for every query of this block
            block = grouped[:, :, first:last].reshape(c.kv_heads, -1, c.head_dim)
            scores = block @ keys[:, :seen].swapaxes(1, 2)
            if last - first > 1:
                by_query = scores.reshape(-1, last - first, seen)
                by_query[:, *np.triu_indices(last - first, start + first + 1, seen)] = -np.inf
            scores -= scores.max(axis=-1, keepdims=True)
            np.exp(scores, out=scores)
            scores /= scores.sum(axis=-1, keepdims=True)
            mixed = (scores @ values[:, :seen]).reshape(c.heads, last - first, c.head_dim)
            out[first:last] = mixed.swapaxes(0, 1).reshape(last - first, -1)
        return out


def _rms_norm(x: Floats, weight: Floats, eps: float) -> Floats:
    mean_square = np.einsum("nw,nw->n", x, x) / np.float32(x.shape[1])
    scale = 1 / np.sqrt(mean_square + np.float32(eps))
    normed: Floats = x * scale[:, None] * weight
    return normed


def greedy(model: ReferenceLlama, prompt: Sequence[int], count: int) -> Iterator[int]:
    """Yield ``count`` tokens after the prompt, each the one with the largest logit."""
    cache = model.cache(len(prompt) + count)
    logits = model.forward(prompt, cache)
    for step in range(count):
        token = int(logits.argmax())
        yield token
        if step + 1 < count:
            logits = model.forward([token], cache)
