"""Variables, purity, recursion and unused bindings of small programs."""

from itertools import pairwise

import pytest

from relaxlab import relax
from relaxlab.ir import IRModule, Op, Var, register_op
from relaxlab.relax import analysis, op
from relaxlab.relax.analysis.purity import find_impure_call, is_impure_call


def tensor(name: str, *shape: int | relax.Expr, dtype: str = "float32") -> relax.Var:
    return relax.Var(name, relax.TensorType(shape, dtype))


N = Var("n", "int64")


def example() -> tuple[relax.Function, Var]:
    """Return a function that uses most kinds of binding, and the dimension it casts to."""
    m = Var("m", "int64")
    x, w, c = tensor("x", N, 4), tensor("w", 4), tensor("c", dtype="bool")
    bb = relax.BlockBuilder()
    with bb.function("main", [x, w, c]):
        with bb.dataflow():
            a = bb.emit(op.add(x, w), "a")
            b = bb.emit(op.multiply(a, a), "b")
            bb.emit(op.exp(b), "unused")
            o = bb.emit_output(op.add(b, w), "o")
        d = bb.match_cast(o, relax.TensorType([m, 4], "float32"), "d")
        r = bb.emit(relax.If(c, op.exp(d), op.negative(o)), "r")
        s = bb.emit(op.zeros((N, m), "float32"), "s")
        bb.emit_func_output((r, s))
    func = bb.get()["main"]
    assert isinstance(func, relax.Function)
    return func, m


def names(variables: list[relax.Var]) -> list[str]:
    return [v.name for v in variables]


def test_free_bound_used_and_all() -> None:
    func, _ = example()
    assert analysis.free_vars(func) == []
    assert names(analysis.free_vars(func.body)) == ["x", "w", "n", "c"]
    bound = ["a", "b", "unused", "o", "m", "d", "gv", "gv1", "r", "s"]
    assert names(analysis.bound_vars(func.body)) == bound
    assert set(names(analysis.bound_vars(func))) == {*bound, "x", "w", "c", "n"}
    assert "unused" not in names(analysis.used_vars(func))
    assert set(analysis.used_vars(func)) <= set(analysis.all_vars(func))
    assert set(analysis.all_vars(func)) == set(analysis.bound_vars(func))


def test_symbolic_variables() -> None:
    func, m = example()
    assert analysis.defined_symbolic_vars(func) == [N, m]
    assert analysis.free_symbolic_vars(func) == []
    x = tensor("x", N * 2)
    assert analysis.free_symbolic_vars(relax.Function([x], x, relax.AnyType())) == [N]


def test_local_function_captures() -> None:
    x, y = tensor("x", 4), tensor("y", 4)
    bb = relax.BlockBuilder()
    bb.begin_block(is_dataflow=False)
    body = bb.normalize(relax.SeqExpr([], op.add(x, y)))
    assert analysis.free_vars(relax.Function([y], body)) == [x]


def test_use_chain_of_a_dataflow_block() -> None:
    func, _ = example()
    block = func.body.blocks[0]
    assert isinstance(block, relax.DataflowBlock)
    chain = {var.name: names(users) for var, users in analysis.udchain(block).items()}
    assert chain["a"] == ["b"]
    assert chain["b"] == ["unused", "o"]
    assert chain["w"] == ["a", "o"]
    assert chain["unused"] == []


def test_values_and_bindings_by_variable_and_name() -> None:
    func, _ = example()
    values = {var.name: value for var, value in analysis.get_var2val(func).items()}
    assert "d" not in values  # a match_cast
    assert str(values["a"]) == "R.add(x, w)"
    assert len(analysis.name_to_binding(func)["d"]) == 1


def test_unused_bindings_go_and_used_ones_stay() -> None:
    func, _ = example()
    swept = analysis.remove_all_unused(func)
    assert set(analysis.name_to_binding(func)) - set(analysis.name_to_binding(swept)) == {"unused"}
    relax.analysis.well_formed(swept)
    assert analysis.remove_all_unused(swept) is swept


def test_chains_of_unused_bindings_go_at_once_but_effects_stay() -> None:
    x = tensor("x", 4)
    bb = relax.BlockBuilder()
    with bb.function("f", [x], pure=False):
        a = bb.emit(op.exp(x), "a")
        bb.emit(op.exp(a), "b")
        kept = bb.emit(op.tanh(x), "kept")
        bb.emit(op.print(kept), "effect")
        bb.emit_func_output(x)
    swept = analysis.remove_all_unused(bb.get()["f"])
    assert list(analysis.name_to_binding(swept)) == ["kept", "effect"]


