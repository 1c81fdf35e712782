"""Splitting fused queries, keys and values, and rotating the first two on the way.

Counterpart: ``llama_rope_with_position_map`` and its longrope variant.

Examples
--------
>>> from relaxlab.runtime.kv.attention.spec import KernelSpec
>>> split = SplitRotary(KernelSpec(num_qo_heads=1, num_kv_heads=1, qk_head_dim=2))
>>> q, k, v = (np.empty((1, 1, 2), "float32") for _ in range(3))
>>> split(np.arange(6, dtype="float32").reshape(1, 3, 2), np.array([0], "int32"), q, k, v, 1)
>>> q.tolist(), k.tolist(), v.tolist()
([[[0.0, 1.0]]], [[[2.0, 3.0]]], [[[4.0, 5.0]]])
"""

from typing import Any

import numpy as np

from relaxlab.runtime.kv.attention.plans import RecentPlans
from relaxlab.runtime.kv.attention.spec import Kernel, KernelSpec, array
from relaxlab.runtime.kv.exact import is_exact
from relaxlab.runtime.kv.rope import Rope, turn

__all__ = ["SplitRotary", "make_split_rotary_rows"]


class SplitRotary:
    """The kernel; sines and cosines are computed once a round, for all layers.

    The last argument is a flag, or the tensor of longrope's extension factors.
    """

    def __init__(self, spec: KernelSpec) -> None:
        self.rope = spec.rope or Rope(spec.qk_head_dim)
        self._plans = RecentPlans()

    def __call__(
        self, qkv: Any, position_map: Any, q: Any, k: Any, v: Any, apply_rope: Any
    ) -> None:
        """Split ``qkv`` ``[tokens, heads of q, k and v, dim]`` into ``q``, ``k`` and ``v``."""
        qkv, q, k, v = map(array, (qkv, q, k, v))
        heads, kv_heads = q.shape[1], k.shape[1]
        v[...] = qkv[:, heads + kv_heads :]
        rotated = qkv[:, : heads + kv_heads]
        factors = None if isinstance(apply_rope, int) else array(apply_rope)
        if factors is not None or apply_rope:
            cos, sin = self._angles(array(position_map), factors, len(qkv))
            rotated = turn(rotated, cos, sin, interleaved=self.rope.interleaved())
        q[...] = rotated[:, :heads]
        k[...] = rotated[:, heads:]

    def _angles(self, positions: Any, factors: Any, tokens: int) -> Any:
        def make() -> Any:
            cos, sin = self.rope.angles(positions, ext_factors=factors, tokens=tokens)
            return cos[:, None], sin[:, None]

        given = (positions,) if factors is None else (positions, factors)
        return self._plans.get(make, given, (is_exact(), tokens))


def make_split_rotary_rows(spec: KernelSpec) -> Kernel:
    """Return the kernel that goes a number at a time."""
    rope = spec.rope or Rope(spec.qk_head_dim)

    def split_rotary(qkv: Any, position_map: Any, q: Any, k: Any, v: Any, apply_rope: Any) -> None:
        qkv, q, k, v = map(array, (qkv, q, k, v))
        factors = None if isinstance(apply_rope, int) else array(apply_rope)
        rotates = factors is not None or bool(apply_rope)
        frequencies = rope.frequencies(ext_factors=factors, tokens=len(qkv)) if rotates else None
        outputs = [(q, h) for h in range(q.shape[1])] + [(k, h) for h in range(k.shape[1])]
        for token, position in enumerate(array(position_map).tolist()):
            for head, (out, h) in enumerate(outputs):
                row = qkv[token, head].astype(np.float32)
                for d in range(len(row)):
                    x = row[d]
                    if frequencies is not None and d < rope.features:
                        x = _turned(row, d, np.float32(position), frequencies[d], rope)
                    out[token, h, d] = x
            v[token] = qkv[token, len(outputs) :]

    return split_rotary


def _turned(row: Any, d: int, position: Any, frequency: Any, rope: Rope) -> Any:
    """Return feature ``d`` of a rotated row."""
    half = rope.features // 2
    if rope.interleaved():
        partner = -row[d + 1] if d % 2 == 0 else row[d - 1]
    else:
        partner = -row[d + half] if d < half else row[d - half]
    angle = position * np.float32(rope.scale) * frequency
    return (row[d] * np.cos(angle) + partner * np.sin(angle)) * np.float32(rope.magnitude())
