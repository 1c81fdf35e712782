"""Values across the border to ``tvm_ffi``, in both directions.

Tensors share their memory (DLPack), so that what a kernel writes is seen on both sides. Other
values are converted kind by kind; what has no counterpart passes as an opaque object. Functions
are wrapped so that they convert what they are given and what they return. Counterpart: the
argument conversion of ``tvm_ffi``.

Examples
--------
>>> plain = from_ffi("text"), from_ffi(3), from_ffi(None)
>>> plain
('text', 3, None)
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from relaxlab.runtime.container import Array, ShapeTuple
from relaxlab.runtime.device import Device
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.tensor import Tensor, from_dlpack
from relaxlab.runtime.vm.frame import Closure
from relaxlab.runtime.vm.virtual_machine import VMFunction

__all__ = ["ffi_package", "from_ffi", "returning_ours", "returning_theirs", "to_ffi"]


def ffi_package() -> Any:
    """Return the module ``tvm_ffi``.

    Raises
    ------
    ModuleNotFoundError
        If it is not installed; the message says how to get it.
    """
    try:
        return import_module("tvm_ffi")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "this needs the package apache-tvm-ffi: python -m pip install 'relaxlab[tvmffi]'",
            name=error.name,
        ) from None


def to_ffi(value: Any) -> Any:
    """Return a value of ours as ``tvm_ffi`` takes it.

    Raises
    ------
    TypeError
        For a closure of our machine, which means nothing elsewhere, and for a tensor that DLPack
        cannot share.
    """
    ffi = ffi_package()
    match value:
        case Tensor():
            try:
                return ffi.from_dlpack(value)
            except BufferError as error:
                raise TypeError(
                    f"cannot hand over a tensor of dtype {value.dtype}: {error}"
                ) from None
        case ShapeTuple():
            return ffi.Shape(tuple(value))
        case DataType():
            return ffi.dtype(str(value))
        case Device():
            return ffi.device(value.type, value.index)
        case None | bool() | int() | float() | str() | bytes():
            return value
        case list() | tuple():
            return [to_ffi(item) for item in value]
        case dict():
            return {key: to_ffi(item) for key, item in value.items()}
        case Closure() | VMFunction():
            raise TypeError(
                f"cannot hand over {value!r}: a closure runs only on the machine that made it"
            )
        case _ if callable(value):
            return returning_theirs(value)
        case _:
            return value


def from_ffi(value: Any) -> Any:
    """Return a value of ``tvm_ffi`` as a register of ours holds it."""
    if value is None or type(value) in (bool, int, float, str, bytes):
        return value
    ffi = ffi_package()
    if isinstance(value, ffi.Tensor):
        return from_dlpack(value)
    if isinstance(value, ffi.Shape):
        return ShapeTuple(value)
    if isinstance(value, ffi.dtype):  # a text too, so it comes before texts
        return DataType(str(value))
    if isinstance(value, str | bytes):  # long ones are of a class of their own
        return str(value) if isinstance(value, str) else bytes(value)
    if isinstance(value, ffi.Device):
        return Device.from_dlpack(value.dlpack_device_type(), value.index)
    if isinstance(value, ffi.Function):
        return returning_ours(value)
    if isinstance(value, Sequence):
        return Array(map(from_ffi, value))
    if isinstance(value, Mapping):
        return {from_ffi(key): from_ffi(item) for key, item in value.items()}
    return value


def returning_ours(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of theirs so that it takes and returns values of ours."""

    def call(*args: Any) -> Any:
        return from_ffi(function(*map(to_ffi, args)))

    return call


def returning_theirs(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of ours so that it takes and returns values of theirs."""

    def call(*args: Any) -> Any:
        return to_ffi(function(*map(from_ffi, args)))

    return call
