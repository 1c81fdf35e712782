"""Record what the real TVM makes of operator calls: the legalized module and what it computes.

usage: python -m tests.golden.compiler.make_op_values > tests/golden/compiler/op_values.json
(a Python that has apache-tvm 0.27). Inputs are not stored: ``tests/op_calls.py`` makes them.
"""

import json
import sys

import numpy as np
import tvm
from tvm import relax
from tvm.script import from_source

from tests.op_calls import cases, inputs_of, source_of


def numbers(array):
    """Return an array as JSON: shortest decimals that convert back exactly."""
    flat = array.reshape(-1)
    if array.dtype.kind == "f":
        values = [float(str(v)) for v in flat]
        values = [v if np.isfinite(v) else str(v) for v in values]
    else:
        values = flat.tolist()
    return {"dtype": str(array.dtype), "shape": list(array.shape), "values": values}


def record(params, call):
    case = {"params": params, "call": call}
    try:
        mod = from_source(source_of(params, call))
        target = tvm.target.Target("llvm")
        with target:
            for step in (
                relax.backend.DispatchSampling(),
                relax.backend.DispatchSortScan(),
                relax.transform.LegalizeOps(),
            ):
                mod = step(mod)
        # what cubic interpolation makes is too long to be read by anyone
        if len(mod.script()) < 6000:
            case["script"] = mod.script()
        vm = relax.VirtualMachine(relax.build(mod, target), tvm.cpu())
        result = vm["main"](*map(tvm.runtime.tensor, inputs_of(params, call)))
        outputs = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
        case["outputs"] = [numbers(output.numpy()) for output in outputs]
    except Exception as error:  # noqa: BLE001  # what it is, is recorded
        case["error"] = type(error).__name__
        case["message"] = str(error).split("\n --> ")[0][:400]
    return case


if __name__ == "__main__":
    json.dump({"cases": [record(*case) for case in cases()]}, sys.stdout, indent=0)
