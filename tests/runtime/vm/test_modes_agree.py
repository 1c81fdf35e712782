"""Every way of running a program gives the same: results, errors, notes, output, memory."""

import contextlib
import io
import random
from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from relaxlab.errors import InternalError
from relaxlab.relax.exec_builder import ExecBuilder
from relaxlab.runtime import DataType, ShapeTuple, VirtualMachine, cpu
from relaxlab.runtime.describe import Describer, TensorValue, TupleValue
from relaxlab.runtime.tensor import tensor
from relaxlab.runtime.vm import Closure, VMExecutable
from relaxlab.runtime.vm.bytecode import VOID_REGISTER, ArgKind, Opcode, VMFuncInfo, pack
from relaxlab.runtime.vm.verify import find_problems
from relaxlab.trace import DebugSession
from tests.fuzz import targets
from tests.strategies import programs

many = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


FLOAT = DataType("float32")


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


# ---- sizes --------------------------------------------------------------------------------------


class SizeKernels:
    """Kernels that work on shape heaps, of which one keeps what it is given."""

    kind = "size kernels"

    def __init__(self):
        self.imports = []
        self.kept = []

    def forgets_arguments(self, name):
        return name in ("shape_func", "clear")

    def get_function(self, name):
        return {
            "shape_func": self.shape_func,
            "keep": self.keep,
            "poke": self.poke,
            "clear": self.clear,
        }.get(name)

    def clear(self, memory):
        memory.array[...] = 0

    def shape_func(self, heap):
        heap.array[1:] = heap.array[:-1] * 2 % 99

    def keep(self, heap):
        if heap is not None:
            self.kept.append(heap)

    def poke(self):
        for heap in self.kept:
            heap.array[0] += 1


def sized(rng):
    """Return a program of checks and sizes, many of which hold."""
    ib = ExecBuilder()
    heaps, shapes = [2, 3], [4, 5, 6]
    secret = rng.random() < 0.7  # whether nobody but kernels sees the heaps
    context = ib.convert_constant(
        'ErrorContext(fn=main, loc=param[0], param=x, annotation=R.Tensor((n, m), "float32")) '
    )
    contexts = [context, context, context, ib.convert_constant(""), ib.imm(3)]

    def pick(words):
        return rng.choice(words)

    def emit(name, *args, dst=None):
        ib.emit_call(name, [int(arg) for arg in args], dst)

    def pairs(codes, rank):
        words = []
        for _ in range(rank):
            words += [ib.imm(rng.choice(codes)), ib.imm(rng.choice([0, 0, 1, 2, 3, 3, 2, 4, -1]))]
        return words

    def statement(depth):
        heap, shape = ib.r(rng.choice(heaps)), rng.choice(shapes)
        match rng.randrange(15):
            case 13 | 14:
                wanted = pick([ib.r(shape)] * 3 + [ib.convert_constant(ShapeTuple((2, 4)))])
                device = ib.imm(pick([0, 0, 0, 0, 1, -1]))
                scope = ib.convert_constant(pick(["global", "global", "", "texture"]))
                dtype = ib.convert_constant(pick([FLOAT, FLOAT, DataType("uint8")]))
                emit(
                    "vm.builtin.alloc_storage", ib.vm_state(), wanted, device, dtype, scope, dst=10
                )
                view = pick([wanted, wanted, wanted, ib.r(pick(shapes))])
                offset = ib.imm(pick([0, 0, 4, -4]))
                words = [ib.r(10), offset, view, dtype] + [scope] * pick([0, 1])
                emit("vm.builtin.alloc_tensor", *words, dst=11)
                emit("clear", ib.r(11))
                emit("vm.builtin.shape_of", ib.r(11), dst=shape)
            case 0:
                size = rng.choice([2, 3, 4, 0, -1]) if rng.random() < 0.3 else 4
                emit(
                    "vm.builtin.alloc_shape_heap",
                    ib.vm_state(),
                    ib.imm(size),
                    dst=rng.choice(heaps),
                )
            case 1 | 2 | 3:
                rank = rng.choice([2, 2, 2, 1, 0])
                value = pick([ib.r(0), ib.r(0), ib.r(0), ib.r(shape), ib.r(1), heap])
                codes = [0, 1, 1, 2, 3] if rng.random() < 0.9 else [4, -1]
                emit(
                    "vm.builtin.match_shape",
                    value,
                    heap,
                    ib.imm(rank),
                    *pairs(codes, rank),
                    pick(contexts),
                )
            case 4 | 5:
                rank = rng.randrange(3)
                codes = [0, 1, 1] if rng.random() < 0.9 else [2]
                emit("vm.builtin.make_shape", heap, ib.imm(rank), *pairs(codes, rank), dst=shape)
            case 6:
                emit("vm.builtin.make_prim_value", heap, *pairs([0, 1, 1], 1), dst=shape)
            case 7:
                emit(
                    "vm.builtin.match_prim_value",
                    ib.r(1),
                    heap,
                    *pairs([0, 1, 1, 3], 1),
                    pick(contexts),
                )
            case 8:
                emit(pick(["shape_func", "shape_func" if secret else "keep"]), heap)
            case 9:
                emit("poke")
            case 10:
                emit("vm.builtin.null_value", dst=rng.choice(heaps))
            case 11:
                dtype = pick(
                    [ib.convert_constant(FLOAT), ib.convert_constant(FLOAT), ib.void_arg()]
                )
                ranks = [ib.imm(2), ib.imm(2), ib.imm(-1), ib.imm(1)]
                emit(
                    "vm.builtin.check_tensor_info",
                    pick([ib.r(0), ib.r(0), ib.r(shape)]),
                    pick(ranks),
                    dtype,
                    pick(contexts),
                )
            case 12 if depth < 2:
                emit("vm.builtin.read_if_cond", ib.r(1), dst=7)
                at = ib.num_instructions
                ib.emit_if(ib.r(7), 2)
                body(depth + 1, 4)
                emit("vm.builtin.copy", ib.r(1), dst=8)
                jump = ib.num_instructions
                ib.emit_goto(1)
                body(depth + 1, 4)
                emit("vm.builtin.copy", ib.r(1), dst=8)
                ib.set_word(at, 2, jump + 1 - at)
                ib.set_word(jump, 1, ib.num_instructions - jump)

    def body(depth, most):
        for _ in range(rng.randint(0, most)):
            statement(depth)

    with ib.function("main", 2):
        for heap in heaps:
            emit("vm.builtin.alloc_shape_heap", ib.vm_state(), ib.imm(4), dst=heap)
        for shape in shapes:
            emit("vm.builtin.make_shape", ib.r(2), ib.imm(2), *map(ib.imm, (0, 2, 0, 3)), dst=shape)
        body(0, 12)
        emit("vm.builtin.make_tuple", *map(ib.r, shapes if secret else shapes + heaps), dst=9)
        ib.emit_ret(ib.r(9))
    return ib.get()


