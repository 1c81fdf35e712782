"""Every way of running a program gives the same: results, errors, notes, output, memory."""

import contextlib
import io
import random
from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from relaxlab.runtime import VirtualMachine, cpu
from relaxlab.runtime.describe import Describer
from relaxlab.runtime.tensor import tensor
from relaxlab.runtime.vm import VMExecutable
from relaxlab.runtime.vm.bytecode import VOID_REGISTER, ArgKind, Opcode, VMFuncInfo, pack
from relaxlab.runtime.vm.verify import find_problems
from relaxlab.trace import DebugSession
from tests.strategies import programs

many = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def outcome(action, *args, memory=()):
    """Return what a call gives, prints, raises and says about the way, and leaves in memory."""
    printed = io.StringIO()
    notes = []
    with contextlib.redirect_stdout(printed):
        try:
            result = Describer().describe(action(*args))
        except Exception as error:  # noqa: BLE001  # any error of the program is an outcome
            result = (type(error), str(error))
            notes = getattr(error, "__notes__", [])
    return result, printed.getvalue(), notes, [array.numpy().tolist() for array in memory]


def run_in(mode, machine, name, arguments):
    """Run a function in one of the modes."""
    match mode:
        case "compiled" | "bytecode":
            return machine[name](*arguments)
        case "observed":
            machine.observer = [].append
            return machine[name](*arguments)
        case "instrumented":
            machine.set_instrument(lambda *_: 0)
            return machine[name](*arguments)
        case "profiled":
            return machine.profile(name, *arguments).result
        case "stepped":
            with machine.start(name, *arguments) as execution:
                while execution.step():
                    pass
                return execution.result


def note_call(calls, _, name, before, *__):
    calls.append((name, before))


MODES = ("bytecode", "compiled", "observed", "instrumented", "profiled", "stepped")


def new_machine(executable, mode):
    exec_mode = "compiled" if mode == "compiled" else "bytecode"
    return VirtualMachine(executable, cpu(), exec_mode=exec_mode)


@many
@given(programs())
def test_modes_agree_on_random_programs(program):
    outcomes = {}
    for mode in MODES:
        machine = new_machine(program.executable, mode)
        arguments = program.arguments()
        got = outcome(run_in, mode, machine, "main", arguments, memory=arguments[1:])
        machine.observer = None
        machine.set_instrument(None)
        # the machine is as good as new, whatever happened
        fresh = program.arguments()
        again = outcome(machine["main"], *fresh, memory=fresh[1:])
        outcomes[mode] = (got, again)
    session = DebugSession(
        new_machine(program.executable, "compiled"), "main", *program.arguments()
    )
    with contextlib.redirect_stdout(io.StringIO()):
        while not session.at_end:
            session.continue_()
        session.goto(0)
        while not session.at_end:
            session.continue_()
    if session.error is not None:
        replayed = (type(session.error), str(session.error))
    else:
        replayed = Describer().describe(session.result)
    for mode in MODES:
        assert outcomes[mode] == outcomes["bytecode"], mode
    assert replayed == outcomes["bytecode"][0][0]


@many
@given(programs())
def test_a_machine_in_compiled_mode_can_be_watched(program):
    logs = []
    for mode in ("bytecode", "compiled"):
        machine, events, calls = new_machine(program.executable, mode), [], []
        arguments = program.arguments()
        before = outcome(machine["main"], *arguments, memory=arguments[1:])
        machine.observer = events.append
        machine.set_instrument(partial(note_call, calls))
        arguments = program.arguments()
        logs.append((before, outcome(machine["main"], *arguments), events, calls))
    assert logs[0] == logs[1]


# ---- jumps of any kind ---------------------------------------------------------------------------

STEPS = 150


class TicksOverError(Exception):
    """The program runs for too long."""


class Ticker:
    """Host functions of the programs below; every one of them counts."""

    kind = "ticker"

    def __init__(self):
        self.imports = []
        self.log = []

    def get_function(self, name):
        return {"add": self.add, "flip": self.flip, "fail": self.fail}.get(name)

    def tick(self, *what):
        self.log.append(what)
        if len(self.log) > STEPS:
            raise TicksOverError(f"after {what}")

    def add(self, a, b):
        self.tick("add", a, b)
        return (int(a or 0) + int(b or 0)) % 7

    def flip(self, a):
        self.tick("flip", a)
        return [not a] if a == 6 else not a

    def fail(self, a):
        self.tick("fail", a)
        if a == 5:
            raise ValueError("five")


