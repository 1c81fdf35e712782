"""The pass that breaks a program is found: broken passes of every kind, in every place."""

import numpy as np
import pytest

from relaxlab import relax, runtime
from relaxlab.ir import Call, IRModule, Op, Sequential, Target, module_pass, replace
from relaxlab.relax import transform
from relaxlab.relax.analysis import bisect_passes
from relaxlab.relax.analysis.pass_bisection import compare_results
from relaxlab.relax.expr import BindingBlock, Function, SeqExpr
from relaxlab.relax.expr_functor import ExprMutator
from relaxlab.relax.transform.pass_base import function_pass
from relaxlab.script import from_source
from tests.golden_compiler import cases, decode, document, source

SCRIPT = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 4), "float32")):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.add(a, x)
            c = R.exp(b)
            d = R.multiply(c, a)
            R.output(d)
        return d
"""
X = np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4)
INPUTS = [X, X[:1].T * X[:1]]
PIPELINES = {
    "default": relax.get_pipeline("default"),
    "fusing": relax.get_default_pipeline(Target("llvm")),
    "canonical": Sequential(
        [
            transform.CanonicalizeBindings(),
            transform.EliminateCommonSubexpr(),
            transform.ConvertToDataflow(),
            transform.DeadCodeElimination(),
            transform.FuseOps(),
        ]
    ),
}


@pytest.fixture
def golden_functions():
    runtime.register_global_func("golden.add_one_dps", lambda x, out: out.copyfrom(x.numpy() + 1))
    runtime.register_global_func("golden.double", lambda x: runtime.tensor(x.numpy() * 2))
    runtime.register_global_func(
        "golden.make_object", lambda x, i, s, d: f"{tuple(x.shape)}|{int(i)}|{s}|{d}"
    )
    yield
    for name in ("golden.add_one_dps", "golden.double", "golden.make_object"):
        runtime.remove_global_func(name)


@pytest.mark.usefixtures("golden_functions")
@pytest.mark.parametrize("kind", PIPELINES)
@pytest.mark.parametrize("name", cases())
def test_no_pass_of_ours_breaks_a_recorded_module(name, kind):
    mod = transform.LambdaLift()(from_source(source(name)))
    run = document(name)["runs"][0]
    inputs = list(map(decode, run["args"]))
    found = bisect_passes(mod, inputs, PIPELINES[kind], function=run["func"], target="numpy")
    assert found.ok, str(found)
    assert str(found) == f"{len(found.recorder)} passes, none broke the program"
    assert (found.index, found.diff()) == (None, "")


# ---------------------------------------------------------------- passes that are wrong


class _Swap(ExprMutator):
    """Turns one operator, or kernel, into another; adds where a program multiplies."""

    def visit_call_(self, op):
        call = super().visit_call_(op)
        if isinstance(call.op, Op) and call.op.name == "relax.multiply":
            return self.builder.normalize(relax.op.add(*call.args))
        return call


@function_pass(opt_level=0, name="WrongValue")
def wrong_value(func, mod, ctx):
    return _Swap(mod).visit_expr(func)


@function_pass(opt_level=0, name="LosesBinding")
def loses_binding(func, mod, ctx):
    block = func.body.blocks[0]
    fewer = replace(block, bindings=block.bindings[1:])
    return replace(func, body=replace(func.body, blocks=(fewer, *func.body.blocks[1:])))


@function_pass(opt_level=0, name="Raises")
def raises(func, mod, ctx):
    raise KeyError("a pass with a mistake")


@function_pass(opt_level=0, name="WrongResult")
def wrong_result(func, mod, ctx):
    result = func.params[0]
    body = SeqExpr(func.body.blocks, result, ty=result.ty)
    return Function(func.params, body, None, func.is_pure, func.attrs)


@module_pass(opt_level=0, name="DropsFunctions")
def drops_functions(mod, ctx):
    return IRModule({g: f for g, f in mod.functions.items() if not isinstance(f, Function)})


@function_pass(opt_level=0, name="UnknownFunction")
def unknown_function(func, mod, ctx):
    x = func.params[0]
    call = Call(
        Op.get("relax.call_builtin_with_ctx"),
        (relax.ExternFunc("no.such.function"), relax.Tuple((x,))),
        None,
        (x.ty,),
        ty=x.ty,
    )
    var = relax.Var("y", x.ty)
    blocks = (*func.body.blocks, BindingBlock((relax.VarBinding(var, call),)))
    return Function(func.params, SeqExpr(blocks, func.body.body, ty=func.body.ty), None, False)


@module_pass(opt_level=0, name="NotAModule")
def not_a_module(mod, ctx):
    return None


BROKEN = {
    "WrongValue": (wrong_value, "differs", "12 of 12 elements differ"),
    "LosesBinding": (loses_binding, "ill-formed", "is not defined"),
    "Raises": (raises, "raised", "KeyError: 'a pass with a mistake'"),
    "WrongResult": (wrong_result, "differs", "elements differ"),
    "DropsFunctions": (drops_functions, "fails", "main"),
    "UnknownFunction": (unknown_function, "cannot be built", "no.such.function"),
    "NotAModule": (not_a_module, "raised", "not an IRModule"),
}


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("name", BROKEN)
def test_the_broken_pass_is_named(name, place):
    broken, fault, words = BROKEN[name]
    passes = [transform.CanonicalizeBindings(), transform.EliminateCommonSubexpr()]
    passes.insert(place, broken)
    rest = relax.get_pipeline("default")
    found = bisect_passes(
        from_source(SCRIPT), INPUTS, Sequential([Sequential(passes), rest]), target="numpy"
    )
    assert (found.name, found.fault) == (name, fault), str(found)
    assert words in found.message
    assert found.recorder.passes[found.index].name == name
    assert not found.ok
    text = str(found)
    assert text.startswith(f"{name} (pass {found.index} of {len(found.recorder)}): ")
    assert words in text


def test_what_differs_is_shown():
    found = bisect_passes(from_source(SCRIPT), INPUTS, wrong_value, target="numpy")
    want = np.exp(INPUTS[0] @ INPUTS[1] + INPUTS[0])
    np.testing.assert_allclose(found.expected, want * (INPUTS[0] @ INPUTS[1]), rtol=1e-5)
    np.testing.assert_allclose(found.got, want + INPUTS[0] @ INPUTS[1], rtol=1e-5)
    assert found.max_error == pytest.approx(np.abs(found.got - found.expected).max(), rel=1e-5)
    assert '-            d: R.Tensor((n, 4), dtype="float32") = R.multiply(c, a)' in found.diff()
    assert "largest error" in str(found)


def test_late_passes_are_examined_too():
    """A memory planner that lets two live tensors share a storage, behind eight good passes."""

    @function_pass(opt_level=0, name="SharesTooMuch")
    def shares(func, mod, ctx):
        class OneStorage(ExprMutator):
            first = None

            def visit_call_(self, op):
                call = super().visit_call_(op)
                if isinstance(call.op, Op) and call.op.name == "relax.memory.alloc_tensor":
                    if self.first is None:
                        self.first = call.args[0]
                    args = (self.first, *call.args[1:])
                    return self.builder.normalize(Call(call.op, args, call.attrs))
                return call

        return OneStorage(mod).visit_expr(func)

    passes = list(relax.get_pipeline("default").passes)
    at = [p.info.name for p in passes].index("StaticPlanBlockMemory")
    mod = from_source(SCRIPT.replace('("n", 4)', "(3, 4)"))
    found = bisect_passes(
        mod, INPUTS, Sequential([*passes[: at + 1], shares, *passes[at + 1 :]]), target="numpy"
    )
    assert (found.name, found.fault) == ("SharesTooMuch", "differs"), str(found)


def test_the_pass_inside_is_blamed_when_it_is_the_one():
    @module_pass(opt_level=0, name="Outer")
    def outer(mod, ctx):
        return transform.CanonicalizeBindings()(wrong_value(from_source(mod.script())))

    found = bisect_passes(from_source(SCRIPT), INPUTS, outer, target="numpy")
    assert found.name == "WrongValue"
    assert found.recorder.passes[found.index].depth == 1


def test_the_pass_around_is_blamed_for_what_it_did_itself():
    @module_pass(opt_level=0, name="Outer")
    def outer(mod, ctx):
        return transform.CanonicalizeBindings()(loses_binding.run(mod, ctx))

    found = bisect_passes(from_source(SCRIPT), INPUTS, outer, target="numpy")
    assert (found.name, found.fault) == ("Outer", "ill-formed")


def test_a_program_that_is_wrong_itself_is_refused():
    with pytest.raises(ValueError, match=r"wrong before any pass.*: fails: "):
        bisect_passes(from_source(SCRIPT), [X, X], target="numpy")


def test_an_error_outside_of_passes_is_not_swallowed():
    class Broken(Sequential):
        def run(self, mod, ctx):
            raise KeyError("x")

    found = bisect_passes(from_source(SCRIPT), INPUTS, Broken([]), target="numpy")
    assert (found.fault, found.name) == ("raised", "sequential")
    with pytest.raises(ValueError, match="Unknown pre-built pipeline"):
        bisect_passes(from_source(SCRIPT), INPUTS, "no such pipeline", target="numpy")


# ---------------------------------------------------------------- comparing results


@pytest.mark.parametrize(
    ("expected", "got", "words"),
    [
        (np.ones(2, "float32"), np.ones(2, "float64"), "expected float32 (2,), got float64 (2,)"),
        (np.ones(2, "float32"), np.ones((2, 1), "float32"), "got float32 (2, 1)"),
        (np.arange(3), np.array([0, 1, 3]), "1 of 3 elements differ; at (2,) expected 2, got 3"),
        ((1, 2), (1,), "expected 2 fields, got 1"),
        ((1, (2, 3)), (1, (2, 4)), "result[1][1]: expected 3, got 4"),
        (1, 1.0, "expected 1, got 1.0"),
        (None, 1, "expected None, got 1"),
        (np.array([np.nan], "float32"), np.array([1], "float32"), "largest error inf"),
        (np.array([True]), np.array([False]), "1 of 1 elements"),
    ],
)
def test_differences(expected, got, words):
    assert words in compare_results(expected, got)[0]


@pytest.mark.parametrize(
    "value",
    [np.array([np.nan, np.inf, 1], "float32"), (1, "a", None), float("nan"), np.zeros((0, 2))],
)
def test_equal(value):
    assert compare_results(value, value) is None


def test_tolerance_suits_the_dtype():
    near = np.float32(1) + np.float32(3e-5)
    assert compare_results(np.ones(1, "float32"), np.full(1, near)) is None
    assert compare_results(np.ones(1, "float32"), np.full(1, near), (1e-6, 0)) is not None
    assert compare_results(np.ones(1), np.full(1, float(near))) is not None
