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
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from relaxlab.codegen.attention.program import Layout, lanes_of, program
from relaxlab.codegen.llvm.cache import default_store, digest
from relaxlab.codegen.llvm.machine import Linked, machine

__all__ = ["assembly", "attend", "lanes"]

_TYPE: Final = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    *[ctypes.c_void_p] * 5,
    ctypes.c_int64,
    *[ctypes.c_void_p] * 4,
    ctypes.c_int64,
    ctypes.c_float,
)


def lanes(layout: Layout) -> int:
    """Return the width of vectors on this processor."""
    return lanes_of(layout, machine().host)


@cache
def attend(layout: Layout, rows: int) -> Callable[..., int]:
    """Return the compiled function for tiles of ``rows`` query rows, through the cache on disk.

    See :func:`relaxlab.codegen.attention.program.program` for its arguments.
    """
    compiler, store = machine(), default_store()
    text = program(layout, rows, compiler.host)
    key = digest(text, compiler.host.cpu, compiler.host.features, compiler.version)
    code = store.get("code", key)
    if code is None:
        code = compiler.compile(text)
        store.put("code", key, code)
    return _callable(compiler.link(code, ("attend",)))


def assembly(layout: Layout, rows: int) -> str:
    """Return the machine code as text."""
    return machine().assembly(program(layout, rows, machine().host))


def _callable(linked: Linked) -> Callable[..., int]:
    function: Any = _TYPE(linked.addresses["attend"])
    function.linked = linked  # the code lives as long as the function
    found: Callable[..., int] = function
    return found
