"""Call the kernels of library.so with tvm_ffi alone. Usage: python ffi_programs.py STEP FOLDER.

Needs tvm_ffi (for one step TVM too), and relaxlab on the path; prints JSON.
"""

import json
import sys
from importlib import import_module
from pathlib import Path

import numpy as np

from relaxlab.interop import tvm_ffi
from relaxlab.runtime import VirtualMachine, cpu, tensor


def decode(record):
    array = np.frombuffer(bytes.fromhex(record["hex"]), record["dtype"])
    return array.reshape(record["shape"]).copy()


def ffi(folder):
    """The kernels of library.so, with tvm_ffi and without TVM."""
    assert "tvm" not in sys.modules
    runs = json.loads((folder / "library.json").read_text())["runs"]
    results = []
    for _ in range(2):  # a library may be loaded twice
        machine = VirtualMachine(tvm_ffi.load_module(folder / "library.so"), cpu())
        for run in runs:
            result = machine[run["func"]](*map(decode, run["args"]))
            results.append(result.numpy().tobytes().hex())
    kernel = machine.executable.imports[0].get_function("matmul")
    try:
        kernel(tensor(np.zeros((2, 4), "float32")))
    except TypeError as error:
        results.append("3 arguments" in str(error))
    results.append(machine.executable.imports[0].get_function("nothing"))
    return results


def ffi_then_tvm(folder):
    """TVM may be imported after a library was loaded without it, and takes over."""
    result = ffi(folder)
    tvm = import_module("tvm")
    machine = VirtualMachine(tvm_ffi.load_module(folder / "library.so"), cpu())
    run = json.loads((folder / "library.json").read_text())["runs"][1]
    result.append(machine[run["func"]](*map(decode, run["args"])).numpy().tobytes().hex())
    result.append(tvm.runtime.load_module(str(folder / "library.so")).kind)
    return result


if __name__ == "__main__":
    step, where = sys.argv[1:]
    print(json.dumps(globals()[step](Path(where))))
