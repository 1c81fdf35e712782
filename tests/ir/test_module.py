"""Modules: functions by global variable, and what a shared variable says."""

import pytest

from relaxlab import relax
from relaxlab.ir import GlobalVar, IRModule, Var


def _function_of(size):
    x = Var("x", relax.TensorType([size], "float32"))
    return relax.Function([x], relax.SeqExpr((), x), x.ty)


def test_functions_are_found_by_name_and_by_variable():
    func = _function_of(4)
    mod = IRModule({"f": func})
    gvar = mod.get_global_var("f")
    assert mod["f"] is mod[gvar] is func
    with pytest.raises(ValueError, match="has no function 'g'; it has: f"):
        mod.get_global_var("g")
    with pytest.raises(ValueError, match="already has a function called 'f'"):
        mod.add(GlobalVar("f"), func)


def test_a_variable_of_another_module_keeps_what_it_says():
    wide, narrow = (_function_of(size) for size in (4, 2))
    first = IRModule({"f": wide})
    gvar = first.get_global_var("f")
    IRModule({gvar: narrow})
    first.clone().update_func(gvar, narrow)
    assert gvar.ty == wide.ty
    fresh = GlobalVar("f")
    IRModule({fresh: narrow})
    assert fresh.ty == narrow.ty
