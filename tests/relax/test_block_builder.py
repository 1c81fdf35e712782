"""The block builder: recorded snippets, then what they do not show."""

import sys

import pytest

from relaxlab import relax, script, te, topi
from relaxlab.errors import InternalError
from relaxlab.ir import IRModule, Var
from relaxlab.relax import op
from relaxlab.relax.expr import DataflowBlock
from relaxlab.relax.normalizer import Normalizer
from tests.golden_compiler import document, names, without_check

CASES = document("misc_cases")["builder"]

assert script  # importing it is what lets programs print


def tensor(name: str, *shape: int | relax.Expr, dtype: str = "float32") -> relax.Var:
    return relax.Var(name, relax.TensorType(shape, dtype))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["name"])
def test_snippet_gives_what_tvm_gives(case: dict[str, object]) -> None:
    scope = names()
    if "error" in case:
        with pytest.raises(Exception) as caught:  # noqa: PT011  # the class is compared below
            exec(str(case["code"]), scope)
        assert type(caught.value).__name__ == case["error"]
        assert str(caught.value) == without_check(str(case["message"]))
        return
    exec(str(case["code"]), scope)
    if "script" in case:
        assert scope["mod"].script() == case["script"]
    if "out" in case:
        out = scope["out"]
        assert (out if isinstance(case["out"], list) else str(out)) == case["out"]


def test_same_object_is_emitted_once_per_block() -> None:
    x = tensor("x", 4)
    shared = op.exp(x)
    bb = relax.BlockBuilder()
    with bb.function("f", [x]):
        bb.emit_func_output(bb.emit(op.add(shared, shared)))
    (block,) = bb.get()["f"].body.blocks
    assert [b.value.op.name for b in block.bindings] == ["relax.exp", "relax.add"]


def test_names_avoid_those_of_the_module_that_is_extended() -> None:
    x, y = tensor("x", 4), tensor("y", 5)
    first = relax.BlockBuilder()
    with first.function("f", [x], private=True):
        first.emit_func_output(x)
    bb = relax.BlockBuilder(first.get())
    gvar = bb.add_func(relax.Function([y], y), "f")
    assert gvar.name_hint == "f1"
    assert [g.name_hint for g in first.get()] == ["f"]  # the module given is not changed


def test_public_function_of_a_taken_name_replaces_and_keeps_the_reference() -> None:
    bb = relax.BlockBuilder()
    gvars = []
    for function in (op.exp, op.tanh):
        x = tensor("x", 4)
        with bb.function("f", [x]):
            gvars.append(bb.emit_func_output(bb.emit(function(x))))
    assert gvars[0] is gvars[1]
    (binding,) = bb.get()["f"].body.blocks[0].bindings
    assert binding.value.op.name == "relax.tanh"


def test_private_function_that_equals_another_is_that_other() -> None:
    bb = relax.BlockBuilder()
    found = []
    for name in ("f", "g"):
        x = tensor("x", 4)
        with bb.function(name, [x], private=True):
            found.append(bb.emit_func_output(bb.emit(op.exp(x))))
    assert found[0] is found[1]
    assert len(bb.get()) == 1


def kernel(constant: float) -> relax.Expr:
    from relaxlab.tirx import const  # noqa: PLC0415  # only this helper needs it

    x = te.placeholder((4,), "float32", name="x")
    return te.create_prim_func(
        [x, te.compute((4,), lambda i: x[i] + const(constant, "float32"), name="y")]
    )


def test_equal_kernels_are_shared_until_one_is_updated() -> None:
    bb = relax.BlockBuilder()
    gvar = bb.add_func(kernel(1.0), "k")
    assert bb.add_func(kernel(1.0), "other") is gvar
    bb.update_func(gvar, kernel(2.0))
    assert bb.add_func(kernel(2.0), "k") is gvar
    assert bb.add_func(kernel(1.0), "k") is not gvar


def test_kernel_reference_has_the_type_that_relax_sees() -> None:
    bb = relax.BlockBuilder()
    gvar = bb.add_func(kernel(1.0), "k")
    assert str(gvar.ty) == (
        'R.Callable((R.Tensor((4,), dtype="float32"), R.Tensor((4,), dtype="float32")), '
        "R.Tuple, False)"
    )


