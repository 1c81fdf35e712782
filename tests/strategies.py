"""Hypothesis strategies that several tests share: small random executables.

A program has one to three Relax functions made of calls of host functions and builtins, Ifs, loops,
recursion, closures, storages and tuples. It always ends; it may fail (a wrong kind of argument, a
division by zero), and it may print, write memory in place and call the machine again from a host
function.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from relaxlab.relax.exec_builder import ExecBuilder, VMFuncKind
from relaxlab.runtime import cpu
from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.tensor import Tensor, tensor
from relaxlab.runtime.vm import VirtualMachine, VMExecutable
from tests.random_modules import RandomModule


def _iadd(a: int, b: int) -> int:
    return (a + b) % 1_000_000


def _imul(a: int, b: int) -> int:
    return a * b % 1000


def _idiv(a: int, b: int) -> int:
    return a // b


def _tadd(a: Tensor, b: Tensor) -> Tensor:
    return tensor(a.array + b.array)


def _fill(a: Tensor, value: int) -> None:
    a.array[...] = value


def _first(a: Tensor) -> int:
    return int(a.array.reshape(-1)[0]) if a.array.size else 0


def _say(value: Any) -> None:
    print("said", value if isinstance(value, int) else type(value).__name__)


def _again(machine: Any, name: str, number: int, array: Tensor) -> Any:
    return machine[name](number, array)


HOST: dict[str, Callable[..., Any]] = {
    "host.iadd": _iadd,
    "host.imul": _imul,
    "host.idiv": _idiv,
    "host.tadd": _tadd,
    "host.fill": _fill,
    "host.first": _first,
    "host.say": _say,
    "host.again": _again,
}


class HostLibrary:
    """The host functions that the programs call, as an imported library."""

    kind = "host"

    @property
    def imports(self) -> list[Any]:
        return []

    def get_function(self, name: str) -> Callable[..., Any] | None:
        return HOST.get(name)


@dataclass(frozen=True)
class Program:
    """An executable, and arguments for its function ``main``: an integer and an array."""

    executable: VMExecutable
    number: int
    array: tuple[float, ...]

    def machine(self) -> VirtualMachine:
        """Return a fresh machine."""
        return VirtualMachine(self.executable, cpu())

    def arguments(self) -> tuple[int, Tensor]:
        """Return fresh arguments."""
        return self.number, tensor(np.array(self.array, "float32"))

    def __repr__(self) -> str:
        return f"Program({self.number}, {self.array})\n{self.executable.as_text()}"


class _Writer:
    """Writes the body of one function; knows which registers hold what kind of value for sure."""

    def __init__(self, draw: Any, ib: ExecBuilder, callees: list[str], may_fail: bool) -> None:
        self.draw, self.ib, self.callees, self.may_fail = draw, ib, callees, may_fail
        self.kinds: dict[str, list[int]] = {
            kind: [] for kind in ("int", "tensor", "tuple", "storage", "closure", "shape", "any")
        }
        self.following = 0

    def fresh(self, kind: str | None = None) -> int:
        number = self.following
        self.following += 1
        if kind is not None:
            self.kinds[kind].append(number)
        return number

    def pick(self, kind: str) -> int:
        """Return the word of a value of a kind, most of the time."""
        pool = self.kinds[kind]
        if self.may_fail and self.draw(st.integers(0, 40)) == 0:
            pool = [number for numbers in self.kinds.values() for number in numbers] or pool
        if kind == "int" and (not pool or self.draw(st.booleans())):
            return self.ib.imm(self.draw(st.integers(-3, 3)))
        if not pool:
            return self.ib.void_arg()
        return self.ib.r(self.draw(st.sampled_from(pool)))

    def any_value(self) -> int:
        return self.pick(
            self.draw(st.sampled_from([k for k, v in self.kinds.items() if v] or ["int"]))
        )

    def statement(self, depth: int) -> None:
        choices = [self.integers, self.tensors, self.tuples, self.memory, self.talk, self.overwrite]
        if self.callees:
            choices += [self.call, self.closure]
        if depth < 2:
            choices += [self.branch, self.loop]
        self.draw(st.sampled_from(choices))(depth)

    def body(self, depth: int, most: int, least: int = 0) -> None:
        for _ in range(self.draw(st.integers(least, most))):
            self.statement(depth)

    def integers(self, _: int) -> None:
        name = self.draw(st.sampled_from(["host.iadd", "host.imul", "host.iadd", "host.idiv"]))
        if name == "host.idiv" and not self.may_fail:
            name = "host.imul"
        args = [self.pick("int"), self.pick("int")]
        self.ib.emit_call(name, args, dst=self.fresh("int"))

    def tensors(self, _: int) -> None:
        if self.draw(st.booleans()):
            args = [self.pick("tensor"), self.pick("tensor")]
            self.ib.emit_call("host.tadd", args, dst=self.fresh("tensor"))
        elif self.draw(st.booleans()):
            self.ib.emit_call("host.fill", [self.pick("tensor"), self.pick("int")])
        elif self.draw(st.booleans()):
            self.ib.emit_call("host.first", [self.pick("tensor")], dst=self.fresh("int"))
        else:
            self.ib.emit_call("vm.builtin.shape_of", [self.pick("tensor")], dst=self.fresh("shape"))

    def tuples(self, _: int) -> None:
        make = self.draw(st.booleans()) or not self.kinds["tuple"]
        if make:
            args = [self.any_value() for _ in range(self.draw(st.integers(1, 3)))]
            self.ib.emit_call("vm.builtin.make_tuple", args, dst=self.fresh("tuple"))
            return
        index = self.ib.imm(self.draw(st.integers(0, 2 if self.may_fail else 0)))
        if self.draw(st.booleans()):
            args = [self.pick("tuple"), index]
            self.ib.emit_call("vm.builtin.tuple_getitem", args, dst=self.fresh("any"))
        else:
            self.ib.emit_call("vm.builtin.tuple_reset_item", [self.pick("tuple"), index])

    def memory(self, _: int) -> None:
        ib = self.ib
        if not self.kinds["storage"] or self.draw(st.booleans()):
            args = [ib.vm_state(), ShapeTuple((32,)), ib.imm(0), DataType("uint8")]
            args.append(ib.convert_constant("global"))
            ib.emit_call("vm.builtin.alloc_storage", args, dst=self.fresh("storage"))
        args = [self.pick("storage"), ib.imm(self.draw(st.sampled_from([0, 8, 16])))]
        ib.emit_call(
            "vm.builtin.alloc_tensor",
            [*args, ShapeTuple((2,)), DataType("float32")],
            dst=self.fresh("tensor"),
        )
        # fresh memory holds anything: without an observer it is not even the same twice
        ib.emit_call("host.fill", [ib.r(self.following - 1), self.pick("int")])

    def talk(self, _: int) -> None:
        self.ib.emit_call("host.say", [self.any_value()])

    def overwrite(self, _: int) -> None:
        kind = self.draw(st.sampled_from(["int", "tensor"]))
        if self.kinds[kind]:
            target = self.draw(st.sampled_from(self.kinds[kind]))
            self.ib.emit_call("vm.builtin.copy", [self.pick(kind)], dst=target)
        storages = self.kinds["storage"]
        if storages and self.draw(st.booleans()):
            self.ib.emit_call("vm.builtin.null_value", dst=storages.pop())

    def call(self, _: int) -> None:
        name = self.draw(st.sampled_from(self.callees))
        count = self.ib.imm(self.draw(st.integers(0, 3)))
        if self.draw(st.integers(0, 3)):
            self.ib.emit_call(name, [count, self.pick("tensor")], dst=self.fresh("any"))
        else:
            args = [self.ib.vm_state(), self.ib.convert_constant(name), count, self.pick("tensor")]
            self.ib.emit_call("host.again", args, dst=self.fresh("any"))

    def closure(self, _: int) -> None:
        name = self.draw(st.sampled_from(self.callees))
        bound = self.pick("tensor")
        made = self.fresh("closure")
        self.ib.emit_call("vm.builtin.make_closure", [self.ib.f(name), bound], dst=made)
        count = self.ib.imm(self.draw(st.integers(0, 2)))
        args = [self.ib.vm_state(), self.ib.r(made), count]
        self.ib.emit_call("vm.builtin.invoke_closure", args, dst=self.fresh("any"))

    def branch(self, depth: int) -> None:
        """Write an If with a merged result, as the code generator does."""
        ib = self.ib
        condition = self.fresh()
        ib.emit_call("vm.builtin.read_if_cond", [self.pick("int")], dst=condition)
        merged = self.fresh()
        at = ib.num_instructions
        ib.emit_if(ib.r(condition), 2)
        self.scoped(depth, 3)
        ib.emit_call("vm.builtin.copy", [self.pick("int")], dst=merged)
        goto = ib.num_instructions
        ib.emit_goto(1)
        self.scoped(depth, 3)
        ib.emit_call("vm.builtin.copy", [self.pick("int")], dst=merged)
        ib.set_word(at, 2, goto + 1 - at)
        ib.set_word(goto, 1, ib.num_instructions - goto)
        self.kinds["int"].append(merged)

    def loop(self, depth: int) -> None:
        """Write a loop that counts down to zero."""
        ib = self.ib
        counter = self.fresh()
        start = ib.imm(self.draw(st.integers(0, 3)))
        ib.emit_call("vm.builtin.copy", [start], dst=counter)
        at = ib.num_instructions
        ib.emit_if(ib.r(counter), 2)
        self.scoped(depth, 3)
        ib.emit_call("host.iadd", [ib.r(counter), ib.imm(-1)], dst=counter)
        ib.emit_goto(at - ib.num_instructions)
        ib.set_word(at, 2, ib.num_instructions - at)

    def scoped(self, depth: int, most: int) -> None:
        """Write statements whose new registers are not known afterwards."""
        before = {kind: list(numbers) for kind, numbers in self.kinds.items()}
        self.body(depth + 1, most)
        self.kinds = {
            kind: [number for number in numbers if number in self.kinds[kind]]
            for kind, numbers in before.items()
        }


@st.composite
def programs(draw: Any, may_fail: bool = True) -> Program:
    """Return small valid programs."""
    ib = ExecBuilder()
    names = ["main", "left", "right"][: draw(st.integers(1, 3))]
    for name in names:
        ib.declare_function(name, VMFuncKind.VM_FUNC)
    for position, name in enumerate(names):
        with ib.function(name, 2, ["n", "x"]):
            writer = _Writer(draw, ib, names[position + 1 :], may_fail)
            writer.fresh()  # the counter of a recursion is not touched
            writer.fresh("tensor")
            writer.body(0, 7, least=2)
            if position and draw(st.booleans()):
                ib.emit_if(ib.r(0), 4)
                less, result = writer.fresh(), writer.fresh()
                ib.emit_call("host.iadd", [ib.r(0), ib.imm(-1)], dst=less)
                ib.emit_call(name, [ib.r(less), writer.pick("tensor")], dst=result)
                ib.emit_goto(2)
                ib.emit_call("vm.builtin.copy", [ib.imm(draw(st.integers(0, 9)))], dst=result)
                writer.kinds["any"].append(result)
            word = writer.any_value()
            if word >> 56:
                ib.emit_call("vm.builtin.copy", [word], dst=writer.fresh())
                word = ib.r(writer.following - 1)
            ib.emit_ret(word)
    executable = ib.get()
    executable.import_module(HostLibrary())
    numbers = st.integers(-2, 3)
    array = draw(st.lists(st.floats(-9, 9, width=32), min_size=2, max_size=2))
    return Program(executable, draw(numbers), tuple(array))


@st.composite
def modules(draw: Any) -> RandomModule:
    """Return well-typed modules of operators, branches, tuples, functions and kernels."""
    return RandomModule(draw(st.integers(0, 2**32 - 1)))
