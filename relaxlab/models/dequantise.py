"""The element kinds of a GGUF file and how each becomes float32.

A quantised tensor is a run of equal *blocks*; a block packs 32 (or 256) neighbouring values of one
row with a scale, and for some kinds an offset, of their own. TVM has no counterpart (MLC converts
weights before the compiler sees them); the layouts are those of ggml's file format.

Every decoder below works on many blocks at a time: ``blocks`` is ``uint8[n, bytes per block]``,
``out`` is ``float32[n, values per block]``.

Examples
--------
>>> import numpy as np
>>> dequantise(KINDS[8], np.frombuffer(np.float16(0.5).tobytes() + bytes(range(32)), np.uint8))[:3]
array([0. , 0.5, 1. ], dtype=float32)
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

__all__ = ["DECODABLE", "KINDS", "TensorKind", "dequantise"]

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

_CHUNK_VALUES = 1 << 17  # 512 KiB of float32: the decoded chunk stays in the second-level cache


@dataclass(frozen=True, slots=True)
class TensorKind:
    """One element kind of the file format.

    Attributes
    ----------
    code
        The number that stands in the file.
    name
        ggml's name, for example ``"Q4_1"``.
    values, nbytes
        Values in a block and bytes of a block; 1 and the item size for plain kinds.
    decode
        Writes float32 values of blocks, or None for a kind that we can list but not decode.
    """

    code: int
    name: str
    values: int
    nbytes: int
    decode: Callable[[Bytes, Floats], None] | None = None


def _plain(dtype: str) -> Callable[[Bytes, Floats], None]:
    def decode(blocks: Bytes, out: Floats) -> None:
        out[...] = blocks.view(dtype)

    return decode


def _bf16(blocks: Bytes, out: Floats) -> None:
    # bfloat16 is the upper half of a float32.
    np.left_shift(blocks.view("<u2"), 16, out=out.view(np.uint32), dtype=np.uint32)


def _q8_0(blocks: Bytes, out: Floats) -> None:
    scale = blocks[:, :2].view("<f2").astype(np.float32)
    np.multiply(blocks[:, 2:].view(np.int8), scale, out=out)


def _nibbles(packed: Bytes, out: Floats) -> None:
    # Byte j holds value j in its low half and value j + 16 in its high half.
    out[:, :16] = packed & 15
    out[:, 16:] = packed >> 4


def _q4_0(blocks: Bytes, out: Floats) -> None:
    _nibbles(blocks[:, 2:], out)
    out -= 8.0
    out *= blocks[:, :2].view("<f2").astype(np.float32)


def _q4_1(blocks: Bytes, out: Floats) -> None:
    scale_and_offset = blocks[:, :4].view("<f2").astype(np.float32)
    _nibbles(blocks[:, 4:], out)
    out *= scale_and_offset[:, :1]
    out += scale_and_offset[:, 1:]


def _kinds(*kinds: TensorKind) -> Mapping[int, TensorKind]:
    table = {kind.code: kind for kind in kinds}
    assert len(table) == len(kinds), "two kinds share a code"
    return MappingProxyType(table)


KINDS: Mapping[int, TensorKind] = _kinds(
    TensorKind(0, "F32", 1, 4, _plain("<f4")),
    TensorKind(1, "F16", 1, 2, _plain("<f2")),
    TensorKind(2, "Q4_0", 32, 18, _q4_0),
    TensorKind(3, "Q4_1", 32, 20, _q4_1),
    TensorKind(6, "Q5_0", 32, 22),
    TensorKind(7, "Q5_1", 32, 24),
    TensorKind(8, "Q8_0", 32, 34, _q8_0),
    TensorKind(10, "Q2_K", 256, 84),
    TensorKind(11, "Q3_K", 256, 110),
    TensorKind(12, "Q4_K", 256, 144),
    TensorKind(13, "Q5_K", 256, 176),
    TensorKind(14, "Q6_K", 256, 210),
    TensorKind(24, "I8", 1, 1, _plain("i1")),
    TensorKind(25, "I16", 1, 2, _plain("<i2")),
    TensorKind(26, "I32", 1, 4, _plain("<i4")),
    TensorKind(27, "I64", 1, 8, _plain("<i8")),
    TensorKind(28, "F64", 1, 8, _plain("<f8")),
    TensorKind(30, "BF16", 1, 2, _bf16),
)
"""Kinds by their code in the file. Those without a decoder can be listed, so that a file which
holds one opens and says precisely what is missing."""

DECODABLE: tuple[str, ...] = tuple(kind.name for kind in KINDS.values() if kind.decode)


def dequantise(kind: TensorKind, data: Bytes, out: Floats | None = None) -> Floats:
    """Decode the bytes of a whole tensor.

    Parameters
    ----------
    kind
        How ``data`` is packed.
    data
        ``uint8[n]``, a whole number of blocks, contiguous.
    out
        Where to write, a contiguous float32 array of any shape with as many values; made if absent.

    Returns
    -------
    NDArray[np.float32]
        ``out``, or a new flat array.

    Raises
    ------
    ValueError
        The kind has no decoder, ``data`` is not a whole number of blocks, or ``out`` does not fit.
    """
    if kind.decode is None:
        raise ValueError(f"cannot decode {kind.name}; kinds that can be: {', '.join(DECODABLE)}")
    if data.size % kind.nbytes:
        raise ValueError(
            f"{kind.name} data must be a multiple of {kind.nbytes} bytes, got {data.size}"
        )
    blocks = data.reshape(-1, kind.nbytes)
    values = len(blocks) * kind.values
    if out is None:
        out = np.empty(values, np.float32)
    elif out.size != values or out.dtype != np.float32 or not out.flags.c_contiguous:
        raise ValueError(
            f"out must be contiguous float32 with {values} values, got {out.dtype}{list(out.shape)}"
        )
    rows = out.reshape(-1, kind.values)
    step = _CHUNK_VALUES // kind.values
    for start in range(0, len(blocks), step):
        kind.decode(blocks[start : start + step], rows[start : start + step])
    return out
