"""Weights in the safetensors format: a JSON header, then raw bytes.

The format of most published models. The reader believes nothing: the header is bounded, every range
of bytes is checked against the file and its neighbours, and nothing but numbers is read. The writer
orders tensors as the reference library does, so both write the same bytes. It is small enough to
have here, and needs no package. Counterpart: none in TVM.

Examples
--------
>>> data = save_safetensors({"w": np.ones((2, 2), "float32")}, {"format": "np"})
>>> load_safetensors(data)["w"].numpy().tolist(), safetensors_metadata(data)
([[1.0, 1.0], [1.0, 1.0]], {'format': 'np'})
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from relaxlab.errors import InternalError
from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.staged_files import write_whole
from relaxlab.runtime.tensor import Tensor, tensor

__all__ = [
    "load_safetensors",
    "load_safetensors_from_file",
    "safetensors_metadata",
    "save_safetensors",
    "save_safetensors_to_file",
]

_LONGEST_HEADER: Final = 100_000_000
_METADATA: Final = "__metadata__"
_MAX_NDIM: Final = 32

#: Names of the element types; tensors of the last ones are written first.
_NAMES: Final = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "int16": "I16",
    "uint16": "U16",
    "float16": "F16",
    "bfloat16": "BF16",
    "int32": "I32",
    "uint32": "U32",
    "float32": "F32",
    "float64": "F64",
    "int64": "I64",
    "uint64": "U64",
}
_DTYPES: Final = {name: dtype for dtype, name in _NAMES.items()}
_RANK: Final = {dtype: -rank for rank, dtype in enumerate(_NAMES)}

Read = Callable[[int, int], bytes]
"""Returns so many bytes from an offset on, fewer at the end of the file."""


# ---- writing ----------------------------------------------------------------------------------


def save_safetensors(params: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return weights as bytes.

    Parameters
    ----------
    params
        Name to tensor; what is no tensor goes through :func:`tensor`.
    metadata
        Texts about the whole, such as ``{"format": "pt"}``.

    Raises
    ------
    TypeError
        If an element type has no name in the format, or a name or a text is no string.
    """
    values = {
        name: value if isinstance(value, Tensor) else tensor(value)
        for name, value in params.items()
    }
    header = _start_header(values, metadata)
    data: list[bytes] = []
    offset = 0
    for name in sorted(values, key=lambda one: (_RANK[str(values[one].dtype)], one.encode())):
        value = values[name]
        data.append(value.array.tobytes())
        header[name] = {
            "dtype": _NAMES[str(value.dtype)],
            "shape": list(value.shape),
            "data_offsets": [offset, offset + len(data[-1])],
        }
        offset += len(data[-1])
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # so that the data begin at a multiple of 8
    return b"".join([len(text).to_bytes(8, "little"), text, *data])


def save_safetensors_to_file(
    params: Mapping[str, Any],
    path: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write :func:`save_safetensors` to a file; the old one stays until the new one is whole."""
    write_whole(path, save_safetensors(params, metadata))


def _start_header(
    values: Mapping[str, Tensor], metadata: Mapping[str, str] | None
) -> dict[str, Any]:
    """Return the header without tensors, after a look at what cannot be saved."""
    for name, value in values.items():
        if str(value.dtype) not in _NAMES:
            raise TypeError(f"safetensors has no element type {value.dtype}, tensor {name!r}")
        if _text(name) == _METADATA:
            raise TypeError(f"a tensor cannot be called {_METADATA!r}: the format needs the name")
    if metadata is None:
        return {}
    return {_METADATA: {_text(key): _text(value) for key, value in metadata.items()}}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"safetensors: expected a string, got {type(value).__name__} {value!r}")
    return value


# ---- reading ----------------------------------------------------------------------------------


def load_safetensors(data: bytes | bytearray | memoryview) -> dict[str, Tensor]:
    """Return the weights that the bytes hold, in the order of their data.

    Raises
    ------
    InternalError
        For anything but a complete file: a header that is cut, too long or no JSON, a tensor
        whose bytes do not fit its shape, overlap others or leave the file. It names the tensor.
    TypeError
        If ``data`` is not bytes.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"load_safetensors: expected bytes, got {type(data).__name__}")
    view = memoryview(data).cast("B")
    return _load(lambda start, size: bytes(view[start : start + size]), len(view))


