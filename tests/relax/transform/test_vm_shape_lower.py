"""VMShapeLower: what is checked, what is computed, what is known in a branch."""

import numpy as np
import pytest

from relaxlab import relax, runtime
from relaxlab.errors import InternalError
from relaxlab.relax.transform import VMShapeLower
from relaxlab.script import from_source
from tests.golden_compiler import document
from tests.relax.transform.checks import assert_same_text, module

GOLDEN = document("vm_shape_lower")


@pytest.mark.parametrize("name", sorted(GOLDEN["cases"]))
def test_as_in_tvm(name):
    case = GOLDEN["cases"][name]
    mod = from_source(case["before"])
    text = mod.script()
    assert_same_text(VMShapeLower()(mod).script().rstrip(), case["after"].rstrip())
    assert mod.script() == text


def lowered(functions, **options):
    return VMShapeLower(**options)(module(functions)).script()


def test_a_shape_is_built_from_slots_and_literals():
    text = lowered(
        """
        @R.function(pure=False)
        def main(x: R.Tensor(("n", "n + 1"), "float32")):
            n = T.int64()
            s = R.call_packed("f", R.shape([4, n, n * 2]))
            return s
        """
    )
    # slots: n, n + 1, n * 2
    assert '"vm.builtin.alloc_shape_heap", (3,)' in text
    assert '"vm.builtin.match_shape", x, shape_heap, 2, 1, 0, 2, 0,' in text  # store n, skip
    assert '"vm.builtin.match_shape", x, shape_heap, 2, 3, 0, 3, 1,' in text  # check both
    assert '"vm.builtin.make_shape", shape_heap, 3, 0, 4, 1, 0, 1, 2,' in text
    assert "H[T.int64(1)] = H[T.int64(0)] + T.int64(1)" in text


def test_no_heap_without_symbolic_sizes():
    text = lowered(
        """
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")):
            return x
        """
    )
    assert "shape_heap: R.Any = R.null_value()" in text
    assert '"vm.builtin.match_shape", x, shape_heap, 1, 0, 4,' in text


PLAIN = """
@R.function(pure=False)
def main(x: R.Tensor(("n",), "float32"), w: R.Tensor((8,), "float32")) -> R.Tensor(("n",), "float32"):
    {attrs}
    y = R.call_packed("f", x, w)
    z = R.match_cast(y, R.Tensor((n,), "float32"))
    return z
"""  # noqa: E501


def test_error_contexts():
    text = lowered(PLAIN.replace("{attrs}", "n = T.int64()"))
    for context in (
        r"ErrorContext(fn=main, loc=param[0], param=x, annotation=R.Tensor((n,), dtype=\"float32\"",
        r"ErrorContext(fn=main, loc=param[1], param=w, annotation=R.Tensor((8,), dtype=\"float32\"",
        r"ErrorContext(match_cast, ty=R.Tensor((n,), dtype=\"float32\"))",
    ):
        assert context in text
    assert "loc=return" not in text  # known from the cast
    assert "ErrorContext" not in lowered(
        PLAIN.replace("{attrs}", "n = T.int64()"), emit_err_ctx=False
    )


def test_weights_of_fixed_shape_are_trusted():
    trusting = 'n = T.int64()\n    R.func_attr({"num_input": 1})'
    assert "param=w" not in lowered(PLAIN.replace("{attrs}", trusting))
    assert "param=w" in lowered(PLAIN.replace("{attrs}", trusting.replace("1", "2")))


BRANCHES = """
@R.function
def main(c: R.Tensor((), "bool"), x: R.Tensor(ndim=1, dtype="float32"), y: R.Tensor(ndim=1)):
    p = T.int64()
    if c:
        a = R.match_cast(x, R.Tensor((p,), "float32"))
        r = R.zeros((p * 2,), "float32")
    else:
        b = R.match_cast(y, R.Tensor((p,), "float32"))
        r = R.ones((p * 2,), "float32")
    return r
"""


