"""The table of builtins, and the casts they share.

A builtin is registered here and, under the same name, as a global function. Being in this table
means that its results are register values already, so the linker calls it directly. The casts
follow TVM's rules for converting arguments: a failure is a ``TypeError`` that names the function,
the parameter, what was expected and what came.

Examples
--------
>>> as_shape([2, 3], "vm.builtin.reshape", "shape")
ShapeTuple((2, 3))
>>> as_int(2.5, "vm.builtin.make_shape", "the rank")
Traceback (most recent call last):
TypeError: vm.builtin.make_shape: the rank: expected int, got float 2.5
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import numpy as np

from relaxlab.errors import InternalError
from relaxlab.registry import Registry
from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.packed_func import PackedFunc, register_global_func
from relaxlab.runtime.tensor import Tensor
from relaxlab.runtime.values import as_value, kind_of

__all__ = [
    "BUILTINS",
    "as_array",
    "as_context",
    "as_dtype",
    "as_float",
    "as_int",
    "as_shape",
    "as_string",
    "as_tensor",
    "as_tuple",
    "builtin",
    "shown",
]

BUILTINS: Final[Registry[PackedFunc]] = Registry("builtin")

F = TypeVar("F", bound=PackedFunc)


def builtin(name: str) -> Callable[[F], F]:
    """Register a function as a builtin of the machine and as a global function."""

    def register(function: F) -> F:
        # Python names the function in errors about its arguments by the qualified name
        function.__qualname__ = name
        BUILTINS.register(name, function)
        return register_global_func(name, function)

    return register


def shown(value: Any) -> str:
    """Return a value as error messages show it: its kind, and its text if that is short."""
    kind = kind_of(value)
    match value:
        case Tensor():
            return f"Tensor of shape {tuple(value.shape)} and dtype {str(value.dtype)!r}"
        case None:
            return "None"
        case bool() | int() | float() | str():
            text = repr(value)
            return f"{kind} {text}" if len(text) <= 60 else f"{kind} {text[:57]}..."
        case ShapeTuple():
            return f"Shape {tuple(value)}"
        case list() | tuple():
            return f"{kind} of {len(value)} elements"
        case _:
            return kind


def refusal(value: Any, function: str, parameter: str, expected: str) -> TypeError:
    """Return the error for an argument of the wrong kind."""
    return TypeError(f"{function}: {parameter}: expected {expected}, got {shown(value)}")


def as_int(value: Any, function: str, parameter: str) -> int:
    """Cast to int: an int or a bool, never a float or a tensor."""
    if isinstance(value, int | np.integer | np.bool_):
        return int(value)
    raise refusal(value, function, parameter, "int")


def as_float(value: Any, function: str, parameter: str) -> float:
    """Cast to float: a float, an int or a bool."""
    if isinstance(value, float | int | np.integer | np.floating | np.bool_):
        return float(value)
    raise refusal(value, function, parameter, "float")


def as_string(value: Any, function: str, parameter: str) -> str:
    """Cast to str."""
    if isinstance(value, str):
        return value
    raise refusal(value, function, parameter, "string")


def as_context(value: Any, function: str) -> str | None:
    """Cast an error context: a string, or None for none."""
    return None if value is None else as_string(value, function, "context")


def as_shape(value: Any, function: str, parameter: str) -> ShapeTuple:
    """Cast to a shape: a shape, or a tuple whose elements are ints."""
    if type(value) is ShapeTuple:
        return value
    if isinstance(value, list | tuple):
        return ShapeTuple(
            as_int(dim, function, f"{parameter}, element {i}") for i, dim in enumerate(value)
        )
    raise refusal(value, function, parameter, "Shape")


def as_tensor(value: Any, function: str, parameter: str) -> Tensor:
    """Cast to a tensor: a tensor, or an array, which is wrapped."""
    if type(value) is Tensor:
        return value
    if isinstance(value, np.ndarray) or hasattr(type(value), "__dlpack__"):
        tensor: Tensor = as_value(value)
        return tensor
    raise refusal(value, function, parameter, "Tensor")


def as_array(value: Any, function: str, parameter: str, dtype: str) -> np.ndarray[Any, Any]:
    """Return the elements of a tensor as a NumPy array; it must be contiguous and of ``dtype``.

    Raises
    ------
    InternalError
        If dtype or layout differ.
    """
    from_tensor = as_tensor(value, function, parameter)
    if from_tensor.dtype != dtype:
        raise wrong_tensor(function, parameter, f"dtype {dtype!r}", from_tensor)
    if not from_tensor.is_contiguous():
        raise wrong_tensor(function, parameter, "compact memory", from_tensor)
    return from_tensor.array


def wrong_tensor(function: str, parameter: str, expected: str, tensor: Tensor) -> Exception:
    """Return the error for a tensor of the wrong type."""
    return InternalError(f"{function}: {parameter}: expected {expected}, got {shown(tensor)}")


def as_tuple(value: Any, function: str, parameter: str) -> list[Any] | tuple[Any, ...]:
    """Cast to a tuple: an array, list or tuple; a shape is none."""
    if isinstance(value, list | tuple) and not isinstance(value, ShapeTuple):
        return value
    raise refusal(value, function, parameter, "Tuple")


def as_dtype(value: Any, function: str, parameter: str) -> DataType:
    """Cast to a dtype: a dtype, or a string that spells one."""
    if isinstance(value, DataType):
        return value
    if isinstance(value, str):
        try:
            return DataType(value)
        except ValueError as error:
            raise TypeError(f"{function}: {parameter}: {error}") from None
    raise refusal(value, function, parameter, "DataType")
