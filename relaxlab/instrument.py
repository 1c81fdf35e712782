"""Watching passes, under TVM's name for it.

A door: ``PassInstrument`` lives in ``relaxlab.ir.transform``, the instruments in
``relaxlab.ir.instrument``. To look at what passes did, see ``relaxlab.trace.PassRecorder``.
Counterpart: ``tvm.instrument``.

Examples
--------
>>> class Names(PassInstrument):
...     def run_after_pass(self, mod, info):
...         print(info.name)
"""

from relaxlab.ir.instrument import (
    DumpIR,
    PassInstrument,
    PassPrintingInstrument,
    PassTimingInstrument,
    PrintAfterAll,
    PrintBeforeAll,
    pass_instrument,
)

__all__ = [
    "DumpIR",
    "PassInstrument",
    "PassPrintingInstrument",
    "PassTimingInstrument",
    "PrintAfterAll",
    "PrintBeforeAll",
    "pass_instrument",
]
