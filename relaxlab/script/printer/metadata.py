"""The metadata section: constants that have no text of their own.

Counterpart: the ``metadata = tvm.ir.load_json(...)`` that TVM puts in front of a program. The
format is its JSON graph of nodes: each node once, children before parents, references by index.
Tensors are base64 of the layout that parameter files use.
"""

import base64
import json
import re
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from relaxlab.ir.expr import GenericConst
from relaxlab.ir.source import Span
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import TensorType
from relaxlab.runtime.dtype import DataType

__all__ = ["TENSOR_MAGIC", "metadata_text", "tensor_bytes"]

#: First eight bytes of a stored tensor.
TENSOR_MAGIC = 0xDD5E40F096B4A13F
_VERSION = "0.27.0.post1"


def metadata_text(metadata: Mapping[str, list[Any]]) -> str:
    """Return the statement that holds the objects of a program's metadata, by kind."""
    text = json.dumps(_Graph().build(metadata), indent=2).replace("/", "\\/")
    # TVM closes an empty list on a line of its own
    text = re.sub(r"^( *)(.*)\[\]", r"\1\2[\n\1]", text, flags=re.MULTILINE)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'metadata = tvm.ir.load_json("""{escaped}""")'


class _Graph:
    """The nodes written so far, and the index of each shared one."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.shared: dict[object, int] = {}

    def build(self, metadata: Mapping[str, list[Any]]) -> dict[str, Any]:
        entries: list[int] = []
        for kind in sorted(metadata, reverse=True):  # constants before tensors, as in TVM
            entries.append(self.leaf("ffi.String", kind))
            node = self.tensor if kind == "ffi.Tensor" else self.const
            entries.append(self.add("ffi.Array", [node(item) for item in metadata[kind]]))
        root = self.add("ffi.Map", entries)
        return {
            "root_index": root,
            "nodes": self.nodes,
            "metadata": {"tvm_version": _VERSION},
        }

    def add(self, kind: str, data: Any = None) -> int:
        self.nodes.append({"type": kind} if data is None else {"type": kind, "data": data})
        return len(self.nodes) - 1

    def leaf(self, kind: str, data: Any = None) -> int:
        """Add a value that is written once, however often it is used."""
        key = (kind, data)
        if key not in self.shared:
            self.shared[key] = self.add(kind, data)
        return self.shared[key]

    def prim_type(self, dtype: DataType) -> int:
        key = ("ir.PrimType", str(dtype))
        if key not in self.shared:
            span = self.leaf("None")
            self.shared[key] = self.add("ir.PrimType", {"span": span, "dtype": str(dtype)})
        return self.shared[key]

    def const(self, const: GenericConst) -> int:
        ty = const.ty
        if not isinstance(ty, TensorType) or not isinstance(ty.shape, ShapeExpr):
            raise TypeError(f"no metadata for a constant of type {ty!r}")
        value = const.value
        array = np.asarray(value.numpy())
        place = self.span(const.span)
        span = self.leaf("None")
        dims = [self.dimension(size) for size in array.shape]
        values = self.add("ffi.Array", dims)
        shape_ty = self.add("relax.ShapeType", {"span": span, "values": values, "ndim": array.ndim})
        shape = self.add("relax.expr.ShapeExpr", {"span": span, "ty": shape_ty, "values": values})
        dtype = self.prim_type(DataType(str(value.dtype)))
        tensor_ty = self.add(
            "relax.TensorType",
            {"span": span, "shape": shape, "dtype": dtype, "vdevice": span, "ndim": array.ndim},
        )
        fields = {"span": place, "ty": tensor_ty, "value": self.tensor(value)}
        return self.add("ir.GenericConst", fields)

    def tensor(self, value: Any) -> int:
        data = tensor_bytes(np.asarray(value.numpy()), DataType(str(value.dtype)))
        return self.add("ffi.Tensor", base64.b64encode(data).decode())

    def span(self, span: Span | None) -> int:
        if span is None:
            return self.leaf("None")
        place = {
            "source_name": self.leaf("ir.SourceName", span.source_name.name),
            "line": span.line,
            "column": span.column,
            "end_line": span.end_line,
            "end_column": span.end_column,
        }
        return self.add("ir.Span", place)

    def dimension(self, size: int) -> int:
        span = self.leaf("None")
        ty = self.prim_type(DataType("int64"))
        return self.add("ir.IntImm", {"span": span, "ty": ty, "value": self.leaf("int", size)})


def tensor_bytes(array: "np.ndarray[Any, Any]", dtype: DataType) -> bytes:
    """Return a tensor as TVM stores it: magic, device, rank, dtype, shape, size, elements."""
    contiguous = np.ascontiguousarray(array)
    data = contiguous.tobytes()
    head = struct.pack("<QQiiiBBH", TENSOR_MAGIC, 0, 1, 0, array.ndim, dtype.code, dtype.bits, 1)
    return head + struct.pack(f"<{array.ndim}qq", *array.shape, len(data)) + data
