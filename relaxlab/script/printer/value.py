"""Attribute values as TVMScript: numbers, strings, lists, dictionaries, and nodes.

Examples
--------
>>> from relaxlab.script.printer.state import Printing
>>> value_text(Printing(), {"b": [1, 2.5], "a": None})
'{"a": None, "b": [1, 2.5]}'
"""

import math
from collections.abc import Mapping
from typing import Any

from relaxlab.ir.expr import Expr
from relaxlab.ir.global_info import VDevice
from relaxlab.ir.target import Target
from relaxlab.ir.type import Type
from relaxlab.runtime.device import Device
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.tensor import Tensor
from relaxlab.script.printer.ir import scalar, type_text
from relaxlab.script.printer.literal import float_text, string_text
from relaxlab.script.printer.relax_type import vdevice_text
from relaxlab.script.printer.state import Printing
from relaxlab.tirx.index_map import IndexMap

__all__ = ["target_fields", "value_text"]


def target_fields(target: Target) -> dict[str, Any]:
    """Return what a target is made from, with the fields that TVM adds."""
    return {"kind": target.kind.name, "keys": list(target.keys), "tag": "", **target.attrs}


def value_text(p: Printing, value: Any) -> str:
    """Return the text of an attribute's value; the keys of a dictionary are sorted."""
    match value:
        case None | bool() | int():
            return str(value)
        case float():
            text = float_text(value)
            return text if math.isfinite(value) else f"float({text})"
        case str():
            return string_text(value)
        case DataType():
            return f'"{value}"' if not value.is_void else "None"
        case list() | tuple():
            return f"[{', '.join(value_text(p, item) for item in value)}]"
        case Expr():
            return scalar(p, value)
        case Type():
            return type_text(p, value)
        case VDevice():
            return f'"{vdevice_text(p, value)}"'
        case Device():
            return (
                f"{p.mark('R')}.device(device_type={value.dlpack_device_type}, index={value.index})"
            )
        case Target():
            return f"{p.mark('T')}.target({value_text(p, target_fields(value))})"
        case Tensor():
            return p.metadata_reference("ffi.Tensor", value)
        case IndexMap():
            return _index_map_text(p, value)
        case Mapping():
            pairs = (f"{string_text(str(k))}: {value_text(p, value[k])}" for k in sorted(value))
            return f"{{{', '.join(pairs)}}}"
        case _:
            raise TypeError(
                f"no text for an attribute value of type {type(value).__name__}: {value!r}; "
                "use numbers, strings, lists, dictionaries, dtypes or nodes"
            )


def _index_map_text(p: Printing, value: IndexMap) -> str:
    with p.names.scope():
        names = ", ".join(p.names.define(var, var.name) for var in value.initial_indices)
        found = ", ".join(scalar(p, expr) for expr in value.final_indices)
    comma = "," if len(value.final_indices) == 1 else ""
    return f"{p.mark('T')}.index_map(lambda {names}: ({found}{comma}))"
