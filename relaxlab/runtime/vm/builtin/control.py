"""Builtins for control, tuples and functions.

``invoke_closure`` is here for hosts and for use as a value; when bytecode calls it, the loop
pushes the closure's frame itself, so that closures can recurse as deeply as functions.
Counterpart: the same functions of TVM's ``vm/builtin.cc``.

Examples
--------
>>> tuple_getitem(make_tuple(4, "a"), 1)
'a'
>>> tuple_getitem(make_tuple(4, "a"), 2)
Traceback (most recent call last):
IndexError: Index 2 is out of bounds for a tuple of 2 elements
"""

import sys
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from relaxlab.errors import InternalError
from relaxlab.registry import Registry
from relaxlab.runtime.container import Array
from relaxlab.runtime.dtype import DataTypeCode
from relaxlab.runtime.packed_func import GLOBAL_FUNCTIONS, PackedFunc
from relaxlab.runtime.tensor import Tensor
from relaxlab.runtime.values import as_value
from relaxlab.runtime.vm.builtin.table import (
    as_int,
    as_shape,
    as_string,
    as_tensor,
    as_tuple,
    builtin,
    refusal,
    shown,
)
from relaxlab.runtime.vm.frame import Closure

if TYPE_CHECKING:
    from relaxlab.runtime.vm.virtual_machine import VirtualMachine

__all__ = ["PYTHON_FUNCTIONS"]

PYTHON_FUNCTIONS: Final[Registry[PackedFunc]] = Registry("Python function", InternalError)
"""What ``call_py_func`` can call; separate from the global functions."""


@builtin("vm.builtin.read_if_cond")
def read_if_cond(condition: Any, /) -> bool:
    """Return the truth of a number, or of the first element of an integer or bool tensor.

    Parameters
    ----------
    condition
        An integer, a bool, or a tensor of integers or bools of 1, 8, 16, 32 or 64 bits.

    Raises
    ------
    TypeError
        If it is something else.
    InternalError
        If the tensor is of another type, has no elements, or has several bools: then nobody knows
        which of them is meant.

    Notes
    -----
    Source: TVM's ``vm.builtin.read_if_cond``. TVM crashes on None, reads garbage from an empty
    tensor, and takes the first of several bools.
    """
    if isinstance(condition, int):
        return condition != 0
    me = "vm.builtin.read_if_cond"
    condition = as_value(condition)
    if isinstance(condition, int):
        return condition != 0
    if not isinstance(condition, Tensor):
        raise refusal(condition, me, "condition", "int, bool or Tensor")
    dtype = condition.dtype
    integral = dtype.code in (DataTypeCode.INT, DataTypeCode.UINT, DataTypeCode.BOOL)
    if not integral or dtype.bits not in (1, 8, 16, 32, 64):
        raise InternalError(f"{me}: expected an integer or bool tensor, got {shown(condition)}")
    if condition.size == 0:
        raise InternalError(f"{me}: expected at least one element, got {shown(condition)}")
    if condition.size > 1 and dtype.code == DataTypeCode.BOOL:
        raise InternalError(
            f"{me}: the truth of several elements is ambiguous: expected a bool scalar as the "
            f"condition of If, got {shown(condition)}; reduce it, or take one element"
        )
    return bool(condition.array.flat[0])


@builtin("vm.builtin.copy")
def copy(value: Any, /) -> Any:
    """Return the same value; the name means a copy of the register.

    Parameters
    ----------
    value
        Anything.

    Notes
    -----
    Source: TVM's ``vm.builtin.copy``. It checks nothing.
    """
    return value


@builtin("vm.builtin.null_value")
def null_value() -> None:
    """Return None.

    Notes
    -----
    Source: TVM's ``vm.builtin.null_value``. It checks nothing.
    """


@builtin("vm.builtin.make_tuple")
def make_tuple(*values: Any) -> Array:
    """Return a tuple of the values.

    Parameters
    ----------
    values
        Anything, any number of times.

    Notes
    -----
    Source: TVM's ``vm.builtin.make_tuple``. It checks nothing.
    """
    return Array(values)


