"""Parameter dictionaries as bytes and files, in TVM's format.

The format is a list of names and a list of tensors; what TVM writes we read, and the bytes we
write are the bytes TVM writes. Counterpart: ``tvm.runtime.save_param_dict`` and its siblings.

Examples
--------
>>> data = save_param_dict({"w": tensor([1.0, 2.0], dtype="float32")})
>>> load_param_dict(data)["w"].numpy()
array([1., 2.], dtype=float32)
"""

import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from relaxlab.errors import InternalError
from relaxlab.runtime.staged_files import write_whole
from relaxlab.runtime.tensor import Tensor, tensor
from relaxlab.runtime.vm.serialize import ByteReader, read_tensor, write_tensor

__all__ = [
    "load_param_dict",
    "load_param_dict_from_file",
    "save_param_dict",
    "save_param_dict_to_file",
]

LIST_MAGIC: Final = 0xF7E58D4F05049CB7
_MIN_NAME_BYTES: Final = 8
_MIN_TENSOR_BYTES: Final = 40


def save_param_dict(params: Mapping[str, Any]) -> bytes:
    """Return the parameters as bytes, in the order of the mapping.

    Parameters
    ----------
    params
        Name to tensor; what is no tensor goes through :func:`tensor`.
    """
    parts = [struct.pack("<QQQ", LIST_MAGIC, 0, len(params))]
    for name in params:
        text = name.encode()
        parts += [struct.pack("<Q", len(text)), text]
    parts.append(struct.pack("<Q", len(params)))
    for value in params.values():
        parts.append(write_tensor(value if isinstance(value, Tensor) else tensor(value)))
    return b"".join(parts)


def load_param_dict(data: bytes | bytearray | memoryview) -> dict[str, Tensor]:
    """Return the parameters that the bytes hold; trailing bytes are ignored.

    Raises
    ------
    InternalError
        For cut or altered bytes; it names the section and the byte offset.
    TypeError
        If ``data`` is not bytes.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"load_param_dict: expected bytes, got {type(data).__name__}")
    reader = ByteReader(memoryview(data).cast("B"), "parameter dictionary")
    magic = reader.number("Q", "the magic number")
    if magic != LIST_MAGIC:
        raise reader.error(f"unknown magic number {magic:#018x}, expected {LIST_MAGIC:#018x}", 0)
    reader.number("Q", "the reserved word")
    reader.section = "names"
    names = [reader.string("a name") for _ in range(reader.count("names", _MIN_NAME_BYTES))]
    reader.section = "tensors"
    start = reader.at
    count = reader.count("tensors", _MIN_TENSOR_BYTES)
    if count != len(names):
        raise reader.error(f"expected {len(names)} tensors, one per name, got {count}", start)
    return {name: read_tensor(reader) for name in names}


def save_param_dict_to_file(params: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write :func:`save_param_dict` to a file; the old one stays until the new one is whole."""
    write_whole(path, save_param_dict(params))


def load_param_dict_from_file(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Read a file written by :func:`save_param_dict_to_file` or by TVM.

    Raises
    ------
    InternalError
        If the file cannot be read, or as :func:`load_param_dict`.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InternalError(f"cannot read parameters from {path}: {error}") from error
    return load_param_dict(data)
