"""Operators that run as host functions: their result's shape, or their effect, has no kernel.

The legalizer turns the operators into calls of these names. Counterpart: the functions
``relax.run.*`` that TVM's Python package registers.

Examples
--------
>>> from relaxlab.runtime.tensor import tensor
>>> print_values("{} and {}", 1, (2, "x"))
1 and (2, x)
>>> nonzero(tensor([[0, 1], [1, 0]])).array.tolist()
[[0, 1], [1, 0]]
"""

from typing import Any

import numpy as np

from relaxlab.runtime.container import Array, ShapeTuple
from relaxlab.runtime.packed_func import register_global_func
from relaxlab.runtime.tensor import Tensor, tensor
from relaxlab.runtime.vm.builtin.table import as_int, as_shape, as_string, as_tensor

__all__: list[str] = []


def _rendered(value: Any) -> str:
    match value:
        case ShapeTuple():
            return str(tuple(value))
        case list() | tuple():
            return f"({', '.join(map(_rendered, value))})"
        case Tensor():
            return str(value.numpy())
        case _:
            return str(value)


@register_global_func("relax.run.print")
def print_values(text: Any, /, *values: Any) -> None:
    """Print values: into the places of the format text, or in a row if it is empty."""
    text = as_string(text, "relax.run.print", "the format")
    shown = map(_rendered, values)
    print(text.format(*shown) if text else " ".join(shown))  # noqa: T201  # what it is for


@register_global_func("relax.run.assert_op")
def assert_op(condition: Any, text: Any, /, *values: Any) -> None:
    """Raise AssertionError unless the condition, a bool scalar, holds."""
    if not isinstance(text, str):
        raise ValueError(
            f"The format string argument to assert must be a string, given {type(text)})"
        )
    if isinstance(condition, Tensor):
        if condition.dtype != "bool":
            raise ValueError(
                f"The condition must be a bool scalar, but given a {condition.dtype} tensor"
            )
        if condition.ndim:
            raise ValueError(
                f"The condition must be a scalar, but it has a shape of {condition.shape}"
            )
        condition = condition.numpy()
    elif not isinstance(condition, bool | int):
        raise ValueError(
            "The condition for relax assert must be a bool, int, or Tensor, "
            f"but received a {type(condition)}."
        )
    if condition:
        return
    shown = list(map(_rendered, values))
    raise AssertionError(text.format(*shown) if text else ", ".join(shown) or "Assertion Failed")


@register_global_func("relax.run.shape_to_tensor")
def shape_to_tensor(shape: Any, /) -> Tensor:
    """Return the sizes of a shape as an int64 tensor."""
    sizes = as_shape(shape, "relax.run.shape_to_tensor", "shape")
    return tensor(np.array(sizes, dtype=np.int64))


@register_global_func("relax.run.nonzero")
def nonzero(value: Any, /) -> Tensor:
    """Return the positions of the elements that are not 0, a row for each axis."""
    array = np.atleast_1d(as_tensor(value, "relax.run.nonzero", "x").array)
    return tensor(np.stack(array.nonzero()))


@register_global_func("relax.run.unique")
def unique(
    value: Any,
    is_sorted: Any = True,
    return_index: Any = False,
    return_inverse: Any = False,
    return_counts: Any = False,
    axis: Any = None,
    /,
) -> Any:
    """Return the different elements (or slices along an axis), and what else is asked for.

    They are in ascending order, or in that of their first appearance.
    """
    me = "relax.run.unique"
    array = as_tensor(value, me, "x").array
    axis = None if axis is None else as_int(axis, me, "axis")
    values, index, inverse, counts = np.unique(
        array, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not is_sorted:
        order = np.argsort(index)
        values = np.take(values, order, axis=axis)
        index, counts = index[order], counts[order]
        inverse = np.argsort(order)[inverse]
    asked = [(index, return_index), (inverse, return_inverse), (counts, return_counts)]
    results = [tensor(values), *(tensor(part) for part, wanted in asked if wanted)]
    return results[0] if len(results) == 1 else Array(results)
