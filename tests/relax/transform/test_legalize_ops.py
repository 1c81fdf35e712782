"""LegalizeOps: text equal to the recorded one, and what its options do."""

import json
from pathlib import Path

import pytest

from relaxlab import topi
from relaxlab.errors import DiagnosticError, InternalError
from relaxlab.ir import IRModule, Op, PassContext, Target
from relaxlab.relax import op as relax_op
from relaxlab.relax.backend import DispatchSampling, DispatchSortScan
from relaxlab.relax.transform.legalize_ops import LegalizeOps
from relaxlab.script import from_source

GOLDEN = Path(__file__).parents[2] / "golden" / "compiler"


def cases(file):
    return json.loads((GOLDEN / file).read_text())["cases"]


def legalize(mod):
    with Target("llvm"):
        return LegalizeOps()(DispatchSortScan()(DispatchSampling()(mod)))


def module_of(case):
    params = ", ".join(
        f'{name}: R.Tensor(({"".join(f"{d}, " for d in dims(spec))}), "{spec.split("[")[0]}")'
        for name, spec in case["params"].items()
    )
    # TVM has no word for these operators
    call = case["call"].replace("relax.inspect.", "R.inspect.")
    return from_source(
        "@I.ir_module\nclass Module:\n    @R.function\n"
        f"    def main({params}):\n        gv = {call}\n        return gv\n"
    )


def dims(spec):
    inside = spec[spec.index("[") + 1 : -1]
    return [d.strip() for d in inside.split(",") if d.strip()]


def implemented(case):
    """Whether the operator exists here and some pass gives it a kernel (or leaves it, as TVM)."""
    op = Op.find(case["op"])
    return op is not None and case["op"] not in BY_ADDRESS | WRONG_IN_TVM


#: TVM numbers variables of one name by their address: "s" and "s_1" may be exchanged.
BY_ADDRESS = {"relax.dynamic_strided_slice"}
#: TVM reads beyond what replaces the slice (values that it then does not use).
WRONG_IN_TVM = {"relax.slice_scatter"}

OPERATORS = [case for case in cases("op_legalized.json") if implemented(case)]


@pytest.mark.parametrize("case", OPERATORS, ids=lambda case: case["call"])
def test_recorded_operator(case):
    assert legalize(module_of(case)).script().rstrip() == case["script"].rstrip()


def test_most_of_the_recorded_operators_are_covered():
    assert len(OPERATORS) >= 207


@pytest.mark.parametrize("case", cases("legalize_modules.json"), ids=lambda case: case["name"])
def test_recorded_programs(case):
    mod = legalize(from_source(case["source"]))
    assert mod.script().rstrip() == case["script"].rstrip()
    assert LegalizeOps()(mod) is mod


#: Recorded modules that come out differently, and why.
DIFFERENT = {
    "max_bool": "refused by both; our message says what was expected",
    "concat_none": "TVM refuses axis=None; it joins vectors",
    "split_idx_big": "TVM makes tensors of 7 of 6 and of -3 columns",
    "ln_noscale": "TVM ignores center=False and scale=False",
    "rms_1d": "TVM cannot normalize a vector",
    "median_multi": "TVM takes the median over one of the axes",
    "median_multi_keep": "TVM takes the median over one of the axes",
    "pad_bad": "TVM pads with a constant when the mode is unknown",
    "dss_sym": "TVM numbers variables of one name by their address",
}

MORE = [case for case in cases("legalize_more.json") if case["name"] not in DIFFERENT]


@pytest.mark.parametrize("case", MORE, ids=lambda case: case["name"])
def test_more_recorded_modules(case):
    if "error" in case:
        with pytest.raises((DiagnosticError, InternalError, ValueError, TypeError)):
            legalize(from_source(case["source"]))
        return
    assert legalize(from_source(case["source"])).script().rstrip() == case["script"].rstrip()


def more(name):
    (case,) = (case for case in cases("legalize_more.json") if case["name"] == name)
    return from_source(case["source"])


