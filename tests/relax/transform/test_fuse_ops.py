# ruff: noqa: E501  # programs as they print
"""FuseOps: which calls go together, and what the functions made of them look like."""

import pytest

from relaxlab.ir import PassContext, Target
from relaxlab.relax.analysis import check_well_formed
from relaxlab.relax.transform import AnnotateTIROpPattern, FuseOps, FuseTIR, LegalizeOps
from tests.relax.transform.checks import assert_same_text, module


def legalized(functions):
    with Target("llvm"):
        return AnnotateTIROpPattern()(LegalizeOps()(module(functions)))


def fused(functions):
    """Return the module after FuseOps, once what holds for every module is checked."""
    mod = legalized(functions)
    text = mod.script()
    result = FuseOps()(mod)
    assert mod.script() == text
    assert FuseOps()(result) is result
    assert check_well_formed(result)
    return result


def relax_text(mod):
    """Return the Relax functions of a module as text, without the decorators' module."""
    text = mod.script()
    return text[text.index("    @R.function") :]


CHAIN = """
@R.function
def main({params}):
    with R.dataflow():
        {lines}
        R.output({outputs})
    return {result}
"""


def chain(params, *lines, outputs="z"):
    result = outputs if "," not in outputs else f"({outputs})"
    inside = "\n        ".join(lines)
    return CHAIN.format(params=params, lines=inside, outputs=outputs, result=result)


X = 'x: R.Tensor((4, 8), "float32")'


def groups(mod):
    return [
        gvar.name_hint for gvar, func in mod.functions.items() if func.func_attrs.get("Primitive")
    ]


def test_nothing_to_fuse_gives_the_module_itself():
    mod = legalized(chain(X, "z = R.exp(x)"))
    assert FuseOps()(mod) is mod
    without_blocks = legalized(
        f"@R.function\ndef main({X}):\n    a = R.exp(x)\n    return R.exp(a)"
    )
    assert FuseOps()(without_blocks) is without_blocks


def test_level_zero_and_a_small_limit():
    mod = legalized(chain(X, "a = R.exp(x)", "b = R.tanh(a)", "z = R.exp(b)"))
    assert FuseOps(fuse_opt_level=0)(mod) is mod
    with PassContext(opt_level=0):
        assert FuseOps()(mod) is mod
    with PassContext(config={"relax.FuseOps.max_depth": 1}):
        assert FuseOps()(mod) is mod
    with PassContext(config={"relax.FuseOps.max_depth": 2}):
        assert groups(FuseOps()(mod)) == ["fused_tir_exp_tir_tanh"]


def test_an_intermediate_result_that_is_an_output_ends_a_group():
    mod = fused(chain(X, "a = R.exp(x)", "b = R.tanh(a)", "z = R.exp(b)", outputs="b, z"))
    assert groups(mod) == ["fused_tir_exp_tir_tanh"]


def test_calls_are_sorted_by_what_they_need():
    mod = fused(
        chain(
            X + ', w: R.Tensor((8, 8), "float32")',
            "a = R.exp(x)",
            "b = R.matmul(x, w)",
            "c = R.tanh(a)",
            "d = R.nn.relu(b)",
            "e = R.negative(c)",
            "z = R.add(d, e)",
            outputs="z, c",
        )
    )
    assert_same_text(
        relax_text(mod)[relax_text(mod).index("    @R.function\n") :],
        """\
    @R.function
    def main(x: R.Tensor((4, 8), dtype="float32"), w: R.Tensor((8, 8), dtype="float32")) -> R.Tuple(R.Tensor((4, 8), dtype="float32"), R.Tensor((4, 8), dtype="float32")):
        cls = Module
        with R.dataflow():
            gv: R.Tensor((4, 8), dtype="float32") = cls.fused_tir_exp_tir_tanh(x)
            gv1: R.Tensor((4, 8), dtype="float32") = cls.fused_matmul_relu_tir_negative_add(x, w, gv)
            R.output(gv, gv1)
        return (gv1, gv)""",
    )


def signature(mod, name):
    (line,) = [text for text in mod.script().splitlines() if f"def {name}(" in text]
    return line.strip().removeprefix(f"def {name}").removesuffix(":")


def test_constants_become_parameters():
    mod = fused(
        chain(
            X,
            "a = R.add(x, R.const([1.0] * 8))",
            "b = R.exp(a)",
            "z = R.multiply(b, R.const([2.0] * 8))",
        )
        .replace("[1.0] * 8", "[1.0, 1, 1, 1, 1, 1, 1, 1]")
        .replace("[2.0] * 8", "[2.0, 2, 2, 2, 2, 2, 2, 2]")
    )
    assert signature(mod, "fused_add_tir_exp_multiply").startswith(
        '(x: R.Tensor((4, 8), dtype="float32"), param_0: R.Tensor((8,), dtype="float32"), '
        'param_1: R.Tensor((8,), dtype="float32"))'
    )


def test_groups_alike_share_a_function():
    mod = fused(
        chain(
            X + ', w: R.Tensor((8, 8), "float32")',
            "a = R.nn.relu(R.matmul(x, w))",
            "z = R.nn.relu(R.matmul(a, w))",
        )
    )
    assert groups(mod) == ["fused_matmul_relu"]


def test_fields_of_a_tuple_become_parameters_one_for_each_read():
    mod = fused(
        chain(
            't: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32"))',
            "p = t[1]",
            "q = t[0]",
            "r = t[1]",
            "b = R.add(p, q)",
            "z = R.add(b, r)",
        )
    )
    assert [p.name for p in mod["fused_add_add"].params] == ["t_1", "t_0", "t_1"]  # as in TVM
    assert "cls.fused_add_add(lv, lv1, lv2)" in mod.script()