@pytest.mark.parametrize("seed", range(400))
def test_modes_agree_on_sizes(seed):
    executable = sized(random.Random(seed))
    logs = []
    for mode in ("bytecode", "compiled"):
        kernels = SizeKernels()
        executable.imports = [kernels]
        machine = new_machine(executable, mode)
        for number in (1, 0):
            x = tensor(np.zeros((2, 3), "float32"))
            result, *rest = outcome(machine["main"], x, number)
            kept = [heap.array.tolist() for heap in kernels.kept]
            logs.append((result, rest, kept, number))
            kernels.kept.clear()
    assert logs[:2] == logs[2:]


def test_the_sizes_are_of_many_kinds():
    outcomes = []
    inlined = 0
    for seed in range(200):
        executable = sized(random.Random(seed))
        executable.imports = [SizeKernels()]
        machine = new_machine(executable, "compiled")
        outcomes.append(outcome(machine["main"], tensor(np.zeros((2, 3), "float32")), 1)[0])
        inlined += ".item(" in machine.compiled_source("main")
    assert inlined > 40
    good = [one for one in outcomes if not isinstance(one, tuple)]
    assert len(good) > 20
    assert len({one[0] for one in outcomes if isinstance(one, tuple)}) >= 3


# ---- changed programs ---------------------------------------------------------------------------


def stepped(machine, name, arguments):
    """Step a call to its end; None if it takes too long."""
    with machine.start(name, *arguments) as execution:
        for _ in range(1000):
            if not execution.step():
                return execution.result
    return None


def fresh(arguments):
    return [one.copy() if isinstance(one, np.ndarray) else one for one in arguments]


def without_contents(found):
    """Return an outcome without what is in tensors: fresh memory holds anything."""
    result = found[0]
    if isinstance(result, TensorValue):
        result = (result.dtype, result.shape, result.offset)
    elif isinstance(result, TupleValue):
        result = len(result.items)
    return (result, *found[1:3])


@pytest.mark.parametrize("seed", range(20))
def test_modes_agree_on_changed_programs(seed):
    rng = random.Random(seed)
    compared = 0
    while compared < 40:
        data = rng.choice(targets.executables())
        for _ in range(rng.randint(1, 3)):
            with contextlib.suppress(InternalError, ValueError, OverflowError):
                data = targets.mutate_program(rng, data, targets.executables())
        machines = []
        with contextlib.suppress(InternalError, ValueError, TypeError, OverflowError, MemoryError):
            executable = VMExecutable.load_from_bytes(data, verify=rng.random() < 0.7)
            executable.import_module(targets.Careful())
            machines = [new_machine(executable, mode) for mode in ("bytecode", "compiled")]
        for info in executable.func_table if machines else ():
            known = machines[0].program.functions.get(info.name)
            if not isinstance(known, Closure) or info.kind != 1 or not 0 <= info.num_args <= 20:
                continue
            for machine in machines:
                machine.recursion_limit = 200
            arguments = [rng.choice(targets.ARGUMENTS) for _ in range(known.function.num_args)]
            wanted = outcome(stepped, machines[0], info.name, fresh(arguments))
            if wanted[0] == Describer().describe(None):
                continue  # it may have been stopped
            got = outcome(lambda m, n, a: m[n](*a), machines[1], info.name, fresh(arguments))
            if executable.has_function("vm.builtin.alloc_storage"):
                got, wanted = without_contents(got), without_contents(wanted)
            assert got == wanted, (seed, info.name)
            compared += 1


def test_memory_of_arguments_is_compared():
    x = tensor(np.zeros(2, "float32"))
    first = outcome(int, memory=(x,))
    x.array[0] = 1
    assert outcome(int, memory=(x,)) != first
