"""From operators to bytecode: every recorded text on the way, and the values that come out."""

import time
from itertools import pairwise

import numpy as np
import pytest

from relaxlab import relax, runtime
from relaxlab.errors import InternalError
from relaxlab.ir import PassContext, PassInstrument, Target
from relaxlab.relax import op, transform
from relaxlab.relax.pipeline import get_default_pipeline, get_pipeline, register_pipeline
from relaxlab.script import from_source
from relaxlab.testing import assert_allclose
from tests.golden_compiler import decode, document, script_of, scripts
from tests.relax.transform.checks import module

NAMES = (
    "astype_where",
    "attention_static",
    "attention_sym",
    "bind_params_fold",
    "call_tir_manual",
    "closure",
    "concat_split",
    "conv2d_relu",
    "conv_pool_fc",
    "diamond",
    "embedding_take",
    "ew_chain",
    "ew_chain_sym",
    "ew_no_dataflow",
    "if_else",
    "if_else_sym",
    "inplace",
    "kv_append",
    "layer_norm",
    "local_func_rec",
    "match_cast_tensor",
    "matmul_bias_relu",
    "matmul_bias_relu_sym",
    "memory_dyn_same_size",
    "memory_reuse",
    "memory_upper_bound",
    "mlp2",
    "multi_output_fuse",
    "nonzero_dyn",
    "packed_calls",
    "recursion",
    "reductions",
    "reshape_permute",
    "rms_norm",
    "shape_compute",
    "shape_param",
    "slices",
    "softmax",
    "subroutine",
    "tuples",
    "unique_dyn",
)

#: Whose recorded scripts leave constants out, so that they cannot be read again.
WITH_CONSTANTS = {"bind_params_fold"}


def program(name):
    """Return the recorded module as the pipeline gets it."""
    steps = scripts(name)
    first = next(i for i, (step, _) in enumerate(steps) if step == "DispatchSampling")
    if name in WITH_CONSTANTS:
        weight = (np.arange(12, dtype="float32").reshape(4, 3) - 5) / 4
        return transform.BindParams("main", {"w": weight})(from_source(steps[0][1]))
    return from_source(steps[first - 1][1])


@pytest.mark.parametrize("name", NAMES)
def test_script_after_every_pass(name):
    mod = program(name)
    steps = scripts(name)[-15:]
    passes = get_pipeline("default").passes
    assert [p.info.name for p in passes] == [step for step, _ in steps]
    with Target("llvm"):
        for pass_, (step, text) in zip(passes, steps, strict=True):
            mod = pass_(mod)
            assert mod.script().rstrip() == text.rstrip(), step


@pytest.mark.parametrize("name", sorted(set(NAMES) - WITH_CONSTANTS))
def test_each_pass_alone(name):
    """Each pass on the recorded script before it, so that one error does not hide another."""
    steps = scripts(name)[-13:]
    for (_, before), (step, after) in pairwise(steps):
        pass_ = getattr(transform, step)()
        mod = from_source(before)
        result = pass_(mod)
        assert result.script().rstrip() == after.rstrip(), step
        assert mod.script().rstrip() == before.rstrip(), step
        if step != "VMShapeLower":  # which adds its checks on every run
            assert pass_(result) is result, step


@pytest.mark.parametrize("name", NAMES)
def test_executable(name):
    doc = document(name)
    ex = relax.build(program(name), "numpy")
    assert ex.as_text() == script_of(doc, doc["default_build"]["as_text"])
    assert ex.stats() == script_of(doc, doc["default_build"]["stats"])


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
@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
@pytest.mark.parametrize("name", NAMES)
def test_values(name, exec_mode):
    doc = document(name)
    ex = relax.build(program(name), "numpy", exec_mode=exec_mode)
    vm = relax.VirtualMachine(ex, runtime.cpu())
    assert vm.exec_mode == exec_mode
    assert doc["runs"]
    for run in doc["runs"]:
        result = vm[run["func"]](*map(decode, run["args"]))
        assert_same(result, run["result"])
    for failure in doc["failures"]:
        with pytest.raises((ValueError, TypeError, RuntimeError)) as caught:
            vm[failure["func"]](*map(decode, failure["args"]))
        assert type(caught.value).__name__ == failure["error"]


