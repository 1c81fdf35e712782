"""From programs to TVMScript.

``names`` gives unique names, ``ir`` prints what both languages share (types and scalars),
``tirx`` kernels, ``relax`` Relax functions, ``page`` puts the header and the metadata around
them. Importing this package makes ``IRModule.script`` and the ``repr`` of nodes work.
Counterpart: TVM's script printer.
"""

from relaxlab.ir.type import PRINTERS
from relaxlab.script.printer.page import script, text

__all__ = ["script", "text"]

PRINTERS.register("script", script)
PRINTERS.register("repr", text)
