"""Reading the constants of a program: the counterpart of the printer's metadata section.

The format is TVM's JSON graph of nodes. The text may come from a stranger, so indices, sizes and
kinds are checked, and only tensors and constants of tensors are made.
"""

import base64
import json
import struct
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from relaxlab.ir.expr import GenericConst
from relaxlab.ir.source import SourceName, Span
from relaxlab.relax.literals import const
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.tensor import Tensor, tensor

__all__ = ["load_metadata"]

_MAGIC: Final = 0xDD5E40F096B4A13F
_HEAD: Final = struct.Struct("<QQiiiBBH")


def load_metadata(text: str) -> dict[str, list[Any]]:
    """Return the objects of a metadata section by kind.

    Raises
    ------
    ValueError
        If the text is not such a section.
    """
    try:
        graph = json.loads(text)
        nodes = graph["nodes"]
        root = nodes[graph["root_index"]]["data"]
        result = {}
        for key, items in zip(root[::2], root[1::2], strict=True):
            kind = nodes[key]["data"]
            make = _MAKERS.get(kind) if isinstance(kind, str) else None
            if make is None:
                raise ValueError(f"objects of kind {kind!r} are not supported")
            result[kind] = [make(nodes, index) for index in nodes[items]["data"]]
    except (KeyError, IndexError, TypeError, RecursionError) as error:
        raise ValueError(f"not a metadata section: {error}") from None
    return result


def _const(nodes: list[dict[str, Any]], index: int) -> GenericConst:
    data = nodes[index]["data"]
    made = const(_tensor(nodes, data["value"]))
    return GenericConst(made.value, made.ty, _span(nodes, data["span"]))


def _tensor(nodes: list[dict[str, Any]], index: int) -> Tensor:
    return tensor(_array(base64.b64decode(nodes[index]["data"], validate=True)))


_MAKERS: Final[dict[str, Callable[[list[dict[str, Any]], int], Any]]] = {
    "ffi.Tensor": _tensor,
    "ir.GenericConst": _const,
}


def _span(nodes: list[dict[str, Any]], index: int) -> Span | None:
    if nodes[index]["type"] != "ir.Span":
        return None
    data = nodes[index]["data"]
    lines = (int(data[key]) for key in ("line", "end_line", "column", "end_column"))
    return Span(SourceName(str(nodes[data["source_name"]]["data"])), *lines)


def _array(raw: bytes) -> "np.ndarray[Any, Any]":
    if len(raw) < _HEAD.size:
        raise ValueError(f"a tensor of {len(raw)} bytes is too short")
    magic, _, _, _, ndim, code, bits, lanes = _HEAD.unpack_from(raw)
    if magic != _MAGIC:
        raise ValueError("a tensor does not begin with its magic number")
    if not 0 <= ndim <= 32 or len(raw) < _HEAD.size + 8 * (ndim + 1):
        raise ValueError(f"a tensor has the rank {ndim}")
    *shape, size = struct.unpack_from(f"<{ndim + 1}q", raw, _HEAD.size)
    data = raw[_HEAD.size + 8 * (ndim + 1) :]
    dtype = DataType.make(code, bits, lanes).numpy()
    count = 1
    for extent in shape:
        if extent < 0:
            raise ValueError(f"a tensor has the shape {tuple(shape)}")
        count *= extent
    if size != len(data) or count * dtype.itemsize != size:
        raise ValueError(f"a tensor of shape {tuple(shape)} has {len(data)} bytes of data")
    return np.frombuffer(data, dtype).reshape(shape).copy()
