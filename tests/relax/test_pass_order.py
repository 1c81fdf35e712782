"""Pipelines with a pass missing, or two in the wrong order: the right result, or the pass is named.

One program has something for every pass: a local function, a scan, a reshape, branches, a call
that promises purity, a symbolic size.
"""

import numpy as np
import pytest

from relaxlab import relax, runtime
from relaxlab.errors import InternalError
from relaxlab.ir import Call, Op, Sequential, Target
from relaxlab.relax import transform
from relaxlab.relax.unlowered import missing_pass, why_left
from relaxlab.script import from_source

SCRIPT = """
@I.ir_module
class Module:
    @R.function
    def main(
        x: R.Tensor(("n", 2), "float32"), c: R.Tensor((), "bool")
    ) -> R.Tensor(("n", 2), "float32"):
        n = T.int64()
        @R.function
        def inner(a: R.Tensor((n, 2), "float32")) -> R.Tensor((n, 2), "float32"):
            b = R.add(a, x)
            return b
        with R.dataflow():
            d = R.exp(x)
            e = R.reshape(d, (n * 2,))
            f = R.reshape(e, (n, 2))
            g = R.cumsum(f, axis=0)
            h = R.call_pure_packed("vm.builtin.copy", g, ty_args=R.Tensor((n, 2), "float32"))
            R.output(h)
        if c:
            r = inner(h)
        else:
            r = R.tanh(h)
        s = R.add(r, r)
        return s
"""
X = np.arange(4, dtype="float32").reshape(2, 2)
WANT = 2 * (np.cumsum(np.exp(X), axis=0) + X)
#: What the program does not run without.
NEEDED = {
    "AttachGlobalSymbol",
    "CallTIRRewrite",
    "DispatchSortScan",
    "LambdaLift",
    "LegalizeOps",
    "LowerAllocTensor",
    "LowerRuntimeBuiltin",
    "RemovePurityChecking",
    "ToNonDataflow",
    "VMShapeLower",
}


def passes(kind):
    pipeline = relax.get_pipeline("default")
    if kind == "fusing":
        pipeline = relax.get_default_pipeline(Target("llvm"))
    return [transform.LambdaLift(), *pipeline.passes]


def run(steps, mode):
    ex = relax.build(from_source(SCRIPT), "numpy", relax_pipeline=Sequential(steps), exec_mode=mode)
    vm = relax.VirtualMachine(ex, runtime.cpu())
    return vm["main"](X, np.array(True)).numpy()


CASES = [
    (kind, index, mode)
    for kind in ("default", "fusing")
    for index in range(len(passes(kind)))
    for mode in ("bytecode", "compiled")
]


@pytest.mark.parametrize(("kind", "index", "mode"), CASES)
def test_a_missing_pass_is_named_or_not_missed(kind, index, mode):
    steps = passes(kind)
    name = steps.pop(index).info.name
    if name not in NEEDED:
        np.testing.assert_allclose(run(steps, mode), WANT, rtol=1e-5)
        return
    with pytest.raises(InternalError, match=rf"[Rr]un.* {name}\b|run it after {name}\b"):
        run(steps, mode)


@pytest.mark.parametrize("kind", ["default", "fusing"])
def test_neighbours_that_change_places(kind):
    names = [one.info.name for one in passes(kind)]
    for index in range(len(names) - 1):
        steps = passes(kind)
        steps[index : index + 2] = steps[index + 1], steps[index]
        if names[index : index + 2] == ["KillAfterLastUse", "LowerRuntimeBuiltin"]:
            with pytest.raises(InternalError, match=r"memory\.kill_\w+'.*run LowerRuntimeBuiltin"):
                run(steps, "bytecode")
        else:
            np.testing.assert_allclose(run(steps, "bytecode"), WANT, rtol=1e-5)


@pytest.mark.parametrize("name", sorted(Op.list_op_names()))
def test_every_operator_has_a_pass_or_none(name):
    call = Call(Op.get(name), ())
    needed = missing_pass(call)
    assert not needed or f"run {needed} (relax.build does)" == why_left(call)
