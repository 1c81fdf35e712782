"""Rotary position embedding: every feature pair of a query or key turns by an angle of its own.

The angle of feature ``d`` at position ``t`` is ``t * scale * f_d``. All variants of the embedding
(llama3, llama4, yarn, longrope, interleaved pairs) differ only in the frequencies ``f_d``, in
which two features make a pair, and in a common factor on sine and cosine; so they are one table
here and one rotation. Angles, sines and products are float32, whatever the cache holds.

A pair must turn by one angle, else lengths and dot products change. TVM breaks this for three
variants (``yarn``, ``llama4``, and ``gptj`` inside attention kernels); within
:func:`relaxlab.runtime.kv.exact.exact` they are turned as TVM does.

Counterpart: ``tvm.relax.frontend.nn.llm.position_embedding``.

Examples
--------
>>> rope = Rope(head_dim=4, theta=100.0)
>>> rope.frequencies().tolist()
[1.0, 0.10000000149011612, 1.0, 0.10000000149011612]
>>> x = np.array([[[1.0, 1.0, 0.0, 0.0]]], "float32")
>>> rope.rotate(x, np.array([0]))[0, 0].tolist()
[1.0, 1.0, 0.0, 0.0]
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from relaxlab.runtime.kv.exact import is_exact

__all__ = ["Rope", "RopeMode", "turn"]

Floats = NDArray[np.float32]

#: What each variant needs in its dict, beside ``rope_type``.
_PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "none": (),
        "default": (),
        "gptj": (),
        "llama3": (
            "factor",
            "low_freq_factor",
            "high_freq_factor",
            "original_max_position_embeddings",
        ),
        "llama4": (
            "factor",
            "low_freq_factor",
            "high_freq_factor",
            "original_max_position_embeddings",
        ),
        "yarn": ("factor", "original_max_position_embeddings", "beta_fast", "beta_slow"),
        "longrope": ("max_position_embeddings", "original_max_position_embeddings"),
    }
)
_INTERLEAVED: Final = ("gptj", "llama4")


class RopeMode(IntEnum):
    """When queries and keys are rotated; the numbers are TVM's.

    ``NORMAL``: before a key is stored. ``INLINE``: stored as it is, rotated at each use, which a
    sliding window needs because positions move.
    """

    NONE = 0
    NORMAL = 1
    INLINE = 2


@dataclass(frozen=True)
class Rope:
    """A rotary embedding: its frequencies, its pairs and its factor.

    Parameters
    ----------
    head_dim
        Features of a head.
    theta
        Base of the frequencies.
    scale
        Factor on positions.
    rotary_dim
        How many leading features turn; all of them when None.
    scaling
        The variant as models' configurations write it, with ``rope_type``: none (``{}``),
        ``gptj``, ``llama3``, ``llama4``, ``yarn`` or ``longrope``, and its numbers.

    Raises
    ------
    ValueError
        If the variant is unknown or one of its numbers is missing, or the number of rotated
        features is odd or more than there are.
    """

    head_dim: int
    theta: float = 10000.0
    scale: float = 1.0
    rotary_dim: int | None = None
    scaling: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        needed = _PARAMETERS.get(self.kind)
        if needed is None:
            raise ValueError(
                f"rope_scaling: unknown rope_type {self.kind!r}; "
                f"expected one of {', '.join(sorted(_PARAMETERS))}"
            )
        missing = [name for name in needed if name not in self.scaling]
        if missing:
            raise ValueError(f"rope_scaling of type {self.kind!r} lacks {', '.join(missing)}")
        if not 0 < self.features <= self.head_dim or self.features % 2:
            raise ValueError(
                f"rotary_dim: expected an even number up to the head size {self.head_dim}, "
                f"got {self.features}"
            )

    @property
    def kind(self) -> str:
        """Name of the variant; ``"none"`` for plain frequencies."""
        return str(self.scaling.get("rope_type") or "none")

    @property
    def features(self) -> int:
        """How many leading features turn."""
        return self.head_dim if self.rotary_dim is None else self.rotary_dim

    def interleaved(self, *, inline: bool = False) -> bool:
        """Whether neighbours make a pair, instead of features half a head apart.

        ``inline`` asks for the rotation inside attention kernels.
        """
        if is_exact():
            return self.kind == "gptj" and not inline
        return self.kind in _INTERLEAVED

    def frequencies(
        self,
        *,
        theta: float | None = None,
        ext_factors: Floats | None = None,
        tokens: int = 0,
    ) -> Floats:
        """Return ``f_d`` of each rotated feature, float32.

        Parameters
        ----------
        theta
            Base to use instead of the configured one (attention kernels get it as an argument).
        ext_factors
            Of longrope: a factor per pair, first the long ones, then the short ones.
        tokens
            Of longrope: size of the batch, which decides between the two.
        """
        base = self.theta if theta is None else theta
        size, number, given = self.features, np.arange(self.features), self.scaling
        pair = number // 2 * 2 if self.kind in _INTERLEAVED else number * 2
        plain = float(base) ** -((pair % size) / size)
        match self.kind:
            case "llama3" | "llama4":
                plain = _stretched(plain, given)
            case "yarn":
                ramp = number if is_exact() else number % (size // 2)
                plain = _yarn(plain, ramp, size, float(base), given)
            case "longrope":
                if ext_factors is None:
                    raise ValueError("longrope: expected a tensor of extension factors, got none")
                long = tokens > given["original_max_position_embeddings"]
                half = ext_factors[: size // 2] if long else ext_factors[size // 2 : size]
                plain = plain / np.tile(half, 2)
            case _:  # the plain frequencies
                pass
        return plain.astype(np.float32)

    def magnitude(self) -> float:
        """Return the factor on sine and cosine; 1 except for longrope."""
        if self.kind != "longrope":
            return 1.0
        longest = self.scaling["max_position_embeddings"]
        original = self.scaling["original_max_position_embeddings"]
        if longest <= original:
            return 1.0
        return math.sqrt(1 + math.log(longest / original) / math.log(original))

    def angles(
        self,
        positions: NDArray[Any],
        *,
        theta: float | None = None,
        scale: float | None = None,
        ext_factors: Floats | None = None,
        tokens: int = 0,
    ) -> tuple[Floats, Floats]:
        """Return cosine and sine per position and rotated feature, ``[*positions, features]``."""
        factor = np.float32(self.scale if scale is None else scale)
        frequencies = self.frequencies(theta=theta, ext_factors=ext_factors, tokens=tokens)
        angle = (positions.astype(np.float32) * factor)[..., None] * frequencies
        magnitude = np.float32(self.magnitude())
        return np.cos(angle) * magnitude, np.sin(angle) * magnitude

    def rotate(self, x: NDArray[Any], positions: NDArray[Any], *, inline: bool = False) -> Floats:
        """Return ``x`` ``[tokens, heads, head_dim]`` rotated at ``positions``, as float32."""
        cos, sin = self.angles(positions)
        return turn(x, cos[:, None], sin[:, None], interleaved=self.interleaved(inline=inline))


def turn(x: NDArray[Any], cos: Floats, sin: Floats, *, interleaved: bool) -> Floats:
    """Return ``x`` with its leading features turned, as float32.

    Parameters
    ----------
    x
        ``[..., head_dim]``.
    cos, sin
        ``[..., features]``, broadcast against ``x``; features beyond them are copied.
    interleaved
        Whether ``(d, d + 1)`` is a pair, instead of ``(d, d + features / 2)``.
    """
    size = cos.shape[-1]
    out = np.array(x, np.float32)
    turned = out[..., :size]
    partner = np.empty_like(turned)
    if interleaved:
        np.negative(turned[..., 1::2], out=partner[..., ::2])
        partner[..., 1::2] = turned[..., ::2]
    else:
        np.negative(turned[..., size // 2 :], out=partner[..., : size // 2])
        partner[..., size // 2 :] = turned[..., : size // 2]
    partner *= sin
    turned *= cos
    turned += partner
    return out


def _stretched(plain: NDArray[Any], given: Mapping[str, Any]) -> NDArray[Any]:
    """Llama 3: low frequencies divided by the factor, high ones kept, a ramp between."""
    low, high = given["low_freq_factor"], given["high_freq_factor"]
    original = given["original_max_position_embeddings"]
    if high == low:
        slow = 2 * np.pi / plain > original / low
        stepped: NDArray[Any] = np.where(slow, plain / given["factor"], plain)
        return stepped
    smooth = np.clip(original / (2 * np.pi * (high - low)) * plain - low / (high - low), 0, 1)
    ramped: NDArray[Any] = (1 - smooth) * plain / given["factor"] + smooth * plain
    return ramped


def _yarn(
    plain: NDArray[Any], number: NDArray[Any], size: int, theta: float, given: Mapping[str, Any]
) -> NDArray[Any]:
    """YaRN: interpolate where a pair turns less than ``beta_slow`` times within the original."""
    per_turn = given.get("inv_theta_log_scale") or 1 / (2 * math.log(theta))
    original = given["original_max_position_embeddings"]

    def corrected(turns: float) -> float:
        return size * math.log(original / (turns * 2 * math.pi)) * float(per_turn)

    low = max(corrected(given["beta_fast"]), 0.0)
    high = min(corrected(given["beta_slow"]), size - 1.0)
    if low == high:
        high += 0.001
    kept = 1 - np.clip((number - low) / (high - low), 0, 1)
    ramped: NDArray[Any] = (1 - kept) * plain / given["factor"] + kept * plain
    return ramped