@pytest.mark.parametrize("condition", [True, False])
def test_both_branches_define_the_same_size(condition):
    """TVM takes what the first branch stored for known in the second (run)."""
    vm = relax.VirtualMachine(relax.build(module(BRANCHES), "numpy"), runtime.cpu())
    x, y = np.zeros(3, "float32"), np.zeros(5, "float32")
    got = vm["main"](np.array(condition), x, y).numpy()
    np.testing.assert_array_equal(got, np.zeros(6) if condition else np.ones(10))


@pytest.mark.parametrize(
    ("then", "other"),
    [("R.match_cast(x, R.Tensor((p,)))", "y"), ("y", "R.match_cast(x, R.Tensor((p,)))")],
)
def test_what_a_branch_learns_is_not_known_after_it(then, other):
    with pytest.raises(InternalError, match="nothing defines p"):
        lowered(
            f"""
            @R.function(pure=False)
            def main(c: R.Tensor((), "bool"), x: R.Tensor(ndim=1), y: R.Tensor(ndim=1)):
                p = T.int64()
                if c:
                    r = {then}
                else:
                    r = {other}
                z = R.match_cast(y, R.Tensor((p * 2,)))
                return z
            """
        )


def test_a_size_that_nothing_defines():
    with pytest.raises(InternalError, match=r"the size k \* .*2.* of x .*nothing defines k"):
        lowered(
            """
            @R.function(pure=False)
            def main(x: R.Tensor(ndim=1, dtype="float32")):
                k = T.int64()
                z = R.match_cast(x, R.Tensor((k * 2,), "float32"))
                return z
            """
        )


def test_local_functions_are_refused():
    with pytest.raises(InternalError, match="VMShapeLower do not work for local functions"):
        lowered(
            """
            @R.function(pure=False)
            def main(x: R.Tensor((2,), "float32")):
                @R.function
                def inner(y: R.Tensor((2,), "float32")):
                    return y
                z = inner(x)
                return z
            """
        )


def test_a_formula_as_a_value_is_refused():
    """TVM computes it from a variable that is nowhere set (run)."""
    with pytest.raises(InternalError, match="run ComputePrimValue first"):
        lowered(
            """
            @R.function(pure=False)
            def main(x: R.Tensor(("n",), "float32")):
                n = T.int64()
                z = R.call_packed("f", n * 15)
                return z
            """
        )


def test_a_shape_variable_must_be_written_out():
    s = relax.Var("s", relax.ShapeType(ndim=2))
    x = relax.Var("x", relax.TensorType(s, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [s, x]):
        builder.emit_func_output(x)
    with pytest.raises(InternalError, match="is the variable s; write its dimensions out"):
        VMShapeLower()(builder.get())


def run(functions, *args):
    vm = relax.VirtualMachine(relax.build(module(functions), "numpy"), runtime.cpu())
    return vm["main"](*args)


SUM = """
@R.function
def main(x: R.Tensor(("n", "n * 2"), "float32"), s: R.Shape(["n + 1", "k"]), k: R.Prim("int64")):
    n = T.int64()
    r = R.zeros((n, k), "float32")
    return r
"""


def test_arguments_that_fit_and_that_do_not():
    x, s = np.zeros((2, 4), "float32"), runtime.ShapeTuple([3, 7])
    program = SUM.replace('"k"]', '"m"]')
    assert run(program, x, s, 5).numpy().shape == (2, 5)
    for wrong, param in (
        ((np.zeros((2, 5), "float32"), s, 5), "x"),
        ((x, runtime.ShapeTuple([4, 7]), 5), "s"),
        ((x, runtime.ShapeTuple([3, 7, 1]), 5), "s"),
        ((np.zeros((2, 4), "int32"), s, 5), "x"),
        ((np.zeros(2, "float32"), s, 5), "x"),
        ((x, s, x), "k"),
    ):
        with pytest.raises((ValueError, TypeError, RuntimeError), match=f"param={param}"):
            run(program, *wrong)
