"""TVMScript: programs as Python text, in both directions.

::

    from relaxlab.script import ir as I, relax as R, tirx as T

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")):
            return R.exp(x)

    print(Module.script())

Counterpart: ``tvm.script``.

Examples
--------
>>> mod = from_source(
...     '''
... @I.ir_module
... class Module:
...     @R.function
...     def main(x: R.Tensor((4,), "float32")):
...         return R.exp(x)
... '''
... )
>>> print(mod["main"].ret_ty)
R.Tensor((4,), dtype="float32")
"""

import textwrap

from relaxlab.ir.module import BaseFunc, IRModule
from relaxlab.script import ir, kernel_text, parser, printer, relax, tirx
from relaxlab.script.ir import ir_module
from relaxlab.script.parser.entry import parse_text

__all__ = ["from_source", "ir", "ir_module", "kernel_text", "parser", "printer", "relax", "tirx"]


def from_source(
    text: str, *, check_well_formed: bool = True, name: str = "<str>"
) -> IRModule | BaseFunc:
    """Return the module, or the single function, that a TVMScript text holds.

    ``I``, ``R``, ``T`` and ``TypeVar`` are defined in it. Nothing in the text is executed, so it
    may come from anywhere.

    Parameters
    ----------
    text
        What ``script()`` printed, or what a decorator would be put on.
    check_well_formed
        Whether the program must be well-formed. In the middle of a pipeline it may be not.
    name
        What errors call the text, such as the path it was read from.

    Raises
    ------
    DiagnosticError
        If it is no program; the message shows line, column and what is wrong.
    """
    languages = {"I": ir, "R": relax, "T": tirx}
    return parse_text(textwrap.dedent(text), languages, name, check_well_formed)
