"""Values of attributes in a program: what can be printed and read again, and nothing else.

Examples
--------
>>> attribute({"num_input": 1, "names": ["a", "b"]})
{'num_input': 1, 'names': ('a', 'b')}
>>> attribute(print)
Traceback (most recent call last):
    ...
TypeError: an attribute is a number, a string, a list, a dictionary, a dtype or a node, got <built-in function print>
"""  # noqa: E501  # a doctest

from collections.abc import Mapping
from typing import Any

from relaxlab.ir.expr import Expr
from relaxlab.ir.global_info import VDevice
from relaxlab.ir.target import Target
from relaxlab.ir.type import PrimType, Type
from relaxlab.runtime.device import Device
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.tensor import Tensor
from relaxlab.tirx.index_map import IndexMap

__all__ = ["attribute", "attributes"]

_NODES = (Expr, Type, VDevice, Device, DataType, Target, IndexMap, Tensor)


def attribute(value: Any) -> Any:
    """Return a value as attributes hold it, with tuples for lists.

    Raises
    ------
    TypeError
        If it is none that an attribute can have.
    """
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple():
            return tuple(map(attribute, value))
        case Mapping():
            return {str(key): attribute(item) for key, item in value.items()}
        case _ if isinstance(value, _NODES):
            return value
        case _:
            dtype = getattr(value, "dtype", None)
            if isinstance(dtype, DataType):  # ``T.int64`` stands for its type
                return PrimType(dtype)
            raise TypeError(
                "an attribute is a number, a string, a list, a dictionary, a dtype or a node, "
                f"got {value!r}"
            )


def attributes(values: Any) -> dict[str, Any]:
    """Return a dictionary of attributes.

    Raises
    ------
    TypeError
        If it is no dictionary, or one of its values is no attribute.
    """
    if not isinstance(values, Mapping):
        raise TypeError(f"attributes are a dictionary, got {type(values).__name__}")
    return {str(key): attribute(value) for key, value in values.items()}
