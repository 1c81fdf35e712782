"""Write small GGUF files byte by byte, right or wrong, for the reader's tests."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def u32(value: int) -> bytes:
    return struct.pack("<II", 4, value)


def f32(value: float) -> bytes:
    return struct.pack("<If", 6, value)


def flag(value: bool) -> bytes:
    return struct.pack("<I?", 7, value)


def string(value: str) -> bytes:
    return struct.pack("<I", 8) + text(value)


def strings(values: Sequence[str | bytes]) -> bytes:
    return struct.pack("<IIQ", 9, 8, len(values)) + b"".join(map(text, values))


def int32s(values: Sequence[int]) -> bytes:
    return struct.pack(f"<IIQ{len(values)}i", 9, 5, len(values), *values)


@dataclass(frozen=True)
class Tensor:
    dims: Sequence[int]
    kind: int
    data: bytes
    offset: int | None = None


def gguf(
    metadata: Mapping[str, bytes],
    tensors: Mapping[str, Tensor],
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    tensor_count: int | None = None,
    metadata_count: int | None = None,
    alignment: int = 32,
) -> bytes:
    """Return a whole file; the keyword arguments put lies in its header."""
    head = magic + struct.pack(
        "<IQQ",
        version,
        len(tensors) if tensor_count is None else tensor_count,
        len(metadata) if metadata_count is None else metadata_count,
    )
    for key, value in metadata.items():
        head += text(key) + value
    body = b""
    for name, tensor in tensors.items():
        offset = len(body) if tensor.offset is None else tensor.offset
        head += text(name) + struct.pack(
            f"<I{len(tensor.dims)}QIQ", len(tensor.dims), *tensor.dims, tensor.kind, offset
        )
        body += tensor.data + bytes(-len(tensor.data) % alignment)
    return head + bytes(-len(head) % alignment) + body