def test_weights_in_a_tuple_stay_outside():
    program = chain(
        X + ', w: R.Tuple(R.Tensor((4, 8), "float32"))',
        "a = w[0]",
        "b = R.add(x, a)",
        "z = R.exp(b)",
    )
    inside = 'R.func_attr({"num_input": 1})\n    with'
    assert [p.name for p in fused(program)["fused_add_tir_exp"].params] == ["w_0", "x"]
    weights = fused(program.replace("with", inside, 1))
    assert [p.name for p in weights["fused_add_tir_exp"].params] == ["x", "a"]


def test_sizes_that_no_parameter_defines_are_passed_as_a_shape():
    mod = fused(
        """
        @R.function
        def main(c: R.Tensor(("t",), "float32"), k: R.Tensor((1,), "float32")):
            with R.dataflow():
                d = R.concat((c, k))
                a = R.exp(d)
                z = R.tanh(a)
                R.output(z)
            return z
        """
    )
    text = mod.script()
    assert (
        'def fused_tir_exp_tir_tanh(d: R.Tensor(("t + 1",), dtype="float32"), tir_vars: R.Shape([t]))'
        in text
    )
    assert "cls.fused_tir_exp_tir_tanh(d, R.shape([t]))" in text


def test_symbolic_variables_are_the_functions_own():
    mod = fused(chain('x: R.Tensor(("n", 8), "float32")', "a = R.exp(x)", "z = R.tanh(a)"))
    (own,) = (dim for dim in mod["fused_tir_exp_tir_tanh"].params[0].ty.get_shape()[:1])
    assert own.name == "n"
    assert own is not mod["main"].params[0].ty.get_shape()[0]


SCALE = """
@T.prim_func(private=True, s_tir=True)
def scale(x: T.Buffer((T.int64(4),)), s: T.int64, y: T.Buffer((T.int64(4),))):
    T.func_attr({"op_pattern": 0})
    for i in range(T.int64(4)):
        with T.sblock("scale"):
            vi = T.axis.spatial(T.int64(4), i)
            y[vi] = x[vi] * T.Cast("float32", s)
"""


@pytest.mark.parametrize(
    ("given", "params", "args"),
    [("n", ["x", "n"], "(x, n)"), ("n + 1", ["x", "param_0"], "(x, n + 1)"), ("3", ["x"], "(x)")],
)
def test_scalars(given, params, args):
    mod = fused(
        SCALE
        + f"""
@R.function
def main(x: R.Tensor((4,), "float32"), n: R.Prim("int64")):
    with R.dataflow():
        a = R.call_tir(Module.scale, (x, {given}), out_ty=R.Tensor((4,), "float32"))
        z = R.exp(a)
        R.output(z)
    return z
"""
    )
    assert [p.name for p in mod["fused_scale_tir_exp"].params] == params
    assert f"cls.fused_scale_tir_exp{args}" in mod.script()


def test_a_scalar_that_is_a_size_anyway_needs_no_parameter():
    mod = fused(
        SCALE
        + """
@R.function
def main(x: R.Tensor((4,), "float32"), n: R.Prim("int64"), y: R.Tensor(("n", 4), "float32")):
    with R.dataflow():
        a = R.call_tir(Module.scale, (x, n), out_ty=R.Tensor((4,), "float32"))
        b = R.add(a, y)
        z = R.exp(b)
        R.output(z)
    return z
"""
    )
    assert [p.name for p in mod["fused_scale_add_tir_exp"].params] == ["x", "y"]


def test_uses_behind_the_block_follow_and_blocks_of_branches_stay():
    mod = fused(
        """
        @R.function
        def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
            with R.dataflow():
                a = R.exp(x)
                b = R.tanh(a)
                R.output(b)
            if c:
                with R.dataflow():
                    d = R.exp(b)
                    e = R.tanh(d)
                    R.output(e)
                r = e
            else:
                r = b
            s = R.negative(b)
            return (r, s)
        """
    )
    text = relax_text(mod)
    assert "d = R.call_tir(cls.tir_exp, (gv,)" in text
    assert "s = R.call_tir(cls.tir_negative, (gv,)" in text
    assert groups(mod) == ["fused_tir_exp_tir_tanh"]


def test_a_group_that_nobody_reads_is_dropped_with_a_warning(caplog):
    mod = FuseOps()(legalized(chain(X, "a = R.exp(x)", "b = R.tanh(a)", "z = R.negative(x)")))
    assert "dead codes" in caplog.text
    assert "tanh" not in relax_text(mod)


def test_two_functions_share_the_supply_of_names():
    program = chain(
        'x: R.Tensor((4, 4), "float32")', "a = R.exp(x)", "b = R.tanh(a)", "z = R.matmul(b, b)"
    )
    mod = fused(program + program.replace("main", "aux"))
    text = relax_text(mod)
    assert "lv: R.Tensor" in text[text.index("def aux") : text.index("def main")]
    assert "lv1: R.Tensor" in text[text.index("def main") :]


def test_functions_that_are_fused_already_stay():
    mod = fused(chain(X, "a = R.exp(x)", "z = R.tanh(a)"))
    body = mod["fused_tir_exp_tir_tanh"].body
    assert FuseOps()(mod)["fused_tir_exp_tir_tanh"].body is body
    assert "fused_tir_exp_tir_tanh" in FuseTIR()(mod)