def test_error_inside_function_leaves_the_builder_usable() -> None:
    x, y = tensor("x", 4), tensor("y", 4, dtype="int32")
    bb = relax.BlockBuilder()
    refused = pytest.raises(TypeError, match="same datatype")
    with refused, bb.function("f", [x, y]), bb.dataflow():
        bb.emit(op.add(x, y))
    assert relax.BlockBuilder.current() is None
    with bb.function("g", [x]):
        assert relax.BlockBuilder.current() is bb
        bb.emit_func_output(bb.emit(op.exp(x)))
    assert [g.name_hint for g in bb.get()] == ["g"]


def test_wrong_parameter_is_refused() -> None:
    with pytest.raises(TypeError, match=r"must be of type tvm\.relax\.Var"):
        relax.BlockBuilder().function("f", [tensor("x", 4), 1])  # type: ignore[list-item]  # on purpose


def test_number_cannot_be_emitted() -> None:
    bb = relax.BlockBuilder()
    bb.begin_block(is_dataflow=False)
    with pytest.raises(TypeError, match=r"relax\.const or relax\.prim_value"):
        bb.emit(1)  # type: ignore[arg-type]  # on purpose


def test_void_variable_becomes_an_empty_tuple() -> None:
    x = tensor("x", 4)
    bb = relax.BlockBuilder()
    with bb.function("f", [x], pure=False):
        nothing = bb.emit(op.print(x))
        bb.emit_func_output(nothing)
    body = bb.get()["f"].body.body
    assert isinstance(body, relax.Tuple)
    assert not body.fields


def test_if_joins_types_and_forgets_what_branches_define() -> None:
    c = relax.Var("c", relax.TensorType([], "bool"))
    x = relax.Var("x", relax.TensorType(dtype="float32", ndim=1))
    m = Var("m", "int64")
    bb = relax.BlockBuilder()
    cast = relax.Var("cast", relax.TensorType([m], "float32"))
    branch = relax.SeqExpr([relax.BindingBlock([relax.MatchCast(cast, x, cast.ty)])], cast)
    with bb.function("f", [c, x]):
        joined = bb.emit(relax.If(c, branch, op.exp(x)))
        bb.emit_func_output(joined)
    assert str(joined.ty) == 'R.Tensor(dtype="float32", ndim=1)'
    relax.analysis.well_formed(bb.get())


def test_sequence_bound_in_a_dataflow_block_becomes_part_of_it() -> None:
    # TVM cuts the block in two here and leaves a dataflow variable used outside of its block
    x = tensor("x", 4)
    inner = tensor("inner", 4)
    sequence = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(inner, op.exp(x))])], inner)
    bb = relax.BlockBuilder()
    with bb.function("f", [x]):
        with bb.dataflow():
            first = bb.emit(op.tanh(x))
            second = bb.emit(sequence)
            out = bb.emit_output(op.add(first, second))
        bb.emit_func_output(out)
    func = bb.get()["f"]
    relax.analysis.well_formed(bb.get())
    (block,) = func.body.blocks
    assert isinstance(block, DataflowBlock)
    assert [b.var.name for b in block.bindings] == ["lv", "inner", "lv1", "gv"]


def test_plain_sequence_is_inlined_and_blocks_are_merged() -> None:
    x, inner = tensor("x", 4), tensor("inner", 4)
    sequence = relax.SeqExpr([relax.DataflowBlock([relax.VarBinding(inner, op.exp(x))])], inner)
    bb = relax.BlockBuilder()
    with bb.function("f", [x]):
        a = bb.emit(op.tanh(x))
        b = bb.emit(sequence)
        bb.emit_func_output(bb.emit(op.add(a, b)))
    kinds = [type(block).__name__ for block in bb.get()["f"].body.blocks]
    assert kinds == ["BindingBlock", "DataflowBlock", "BindingBlock"]


def test_normalizing_what_is_normal_changes_nothing() -> None:
    x = tensor("x", 4)
    bb = relax.BlockBuilder()
    with bb.function("f", [x]):
        with bb.dataflow():
            out = bb.emit_output(op.add(op.exp(x), x))
        bb.emit_func_output(out)
    func = bb.get()["f"]
    assert relax.BlockBuilder().normalize(func) is func


