"""The module that a builder extends: equal functions are shared, kernels get their Relax type.

Sharing is what makes two additions of the same shapes call one kernel. Functions are compared
structurally, constants by content; a hash says where to look.

Examples
--------
>>> from relaxlab.ir import GlobalVar, IRModule
>>> from relaxlab.relax.expr import Function, TensorType, Var
>>> x, y = (Var(name, TensorType([4])) for name in "xy")
>>> table, f = FunctionTable(IRModule()), GlobalVar("f")
>>> table.put(f, Function([x], x))
>>> table.find_equal(Function([y], y)) is f
True
"""

from relaxlab.ir.expr import GlobalVar
from relaxlab.ir.module import BaseFunc, IRModule
from relaxlab.ir.node import structural_equal, structural_hash
from relaxlab.relax.call_type import prim_func_type
from relaxlab.tirx.function import PrimFunc

__all__ = ["FunctionTable"]


class FunctionTable:
    """Functions of a module, found by what they are.

    Parameters
    ----------
    mod
        The module; :meth:`put` changes it.
    """

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        #: Functions by kind and structural hash.
        self._by_hash: dict[tuple[type, int], list[GlobalVar]] = {}
        #: Functions by kind that nobody looked for yet: hashing a long one costs.
        self._unhashed: dict[type, list[GlobalVar]] = {}
        #: The function hashed last, which is often asked for and then added.
        self._last: tuple[BaseFunc, int] | None = None
        for gvar, func in mod.functions.items():
            self._unhashed.setdefault(type(func), []).append(gvar)
            _give_type(gvar, func)

    def put(self, gvar: GlobalVar, func: BaseFunc) -> None:
        """Add or replace the function of a global variable; its place in the order is kept."""
        # where a replaced function stood, its entry does no harm: finding compares anew
        self._unhashed.setdefault(type(func), []).append(gvar)
        self.mod.add(gvar, func)
        _give_type(gvar, func)

    def find_equal(self, func: BaseFunc) -> GlobalVar | None:
        """Return the function that equals ``func``, the one of the smallest name if several."""
        kind = type(func)
        for gvar in self._unhashed.pop(kind, ()):
            key = (kind, self._hash(self.mod.functions[gvar]))
            self._by_hash.setdefault(key, []).append(gvar)
        same = [
            gvar
            for gvar in self._by_hash.get((kind, self._hash(func)), ())
            if structural_equal(self.mod.functions[gvar], func)
        ]
        return min(same, key=lambda gvar: gvar.name_hint) if same else None

    def _hash(self, func: BaseFunc) -> int:
        if self._last is None or self._last[0] is not func:
            self._last = (func, structural_hash(func))
        return self._last[1]


def _give_type(gvar: GlobalVar, func: BaseFunc) -> None:
    """Give a reference the type of its function; that of a kernel is what Relax sees."""
    if isinstance(func, PrimFunc):
        gvar.set_ty(prim_func_type(func))
    elif gvar.ty is None and func.ty is not None:
        gvar.set_ty(func.ty)
