# ruff: noqa: E501  # programs as they print
"""LiftTransformParams: what depends on weights only is computed beforehand."""

import numpy as np
import pytest

from relaxlab import relax, runtime
from relaxlab.errors import InternalError
from relaxlab.ir import PassContext, PassInstrument
from relaxlab.relax.analysis import well_formed
from relaxlab.relax.transform import LiftTransformParams
from relaxlab.testing import assert_allclose
from tests.relax.transform.checks import module

W = ', w1: R.Tensor((4, 3), "float32"), w2: R.Tensor((4,), "float32"), w3: R.Tensor((4,), "float32")'


def function(lines, outputs="d", name="main", params='x: R.Tensor((2, 3), "float32")' + W):
    inside = "\n        ".join(lines)
    result = outputs if "," not in outputs else f"({outputs})"
    return f"""
@R.function
def {name}({params}):
    R.func_attr({{"num_input": 1}})
    with R.dataflow():
        {inside}
        R.output({outputs})
    return {result}
"""


LINES = [
    "wt = R.permute_dims(w1)",
    "ws = R.add(w2, w3)",
    "we = R.exp(ws)",
    'wq = R.add(we, R.const(1, "float32"))',
    "a = R.matmul(x, wt)",
    "b = R.add(a, wq)",
    "c = R.add(b, w2)",
    "d = R.add(c, ws)",
]
RNG = np.random.default_rng(0)
X, W1, W2, W3 = (RNG.random(s, np.float32) for s in [(2, 3), (4, 3), (4,), (4,)])


def lifted(program, **options):
    mod = module(program)
    text = mod.script()
    result = LiftTransformParams(**options)(mod)
    assert mod.script() == text
    well_formed(result)
    return mod, result


def names(func):
    return [param.name for param in func.params]


def machine(mod):
    return relax.VirtualMachine(relax.build(mod, "numpy"), runtime.cpu())


def same_values(mod, result, *args, transform="main_transform_params", name="main", inputs=1):
    want = machine(mod)[name](*args)
    vm = machine(result)
    prepared = vm[transform](tuple(args[inputs:]))
    got = vm[name](*args[:inputs], *prepared)
    pairs = zip(got, want, strict=True) if isinstance(want, tuple | list) else [(got, want)]
    for g, w in pairs:
        assert_allclose(g.numpy(), w.numpy(), rtol=1e-6)


def test_what_is_lifted_and_what_is_passed():
    mod, result = lifted(function(LINES))
    assert names(result["main"]) == ["x", "w2", "wt", "ws", "wq"]
    assert len(result["main"].body.blocks[0].bindings) == 4
    same_values(mod, result, X, W1, W2, W3)


def test_a_result_that_depends_on_weights_only():
    """TVM leaves variables in the function that nothing binds."""
    mod, result = lifted(function(["a = R.exp(w2)", "b = R.matmul(x, R.permute_dims(w1))"], "a, b"))
    assert names(result["main"])[:2] == ["x", "a"]
    same_values(mod, result, X, W1, W2, W3)
    weight = function(["b = R.matmul(x, R.permute_dims(w1))"], "b").replace(
        "return b", "return (b, w3)"
    )
    mod, result = lifted(weight)
    assert "w3" in names(result["main"])
    same_values(mod, result, X, W1, W2, W3)
    mod, result = lifted(function(["a = R.exp(w2)"], "a"))
    assert names(result["main"]) == ["x", "a"]
    same_values(mod, result, X, W1, W2, W3)


def test_stop():
    mod, result = lifted(
        function(
            [
                "a = R.exp(w2)",
                "s = R.builtin.stop_lift_params(a)",
                "t = R.tanh(s)",
                "b = R.matmul(x, R.permute_dims(w1))",
                "d = R.add(b, t)",
            ]
        )
    )
    assert "stop_lift_params" not in result.script()
    assert "R.tanh(a)" in result["main"].script()
    plain = function(
        [*LINES[:1], "a = R.exp(w2)", "t = R.tanh(a)", "b = R.matmul(x, wt)", "d = R.add(b, t)"]
    )
    want = machine(module(plain))["main"](X, W1, W2, W3)
    vm = machine(result)
    got = vm["main"](X, *vm["main_transform_params"]((W1, W2, W3)))
    assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)
    assert mod is not result


