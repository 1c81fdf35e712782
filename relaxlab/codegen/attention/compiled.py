"""Compiled attention as something to call, found again by layout.

Counterpart: none in TVM, whose kernels are compiled with the model.

Examples
--------
>>> from relaxlab.codegen.attention.program import Layout
>>> layout = Layout(heads=1, group=1, k_dim=16, v_dim=16, k_row=16, k_head=0, v_row=16, v_head=0)
>>> attend(layout, 1) is attend(layout, 1)
True
"""

from functools import cache
from typing import Final

from relaxlab.codegen.attention.entry import Compiled, compile_entry, with_entry
from relaxlab.codegen.attention.program import Layout, lanes_of, program
from relaxlab.codegen.llvm.machine import machine

__all__ = ["assembly", "attend", "lanes"]

_PARAMETERS: Final = "pppppippppif"


def lanes(layout: Layout) -> int:
    """Return the width of vectors on this processor."""
    return lanes_of(layout, machine().host)


@cache
def attend(layout: Layout, rows: int) -> Compiled:
    """Return the compiled function for tiles of ``rows`` query rows.

    See :func:`relaxlab.codegen.attention.program.program` for its arguments; it takes arrays in
    place of addresses.
    """
    return compile_entry(program(layout, rows, machine().host), "attend", _PARAMETERS)


def assembly(layout: Layout, rows: int) -> str:
    """Return the machine code as text."""
    text = program(layout, rows, machine().host)
    return machine().assembly(with_entry(text, "attend", _PARAMETERS))
