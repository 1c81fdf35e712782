"""Record what TVM's estimate_memory_usage says of modules at each step of the pipeline.

Run with an interpreter that has apache-tvm: ``python make_memory_usage.py > memory_usage.json``.
"""

import json
import sys
from pathlib import Path

import tvm
from tvm import relax

HERE = Path(__file__).parent
#: Modules that no pipeline makes: sizes of every kind, branches, local functions.
MORE = {
    "kinds": """
@I.ir_module(check_well_formed=False)
class Module:
    @R.function(pure=False)
    def zeta(x: R.Tensor((2,), "float32")):
        a = R.builtin.alloc_tensor(
            R.shape([1000, 1000, 300]), dtype="float32", runtime_device_index=0
        )
        b = R.builtin.alloc_tensor(R.shape([3]), dtype="int4", runtime_device_index=0)
        c = R.builtin.alloc_tensor(R.shape([3]), dtype="bool", runtime_device_index=0)
        s = R.memory.alloc_storage(R.shape([4096]), 0, "global", "uint8")
        d = R.memory.alloc_tensor(s, 0, R.shape([5, 2]), "float16")
        return a

    @R.function(pure=False)
    def alpha(x: R.Tensor((2,), "float32"), c: R.Tensor((), "bool")):
        if c:
            s = R.memory.alloc_storage(R.shape([4096]), 0, "global", "uint8")
            d = R.memory.alloc_tensor(s, 0, R.shape([5, 2]), "float16")
            r = R.add(x, x)
        else:
            e = R.memory.alloc_storage(R.shape([8]), 0, "global", "float32x4")
            d = R.memory.alloc_tensor(e, 0, R.shape([5, 2]), "float16")
            r = R.multiply(x, x)
        return r

    @R.function(pure=False)
    def beta(x: R.Tensor((2,), "float32")):
        return x
""",
    "edges": """
@I.ir_module(check_well_formed=False)
class Module:
    @R.function(pure=False)
    def a(s: R.Any):
        d = R.memory.alloc_tensor(s, 0, R.shape([5, 2]), "float16")
        return d

    @R.function(pure=False)
    def b(x: R.Tensor((2,), "float32")):
        d = R.builtin.alloc_tensor(R.shape([0, 2]), dtype="float16", runtime_device_index=0)
        return d

    @R.function(pure=False)
    def c(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        d = R.builtin.alloc_tensor(R.shape([n, 2]), dtype="float16", runtime_device_index=0)
        return d

    @R.function(pure=False)
    def e(x: R.Tensor((2,), "float32")):
        s = R.memory.alloc_storage(R.shape([107374182400]), 0, "global", "float32")
        d = R.memory.alloc_tensor(s, 0, R.shape([26843545600]), "float32")
        u = R.builtin.alloc_tensor(R.shape([3, 107374182]), dtype="int8", runtime_device_index=0)
        return d

    @R.function(pure=False)
    def f(x: R.Tensor((2,), "float32")):
        @R.function(pure=False)
        def inner(y: R.Tensor((2,), "float32")):
            a = R.builtin.alloc_tensor(R.shape([100]), dtype="float32", runtime_device_index=0)
            return a
        r = inner(x)
        b = R.builtin.alloc_tensor(R.shape([3]), dtype="float32", runtime_device_index=0)
        return r

    @R.function(pure=False)
    def g(x: R.Tensor((2,), "float32")):
        s = R.memory.alloc_storage(R.shape([10240, 1024]), 0, "global", "float32")
        d = R.memory.alloc_tensor(s, 0, R.shape([5, 2]), "float16")
        return d
""",
}


def estimate(mod):
    try:
        return relax.analysis.estimate_memory_usage(mod)
    except Exception as error:  # noqa: BLE001  # recorded
        return {"error": type(error).__name__}


def steps(mod):
    transform = relax.transform
    yield "parsed", mod
    with tvm.target.Target("llvm"):
        for step in (
            transform.LambdaLift(),
            relax.backend.DispatchSampling(),
            relax.backend.DispatchSortScan(),
            transform.LegalizeOps(),
            transform.RewriteDataflowReshape(),
            transform.ToNonDataflow(),
            transform.RemovePurityChecking(),
            transform.CallTIRRewrite(),
            transform.StaticPlanBlockMemory(),
            transform.LowerAllocTensor(),
            transform.KillAfterLastUse(),
        ):
            mod = step(mod)
            yield step.info.name, mod


def parsed(text):
    lines = [line for line in text.splitlines() if not line.startswith("from tvm")]
    return tvm.script.from_source("\n".join(lines))


def main():
    found = {"tvm": tvm.__version__, "modules": {}, "more": {}}
    for path in sorted((HERE / "modules").glob("*.txt")):
        found["modules"][path.stem] = {
            name: estimate(mod)
            for name, mod in steps(parsed(path.read_text()))
            if name in ("parsed", "CallTIRRewrite", "StaticPlanBlockMemory", "KillAfterLastUse")
        }
    for name, text in MORE.items():
        found["more"][name] = {"source": text, "text": estimate(parsed(text))}
    json.dump(found, sys.stdout, indent=1)


main()