def test_long_blocks_and_deep_expressions_do_not_exhaust_the_stack() -> None:
    x = tensor("x", 4)
    deep = x
    for _ in range(5000):
        deep = op.exp(deep)
    bb = relax.BlockBuilder()
    with bb.function("f", [x]):
        bb.emit_func_output(deep)
    func = bb.get()["f"]
    assert len(func.body.blocks[0].bindings) == 5000
    assert sys.getrecursionlimit() <= 1000
    relax.analysis.well_formed(bb.get())
    assert relax.ExprMutator().visit_expr(func) is func


def test_operators_own_normalization_can_be_left_out() -> None:
    x = tensor("x", 4)
    bb = relax.BlockBuilder(normalize_operators=False)
    gvar = bb.add_func(kernel(1.0), "k")
    args = relax.Var("args", relax.TupleType([x.ty]))
    call = op.call_tir(gvar, args, x.ty)
    bb.begin_block(is_dataflow=False)
    assert bb.normalize(call).args[1] is args
    assert isinstance(Normalizer(bb).normalize(call).args[1], relax.Tuple)


def test_argument_tuple_of_a_kernel_call_is_looked_up_where_it_is_bound() -> None:
    x = tensor("x", 4)
    bb = relax.BlockBuilder()
    gvar = bb.add_func(kernel(1.0), "k")
    with bb.function("f", [x]):
        pair = bb.emit((x,))
        out = bb.emit(op.call_tir(gvar, pair, x.ty))
        value = bb.lookup_binding(out)
        assert isinstance(value, relax.Call)
        assert value.args[1].fields == (x,)
        bb.emit_func_output(out)
    relax.analysis.well_formed(bb.get())


def test_call_with_a_gradient_keeps_the_name_of_the_gradient() -> None:
    x = tensor("x", 4)
    bb = relax.BlockBuilder()
    with bb.function("f", [x]):
        call = bb.call_te_with_grad(
            topi.identity, x, te_grad_name="grad_of_identity", primfunc_name_hint="copy"
        )
        assert call.attrs is not None
        assert call.attrs.te_grad_name == "grad_of_identity"
        bb.emit_func_output(bb.emit(call))
    assert [g.name_hint for g in bb.get()] == ["copy", "f"]
    relax.analysis.well_formed(bb.get())


def test_unknown_callee_is_refused() -> None:
    x = tensor("x", 4)
    bb = relax.BlockBuilder()
    with pytest.raises(InternalError, match="not known"):
        bb.normalize(relax.Call(relax.GlobalVar("nobody"), [x]))
    with pytest.raises(InternalError, match="must contains a function type"):
        bb.normalize(relax.Call(x, [x]))


def test_finalize_gives_public_functions_the_names_of_their_symbols() -> None:
    x, y = tensor("x", 4), tensor("y", 5)
    helper, main = relax.GlobalVar("main"), relax.GlobalVar("entry")
    called = relax.Function([x], x)
    helper.set_ty(called.ty)
    caller = relax.Function(
        [tensor("z", 4)], relax.SeqExpr([], y), y.ty, attrs={"global_symbol": "main"}
    )
    mod = relax.BlockBuilder(IRModule({helper: called, main: caller})).finalize()
    assert sorted(g.name_hint for g in mod) == ["main", "main_1"]
    assert mod["main"] is not called


def test_duplicate_symbols_are_refused() -> None:
    x, y = tensor("x", 4), tensor("y", 4)
    twice = {
        "a": relax.Function([x], x, attrs={"global_symbol": "f"}),
        "b": relax.Function([y], y, attrs={"global_symbol": "f"}),
    }
    with pytest.raises(InternalError, match="duplicate global symbol: f"):
        relax.BlockBuilder(IRModule(twice)).finalize()


def test_symbolic_call_binds_the_callee_dimensions() -> None:
    n, m = Var("n", "int64"), Var("m", "int64")
    x, y = tensor("x", n, 4), tensor("y", m + 1, 4)
    bb = relax.BlockBuilder()
    with bb.function("g", [x], private=True):
        callee = bb.emit_func_output(bb.emit(op.concat([x, x], axis=0)))
    with bb.function("main", [y]):
        result = bb.emit(callee(y))
        bb.emit_func_output(result)
    assert str(result.ty) == 'R.Tensor((m * 2 + 2, 4), dtype="float32")'