def assert_same(got, record):
    if record["kind"] == "tuple":
        assert len(got) == len(record["fields"])
        for item, field in zip(got, record["fields"], strict=True):
            assert_same(item, field)
    elif record["kind"] == "tensor":
        want = decode(record)
        assert got.numpy().dtype == want.dtype
        assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-5)
    else:
        assert got == decode(record)


# ---------------------------------------------------------------- pipelines


def test_unknown_pipeline_lists_candidates():
    with pytest.raises(ValueError, match="Unknown pre-built pipeline fast") as caught:
        get_pipeline("fast")
    assert "default_build" in str(caught.value)


def test_register_pipeline_refuses_a_taken_name():
    with pytest.raises(ValueError, match="already registered"):
        register_pipeline("default")(lambda: get_pipeline("default"))


def test_no_pipeline_for_gpu_yet():
    with pytest.raises(ValueError, match="not yet supported by default pipeline"):
        get_default_pipeline(Target("cuda"))


class Names(PassInstrument):
    def __init__(self):
        self.names = []

    def run_before_pass(self, mod, info):
        self.names.append(info.name)


def test_instruments_see_the_passes_in_order():
    seen = Names()
    with PassContext(instruments=[seen]), Target("numpy"):
        get_pipeline("default")(program("ew_chain"))
    assert "sequential" in seen.names[:2]
    assert seen.names[-1] == "AttachGlobalSymbol"
    assert "NormalizeGlobalVar" in seen.names  # inside ComputePrimValue


def test_build_leaves_the_module_alone():
    mod = program("if_else")
    text = mod.script()
    relax.build(mod, "numpy")
    assert mod.script() == text


def test_build_of_a_lowered_module_without_pipeline():
    mod = program("ew_chain")
    with Target("numpy"):
        lowered = get_pipeline("default")(mod)
    assert (
        relax.build(lowered, "numpy", relax_pipeline=None).as_text()
        == relax.build(mod, "numpy").as_text()
    )


def test_an_operator_left_over_is_named():
    mod = module(
        """
        @R.function
        def main(x: R.Tensor(ndim=2, dtype="float32")):
            return R.exp(x)
        """
    )
    with pytest.raises(InternalError, match=r"relax\.exp"):
        relax.build(mod, "numpy")


# ---------------------------------------------------------------- order and size


FIVE = """
@R.function
def e(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
    y = R.exp(x)
    return y

@R.function
def c(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
    return x

@R.function(private=True)
def a(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
    y = R.exp(x)
    return y

@R.function
def b(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
    y = Module.a(x)
    return y
"""


def test_functions_are_ordered_as_in_tvm():
    """By name, and private ones last: they change once more in AttachGlobalSymbol (run)."""
    lines = relax.build(module(FIVE), "numpy").as_text().splitlines()
    assert [line for line in lines if line.startswith("@") and line.endswith(":")] == [
        "@b:",
        "@a:",
        "@c:",
        "@e:",
    ]


def chain(length):
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([4], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = x
            for i in range(length):
                y = builder.emit(op.add(y, x) if i % 2 else op.negative(y))
            result = builder.emit_output(y)
        builder.emit_func_output(result)
    return builder.get()


def test_a_block_of_5000_bindings():
    ex = relax.build(chain(5000), "numpy")
    vm = relax.VirtualMachine(ex, runtime.cpu())
    x = np.array([1.0, -2.0, 0.5, 3.0], np.float32)
    want = x
    for i in range(5000):
        want = want + x if i % 2 else -want
    assert_allclose(vm["main"](x).numpy(), want, rtol=1e-6)


def test_time_is_linear_in_bindings():
    def seconds(length):
        mod = chain(length)
        with Target("numpy"):
            start = time.process_time()
            get_pipeline("default")(mod)
            return time.process_time() - start

    seconds(100)  # what is made on first use
    short, long = (min(seconds(length) for _ in range(3)) for length in (500, 2000))
    assert long < 11 * short  # four times as long; a quadratic step would make it sixteen
