"""The tensor cache: a process-wide table of named weights.

It is filled one by one, or from a folder (``runtime/tensor_cache.py``), which is checked as a whole
before one weight of it is stored. Counterpart: TVM's ``vm/tensor_cache_support.cc``.

Examples
--------
>>> from relaxlab.runtime.tensor import tensor
>>> update("docs.w_0", tensor([1.0])); update("docs.w_1", tensor([2.0]))
>>> [w.numpy().tolist() for w in param_array("docs.w", -1)]
[[1.0], [2.0]]
>>> remove("docs.w_0"); remove("docs.w_1")
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from relaxlab.errors import InternalError
from relaxlab.registry import Registry
from relaxlab.runtime.container import Array
from relaxlab.runtime.device import Device
from relaxlab.runtime.tensor import Tensor, require_cpu
from relaxlab.runtime.tensor_cache import load_tensor_cache
from relaxlab.runtime.vm.builtin.table import (
    as_int,
    as_string,
    as_tensor,
    as_tuple,
    builtin,
    shown,
)

__all__ = ["ParamModule", "TENSOR_CACHE"]

TENSOR_CACHE: Final[Registry[Tensor]] = Registry("cached tensor", InternalError)


class ParamModule:
    """Weights as a module with one function, ``get_params()``."""

    kind: Final = "param_module"

    def __init__(self, params: Array) -> None:
        self._params = params

    def get_function(self, name: str) -> Callable[[], Array]:
        """Return ``get_params``."""
        if name != "get_params":
            raise AttributeError(f"a param_module has no function {name!r}; it has get_params")
        return lambda: self._params

    def __getitem__(self, name: str) -> Callable[[], Array]:
        return self.get_function(name)


@builtin("vm.builtin.tensor_cache.get")
def get(name: str, /) -> Tensor | None:
    """Return the tensor of that name, or None.

    Parameters
    ----------
    name
        Of the tensor.

    Raises
    ------
    TypeError
        If it is no string.

    Notes
    -----
    Source: TVM's ``vm.builtin.tensor_cache.get``.
    """
    return TENSOR_CACHE.find(as_string(name, "vm.builtin.tensor_cache.get", "name"))


@builtin("vm.builtin.tensor_cache.update")
def update(*args: Any) -> None:
    """Store a tensor: (name, tensor [, override]); a taken name needs ``override``.

    Parameters
    ----------
    args
        The name, the tensor, and perhaps whether a taken name may be replaced.

    Raises
    ------
    InternalError
        If there are not two or three arguments, or the name is taken.
    TypeError
        If an argument is of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.tensor_cache.update``.
    """
    me = "vm.builtin.tensor_cache.update"
    if not 2 <= len(args) <= 3:
        raise InternalError(
            f"{me}: expected a name, a tensor and perhaps override, got {len(args)} arguments"
        )
    override = bool(as_int(args[2], me, "override")) if len(args) == 3 else False
    name, value = as_string(args[0], me, "name"), as_tensor(args[1], me, "tensor")
    TENSOR_CACHE.register(name, value, override=override)


@builtin("vm.builtin.tensor_cache.remove")
def remove(name: str, /) -> None:
    """Forget a tensor; a missing name is fine.

    Parameters
    ----------
    name
        Of the tensor.

    Raises
    ------
    TypeError
        If it is no string.

    Notes
    -----
    Source: TVM's ``vm.builtin.tensor_cache.remove``.
    """
    key = as_string(name, "vm.builtin.tensor_cache.remove", "name")
    if key in TENSOR_CACHE:
        TENSOR_CACHE.remove(key)


@builtin("vm.builtin.tensor_cache.clear")
def clear() -> None:
    """Forget every tensor.

    Notes
    -----
    Source: TVM's ``vm.builtin.tensor_cache.clear``. It checks nothing.
    """
    for name in TENSOR_CACHE.names():
        TENSOR_CACHE.remove(name)


@builtin("vm.builtin.tensor_cache.load")
def load(folder: str, device_type: Any, device_id: Any, /) -> None:
    """Store every tensor of a folder; names that exist are replaced.

    Parameters
    ----------
    folder
        Where ``tensor-cache.json`` is, with its shards.
    device_type, device_id
        DLPack's numbers of the device.

    Raises
    ------
    InternalError
        If a file is missing or damaged; then nothing is stored.
    ValueError
        If a size or a format is wrong.
    KeyError
        If a record lacks a field.
    TypeError
        If an argument is of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.tensor_cache.load``. TVM keeps what came before the fault.
    """
    me = "vm.builtin.tensor_cache.load"
    number, index = as_int(device_type, me, "device type"), as_int(device_id, me, "device id")
    device = require_cpu(Device.from_dlpack(number, index))
    loaded, _ = load_tensor_cache(Path(as_string(folder, me, "folder")), device)
    for name, value in loaded.items():
        TENSOR_CACHE.register(name, value, override=True)


@builtin("vm.builtin.param_array_from_cache")
def param_array(prefix: str, count: Any, /) -> Array:
    """Return the tensors ``prefix_0 … prefix_(count-1)``; -1 means until one is missing.

    Parameters
    ----------
    prefix
        Text before the underscore.
    count
        How many; -1 until one is missing.

    Raises
    ------
    InternalError
        If one is missing; the message names it.
    TypeError
        If an argument is of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.param_array_from_cache``.
    """
    me = "vm.builtin.param_array_from_cache"
    name, limit = as_string(prefix, me, "prefix"), as_int(count, me, "count")
    found = Array()
    while limit < 0 or len(found) < limit:
        value = TENSOR_CACHE.find(f"{name}_{len(found)}")
        if value is None:
            if limit < 0:
                break
            raise InternalError(
                f"{me}: expected {limit} tensors, but {name}_{len(found)} is not in the cache"
            )
        found.append(value)
    return found


@builtin("vm.builtin.param_array_from_cache_by_name")
def param_array_by_name(names: Any, /) -> Array:
    """Return the tensors of the given names.

    Parameters
    ----------
    names
        A tuple of names.

    Raises
    ------
    ValueError
        If one is missing; the message names it.
    TypeError
        If an argument is of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.param_array_from_cache_by_name``.
    """
    me = "vm.builtin.param_array_from_cache_by_name"
    return _by_name(as_tuple(names, me, "names"), me)


@builtin("vm.builtin.param_array_from_cache_by_name_unpacked")
def param_array_by_name_unpacked(*names: Any) -> Array:
    """Return the tensors of the given names, each an argument of its own.

    Parameters
    ----------
    names
        The names.

    Raises
    ------
    ValueError
        If one is no string, or missing.

    Notes
    -----
    Source: TVM's ``vm.builtin.param_array_from_cache_by_name_unpacked``.
    """
    me = "vm.builtin.param_array_from_cache_by_name_unpacked"
    for position, name in enumerate(names):
        if not isinstance(name, str):
            raise ValueError(f"{me}: argument {position}: expected string, got {shown(name)}")
    return _by_name(names, me)


@builtin("vm.builtin.param_module_from_cache")
def param_module(prefix: str, count: Any, /) -> ParamModule:
    """Return a module of the tensors ``prefix_0 …``.

    Parameters
    ----------
    prefix
        Text before the underscore.
    count
        How many; -1 until one is missing.

    Raises
    ------
    InternalError
        If one is missing; the message names it.
    TypeError
        If an argument is of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.param_module_from_cache``.
    """
    return ParamModule(param_array(prefix, count))


@builtin("vm.builtin.param_module_from_cache_by_name")
def param_module_by_name(names: Any, /) -> ParamModule:
    """Return a module of the tensors of the given names.

    Parameters
    ----------
    names
        A tuple of names.

    Raises
    ------
    ValueError
        If one is missing; the message names it.
    TypeError
        If an argument is of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.param_module_from_cache_by_name``.
    """
    return ParamModule(param_array_by_name(names))


def _by_name(names: Sequence[Any], me: str) -> Array:
    found = Array()
    for name in names:
        value = TENSOR_CACHE.find(as_string(name, me, "name"))
        if value is None:
            raise ValueError(f"{me}: {name!r} is not in the cache")
        found.append(value)
    return found
