"""How stored arguments and results are converted.

Arguments of ``set_input`` and ``save_function`` may be bound by name, and become tensors where
they are numbers; a stored result comes back as Python tuples. The rules are those of TVM's Python
layer, so that a program sees the same values with both. Counterpart: the stateful part of
``tvm.runtime.vm``.

Examples
--------
>>> x, y = bind_inputs("f", ("x", "y"), (1,), {"x": 2.5})
>>> str(x.dtype), x.numpy().item(), str(y.dtype)
('float32', 2.5, 'int32')
"""

import warnings
from typing import Any

import numpy as np

from relaxlab.runtime.container import Array, ShapeTuple
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.tensor import Tensor, tensor
from relaxlab.runtime.vm.builtin.table import shown
from relaxlab.runtime.vm.frame import Closure

__all__ = ["as_tuples", "bind_inputs"]


def bind_inputs(
    function: str, names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any]:
    """Return the arguments in the order of the parameters, converted.

    Parameters
    ----------
    function
        Name of the function, for messages.
    names
        Its parameters; needed only with ``kwargs``.
    args
        Arguments by position: they take the parameters that have no argument by name.
    kwargs
        Arguments by name; unknown names are ignored with a warning.

    Raises
    ------
    AssertionError
        If the arguments do not make up one per parameter.
    TypeError
        If an argument is of a kind that cannot be stored.
    """
    if not kwargs:
        return list(map(_input_value, args))
    unknown = [key for key in kwargs if key not in names]
    if unknown:
        warnings.warn(
            f"function {function!r} has no parameters {unknown}; they are ignored", stacklevel=4
        )
    given = {key: value for key, value in kwargs.items() if key in names}
    if len(given) + len(args) != len(names):
        raise AssertionError(
            f"function {function!r} expects {len(names)} arguments ({', '.join(names)}), "
            f"got {len(args)} by position and {len(given)} by name"
        )
    positional = iter(args)
    return [_input_value(given[n] if n in given else next(positional)) for n in names]


def as_tuples(value: Any) -> Any:
    """Return a value with Relax tuples as Python tuples, all the way down."""
    return tuple(map(as_tuples, value)) if isinstance(value, Array) else value


def _input_value(value: Any) -> Any:
    """Convert an argument as TVM's Python layer does, but for shapes, which stay shapes."""
    if isinstance(value, Tensor | Array | Closure | ShapeTuple | str | DataType):
        return value
    if isinstance(value, np.ndarray | np.float16):
        return tensor(value)
    if isinstance(value, tuple | list):
        return Array(map(_input_value, value))
    if isinstance(value, int | np.integer | np.bool_):
        return tensor(np.array(int(value), "int32"))
    if isinstance(value, float | np.floating):
        return tensor(np.array(value, "float32"))
    raise TypeError(
        f"expected a tensor, array, tuple, number or string as stored argument, got {shown(value)}"
    )
