"""Programs that the tests of the trace share."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relaxlab.relax.exec_builder import ExecBuilder, VMFuncKind
from relaxlab.runtime import cpu
from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.tensor import tensor
from relaxlab.runtime.vm import VirtualMachine
from relaxlab.trace import DebugSession
from tests.strategies import HostLibrary


def build(
    *functions: tuple[str, int, list[str], Callable[[ExecBuilder], object]],
) -> VirtualMachine:
    """Return a machine for functions given as (name, inputs, parameter names, body)."""
    ib = ExecBuilder()
    for name, *_ in functions:
        ib.declare_function(name, VMFuncKind.VM_FUNC)
    for name, inputs, names, body in functions:
        with ib.function(name, inputs, names):
            body(ib)
    executable = ib.get()
    executable.import_module(HostLibrary())
    return VirtualMachine(executable, cpu())


def _factorial(ib: ExecBuilder) -> None:
    ib.emit_if(ib.r(0), 5)  # 0
    ib.emit_call("host.iadd", [ib.r(0), ib.imm(-1)], dst=1)  # 1
    ib.emit_call("fact", [ib.r(1)], dst=2)  # 2
    ib.emit_call("host.imul", [ib.r(0), ib.r(2)], dst=3)  # 3
    ib.emit_goto(2)  # 4
    ib.emit_call("vm.builtin.copy", [ib.imm(1)], dst=3)  # 5
    ib.emit_call("host.say", [ib.r(3)])  # 6
    ib.emit_ret(ib.r(3))  # 7


def count_down(ib: ExecBuilder) -> None:
    ib.emit_call("vm.builtin.copy", [ib.r(0)], dst=1)  # 0
    ib.emit_if(ib.r(1), 3)  # 1
    ib.emit_call("host.iadd", [ib.r(1), ib.imm(-1)], dst=1)  # 2
    ib.emit_goto(-2)  # 3
    ib.emit_ret(ib.r(1))  # 4


def _memory(ib: ExecBuilder) -> None:
    scope = ib.convert_constant("global")
    args = [ib.vm_state(), ShapeTuple((32,)), ib.imm(0), DataType("uint8"), scope]
    ib.emit_call("vm.builtin.alloc_storage", args, dst=1)  # 0
    views = ShapeTuple((2,)), DataType("float32")
    ib.emit_call("vm.builtin.alloc_tensor", [ib.r(1), ib.imm(0), *views], dst=2)  # 1
    ib.emit_call("vm.builtin.alloc_tensor", [ib.r(1), ib.imm(4), *views], dst=3)  # 2
    ib.emit_call("host.fill", [ib.r(2), ib.imm(7)])  # 3
    ib.emit_call("host.fill", [ib.r(0), ib.imm(1)])  # 4
    ib.emit_call("host.idiv", [ib.imm(1), ib.imm(0)], dst=4)  # 5
    ib.emit_ret(ib.r(3))  # 6


@pytest.fixture
def fact() -> Any:
    """Return a session of a recursive factorial of 3: 25 steps, prints 1, 1, 2, 6."""
    with DebugSession(build(("fact", 1, ["n"], _factorial)), "fact", 3) as session:
        yield session


@pytest.fixture
def countdown() -> Any:
    """Return a session of a loop that counts 3 down to 0."""
    with DebugSession(build(("down", 1, ["n"], count_down)), "down", 3) as session:
        yield session


@pytest.fixture
def memory() -> Any:
    """Return a session with two views of one storage, which fails at step 5."""
    machine = build(("main", 1, ["x"], _memory))
    with DebugSession(machine, "main", tensor(np.zeros(2, "float32"))) as session:
        yield session
