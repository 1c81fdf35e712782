"""Attention of some rows to some keys as matrix products: what the vectorised kernels share.

Rows are taken in tiles, so that the matrix of scores stays small and keys that no row of a tile
sees are not touched. The online softmax starts as in the reference, from maximum -5e4 and
denominator 1. Counterpart: the tiled attention of TVM's GPU kernels.

Examples
--------
>>> from relaxlab.runtime.kv.attention.visibility import Causal
>>> x = np.eye(2, dtype="float32")[None]
>>> out, lse = attend(x, x, x, Causal(), 1, 1.0)
>>> (out[0] * 100).round().tolist()
[[100.0, 0.0], [27.0, 73.0]]
"""

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from relaxlab.runtime.kv.attention.visibility import Visibility

__all__ = ["LOG2_E", "START", "attend", "log2_softmax"]

Floats = NDArray[np.float32]

START: Final = np.float32(-5.0e4)
LOG2_E: Final = math.log2(math.e)
_SCORES: Final = 1 << 18
"""Scores of a tile: 1 MiB, which stay in the cache between the two products."""


def log2_softmax(scores: Floats) -> tuple[Floats, Floats]:
    """Turn scores into weights, in place; return what they add up to and the log-sum-exp.

    Both have the last axis left, with length 1. The weights are still to be divided by what they
    add up to. Scores of hidden keys are minus infinity.
    """
    top = scores.max(axis=-1, keepdims=True, initial=START)
    scores -= top
    np.exp2(scores, out=scores)
    total = scores.sum(axis=-1, keepdims=True)
    total += np.exp2(START - top)
    return total, top + np.log2(total)


def attend(
    q: Floats, k: Floats, v: Floats, visibility: Visibility, group: int, sm_scale: float
) -> tuple[Floats, Floats]:
    """Return the output ``[H, group * rows, Dv]`` and the log-sum-exp ``[H, group * rows]``.

    Parameters
    ----------
    q
        ``[H, group * rows, D]``: per key/value head, the rows of its query heads one after the
        other.
    k, v
        ``[H, keys, D]`` and ``[H, keys, Dv]``.
    visibility
        Which keys a row sees.
    group
        Query heads per key/value head.
    sm_scale
        Factor on the scores (which become base 2 on top of it).
    """
    heads, all_rows, _ = q.shape
    rows, keys = all_rows // group, k.shape[1]
    out = np.zeros((heads, group, rows, v.shape[2]), np.float32)
    lse = np.full((heads, group, rows), START, np.float32)
    scaled = (q * np.float32(sm_scale * LOG2_E)).reshape(heads, group, rows, q.shape[2])
    step = max(1, min(rows, _SCORES // max(1, heads * group * keys)))
    for first in range(0, rows, step):
        last = min(first + step, rows)
        begin, end = visibility.span(first, last, rows, keys)
        if begin >= end:
            continue
        tile = scaled[:, :, first:last].reshape(heads, -1, q.shape[2])
        scores = np.matmul(tile, k[:, begin:end].transpose(0, 2, 1))
        scores = scores.reshape(heads, group, last - first, end - begin)
        masked = visibility.hidden(first, last, rows, keys)
        if masked is not None:
            start, hidden = masked[0] - begin, masked[1]
            stretch = scores[..., start : start + hidden.shape[1]]
            np.copyto(stretch, -np.inf, where=hidden)
        total, tile_lse = log2_softmax(scores)
        product = np.matmul(scores.reshape(heads, -1, end - begin), v[:, begin:end])
        np.divide(product.reshape(heads, group, last - first, -1), total, out[:, :, first:last])
        lse[:, :, first:last] = tile_lse[..., 0]
    return out.reshape(heads, all_rows, -1), lse.reshape(heads, all_rows)


def by_head(rows: NDArray[Any], heads: int) -> Floats:
    """Return ``[tokens, heads * group, dim]`` as float32 ``[heads, group * tokens, dim]``."""
    tokens, all_heads, dim = rows.shape
    split = rows.astype(np.float32).reshape(tokens, heads, all_heads // heads, dim)
    return split.transpose(1, 2, 0, 3).reshape(heads, -1, dim)


def store(out: Floats, lse: Floats, output: NDArray[Any], output_lse: NDArray[Any]) -> None:
    """Write the results of :func:`attend` to ``[tokens, heads, dim]`` and ``[tokens, heads]``."""
    tokens, all_heads, dim = output.shape
    shape = (len(out), all_heads // len(out), tokens)
    output[...] = out.reshape(*shape, dim).transpose(2, 0, 1, 3).reshape(output.shape)
    output_lse[...] = lse.reshape(shape).transpose(2, 0, 1).reshape(tokens, all_heads)
