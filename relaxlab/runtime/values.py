"""What a register can hold, and how a Python value becomes such a value.

A host speaks Python: lists, NumPy arrays, NumPy scalars. Registers hold a smaller set of kinds,
so that every builtin can rely on exact types. This module is the border. Counterpart: the value
conversions of ``tvm_ffi`` (its ``Any``).

Examples
--------
>>> import numpy as np
>>> as_value([1, np.float32(2.5), (np.int8(3),)])
(1, 2.5, (3,))
>>> as_value(np.zeros(2)).shape
ShapeTuple((2,))
>>> kind_of(as_value("x")), kind_of(ShapeTuple((1,))), kind_of(None)
('string', 'Shape', 'None')
"""

from typing import Any, Final

import numpy as np

from relaxlab.runtime.container import Array, ShapeTuple
from relaxlab.runtime.device import Device
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.tensor import Tensor, from_dlpack

__all__ = ["PLAIN_TYPES", "as_value", "kind_of"]

PLAIN_TYPES: Final = frozenset(
    {type(None), bool, int, float, str, bytes, DataType, Device, ShapeTuple, Tensor, Array}
)
"""Types whose values are register values as they are; most values are of one of them."""

_KINDS: Final = {
    type(None): "None",
    bool: "bool",
    int: "int",
    float: "float",
    str: "string",
    bytes: "bytes",
    DataType: "DataType",
    Device: "Device",
    ShapeTuple: "Shape",
    Tensor: "Tensor",
    Array: "Tuple",
    list: "Tuple",
    tuple: "Tuple",
    dict: "Map",
    np.ndarray: "Tensor",
}


def as_value(value: Any) -> Any:
    """Return ``value`` as a register can hold it.

    Lists and tuples become a new :class:`Array` of converted elements, dicts a new dict; NumPy
    arrays and DLPack exporters become tensors on the same memory; NumPy scalars become Python
    numbers. Everything else is returned as it is.

    Raises
    ------
    TypeError
        If a NumPy array has elements that no tensor can hold.
    """
    if type(value) in PLAIN_TYPES:
        return value
    if isinstance(value, np.ndarray):
        return Tensor(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Tensor | ShapeTuple | Array):
        return value
    if isinstance(value, list | tuple):
        return Array(map(as_value, value))
    if isinstance(value, dict):
        return {key: as_value(item) for key, item in value.items()}
    if hasattr(type(value), "__dlpack__"):
        return from_dlpack(value)
    return value


def kind_of(value: Any) -> str:
    """Return the word for a value's kind that error messages use, such as ``"Tensor"``."""
    kind = _KINDS.get(type(value))
    if kind is not None:
        return kind
    if isinstance(value, np.generic):
        return kind_of(value.item())
    return "Function" if callable(value) else type(value).__name__
