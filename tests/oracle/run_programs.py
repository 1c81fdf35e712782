"""Run recorded cases with the real TVM: executables by their bytes, and direct builtin calls.

Usage: python run_programs.py < cases.json > results.json  (this file needs TVM and nothing of ours)
"""

import json
import sys

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

LOAD = "ffi.Module.load_from_bytes.relax.VMExecutable"


def memory(tensor):
    """Return the elements without a copy."""
    return np.from_dlpack(tensor)


def bump(tensor, amount):
    memory(tensor)[...] += amount


def again(machine, closure, tensor):
    memory(tensor)[0] += 1
    result = tvm.get_global_func("vm.builtin.invoke_closure")(machine, closure, tensor)
    memory(tensor)[1] += 1
    return result


def count(value):
    return len(value) if isinstance(value, tvm_ffi.Array) else int(memory(value).sum()) % 7


def fill(tensor, value):
    memory(tensor)[...] = value


FUNCTIONS = {
    "programs.bump": bump,
    "programs.again": again,
    "programs.count": count,
    "golden.fill": fill,
}


def encode(value):
    """Write a value as tests/golden_values.py does."""
    if isinstance(value, tvm.runtime.Tensor):
        return {
            "t": "tensor",
            "dtype": str(value.dtype),
            "shape": [int(size) for size in value.shape],
            "hex": value.numpy().tobytes().hex(),
        }
    if isinstance(value, int):
        return {"t": "int", "v": value}
    return {"t": "tuple", "v": [encode(item) for item in value]}


def run(case):
    if "builtin" in case:
        try:
            row = tvm.runtime.tensor(np.array([case["row"]], "float32"))
            return int(tvm.get_global_func(case["builtin"])(row, *case["args"]))
        except (tvm.error.InternalError, ValueError, TypeError) as error:
            return type(error).__name__
    executable = tvm.get_global_func(LOAD)(bytes.fromhex(case["hex"]))
    vm = relax.VirtualMachine(executable, tvm.cpu())
    x = tvm.runtime.tensor(np.array([1, 2, 3, 4], "float32"))
    result = vm["main"](x, case["n"])
    return [encode(result), encode(x)]


if __name__ == "__main__":
    for name, function in FUNCTIONS.items():
        tvm.register_global_func(name, function)
    json.dump([run(case) for case in json.load(sys.stdin)], sys.stdout)
