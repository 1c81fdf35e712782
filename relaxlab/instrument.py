"""Watching passes, under TVM's name for it.

A door to ``relaxlab.ir.transform.PassInstrument``. Counterpart: ``tvm.instrument``.

Examples
--------
>>> class Names(PassInstrument):
...     def run_after_pass(self, mod, info):
...         print(info.name)
"""

from relaxlab.ir.transform import PassInstrument

__all__ = ["PassInstrument"]