def test_unused_match_cast_stays_since_it_is_a_check() -> None:
    x = relax.Var("x", relax.TensorType(dtype="float32", ndim=1))
    m = Var("m", "int64")
    bb = relax.BlockBuilder()
    with bb.function("f", [x]):
        bb.match_cast(bb.emit(op.exp(x), "kept"), relax.TensorType([m], "float32"), "check")
        bb.emit_func_output(x)
    func = bb.get()["f"]
    assert analysis.remove_all_unused(func) is func


def test_what_depends_on_weights_alone() -> None:
    x, w, v = tensor("x", 4), tensor("w", 4), tensor("v", 4)
    bb = relax.BlockBuilder()
    with bb.function("f", [x, w, v], attrs={"num_input": 1}):
        a = bb.emit(op.add(w, v), "a")
        b = bb.emit(op.add(a, x), "b")
        c = bb.emit(op.exp(a), "c")
        bb.emit_func_output(bb.emit(op.add(b, c), "d"))
    func = bb.get()["f"]
    assert names(analysis.computable_at_compile_time(func)) == ["w", "v", "a", "c"]
    assert analysis.computable_at_compile_time(func.without_attr("num_input")) == []


def test_post_order_visit_meets_parts_first() -> None:
    x = tensor("x", 4)
    met: list[relax.Expr] = []
    call = op.exp(x)
    analysis.post_order_visit(call, met.append)
    assert met == [call.op, x, call]


# --- purity -------------------------------------------------------------------------------------


def test_definitions_of_local_functions_have_no_effect() -> None:
    x, y = tensor("x", 4), tensor("y", 4)
    bb = relax.BlockBuilder()
    bb.begin_block(is_dataflow=False)
    printing = relax.Function([y], bb.normalize(relax.SeqExpr([], op.print(y))), is_pure=False)
    inner = relax.Var("inner", printing.ty)
    block = relax.BindingBlock([relax.VarBinding(inner, printing)])
    assert not analysis.contains_impure_call(relax.SeqExpr([block], x))
    assert analysis.contains_impure_call(printing)


def test_own_name_does_not_count() -> None:
    x = tensor("x", 4)
    own = relax.GlobalVar("f")
    own.set_ty(relax.FuncType((x.ty,), x.ty, purity=False))
    call = relax.Call(own, [x], ty=x.ty)
    assert analysis.contains_impure_call(call)
    assert not analysis.contains_impure_call(call, own)
    assert find_impure_call(call) is call


def test_every_operator_says_whether_it_is_pure() -> None:
    relax_ops = [name for name in Op.list_op_names() if name.startswith("relax.")]
    silent = [name for name in relax_ops if Op.get(name).get_attr("FPurity") is None]
    assert silent == []
    impure = {name for name in relax_ops if not Op.get(name).get_attr("FPurity")}
    assert impure == {
        "relax.print",
        "relax.assert_op",
        "relax.call_builtin_with_ctx",
        "relax.invoke_closure",
        "relax.vm.call_tir_dyn",
        "relax.vm.kill_object",
        "relax.memory.kill_storage",
        "relax.memory.kill_tensor",
    }


def test_operator_that_does_not_say_is_an_error() -> None:
    silent = Op.find("relax.test.silent") or register_op("relax.test.silent")
    silent.set_attr("FPurity", None, override=True)
    try:
        with pytest.raises(ValueError, match=r"relax\.test\.silent does not say"):
            is_impure_call(relax.Call(silent))
    finally:
        silent.set_attr("FPurity", True, override=True)


# --- recursion ----------------------------------------------------------------------------------


def module(calls: dict[str, list[str]]) -> IRModule:
    """Return functions that call each other as told."""
    ty = relax.TensorType([4], "float32")
    gvars = {name: relax.GlobalVar(name) for name in calls}
    for gvar in gvars.values():
        gvar.set_ty(relax.FuncType((ty,), ty))
    functions = {}
    for name, callees in calls.items():
        x = relax.Var("x", ty)
        bb = relax.BlockBuilder()
        bb.begin_block(is_dataflow=False)
        for callee in callees:
            bb.emit(gvars[callee](x))
        functions[gvars[name]] = relax.Function([x], relax.SeqExpr([bb.end_block()], x, ty=ty))
    return IRModule(functions)


def test_recursion_groups() -> None:
    mod = module(
        {"main": ["f"], "f": ["g"], "g": ["f", "h"], "h": ["h"], "leaf": [], "a": ["b"], "b": []}
    )
    groups = [[g.name_hint for g in group] for group in analysis.detect_recursion(mod)]
    assert groups == [["f", "g"], ["h"]]
    first = mod.get_global_vars()[2]
    assert [g.name_hint for g in analysis.all_global_vars(mod[first])] == ["f", "h"]


def test_long_call_chain_does_not_exhaust_the_stack() -> None:
    names_ = [f"f{i}" for i in range(3000)]
    calls = {a: [b] for a, b in pairwise(names_)} | {names_[-1]: ["f0"]}
    (group,) = analysis.detect_recursion(module(calls))
    assert len(group) == 3000
