"""Compiled attention as something to call: machine code, kept and found again by layout.

Counterpart: none in TVM, whose kernels are compiled with the model.

Examples
--------
>>> from relaxlab.codegen.attention.program import Layout
>>> layout = Layout(heads=1, group=1, k_dim=16, v_dim=16, k_row=16, k_head=0, v_row=16, v_head=0)
>>> attend(layout, 1) is attend(layout, 1)
True
"""

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from relaxlab.codegen.attention.program import DATA_OFFSET, Layout, lanes_of, program
from relaxlab.codegen.llvm.cache import default_store, digest
from relaxlab.codegen.llvm.machine import Linked, machine

__all__ = ["Compiled", "address_of", "arrays_are_known", "assembly", "attend", "lanes"]

Compiled = Callable[..., int]


def _type(pointer: Any) -> Any:
    integer, real = ctypes.c_int64, ctypes.c_float
    return ctypes.CFUNCTYPE(ctypes.c_int32, *[pointer] * 5, integer, *[pointer] * 4, integer, real)


_OF_ARRAYS: Final = _type(ctypes.py_object)
_OF_ADDRESSES: Final = _type(ctypes.c_void_p)


@cache
def arrays_are_known() -> bool:
    """Whether array objects keep their addresses where the compiled entry looks for them."""
    if sys.implementation.name != "cpython":
        return False
    samples = (np.zeros(3, np.float32), np.zeros((4, 5), np.int64)[1:], np.zeros((), np.int8))
    return all(
        ctypes.c_void_p.from_address(id(a) + DATA_OFFSET).value == address_of(a) for a in samples
    )


def address_of(array: NDArray[Any]) -> int:
    """Return where an array's first element is."""
    found: int = array.__array_interface__["data"][0]
    return found


def lanes(layout: Layout) -> int:
    """Return the width of vectors on this processor."""
    return lanes_of(layout, machine().host)


@cache
def attend(layout: Layout, rows: int) -> Compiled:
    """Return the compiled function for tiles of ``rows`` query rows, through the cache on disk.

    See :func:`relaxlab.codegen.attention.program.program` for its arguments; it takes arrays in
    place of addresses.
    """
    compiler, store = machine(), default_store()
    text = program(layout, rows, compiler.host)
    key = digest(text, compiler.host.cpu, compiler.host.features, compiler.version)
    code = store.get("code", key)
    if code is None:
        code = compiler.compile(text)
        store.put("code", key, code)
    return _callable(compiler.link(code, ("attend", "attend_arrays")))


def assembly(layout: Layout, rows: int) -> str:
    """Return the machine code as text."""
    return machine().assembly(program(layout, rows, machine().host))


def _callable(linked: Linked) -> Compiled:
    if arrays_are_known():
        quick: Any = _OF_ARRAYS(linked.addresses["attend_arrays"])
        quick.linked = linked  # the code lives as long as the function
        found: Compiled = quick
        return found
    plain = _OF_ADDRESSES(linked.addresses["attend"])

    def with_addresses(*arguments: Any) -> int:
        assert linked.addresses  # the code lives as long as the function
        words = [address_of(a) if isinstance(a, np.ndarray) else a for a in arguments]
        status: int = plain(*words)
        return status

    return with_addresses
