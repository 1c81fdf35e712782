"""The numbers that define a Llama-family decoder.

One frozen record is all that the network builder, the weight loader and the reference forward pass
share. Counterpart: the ``LlamaConfig`` of MLC's model definitions.

Examples
--------
>>> config = LlamaConfig(layers=2, heads=4, kv_heads=2, head_dim=16, width=64, ff=128, vocab=256,
...                      context=256)
>>> config.q_width, config.kv_width, config.group
(64, 32, 2)
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from relaxlab.models.gguf import GGUFError, GGUFFile, GGUFValue

__all__ = ["LlamaConfig", "config_from_gguf"]

_LIMIT = 1 << 24  # no real dimension comes near; keeps products of hostile numbers small


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """Sizes and constants of a Llama decoder.

    Attributes
    ----------
    layers, heads, kv_heads, head_dim
        Blocks, query heads, key/value heads (each shared by ``heads // kv_heads`` query heads), and
        the width of one head.
    width, ff, vocab, context
        Width of the residual stream and of the gated feed-forward layer, number of tokens, and
        the longest sequence that the model was trained for.
    rope_theta
        Base of the rotary position angles.
    rope_interleaved
        Which two values of a head rotate together: neighbours ``(2i, 2i+1)``, as llama.cpp stores
        weights, or ``(i, i + head_dim/2)``, as Hugging Face and TVM's caches do. `weights.load`
        brings files to the second form.
    eps
        Added to the mean square in RMS norm.
    tied
        The output projection is the embedding table.
    """

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    width: int
    ff: int
    vocab: int
    context: int
    rope_theta: float = 10_000.0
    rope_interleaved: bool = False
    eps: float = 1e-5
    tied: bool = True

    def __post_init__(self) -> None:
        """Refuse numbers that no network can have."""
        for name in ("layers", "heads", "kv_heads", "head_dim", "width", "ff", "vocab", "context"):
            value = getattr(self, name)
            if not 1 <= value <= _LIMIT:
                raise ValueError(f"{name} must be from 1 to {_LIMIT}, got {value}")
        if self.heads % self.kv_heads:
            raise ValueError(
                f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim must be even for rotary positions, got {self.head_dim}")
        if not 0 < self.rope_theta < math.inf:
            raise ValueError(f"rope_theta must be positive and finite, got {self.rope_theta}")
        if not 0 <= self.eps < math.inf:
            raise ValueError(f"eps must not be negative or infinite, got {self.eps}")

    @property
    def group(self) -> int:
        """Query heads that share one key/value head."""
        return self.heads // self.kv_heads

    @property
    def q_width(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Width of all key heads, or all value heads, together."""
        return self.kv_heads * self.head_dim

    @property
    def parameters(self) -> int:
        """Number of weights."""
        block = (self.q_width + 2 * self.kv_width) * self.width + self.width * self.q_width
        block += 3 * self.ff * self.width + 2 * self.width
        tables = self.vocab * self.width * (1 if self.tied else 2)
        return self.layers * block + tables + self.width


def config_from_gguf(file: GGUFFile) -> LlamaConfig:
    """Read the configuration of a Llama-family model from an open GGUF file.

    Raises
    ------
    GGUFError
        Another architecture, a missing or mistyped key, impossible numbers, or a variant (scaled
        rotary positions, mixture of experts) that the plain decoder does not compute.
    """
    meta = file.metadata
    architecture = meta.get("general.architecture")
    if architecture != "llama":
        raise GGUFError(f"general.architecture: expected 'llama', got {architecture!r}")
    _refuse_variants(meta)
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        found = "no such tensor" if embedding is None else f"shape {list(embedding.shape)}"
        raise GGUFError(f"tensor 'token_embd.weight': expected a table of rank 2, got {found}")
    layers = _integer(meta, "block_count")
    if layers > len(file.tensors):
        raise GGUFError(
            f"llama.block_count: expected at most {len(file.tensors)}, the number of tensors, "
            f"got {layers}"
        )
    width, heads = _integer(meta, "embedding_length"), _integer(meta, "attention.head_count")
    if heads < 1:
        raise GGUFError(f"llama.attention.head_count: expected at least 1, got {heads}")
    head_dim = _integer(meta, "attention.key_length", width // heads)
    rotated = _integer(meta, "rope.dimension_count", head_dim)
    values = _integer(meta, "attention.value_length", head_dim)
    if not head_dim == rotated == values:
        raise GGUFError(
            f"llama.rope.dimension_count and attention.value_length: expected the head size "
            f"{head_dim}, got {rotated} and {values}"
        )
    try:
        return LlamaConfig(
            layers=layers,
            heads=heads,
            kv_heads=_integer(meta, "attention.head_count_kv", heads),
            head_dim=head_dim,
            width=width,
            ff=_integer(meta, "feed_forward_length"),
            vocab=embedding.shape[0],
            context=_integer(meta, "context_length"),
            rope_theta=_number(meta, "rope.freq_base", 10_000.0),
            rope_interleaved=True,
            eps=_number(meta, "attention.layer_norm_rms_epsilon"),
            tied="output.weight" not in file.tensors,
        )
    except GGUFError:
        raise
    except ValueError as error:
        raise GGUFError(f"metadata of {file.path}: {error}") from None


def _refuse_variants(meta: Mapping[str, GGUFValue]) -> None:
    scaling = meta.get("llama.rope.scaling.type", "none")
    if scaling != "none":
        raise GGUFError(f"llama.rope.scaling.type: expected 'none', got {scaling!r}")
    experts = meta.get("llama.expert_count", 0)
    if experts != 0:
        raise GGUFError(f"llama.expert_count: expected 0 (a dense model), got {experts!r}")


def _integer(meta: Mapping[str, GGUFValue], key: str, default: int | None = None) -> int:
    value = meta.get(f"llama.{key}", default)
    if type(value) is not int:
        raise GGUFError(f"llama.{key}: expected an integer, got {_shown(value)}")
    return value


def _number(meta: Mapping[str, GGUFValue], key: str, default: float | None = None) -> float:
    value = meta.get(f"llama.{key}", default)
    if type(value) is int or type(value) is float:
        return float(value)
    raise GGUFError(f"llama.{key}: expected a number, got {_shown(value)}")


def _shown(value: GGUFValue | None) -> str:
    return "no such key" if value is None else repr(value)[:80]