# ---------------------------------------------------------------- where TVM is wrong


def test_layer_norm_without_scale_and_center_uses_neither():
    text = legalize(more("ln_noscale")).script()
    assert "T.float32(1.0000000000000001e-05))\n" in text
    assert "* g[" not in text
    assert "+ b[" not in text


def test_a_vector_can_be_normalized():
    text = legalize(more("rms_1d")).script()
    assert "rsqrt[()] = T.rsqrt(T_multiply_red[()] / T.float32(4.0)" in text
    assert "T_rms_norm[v_ax0] = rsqrt[()] * T_cast_1[v_ax0] * T_cast_2[v_ax0]" in text


def test_vectors_can_be_joined_without_an_axis():
    assert "T_concat: T.Buffer((T.int64(5),)" in legalize(more("concat_none")).script()


def test_a_cut_beyond_the_end_leaves_an_empty_part():
    mod = legalize(more("split_idx_big"))
    assert 'R.Tensor((2, 4), dtype="float32"), R.Tensor((2, 0)' in mod.script()


def test_a_median_over_several_axes_is_over_all_of_them():
    text = legalize(more("median_multi")).script()
    assert "T_squeeze: T.Buffer((T.int64(3),), " in text
    assert "T_reshape = T.sblock_alloc_buffer((T.int64(3), T.int64(8)))" in text


def test_an_unknown_padding_mode_is_refused():
    with pytest.raises(DiagnosticError, match="pad_mode must be one of constant, reflect"):
        more("pad_bad")


def test_the_largest_of_booleans_is_refused():
    with pytest.raises(InternalError, match="min_value"):
        legalize(more("max_bool"))


# ---------------------------------------------------------------- the pass


SIMPLE = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            a = R.add(x, y)
            b = R.exp(a)
            c = R.add(a, b)
            R.output(c)
        return c
"""


def ops_of(mod):
    block = mod["main"].body.blocks[0]
    return [binding.value.op.name for binding in block.bindings]


def kernels(mod):
    return [gvar.name_hint for gvar in mod.functions if gvar.name_hint != "main"]


def test_kernels_are_shared_between_calls_alike():
    mod = LegalizeOps()(from_source(SIMPLE))
    assert kernels(mod) == ["add", "tir_exp"]
    assert ops_of(mod) == ["relax.call_tir"] * 3


def test_the_module_given_is_not_changed():
    before = from_source(SIMPLE)
    text = before.script()
    LegalizeOps()(before)
    assert before.script() == text


def test_nothing_to_do_gives_the_module_itself():
    once = LegalizeOps()(from_source(SIMPLE))
    assert LegalizeOps()(once) is once


def test_skip_ops():
    mod = LegalizeOps(skip_ops=["relax.exp"])(from_source(SIMPLE))
    assert ops_of(mod) == ["relax.call_tir", "relax.exp", "relax.call_tir"]


def test_the_pass_context_can_disable_it():
    mod = from_source(SIMPLE)
    with PassContext(config={"relax.transform.apply_legalize_ops": False}):
        assert LegalizeOps()(mod) is mod


def test_a_custom_function_comes_first_and_its_result_is_legalized():
    def as_product(bb, call):
        return relax_op.multiply(*call.args)

    mod = LegalizeOps({"relax.add": as_product})(from_source(SIMPLE))
    assert kernels(mod) == ["multiply", "tir_exp"]


def test_what_a_function_emits_is_kept_and_legalized():
    def doubled(bb, call):
        twice = bb.emit(relax_op.multiply(call.args[0], call.args[0]))
        return bb.call_te(topi.add, twice, call.args[1], primfunc_name_hint="add")

    mod = LegalizeOps({"relax.add": doubled})(from_source(SIMPLE))
    assert ops_of(mod) == ["relax.call_tir"] * 5
    assert kernels(mod) == ["add", "multiply", "tir_exp"]


def test_a_custom_function_may_return_the_call_itself():
    mod = from_source(SIMPLE)
    kept = {"relax.add": lambda bb, call: call, "relax.exp": lambda bb, call: call}
    assert LegalizeOps(kept)(mod) is mod


def test_a_call_of_unknown_shape_stays():
    mod = from_source(
        """