def test_plain_blocks_branches_effects_and_casts_stay():
    program = """
@R.function(pure=False)
def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool"), w: R.Tensor((4,), "float32"), v: R.Tensor(ndim=1, dtype="float32")):
    R.func_attr({"num_input": 2})
    m = T.int64()
    a = R.exp(w)
    with R.dataflow():
        u = R.match_cast(v, R.Tensor((m,), "float32"))
        e = R.exp(u)
        R.output(e)
    if c:
        with R.dataflow():
            b = R.sin(w)
            d = R.add(b, x)
            R.output(d)
        r = d
    else:
        r = R.add(x, a)
    p = R.print(w)
    return (r, e)
"""
    _, result = lifted(program)
    assert names(result["main"]) == ["x", "c", "w", "v"]
    assert "return model_params" in result["main_transform_params"].script()


SYMBOLIC = """
@R.function
def main(x: R.Tensor(("n",), "float32"), w1: R.Tensor(("m", "k"), "float32"), w2: R.Tensor(("m",), "float32")):
    R.func_attr({"num_input": 1})
    n = T.int64()
    m = T.int64()
    k = T.int64()
    with R.dataflow():
        a = R.sum(w1, axis=1)
        b = R.add(a, w2)
        z = R.zeros(R.shape([n, m, k]), "float32")
        d = R.sum(z, axis=2)
        e = R.add(d, b)
        R.output(e)
    return e
"""


def test_sizes_that_only_weights_tell_are_passed_as_a_shape():
    mod, result = lifted(SYMBOLIC)
    assert names(result["main"]) == ["x", "vars_from_compile_time_params", "b"]
    assert "vars_from_compile_time_params: R.Shape([k])" in result.script()
    same_values(mod, result, np.zeros(2, np.float32), W1, W2)


def test_shared_transformation():
    other = [line.replace("R.const(1,", "R.const(2,") for line in LINES]
    program = function(LINES) + function(other, name="other")
    mod, result = lifted(program, shared_transform=True)
    assert names(result["main"]) == names(result["other"]) == ["x", "w2", "wt", "ws", "we"]
    for name in ("main", "other"):
        same_values(mod, result, X, W1, W2, W3, transform="transform_params", name=name)
    _, named = lifted(program, shared_transform=["main"])
    assert names(named["main"]) == ["x", "w2", "wt", "ws", "wq"]
    assert len(named["other"].params) == 4
    _, apart = lifted(program)
    assert names(apart["other"]) == ["x", "w2", "wt", "ws", "wq"]


def test_a_value_that_one_of_the_sharing_functions_does_not_need_is_passed_all_the_same():
    shorter = [*LINES[:-1], "d = R.exp(c)"]
    program = function(LINES) + function(shorter, name="other")
    mod, result = lifted(program, shared_transform=True)
    assert names(result["other"]) == names(result["main"]) == ["x", "w2", "wt", "ws", "wq"]
    same_values(mod, result, X, W1, W2, W3, transform="transform_params", name="other")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ('x: R.Tensor((2, 3), "float32")' + W.replace("(4, 3)", "(3, 4)"), "'w1' of type"),
        ('x: R.Tensor((2, 3), "float32")', "one has 3 and another 0"),
    ],
    ids=["types", "number"],
)
def test_weights_that_differ_cannot_be_shared(params, message):
    other = function(["d = R.exp(x)"], name="other", params=params)
    with pytest.raises(InternalError, match=message):
        LiftTransformParams(shared_transform=True)(module(function(LINES) + other))


def test_the_argument_may_be_consumed():
    with PassContext(config={"relax.lift_transform_params.consume_params": True}):
        mod, result = lifted(function(LINES))
    text = result["main_transform_params"].script()
    assert text.count('"vm.builtin.tuple_reset_item", model_params') == 3
    assert 'w21: R.Tensor((4,), dtype="float32") = w2' in text
    same_values(mod, result, X, W1, W2, W3)


def test_a_function_that_the_module_calls_keeps_its_signature():
    program = function(LINES, name="sub").replace("@R.function", "@R.function(private=True)")
    program += f"""
@R.function
def main(x: R.Tensor((2, 3), "float32"){W}):
    y = Module.sub(x, w1, w2, w3)
    return y
"""
    mod = module(program)
    assert LiftTransformParams()(mod).script() == mod.script()


def test_passes_inside():
    class Names(PassInstrument):
        def __init__(self):
            self.names = []

        def run_before_pass(self, mod, info):
            self.names.append((info.name, info.opt_level))

    seen = Names()
    with PassContext(instruments=[seen]):
        LiftTransformParams()(module(function(LINES)))
    assert seen.names == [
        ("LiftTransformParams", 0),
        ("PartitionTransformParams", 1),
        ("LambdaLift", 1),
        ("LiftTransformParamsPostProc", 1),
    ]