@builtin("vm.builtin.tuple_getitem")
def tuple_getitem(value: Any, index: Any, /) -> Any:
    """Return one element.

    Parameters
    ----------
    value
        A tuple.
    index
        From 0.

    Raises
    ------
    IndexError
        If the index is negative or too large.
    TypeError
        If an argument is of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.tuple_getitem``.
    """
    if type(value) is Array and type(index) is int and 0 <= index < len(value):
        return value[index]
    items = as_tuple(value, "vm.builtin.tuple_getitem", "tuple")
    return items[_checked_index(index, len(items), "vm.builtin.tuple_getitem")]


@builtin("vm.builtin.tuple_reset_item")
def tuple_reset_item(value: Any, index: Any, /) -> None:
    """Set one element to None, in place: every holder of the tuple sees it.

    Parameters
    ----------
    value
        A tuple.
    index
        From 0.

    Raises
    ------
    IndexError
        If the index is negative or too large.
    TypeError
        If an argument is of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.tuple_reset_item``.
    """
    items = as_tuple(value, "vm.builtin.tuple_reset_item", "tuple")
    position = _checked_index(index, len(items), "vm.builtin.tuple_reset_item")
    if isinstance(items, list):
        items[position] = None


@builtin("vm.builtin.make_closure")
def make_closure(closure: Any, /, *values: Any) -> Closure:
    """Return a closure that binds the last parameters of another to ``values``.

    Parameters
    ----------
    closure
        A Relax function or a closure.
    values
        For its last parameters; newer values come before older ones.

    Raises
    ------
    TypeError
        If it is no closure: host functions cannot be bound.

    Notes
    -----
    Source: TVM's ``vm.builtin.make_closure``.
    """
    if not isinstance(closure, Closure):
        raise refusal(closure, "vm.builtin.make_closure", "closure", "a closure")
    return closure.bind(values)


@builtin("vm.builtin.invoke_closure")
def invoke_closure(machine: "VirtualMachine", closure: Any, /, *args: Any) -> Any:
    """Call a closure or a host function.

    Parameters
    ----------
    machine
        ``%vm``.
    closure
        A closure, or a host function.
    args
        Its arguments.

    Raises
    ------
    TypeError
        If the machine is none, or the closure is a number.
    InternalError
        If the closure is another object, or the arguments do not fit.

    Notes
    -----
    Source: TVM's ``vm.builtin.invoke_closure``.
    """
    if not hasattr(machine, "invoke_closure"):
        raise refusal(machine, "vm.builtin.invoke_closure", "machine", "%vm")
    return machine.invoke_closure(closure, *args)


@builtin("vm.builtin.call_tir_dyn")
def call_tir_dyn(function: Any, /, *args: Any) -> Any:
    """Call a kernel with the arguments, then the sizes of the last argument, a shape.

    Parameters
    ----------
    function
        A kernel.
    args
        Its arguments, then a shape, which is unpacked into integers.

    Raises
    ------
    TypeError
        If the function cannot be called, or the last argument is no shape.

    Notes
    -----
    Source: TVM's ``vm.builtin.call_tir_dyn``.
    """
    me = "vm.builtin.call_tir_dyn"
    if isinstance(function, Closure) or not callable(function):
        raise refusal(function, me, "function", "Function")
    if not args:
        raise TypeError(f"{me}: expected a Shape as last argument, got no argument")
    return as_value(function(*args[:-1], *as_shape(args[-1], me, "last argument")))


