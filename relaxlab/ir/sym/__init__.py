"""Symbolic arithmetic: simplify shapes and indices, bound them, prove things about them.

Counterpart: ``tvm.sym``.

Examples
--------
>>> from relaxlab.ir import Var
>>> n = Var("n", "int64")
>>> Analyzer().can_prove_equal((n * 4 + 2) // 2, n * 2 + 1)
True
"""

from relaxlab.ir.sym.analyzer import Analyzer
from relaxlab.ir.sym.const_int_bound import ConstIntBound
from relaxlab.ir.sym.int_set import IntervalSet
from relaxlab.ir.sym.modular_set import ModularSet

__all__ = ["Analyzer", "ConstIntBound", "IntervalSet", "ModularSet"]