def load_safetensors_from_file(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Read a file; one tensor at a time, so that the file is never in memory twice.

    Raises
    ------
    InternalError
        If the file cannot be read, or as :func:`load_safetensors`.
    """
    try:
        with Path(path).open("rb") as file:

            def read(start: int, size: int) -> bytes:
                file.seek(start)
                return file.read(size)

            return _load(read, os.fstat(file.fileno()).st_size)
    except OSError as error:
        raise InternalError(f"cannot read weights from {path}: {error}") from error


def safetensors_metadata(data: bytes | bytearray | memoryview) -> dict[str, str]:
    """Return the texts about the whole; errors as :func:`load_safetensors`."""
    view = memoryview(data).cast("B")
    header, _ = _header(lambda start, size: bytes(view[start : start + size]), len(view))
    return _metadata(header)


def _load(read: Read, size: int) -> dict[str, Tensor]:
    header, start = _header(read, size)
    _metadata(header)
    entries = [(*_entry(name, entry), name) for name, entry in header.items()]
    entries.sort(key=lambda one: (one[0], one[1]))
    # first everything is checked, then anything is read
    at = 0
    for first, end, _, _, name in entries:
        if first != at:
            what = "overlaps the one before it" if first < at else "leaves a gap before it"
            raise _refusal(f"tensor {name!r} at bytes {first} to {end} of the data {what}")
        at = end
    if start + at != size:
        raise _refusal(f"the tensors end at byte {start + at}, the file has {size} bytes")
    found = {}
    for first, end, dtype, shape, name in entries:
        raw = read(start + first, end - first)
        if len(raw) != end - first:
            raise _refusal(f"tensor {name!r} is cut")
        found[name] = Tensor.from_bytes(raw, shape, dtype)
    return found


def _header(read: Read, size: int) -> tuple[dict[str, Any], int]:
    """Return the header without what it says about the whole, and where the data begin."""
    raw = read(0, 8)
    if len(raw) < 8:
        raise _refusal(f"expected 8 bytes with the length of the header, got {len(raw)}")
    length = int.from_bytes(raw, "little")
    if length > min(_LONGEST_HEADER, size - 8):
        raise _refusal(
            f"a header of {length} bytes, expected at most {min(_LONGEST_HEADER, size - 8)}: "
            "this is no safetensors file, or it is cut"
        )
    try:
        header = json.loads(read(8, length))
    except (ValueError, RecursionError) as error:
        raise _refusal(f"the header is not valid JSON: {error}") from None
    if not isinstance(header, dict):
        raise _refusal(f"the header must be a JSON object, got {type(header).__name__}")
    return header, 8 + length


def _metadata(header: dict[str, Any]) -> dict[str, str]:
    """Take the texts about the whole out of the header."""
    metadata = header.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(one, str) for one in metadata.values()):
        raise _refusal(f"{_METADATA!r} must be an object of texts")
    return metadata


def _entry(name: str, entry: Any) -> tuple[int, int, DataType, ShapeTuple]:
    """Return begin, end, element type and shape of one tensor."""
    if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= set(entry):
        raise _refusal(f"tensor {name!r} needs 'dtype', 'shape' and 'data_offsets'")
    dtype = _DTYPES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    if dtype is None:
        raise _refusal(
            f"tensor {name!r} has element type {entry['dtype']!r}, expected one of "
            f"{', '.join(_DTYPES)}"
        )
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not _is_counts(shape) or len(shape) > _MAX_NDIM:
        raise _refusal(f"tensor {name!r} has no sound shape: at most {_MAX_NDIM} numbers from 0")
    if not _is_counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _refusal(f"tensor {name!r} has no sound 'data_offsets': begin and end")
    count = ShapeTuple(shape).numel()
    element = np.dtype(DataType(dtype).numpy()).itemsize
    if count * element != offsets[1] - offsets[0]:
        raise _refusal(
            f"tensor {name!r} of shape {shape} and type {entry['dtype']} has "
            f"{count * element} bytes, its offsets say {offsets[1] - offsets[0]}"
        )
    return offsets[0], offsets[1], DataType(dtype), ShapeTuple(shape)


def _is_counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(one) is int and 0 <= one < 2**62 for one in value)


def _refusal(message: str) -> InternalError:
    return InternalError(f"safetensors: {message}")
