"""Run programs on both machines in one process. Usage: python interop_programs.py STEP FOLDER.

Needs TVM, and relaxlab on the path; prints JSON.
"""

import json
import sys
from pathlib import Path

import numpy as np
import tvm
from tvm import relax

from relaxlab.interop import tvm_ffi
from relaxlab.interop.tvm import from_tvm, to_tvm
from relaxlab.relax.exec_builder import ExecBuilder
from relaxlab.runtime import (
    DataType,
    ShapeTuple,
    VirtualMachine,
    cpu,
    load_module,
    register_global_func,
)


def encode(value):
    """Write a value of either side as tests/golden_values.py does; closures are not compared."""
    if value is None or isinstance(value, bool | int | float | str):
        kind = {bool: "bool", int: "int", float: "float"}.get(type(value), "str")
        return {"t": "none"} if value is None else {"t": kind, "v": value}
    if hasattr(value, "numpy"):
        array = value.numpy()
        shape = [int(one) for one in value.shape]
        return {"t": "tensor", "dtype": str(value.dtype), "shape": shape, "v": array.tolist()}
    if "Shape" in type(value).__name__:
        return {"t": "shape", "v": [int(one) for one in value]}
    return {"t": "tuple", "v": [encode(item) for item in value]}


def ours(folder):
    """Programs of ours on our machine, on TVM's, and fetched back from TVM."""
    rows = []
    for path in sorted(folder.glob("*.rlx")):
        ex = load_module(path)
        inputs = np.load(path.with_suffix(".npz"))
        arrays = [inputs[name] for name in sorted(inputs)]
        module = to_tvm(ex)
        back = from_tvm(module)
        theirs = relax.VirtualMachine(module, tvm.cpu())["main"]
        row = [
            encode(VirtualMachine(ex, cpu())["main"](*arrays)),
            encode(theirs(*map(tvm.runtime.tensor, arrays))),
            encode(VirtualMachine(back, cpu())["main"](*arrays)),
            back.save_to_bytes() == ex.save_to_bytes(),
        ]
        rows.append([path.stem, *row])
    return rows


def theirs(folder):
    """What TVM built, on our machine: from memory, and from a library it exports and we open."""
    rows = []
    for path in sorted(folder.glob("*.txt")):
        module = tvm.script.from_source(path.read_text())
        inputs = np.load(path.with_suffix(".npz"))
        arrays = [inputs[name] for name in sorted(inputs)]
        built = relax.build(module, target="llvm")
        library = folder / f"{path.stem}.so"
        built.export_library(str(library))
        programs = [from_tvm(built), from_tvm(built.mod), tvm_ffi.load_module(library)]
        results = [encode(VirtualMachine(one, cpu())["main"](*arrays)) for one in programs]
        machine = relax.VirtualMachine(built, tvm.cpu())
        expected = encode(machine["main"](*map(tvm.runtime.tensor, arrays)))
        texts = {one.as_text() for one in (*programs, load_module(library))}
        rows.append([path.stem, expected, *results, texts == {built.as_text()}])
    return rows


def lent(folder):
    """Functions that one side lacks are lent by the other; values cross as what they are."""

    def kinds(*args):
        return [type(arg).__name__ for arg in args]

    def program(name):
        ib = ExecBuilder()
        with ib.function("main", num_inputs=1):
            shape, dtype = map(ib.convert_constant, (ShapeTuple((2, 3)), DataType("float16")))
            text = ib.convert_constant("a text of some length")
            args = [ib.r(0), shape, dtype, text, ib.imm(4), ib.void_arg()]
            ib.emit_call("vm.builtin.make_tuple", args=args, dst=1)
            ib.emit_call(name, args=[*args, ib.r(1)], dst=2)
            ib.emit_ret(ib.r(2))
        return ib.get()

    x = np.ones(2, "float32")
    register_global_func("interop.kinds", kinds)
    machine = relax.VirtualMachine(to_tvm(program("interop.kinds")), tvm.cpu())
    rows = [[str(one) for one in machine["main"](tvm.runtime.tensor(x))]]
    register_global_func("interop.kinds", lambda *args: [len(args)], override=True)
    machine = relax.VirtualMachine(to_tvm(program("interop.kinds")), tvm.cpu())
    rows.append([int(one) for one in machine["main"](tvm.runtime.tensor(x))])
    tvm.register_global_func("interop.theirs", kinds)
    module = tvm.get_global_func("ffi.Module.load_from_bytes.relax.VMExecutable")(
        program("interop.theirs").save_to_bytes()
    )
    rows.append(list(VirtualMachine(from_tvm(module), cpu())["main"](x)))

    def fail(*_args):
        raise ValueError("of a function that is lent")

    register_global_func("interop.fail", fail)
    machine = relax.VirtualMachine(to_tvm(program("interop.fail")), tvm.cpu())
    try:
        machine["main"](tvm.runtime.tensor(x))
    except ValueError as error:
        rows.append(str(error).splitlines()[0])
    for wrong in (3, machine.module if hasattr(machine, "module") else 4):
        try:
            from_tvm(wrong)
        except TypeError as error:
            rows.append(str(error))
    return rows


if __name__ == "__main__":
    step, where = sys.argv[1:]
    print(json.dumps(globals()[step](Path(where))))
