r"""Compiled functions that take NumPy arrays: machine code, kept on disk, called through ctypes.

Asking an array for its address takes a microsecond, as long as a small kernel. So each program
has a second entry that gets array objects and reads the address where NumPy keeps it; whether it
is there is checked first, and addresses are passed otherwise. Counterpart: none in TVM.

Examples
--------
>>> text = "define i32 @first(ptr %x) {\n %v = load i32, ptr %x\n ret i32 %v\n}\n"
>>> first = compile_entry(text, "first", "p")
>>> first(np.array([7], "int32"))
7
"""

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from relaxlab.codegen.llvm.cache import default_store, digest
from relaxlab.codegen.llvm.machine import machine

__all__ = ["Compiled", "address_of", "arrays_are_known", "compile_entry", "with_entry"]

Compiled = Callable[..., int]

#: Where an array object keeps the address of its first element, in bytes; checked before use.
_DATA: Final = 16
_LLVM: Final = {"p": "ptr", "i": "i64", "f": "float"}
_NUMBERS: Final[dict[str, Any]] = {"i": ctypes.c_int64, "f": ctypes.c_float}


@cache
def arrays_are_known() -> bool:
    """Whether array objects keep their addresses where the second entry looks for them."""
    if sys.implementation.name != "cpython":
        return False
    samples = (np.zeros(3, np.float32), np.zeros((4, 5), np.int64)[1:], np.zeros((), np.int8))
    return all(ctypes.c_void_p.from_address(id(a) + _DATA).value == address_of(a) for a in samples)


def address_of(array: NDArray[Any]) -> int:
    """Return where an array's first element is."""
    found: int = array.__array_interface__["data"][0]
    return found


def with_entry(text: str, name: str, parameters: str) -> str:
    """Return a program with the entry that takes arrays, called ``<name>_arrays``.

    Parameters
    ----------
    text
        A module that defines ``name``, which returns an i32.
    name
        The function.
    parameters
        One letter each: ``p`` address, ``i`` i64, ``f`` float.
    """
    signature = ", ".join(f"{_LLVM[kind]} %a{i}" for i, kind in enumerate(parameters))
    loads, arguments = "", []
    for i, kind in enumerate(parameters):
        if kind == "p":
            loads += f"  %at{i} = getelementptr i8, ptr %a{i}, i64 {_DATA}\n"
            loads += f"  %data{i} = load ptr, ptr %at{i}\n"
        arguments.append(f"{_LLVM[kind]} %{'data' if kind == 'p' else 'a'}{i}")
    return (
        f"{text}define i32 @{name}_arrays({signature}) {{\n{loads}"
        f"  %status = call i32 @{name}({', '.join(arguments)})\n  ret i32 %status\n}}\n"
    )


def compile_entry(text: str, name: str, parameters: str) -> Compiled:
    """Return a function of a program as something to call with arrays and numbers.

    Parameters are those of :func:`with_entry`. The caller checks types, shapes and contiguity.
    """
    compiler, store = machine(), default_store()
    whole = with_entry(text, name, parameters)
    key = digest(whole, compiler.host.cpu, compiler.host.features, compiler.version)
    code = store.get("code", key)
    if code is None:
        code = compiler.compile(whole)
        store.put("code", key, code)
    linked = compiler.link(code, (name, f"{name}_arrays"))
    if arrays_are_known():
        quick: Any = _type(parameters, ctypes.py_object)(linked.addresses[f"{name}_arrays"])
        quick.linked = linked  # the code lives as long as the function
        found: Compiled = quick
        return found
    plain = _type(parameters, ctypes.c_void_p)(linked.addresses[name])

    def with_addresses(*arguments: Any) -> int:
        assert linked.addresses  # the code lives as long as the function
        words = [address_of(a) if isinstance(a, np.ndarray) else a for a in arguments]
        status: int = plain(*words)
        return status

    return with_addresses


def _type(parameters: str, pointer: Any) -> Any:
    kinds = [pointer if kind == "p" else _NUMBERS[kind] for kind in parameters]
    return ctypes.CFUNCTYPE(ctypes.c_int32, *kinds)