@R.function
def main(x: R.Tensor("float32", ndim=2)):
    y = R.exp(x)
    return y
"""
    )
    module = IRModule({"main": mod})
    assert LegalizeOps()(module) is module


def test_a_pure_operator_with_a_packed_function_is_wrapped():
    mod = from_source(
        """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        y = R.nonzero(x)
        return y
"""
    )
    text = LegalizeOps()(mod).script()
    assert 'R.call_pure_packed("relax.run.nonzero", x, ty_args=(R.Tensor(' in text


def test_a_constant_operand_is_part_of_the_kernel_and_tells_kernels_apart():
    mod = from_source(
        """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        a = R.add(x, R.const(1, "float32"))
        b = R.add(a, R.const(2, "float32"))
        c = R.add(b, R.const(1, "float32"))
        return c
"""
    )
    assert kernels(LegalizeOps()(mod)) == ["add", "add1"]


def test_a_shape_variable_with_a_known_value_is_looked_up():
    mod = from_source(
        """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 6), "float32")):
        s = R.shape([3, 4])
        y = R.reshape(x, s)
        return y
"""
    )
    assert "cls.reshape, (x,), out_ty=R.Tensor((3, 4)" in LegalizeOps()(mod).script()


def test_several_functions_share_kernels():
    mod = from_source(
        """
@I.ir_module
class Module:
    @R.function
    def f(x: R.Tensor((2,), "float32")):
        y = R.exp(x)
        return y

    @R.function
    def g(x: R.Tensor((2,), "float32")):
        y = R.exp(x)
        return y
"""
    )
    out = LegalizeOps()(mod)
    assert [gvar.name_hint for gvar in out.functions if gvar.name_hint not in "fg"] == ["tir_exp"]


def test_legalizing_twice_is_legalizing_once():
    once = LegalizeOps()(from_source(SIMPLE))
    again = LegalizeOps()(LegalizeOps()(from_source(SIMPLE)))
    assert once.structural_equal(again)


def test_every_operator_with_a_legalization_is_called_by_a_case():
    recorded = {case["op"] for case in cases("op_legalized.json")}
    ours = {n for n in Op.list_op_names() if Op.get(n).has_attr("FLegalize")}
    assert ours - recorded <= NOT_IN_TVM


#: What TVM cannot legalize: the one raises an error, the other names a function that is not there.
NOT_IN_TVM = {"relax.nn.attention_var_len", "relax.nn.pixel_shuffle"}


def test_the_same_tensor_twice_says_nothing_about_two_tensors():
    mod = from_source(
        """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
        a = R.subtract(x, x)
        b = R.subtract(x, y)
        c = R.subtract(y, x)
        return c
"""
    )
    text = LegalizeOps()(mod).script()
    assert kernels(LegalizeOps()(mod)) == ["subtract"]
    assert "a = R.call_tir(cls.subtract, (x, x)" in text
    assert "b = R.call_tir(cls.subtract, (x, y)" in text
    assert "c = R.call_tir(cls.subtract, (y, x)" in text


def test_a_tuple_with_one_unknown_shape_stays():
    mod = from_source(
        """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor("float32", ndim=2)):
        z = R.concat((x, y), axis=0)
        return z
"""
    )
    assert LegalizeOps()(mod) is mod


def test_an_operator_that_nothing_legalizes_may_be_named(caplog):
    mod = from_source(
        """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        y = R.ewise_fma(x, x, x)
        return y
"""
    )
    assert LegalizeOps()(mod) is mod
    assert not caplog.records
    LegalizeOps(enable_warning=True)(mod)
    assert "No legalization func for relax.ewise_fma is found." in caplog.text
