"""A model's parameters as float32 arrays, in the layout that the compiled module takes them.

Matrices are stored ``[in, out]``, so that a layer is the plain ``matmul(x, w)``; NumPy streams that
layout 1.4 times as fast as the transposed one of the file. Matrices that multiply the same input
are joined side by side: one matmul for query, key and value, one for gate and up. Counterpart:
MLC's weight loaders.

==============================  =========================  =================================
name                            shape                      made of (GGUF)
==============================  =========================  =================================
``embed``                       ``[vocab, width]``         token_embd
``layers.I.attn_norm``          ``[width]``                blk.I.attn_norm
``layers.I.qkv``                ``[width, q + 2 * kv]``    blk.I.attn_q, attn_k, attn_v
``layers.I.out``                ``[q, width]``             blk.I.attn_output
``layers.I.mlp_norm``           ``[width]``                blk.I.ffn_norm
``layers.I.gate_up``            ``[width, 2 * ff]``        blk.I.ffn_gate, ffn_up
``layers.I.down``               ``[ff, width]``            blk.I.ffn_down
``norm``                        ``[width]``                output_norm
``head``                        ``[width, vocab]``         output, or token_embd when tied
==============================  =========================  =================================

``q = heads * head_dim``, ``kv = kv_heads * head_dim``. The file's query and key rows are ordered
for rotary pairs of neighbours; they are reordered here to the half-split pairs that TVM's caches
rotate, which changes no score.

Examples
--------
>>> from relaxlab.models import tiny
>>> parameter_shapes(tiny.CONFIG)["layers.0.qkv"]
(64, 128)
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from relaxlab.models.config import LlamaConfig, config_from_gguf
from relaxlab.models.gguf import GGUFError, GGUFFile, GGUFTensor

__all__ = ["GGUFWeights", "parameter_shapes"]

Floats = NDArray[np.float32]


def parameter_shapes(config: LlamaConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter by name, in the order that the compiled module takes."""
    width, ff = config.width, config.ff
    shapes: dict[str, tuple[int, ...]] = {"embed": (config.vocab, width)}
    for layer in range(config.layers):
        shapes |= {
            f"layers.{layer}.attn_norm": (width,),
            f"layers.{layer}.qkv": (width, config.q_width + 2 * config.kv_width),
            f"layers.{layer}.out": (config.q_width, width),
            f"layers.{layer}.mlp_norm": (width,),
            f"layers.{layer}.gate_up": (width, 2 * ff),
            f"layers.{layer}.down": (ff, width),
        }
    return shapes | {"norm": (width,), "head": (width, config.vocab)}


@dataclass(frozen=True, slots=True)
class _Source:
    """A tensor of the file, its shape there, and how many rotary heads its rows are (or 0)."""

    name: str
    shape: tuple[int, ...]
    rotary_heads: int = 0


def _sources(config: LlamaConfig) -> dict[str, tuple[_Source, ...]]:
    """Which tensors of the file make each parameter, from left to right."""
    width, ff, q, kv = config.width, config.ff, config.q_width, config.kv_width
    table = _Source("token_embd.weight", (config.vocab, width))
    output = table if config.tied else _Source("output.weight", (config.vocab, width))
    sources: dict[str, tuple[_Source, ...]] = {"embed": (table,)}
    for layer in range(config.layers):
        block, ours = f"blk.{layer}", f"layers.{layer}"
        sources |= {
            f"{ours}.attn_norm": (_Source(f"{block}.attn_norm.weight", (width,)),),
            f"{ours}.qkv": (
                _Source(f"{block}.attn_q.weight", (q, width), config.heads),
                _Source(f"{block}.attn_k.weight", (kv, width), config.kv_heads),
                _Source(f"{block}.attn_v.weight", (kv, width)),
            ),
            f"{ours}.out": (_Source(f"{block}.attn_output.weight", (width, q)),),
            f"{ours}.mlp_norm": (_Source(f"{block}.ffn_norm.weight", (width,)),),
            f"{ours}.gate_up": (
                _Source(f"{block}.ffn_gate.weight", (ff, width)),
                _Source(f"{block}.ffn_up.weight", (ff, width)),
            ),
            f"{ours}.down": (_Source(f"{block}.ffn_down.weight", (width, ff)),),
        }
    return sources | {"norm": (_Source("output_norm.weight", (width,)),), "head": (output,)}


class GGUFWeights(Mapping[str, Floats]):
    """The parameters of a Llama-family GGUF file, each decoded when asked for.

    Nothing is kept: ``dict(weights)`` is how a program loads them all. For the 134.5 million
    weights of SmolLM2 that takes about 0.7 s and 0.65 GB.

    Parameters
    ----------
    file
        An open file. All of its tensors must belong to the model, with the right shapes.

    Attributes
    ----------
    config
        The model's configuration, for these (half-split) weights.

    Raises
    ------
    GGUFError
        The metadata describe no plain Llama decoder, or a tensor is missing, has another shape, a
        kind that cannot be decoded, or no place in the network.
    """

    def __init__(self, file: GGUFFile) -> None:
        stored = config_from_gguf(file)
        self.config = replace(stored, rope_interleaved=False)
        self._stored = stored
        self._file = file
        self._shapes = parameter_shapes(stored)
        self._sources = _sources(stored)
        expected = {source.name: source for made_of in self._sources.values() for source in made_of}
        for source in expected.values():
            tensor = file.tensors.get(source.name)
            if tensor is None:
                raise GGUFError(
                    f"tensor {source.name!r}: expected {list(source.shape)}, got no such tensor"
                )
            if tensor.shape != source.shape:
                raise GGUFError(
                    f"tensor {source.name!r}: expected shape {list(source.shape)}, "
                    f"got {list(tensor.shape)}"
                )
            if tensor.kind.decode is None:
                raise GGUFError(f"tensor {source.name!r}: cannot decode kind {tensor.kind.name}")
        if strangers := sorted(file.tensors.keys() - expected.keys()):
            raise GGUFError(
                f"tensor {strangers[0]!r} (of {len(strangers)} such): expected only the tensors of "
                f"a plain Llama decoder"
            )

    def __getitem__(self, name: str) -> Floats:
        """Decode one parameter into a new array; KeyError names an unknown one."""
        made_of, shape = self._sources[name], self._shapes[name]
        if len(shape) == 1 or name == "embed":
            return self._tensor(made_of[0]).dequantise()
        matrix, column = np.empty(shape, np.float32), 0
        for source in made_of:
            end = column + source.shape[0]
            _transpose_into(self._rows(source), matrix[:, column:end])
            column = end
        return matrix

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)

    def __repr__(self) -> str:
        return f"GGUFWeights({self._file.path.name}, {self.config.parameters} weights)"

    def _tensor(self, source: _Source) -> GGUFTensor:
        return self._file.tensors[source.name]

    def _rows(self, source: _Source) -> Floats:
        """Return ``[out, in]`` with the rotary pairs of every head half a head apart."""
        rows = self._tensor(source).dequantise()
        if not (source.rotary_heads and self._stored.rope_interleaved):
            return rows
        pairs = rows.reshape(source.rotary_heads, -1, 2, rows.shape[1])
        return pairs.swapaxes(1, 2).reshape(rows.shape)


def _transpose_into(rows: Floats, target: Floats) -> None:
    # Strips of 512 rows stay in the cache while they are turned: half the time of one big copy.
    for start in range(0, len(rows), 512):
        target[:, start : start + 512] = rows[start : start + 512].T
