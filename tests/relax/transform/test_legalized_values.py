# ruff: noqa: E501  # programs as they print
"""What legalized modules compute, by the interpreter of kernels."""

import json
from pathlib import Path

import numpy as np
import pytest

from relaxlab import te
from relaxlab.ir import Call, IntImm, Op, Target, Tuple, TupleGetItem, TupleType
from relaxlab.relax.backend import DispatchSampling, DispatchSortScan
from relaxlab.relax.expr import GenericConst
from relaxlab.relax.transform.legalize_ops import LegalizeOps
from relaxlab.script import from_source
from relaxlab.tirx.interp import Interpreter

GOLDEN = Path(__file__).parents[2] / "golden" / "compiler" / "op_cases.json"


def legalize(source):
    with Target("llvm"):
        return LegalizeOps()(DispatchSortScan()(DispatchSampling()(from_source(source))))


def run(mod, *inputs):
    """Run ``main``, whose bindings are calls of kernels, with NumPy arrays."""
    main = mod["main"]
    values = dict(zip(main.params, inputs, strict=True))

    def value(expr):
        match expr:
            case GenericConst():
                return expr.value.numpy()
            case IntImm():
                return expr.value
            case Tuple():
                return tuple(value(field) for field in expr.fields)
            case TupleGetItem():
                return value(expr.tuple_value)[expr.index]
            case Call(op=Op(name="relax.call_tir"), args=(gvar, args), ty_args=(out_ty,)):
                types = out_ty.fields if isinstance(out_ty, TupleType) else (out_ty,)
                # not zeros: a kernel must write every element
                outs = [
                    np.full([int(d) for d in ty.get_shape()], 7, ty.dtype.numpy()) for ty in types
                ]
                Interpreter(mod[gvar])(*value(args), *outs)
                return tuple(outs) if isinstance(out_ty, TupleType) else outs[0]
            case _:
                return values[expr]

    for block in main.body.blocks:
        for binding in block.bindings:
            values[binding.var] = value(binding.value)
    return value(main.body.body)


def decode(recorded):
    if recorded["kind"] == "tuple":
        return tuple(decode(field) for field in recorded["fields"])
    flat = [float(v) if isinstance(v, str) else v for v in recorded["values"]]
    return np.array(flat).astype(recorded["dtype"]).reshape(recorded["shape"])


def source_of(case):
    params = ", ".join(
        f"{name}: R.Tensor(({inside}), {dtype!r})"
        for name, spec in case["params"].items()
        for dtype, inside in [spec[:-1].replace(", ", ",").split("[")]
        for inside in ["".join(f"{d}," for d in inside.split(",") if d)]
    )
    return (
        "@I.ir_module\nclass Module:\n    @R.function\n"
        f"    def main({params}):\n        gv = {case['call']}\n        return gv\n"
    )


#: What is no kernel: left to later passes, or calls the runtime.
NO_KERNEL = {
    "relax.dynamic_strided_slice",
    "relax.ewise_fma",
    "relax.memory.ensure_zero_offset",
    "relax.memory.view",
    "relax.nonzero",
    "relax.shape_of",
    "relax.size",
    "relax.unique",
}


def has_kernel(case):
    op = Op.find(case["op"])
    known = op is not None and case["call"].startswith("R.")
    return known and case["op"] not in NO_KERNEL and "output" in case


CASES = [case for case in json.loads(GOLDEN.read_text())["cases"] if has_kernel(case)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["call"])
def test_recorded_values(case):
    inputs = [decode(value) for value in case["inputs"]]
    got, expected = run(legalize(source_of(case)), *inputs), decode(case["output"])
    pairs = zip(got, expected, strict=True) if isinstance(expected, tuple) else [(got, expected)]
    for ours, theirs in pairs:
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_enough_operators_are_run():
    assert len(CASES) >= 130


# ---------------------------------------------------------------- where TVM is wrong


X = np.array([[1.0, 2.0, 4.0, 9.0], [-1.0, 0.5, 0.0, 3.0]], "float32")
G, B = np.full(4, 2.0, "float32"), np.full(4, 1.0, "float32")


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("scale", [True, False])
def test_layer_norm_heeds_center_and_scale(center, scale):
    mod = legalize(
        f"""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 4), "float32"), g: R.Tensor((4,), "float32"), b: R.Tensor((4,), "float32")):
        y = R.nn.layer_norm(x, g, b, axes=[-1], center={center}, scale={scale})
        return y
"""
    )
    expected = (X - X.mean(-1, keepdims=True)) / np.sqrt(X.var(-1, keepdims=True) + 1e-5)
    expected = expected * (G if scale else 1) + (B if center else 0)
    np.testing.assert_allclose(run(mod, X, G, B), expected, rtol=1e-5, atol=1e-5)


def test_rms_norm_of_a_vector():
    mod = legalize(
        """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32"), g: R.Tensor((4,), "float32")):
        y = R.nn.rms_norm(x, g, axes=[-1])
        return y
"""
    )
    expected = X[0] / np.sqrt(np.mean(X[0] * X[0]) + 1e-5) * G
    np.testing.assert_allclose(run(mod, X[0], G), expected, rtol=1e-5)


def test_a_cut_beyond_the_end():
    mod = legalize(
        """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 4), "float32")):
        y = R.split(x, [1, 9], axis=1)
        return y
"""
    )
    parts = run(mod, X)
    for ours, theirs in zip(parts, np.split(X, [1, 9], 1), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_reduction_heeds_where_and_init():
    a, b = te.placeholder((2, 4), name="a"), te.placeholder((2,), name="b")
    k = te.reduce_axis((0, 4), "k")
    total = te.compute(
        (2,), lambda i: te.sum(a[i, k], axis=k, where=k.var < 3, init=b[i]), name="total"
    )
    out = np.zeros(2, "float32")
    Interpreter(te.create_prim_func([a, b, total]))(X, np.array([10, 20], "float32"), out)
    np.testing.assert_allclose(out, X[:, :3].sum(1) + np.array([10, 20]))


# ---------------------------------------------------------------- symbolic shapes


@pytest.mark.parametrize("n", [1, 3, 8])
def test_one_kernel_serves_every_size(n):
    mod = legalize(
        """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 6), "float32")):
        y = R.nn.softmax(R.reshape(x, (n, 2, 3)), axis=-1)
        return y
"""
    )
    x = np.arange(n * 6, dtype="float32").reshape(n, 6)
    reshape, softmax = mod["reshape"], mod["softmax"]
    middle, out = np.zeros((n, 2, 3), "float32"), np.zeros((n, 2, 3), "float32")
    Interpreter(reshape)(x, middle)
    Interpreter(softmax)(middle, out)
    exps = np.exp(x.reshape(n, 2, 3) - x.reshape(n, 2, 3).max(-1, keepdims=True))
    np.testing.assert_allclose(out, exps / exps.sum(-1, keepdims=True), rtol=1e-6)
