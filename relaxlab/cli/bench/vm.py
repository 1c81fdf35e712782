"""Rows of the virtual machine: what an instruction and a call from Python cost.

Examples
--------
>>> from relaxlab.cli.bench.vm import rows
"""

from collections.abc import Callable, Iterator

import numpy as np

from relaxlab import relax, runtime
from relaxlab.cli.bench.rows import Bar, Row, measure
from relaxlab.cli.bench.tvm_peer import run_tvm
from relaxlab.ir import IRModule
from relaxlab.script import from_source

__all__ = ["rows"]

_INSTRUCTIONS = 10_000
_ENTRY = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        return x
"""
_TVM_ENTRY = """
vm = relax.VirtualMachine(tvm.compile(tvm.script.from_source(TEXT), "llvm"), tvm.cpu())
main, x = vm["main"], tvm.runtime.tensor(np.zeros(4, "float32"))
result(measure(lambda: main(x)) * 1e9)
"""


def rows() -> Iterator[Row]:
    """Yield the rows of ``relaxlab bench vm``."""
    yield Row("runloop_instruction", "ns", _instruction(), None, None, Bar("<=", 350))
    mod = from_source(_ENTRY)
    assert isinstance(mod, IRModule)
    main = relax.VirtualMachine(relax.build(mod), runtime.cpu())["main"]
    x = runtime.tensor(np.zeros(4, np.float32))
    ours = measure(lambda: main(x)) * 1e9
    yield Row("entry", "ns", ours, "tvm", run_tvm(_TVM_ENTRY, _ENTRY), Bar("<=", 0.3))
    load = measure(_load_verify_link(100_000), rounds=3)
    yield Row("load_verify_link_100k", "s", load, None, None, Bar("<=", 1.0))


def _program(instructions: int) -> relax.VMExecutable:
    """Return a function of many trivial calls."""
    builder = relax.ExecBuilder()
    with builder.function("main", 1):
        for index in range(instructions - 1):
            # reads what the instruction before wrote, so that every register is defined
            builder.emit_call("vm.builtin.copy", [builder.r(index % 8)], (index + 1) % 8)
        builder.emit_ret(builder.r(0))
    return builder.get()


def _instruction() -> float:
    main = relax.VirtualMachine(_program(_INSTRUCTIONS), runtime.cpu())["main"]
    return measure(lambda: main(1)) / _INSTRUCTIONS * 1e9


def _load_verify_link(instructions: int) -> Callable[[], object]:
    data = _program(instructions).save_to_bytes()
    return lambda: relax.VirtualMachine(relax.VMExecutable.load_from_bytes(data), runtime.cpu())[
        "main"
    ]