def jumpy(rng):
    """Return an executable of random jumps; every way around a cycle calls a host function."""
    count, registers, params = rng.randint(1, 14), 4, rng.randint(0, 2)
    words, offsets = [], []

    def emit(*values):
        offsets.append(len(words))
        words.extend(int(value) for value in values)

    def operand():
        kind = rng.choice([ArgKind.REGISTER, ArgKind.REGISTER, ArgKind.IMMEDIATE])
        if kind is ArgKind.REGISTER and rng.random() < 0.05:
            return pack(kind, VOID_REGISTER)
        return pack(
            kind, rng.randrange(registers) if kind is ArgKind.REGISTER else rng.randint(-2, 7)
        )

    def call():
        dst = rng.choice([VOID_REGISTER, *range(registers), *range(registers)])
        match rng.randrange(7):
            case 0 | 1:
                emit(Opcode.CALL, dst, 1, 2, operand(), operand())
            case 2:
                emit(Opcode.CALL, dst, 2, 1, operand())
            case 3:
                emit(Opcode.CALL, dst, 3, 1, operand())
            case 4:
                emit(Opcode.CALL, dst, 4, 1, operand())
            case 5:
                emit(Opcode.CALL, dst, 5, 2, operand(), operand())
            case 6:
                emit(Opcode.CALL, dst, 0, params, *(operand() for _ in range(params)))

    base = registers if rng.random() < 0.6 else 0
    for register in range(base):  # else registers may be read before they are written
        emit(Opcode.CALL, register, 4, 1, pack(ArgKind.IMMEDIATE, register))
    # an even instruction ticks, so that no cycle goes on for ever
    emit(Opcode.CALL, VOID_REGISTER, 1, 2, operand(), operand())
    for index in range(1, 2 * count):
        if index % 2 == 0:
            arguments = [operand() for _ in range(2)]
            callee = rng.choice([1, 1, 1, 1, 2, 3])
            count_of = 2 if callee == 1 else 1
            dst = rng.choice([VOID_REGISTER, *range(registers)])
            emit(Opcode.CALL, dst, callee, count_of, *arguments[:count_of])
            continue
        match rng.randrange(8):
            case 0 | 1 | 2:
                emit(Opcode.IF, rng.randrange(registers), rng.randint(2, 9))
            case 3 | 4:
                target = 2 * rng.randint(0, count)
                emit(Opcode.GOTO, target - index)
            case 5:
                emit(Opcode.RET, rng.randrange(registers))
            case _:
                call()
    emit(Opcode.RET, rng.randrange(registers))
    table = [
        VMFuncInfo(1, "main", 0, len(offsets), params, registers),
        VMFuncInfo(0, "add"),
        VMFuncInfo(0, "flip"),
        VMFuncInfo(0, "fail"),
        VMFuncInfo(0, "vm.builtin.copy"),
        VMFuncInfo(0, "vm.builtin.make_tuple"),
    ]
    return VMExecutable(table, (), {}, offsets, words)


def run_jumpy(executable, mode, seed):
    ticker = Ticker()
    executable.imports = [ticker]
    machine = new_machine(executable, mode)
    machine.recursion_limit = 1 + seed % 90
    arguments = [seed % 3] * executable.func_table[0].num_args
    logs = []
    for _ in range(2):
        ticker.log.clear()
        logs.append((outcome(run_in, mode, machine, "main", arguments), list(ticker.log)))
        machine.observer = None
        machine.set_instrument(None)
    return logs


@pytest.mark.parametrize("seed", range(400))
def test_modes_agree_on_any_jumps(seed):
    executable = jumpy(random.Random(seed))
    wanted = run_jumpy(executable, "bytecode", seed)
    assert run_jumpy(executable, "compiled", seed) == wanted
    if seed % 8 == 0:
        for mode in MODES[2:]:
            assert run_jumpy(executable, mode, seed)[0] == wanted[0]


def test_the_jumps_are_of_many_kinds():
    accepted = sum(not find_problems(jumpy(random.Random(seed))) for seed in range(400))
    outcomes = {
        str(run_jumpy(jumpy(random.Random(seed)), "compiled", seed)[0][0][0])[:20]
        for seed in range(100)
    }
    assert accepted > 60
    assert len(outcomes) > 6


def test_memory_of_arguments_is_compared():
    x = tensor(np.zeros(2, "float32"))
    first = outcome(int, memory=(x,))
    x.array[0] = 1
    assert outcome(int, memory=(x,)) != first
