"""Make library.so and library.json: what the real TVM exports, and what it computes.

Usage: python make_library.py [OUT_DIR]  (needs apache-tvm==0.27.0.post1, a C compiler and strip)
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T


@I.ir_module
class Module:
    @T.prim_func
    def spread(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
        for i in T.parallel(64):
            y[i] = x[i] + T.float32(1)

    @T.prim_func
    def scratch(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
        held = T.alloc_buffer((100000,), "float32")
        for i in range(64):
            held[i * 1000] = x[i] * T.float32(2)
        for i in range(64):
            y[i] = held[i * 1000] + held[0]

    @R.function
    def wide(x: R.Tensor((64,), "float32")):
        cls = Module
        y = R.call_tir(cls.spread, (x,), out_ty=R.Tensor((64,), "float32"))
        z = R.call_tir(cls.scratch, (y,), out_ty=R.Tensor((64,), "float32"))
        return z  # noqa: RET504  # what the text shows

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 3), "float32")):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.relu(a)
            c = R.add(b, R.const(1.0, "float32"))
            R.output(c)
        return c


def encode(array):
    return {
        "t": "tensor",
        "dtype": str(array.dtype),
        "shape": list(array.shape),
        "hex": array.tobytes().hex(),
    }


def main(folder):
    executable = relax.build(Module, target="llvm")
    text = executable.as_text()
    with tempfile.TemporaryDirectory() as scratch:
        full = Path(scratch) / "full.so"
        executable.export_library(str(full))
        subprocess.run(["strip", "-s", "-o", folder / "library.so", full], check=True)
    loaded = tvm.runtime.load_module(str(folder / "library.so"))
    with tempfile.TemporaryDirectory() as scratch:
        loaded.write_to_file(f"{scratch}/ex.bin")
        raw = Path(f"{scratch}/ex.bin").read_bytes()
    vm = relax.VirtualMachine(loaded, tvm.cpu())
    x = np.arange(8, dtype="float32").reshape(2, 4) - 3
    w = np.linspace(-1, 1, 12, dtype="float32").reshape(4, 3)
    runs = []
    for func, args in (("main", [x, w]), ("wide", [np.arange(64, dtype="float32")])):
        result = vm[func](*map(tvm.runtime.tensor, args)).numpy()
        runs.append({"func": func, "args": [encode(a) for a in args], "result": encode(result)})
    document = {
        "tvm_version": tvm.__version__,
        "as_text": text,
        "bytes_hex": raw.hex(),
        "kernels": ["add", "matmul", "relu", "scratch", "shape_func", "spread"],
        "runs": runs,
    }
    (folder / "library.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent))
