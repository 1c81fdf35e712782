# ruff: noqa: E501  # programs as they print
"""DecomposeOpsForInference and ...ForTraining: composite operators as simple ones."""

import numpy as np
import pytest

from relaxlab import relax, runtime
from relaxlab.ir import PassContext, PassInstrument
from relaxlab.relax.analysis import check_well_formed
from relaxlab.relax.transform import DecomposeOpsForInference, DecomposeOpsForTraining
from relaxlab.testing import assert_allclose
from tests.relax.transform.checks import assert_unchanged, module

RNG = np.random.default_rng(1)


def program(call, result):
    return f"""
@R.function
def main(x: R.Tensor((3, 2, 4), "float32"), g: R.Tensor((2,), "float32"), b: R.Tensor((2,), "float32"), m: R.Tensor((2,), "float32"), v: R.Tensor((2,), "float32")):
    with R.dataflow():
        t = {call}
        R.output(t)
    return {result}

@R.function
def other(x: R.Tensor((3, 2, 4), "float32"), g: R.Tensor((2,), "float32"), b: R.Tensor((2,), "float32"), m: R.Tensor((2,), "float32"), v: R.Tensor((2,), "float32")):
    with R.dataflow():
        t = {call}
        R.output(t)
    return {result}
"""


X = RNG.random((3, 2, 4), np.float32)
G, B, M, V = (RNG.random(2, np.float32) for _ in range(4))


def run(mod, *args):
    return relax.VirtualMachine(relax.build(mod, "numpy"), runtime.cpu())["main"](*args)


def normalized(x, mean, variance, scale, center):
    y = (x - mean[:, None]) / np.sqrt(variance[:, None] + 1e-5)
    y = y * G[:, None] if scale else y
    return y + B[:, None] if center else y


@pytest.mark.parametrize(("scale", "center"), [(True, True), (False, True), (True, False)])
@pytest.mark.parametrize("axis", [1, -2])
def test_batch_norm_for_inference(scale, center, axis):
    call = f"R.nn.batch_norm(x, g, b, m, v, axis={axis}, scale={scale}, center={center})"
    mod = DecomposeOpsForInference()(module(program(call, "t")))
    assert "batch_norm" not in mod.script()
    assert check_well_formed(mod)
    out, mean, variance = run(mod, X, G, B, M, V)
    assert_allclose(out.numpy(), normalized(X, M, V, scale, center), rtol=1e-5)
    assert_allclose(mean.numpy(), M)
    assert_allclose(variance.numpy(), V)


@pytest.mark.parametrize("axis", [1, -2])
def test_batch_norm_for_training(axis):
    call = f"R.nn.batch_norm(x, g, b, m, v, axis={axis}, momentum=0.25)"
    mod = DecomposeOpsForTraining()(module(program(call, "t")))
    assert "batch_norm" not in mod.script()
    out, mean, variance = run(mod, X, G, B, M, V)
    batch_mean, batch_variance = X.mean(axis=(0, 2)), X.var(axis=(0, 2))
    assert_allclose(out.numpy(), normalized(X, batch_mean, batch_variance, True, True), rtol=1e-4)
    assert_allclose(mean.numpy(), 0.75 * M + 0.25 * batch_mean, rtol=1e-5)
    assert_allclose(variance.numpy(), 0.75 * V + 0.25 * batch_variance, rtol=1e-5)


def test_layer_norm_is_decomposed_for_training_only():
    text = program("R.nn.layer_norm(x, w, w, axes=[-1])", "t").replace(
        '"float32")):', '"float32"), w: R.Tensor((4,), "float32")):'
    )
    assert_unchanged(DecomposeOpsForInference(), text)
    mod = DecomposeOpsForTraining()(module(text))
    assert "layer_norm" not in mod.script()
    w = RNG.random(4, np.float32)
    want = (X - X.mean(-1, keepdims=True)) / np.sqrt(X.var(-1, keepdims=True) + 1e-5) * w + w
    assert_allclose(run(mod, X, G, B, M, V, w).numpy(), want, rtol=1e-4)


def test_one_function_only():
    text = program("R.nn.batch_norm(x, g, b, m, v, axis=1)", "t")
    for pass_ in (DecomposeOpsForInference, DecomposeOpsForTraining):
        mod = module(text)
        result = pass_("main")(mod)
        assert "batch_norm" not in result["main"].script()
        assert result["other"] is mod["other"]


def test_a_shape_that_a_tensor_holds_gets_sizes_with_names():
    mod = DecomposeOpsForInference()(
        module(
            """
            @R.function
            def main(t: R.Tensor((2,), "int64")):
                with R.dataflow():
                    s = R.tensor_to_shape(t)
                    R.output(s)
                return s
            """
        )
    )
    assert "R.match_cast(lv, R.Shape([x, x_1]))" in mod.script()
    assert check_well_formed(mod)
    assert tuple(run(mod, np.array([5, 7]))) == (5, 7)


def test_a_shape_of_unknown_length_stays():
    assert_unchanged(
        DecomposeOpsForInference(),
        """
        @R.function
        def main(t: R.Tensor(("n",), "int64")):
            s = R.tensor_to_shape(t)
            return s
        """,
    )


def test_names_of_the_passes():
    class Names(PassInstrument):
        def __init__(self):
            self.names = []

        def run_before_pass(self, mod, info):
            self.names.append(info.name)

    seen = Names()
    mod = module(program("R.nn.batch_norm(x, g, b, m, v, axis=1)", "t"))
    with PassContext(instruments=[seen]):
        DecomposeOpsForInference()(mod)
        DecomposeOpsForTraining()(mod)
    assert seen.names == [
        "DecomposeOps",
        "DecomposeOpsForTraining",
        "MutateOpsForTraining",
        "DecomposeOps",
    ]
