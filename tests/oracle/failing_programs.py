"""Run random programs with the real TVM, each in a process of its own: it may crash.

Usage: python failing_programs.py < cases.json > results.json  (needs TVM and nothing of ours)
"""

import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import builder_programs
import numpy as np
import tvm
import tvm_ffi
from run_programs import FUNCTIONS as VALUE_FUNCTIONS
from tvm import relax

LOAD = "ffi.Module.load_from_bytes.relax.VMExecutable"
MACHINE = []
SECONDS = 20
PACKAGES = SimpleNamespace(
    ExecBuilder=relax.ExecBuilder,
    Shape=tvm_ffi.Shape,
    DataType=tvm.DataType,
    tensor=tvm.runtime.tensor,
)


def memory(tensor):
    """Return the elements without a copy; what is no tensor fails as it does with us."""
    if not isinstance(tensor, tvm.runtime.Tensor):
        raise AttributeError(f"{type(tensor).__name__} has no elements")
    return np.from_dlpack(tensor)


def fill(tensor, value):
    is_tensor = isinstance(value, tvm.runtime.Tensor)
    memory(tensor)[...] = memory(value) if is_tensor else value


def first(tensor):
    array = memory(tensor)
    return int(array.reshape(-1)[0]) if array.size else 0


FUNCTIONS = {
    **VALUE_FUNCTIONS,
    **builder_programs.HOST.functions,
    "host.iadd": lambda a, b: (a + b) % 1_000_000,
    "host.imul": lambda a, b: a * b % 1000,
    "host.idiv": lambda a, b: a // b,
    "host.tadd": lambda a, b: tvm.runtime.tensor(memory(a) + memory(b)),
    "host.fill": fill,
    "host.first": first,
    "host.say": lambda value: None,
    "host.again": lambda machine, name, number, array: MACHINE[0][name](number, array),
}


def encode(value):
    """Write a value as tests/golden_values.py does."""
    match value:
        case None:
            return {"t": "none"}
        case bool() | int():
            return {"t": "int", "v": int(value)}
        case tvm.runtime.Tensor():
            return {
                "t": "tensor",
                "dtype": str(value.dtype),
                "shape": [int(size) for size in value.shape],
                "hex": value.numpy().tobytes().hex(),
            }
        case tvm_ffi.Shape():
            return {"t": "shape", "v": [int(size) for size in value]}
        case tvm_ffi.Array():
            return {"t": "tuple", "v": [encode(item) for item in value]}
        case _:
            return {"t": "object"}


def loaded(case):
    """Return the program, in our bytes or built here."""
    if "builder" not in case:
        return tvm.get_global_func(LOAD)(bytes.fromhex(case["hex"]))
    make = builder_programs.tidy if case.get("tidy") else builder_programs.program
    _, _, data = builder_programs.build(make(case["builder"]), PACKAGES)
    return tvm.get_global_func(LOAD)(bytes.fromhex(data))


def saved(executable):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.bin"
        executable.write_to_file(str(path))
        return path.read_bytes().hex()


def run(case):
    vm = relax.VirtualMachine(loaded(case), tvm.cpu())
    MACHINE[:] = [vm]
    array = tvm.runtime.tensor(np.array(case["array"], "float32"))
    args = [array if one == "x" else one for one in case["call"]]
    try:
        result = encode(vm[case.get("func", "main")](*args))
    except Exception as error:  # noqa: BLE001  # which one it is is the answer
        return type(error).__name__
    return [result, *(encode(one) for one in args if one is array)]


def apart(case):
    """Return what `run` returns, or "crash", or "hang"."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(2)
        signal.alarm(SECONDS)
        os.write(writing, json.dumps(run(case)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    ended = "hang" if os.WTERMSIG(status) == signal.SIGALRM else "crash"
    return json.loads(text) if text else ended


if __name__ == "__main__":
    for name, function in FUNCTIONS.items():
        tvm.register_global_func(name, function)
    results = []
    for case in json.load(sys.stdin):
        executable = loaded(case)
        results.append(
            {"hex": saved(executable), "text": executable["as_text"](), "outcome": apart(case)}
        )
    json.dump(results, sys.stdout)
