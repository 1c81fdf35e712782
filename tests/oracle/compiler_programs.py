"""Run by a Python with the real TVM: read programs, compile them in both ways, run them.

usage: compiler_programs.py FILE     FILE: a list of [script, arguments or null]; output: for each
what TVM prints of the script, the bytecode of both CPU pipelines (as text, and as bytes in hex),
and the values if there are arguments; or the error
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import tvm
from tvm import relax
from tvm.script import from_source

TARGET = tvm.target.Target("llvm")
QUICK = tvm.target.Target({"kind": "llvm", "opt-level": 0})


def compiled(mod, pipeline):
    """Return the text of the bytecode, and its bytes in hex."""
    builder = relax.ExecBuilder()
    with TARGET, tempfile.TemporaryDirectory() as folder:
        relax.vm_build._vmcodegen(builder, pipeline(mod), "bytecode")
        executable = builder.get()
        path = Path(folder) / "program"
        executable.mod.write_to_file(str(path))
        return executable.as_text(), path.read_bytes().hex()


def flat(value):
    if isinstance(value, tvm.runtime.Tensor):
        array = value.numpy()
        numbers = array.astype("float64").reshape(-1)
        return [str(array.dtype), list(array.shape), [repr(float(n)) for n in numbers]]
    return [flat(item) for item in value]


def values_of(executable, arguments):
    vm = relax.VirtualMachine(executable, tvm.cpu())
    arrays = [np.array(v, d).reshape(s) for d, s, v in arguments]
    return flat(vm["main"](*map(tvm.runtime.tensor, arrays)))


def apart(function):
    """Return what a function returns in a process of its own, which may crash."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        with os.fdopen(writing, "w") as stream:
            json.dump(function(), stream)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        text = stream.read()
    _, status = os.waitpid(child, 0)
    if not text:
        raise RuntimeError(f"the process ended with status {status}")
    return json.loads(text)


def run(script, arguments):
    result = {}
    try:
        mod = from_source(script)
        result["script"] = mod.script()
        result["plain"] = compiled(mod, relax.get_pipeline("default"))
        result["fused"] = compiled(mod, relax.get_default_pipeline(TARGET))
        if arguments is not None:
            executable = relax.build(mod, QUICK)
            result["values"] = apart(lambda: values_of(executable, arguments))
    except (Exception, SystemExit) as error:  # noqa: BLE001  # what it is, is the answer
        result["error"] = f"{type(error).__name__}: {str(error)[:800]}"
    return result


if __name__ == "__main__":
    cases = json.loads(Path(sys.argv[1]).read_text())
    json.dump([run(*case) for case in cases], sys.stdout)