@builtin("vm.builtin.call_py_func")
def call_py_func(*args: Any) -> Any:
    """Call a registered Python function: one argument, the tuple (name, tuple of arguments).

    Parameters
    ----------
    args
        One tuple: the name, and a tuple of arguments.

    Raises
    ------
    InternalError
        If it is not one pair, or there is no such function.
    TypeError
        If the parts are of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.call_py_func``. Global functions are not looked at.
    """
    me = "vm.builtin.call_py_func"
    if len(args) != 1:
        raise InternalError(f"{me}: expected one tuple (name, arguments), got {len(args)}")
    pair = as_tuple(args[0], me, "argument")
    if len(pair) != 2:
        raise InternalError(f"{me}: expected (name, arguments), got a tuple of {len(pair)}")
    function = PYTHON_FUNCTIONS.get(as_string(pair[0], me, "name"))
    return as_value(function(*as_tuple(pair[1], me, "arguments")))


@builtin("vm.builtin.register_py_func")
def register_py_func(name: str, function: Any, /) -> None:
    """Make a Python function known to ``call_py_func``; it replaces one of the same name.

    Parameters
    ----------
    name, function
        What is registered, for the whole process.

    Raises
    ------
    TypeError
        If the name is no string, or the function cannot be called.

    Notes
    -----
    Source: TVM's ``vm.builtin.register_py_func``.
    """
    if not callable(function):
        raise refusal(function, "vm.builtin.register_py_func", "function", "Function")
    key = as_string(name, "vm.builtin.register_py_func", "name")
    PYTHON_FUNCTIONS.register(key, function, override=True)


@builtin("vm.builtin.get_py_func")
def get_py_func(name: str, /) -> PackedFunc:
    """Return a function made known by ``register_py_func``.

    Parameters
    ----------
    name
        A registered name.

    Raises
    ------
    InternalError
        If there is none of that name.
    TypeError
        If it is no string.

    Notes
    -----
    Source: TVM's ``vm.builtin.get_py_func``.
    """
    return PYTHON_FUNCTIONS.get(as_string(name, "vm.builtin.get_py_func", "name"))


@builtin("vm.builtin.clear_py_func_registry")
def clear_py_func_registry() -> None:
    """Forget every function made known by ``register_py_func``.

    Notes
    -----
    Source: TVM's ``vm.builtin.clear_py_func_registry``. It checks nothing.
    """
    for name in PYTHON_FUNCTIONS.names():
        PYTHON_FUNCTIONS.remove(name)


@builtin("vm.builtin.invoke_debug_func")
def invoke_debug_func(*args: Any) -> None:
    """Call a global function with a line number and values: (io effect, name, line, values...).

    Parameters
    ----------
    args
        None or an object, which is the effect; the name; the line, a string; values.

    Raises
    ------
    InternalError
        If there are fewer than three.
    ValueError
        If the effect is a number, or there is no such global function.
    TypeError
        If name or line are no strings.

    Notes
    -----
    Source: TVM's ``vm.builtin.invoke_debug_func``.
    """
    me = "vm.builtin.invoke_debug_func"
    if len(args) < 3:
        raise InternalError(f"{me}: expected an effect, a name and a line, got {len(args)} values")
    effect, name, line, *values = args
    if isinstance(effect, int | float):
        raise ValueError(f"{me}: expected None or an object as effect, got {shown(effect)}")
    name = as_string(name, me, "name")
    function = GLOBAL_FUNCTIONS.find(name)
    if function is None:
        raise ValueError(f"{me}: there is no global function {name!r}")
    function(as_string(line, me, "line"), *values)


@builtin("vm.builtin.debug_print")
def debug_print(line: str, value: Any, /) -> None:
    """Print where, shape, dtype and elements of a tensor.

    Parameters
    ----------
    line
        Where, in words.
    value
        A tensor.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.debug_print``.
    """
    me = "vm.builtin.debug_print"
    tensor = as_tensor(value, me, "value")
    with np.printoptions(threshold=sys.maxsize):
        sys.stdout.write(
            f"{as_string(line, me, 'line')}: shape = {tuple(tensor.shape)}, "
            f"dtype = {tensor.dtype}, data =\n{tensor.array}\n"
        )


def _checked_index(index: Any, length: int, me: str) -> int:
    position = as_int(index, me, "index")
    if not 0 <= position < length:
        raise IndexError(f"Index {position} is out of bounds for a tuple of {length} elements")
    return position
