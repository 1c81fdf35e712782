"""Check a loaded executable before it runs.

Bytecode from a file may be altered, cut or made by a program with a bug. The verifier proves, for
every path, that each register is written before it is read and that every index is inside its
table, as a WebAssembly engine or a JVM does, so that the run loop needs no such checks. The cost is
linear in the program for ordinary control flow, and bounded for any. Code that can never run is no
problem, but worth a note (:func:`find_notes`). TVM has no counterpart: it checks part of this in
``ExecBuilder.get()`` and nothing when loading.

Examples
--------
>>> from relaxlab.runtime.vm.executable import VMExecutable
>>> find_problems(VMExecutable())
[]
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from relaxlab.errors import InternalError
from relaxlab.runtime.vm.assignment import Flow, undefined_reads, unreachable
from relaxlab.runtime.vm.bytecode import (
    FIRST_SPECIAL_REGISTER,
    VM_REGISTER,
    VOID_REGISTER,
    ArgKind,
    Opcode,
    VMFuncInfo,
    VMFuncKind,
    register_name,
)

if TYPE_CHECKING:
    from relaxlab.runtime.vm.executable import VMExecutable

__all__ = ["Finding", "NOTES", "RULES", "find_notes", "find_problems", "verify_executable"]

RULES: Final = {
    "argument-kind": "an argument word is a register, an immediate, a constant or a function",
    "arity": "a call of a Relax function passes as many arguments as it has parameters",
    "complexity": "the jumps of a function can be followed within a bounded number of steps",
    "constant-index": "a constant index is inside the pool",
    "definite-assignment": "a register is written on every path that leads to a read of it",
    "function-entry": "a table entry has a known kind, a valid range and valid sizes",
    "function-index": "a function index is inside the function table",
    "jump-target": "control stays inside the function: jumps, and the step after an instruction",
    "layout": "instructions follow each other without gaps and fill the data exactly",
    "memory-scope": "a memory scope belongs to a constant of the pool",
    "opcode": "an instruction starts with 1 (Call), 2 (Ret), 3 (Goto) or 4 (If)",
    "register-bounds": "a register number is inside the register file of the function",
    "sentinel": "%void and %vm stand only where they have a meaning",
}
"""What each rule demands, by name."""

NOTES: Final = {
    "unreachable": "some path from the entry of its function leads to an instruction",
}
"""What else is looked at: breaking it does no harm when the program runs."""

_MAX_FINDINGS: Final = 100
_MAX_TABLE_FINDINGS: Final = 1000
_MAX_PARAMETERS: Final = 2**20
_MAX_TIR_REGISTERS: Final = 2**24

_Words = NDArray[np.int64]
_Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule, or one note.

    Attributes
    ----------
    function
        Name of the function, or None for the executable as a whole.
    pc
        Instruction index in the executable, or None.
    word
        Index into ``instr_data``, or None.
    rule
        A name in ``RULES`` or ``NOTES``.
    message
        What was expected and what is there.
    """

    function: str | None
    pc: int | None
    word: int | None
    rule: str
    message: str

    def __str__(self) -> str:
        where = []
        if self.function is not None:
            where.append(f"function {self.function!r}")
        if self.pc is not None:
            where.append(f"instruction {self.pc}")
        if self.word is not None:
            where.append(f"word {self.word}")
        return f"{', '.join(where) or 'executable'}: {self.message} [{self.rule}]"


def verify_executable(ex: "VMExecutable") -> None:
    """Refuse a program that could read an unwritten register or leave its tables.

    Raises
    ------
    InternalError
        With the first findings, each naming function, instruction, word and rule.
    """
    findings = find_problems(ex)
    if findings:
        shown = "\n  ".join(str(finding) for finding in findings[:5])
        more = f"\n  and {len(findings) - 5} more" if len(findings) > 5 else ""
        raise InternalError(
            "the executable is not safe to run (load it with verify=False to look inside):\n"
            f"  {shown}{more}"
        )


def find_problems(ex: "VMExecutable") -> list[Finding]:
    """Return what is wrong with a program, in order of position, at most 100 per rule and place.

    The stages build on each other: a stage with findings is the last one that is run.
    """
    found = [*islice(_table_problems(ex), _MAX_TABLE_FINDINGS)]
    if found:
        return found
    code = _Code(ex)
    for stage in (_layout_problems, _operand_problems, _jump_problems, _assignment_problems):
        found = sorted(stage(ex, code), key=lambda one: (one.pc or 0, one.word or 0))
        if found:
            return found
    return []


def find_notes(ex: "VMExecutable") -> list[Finding]:
    """Return what is odd about a program without problems, in order of position.

    That is code which can never run: no path of its function leads to it, or it belongs to no
    function.
    """
    code = _Code(ex)
    code.opcode = code.data[code.offset]
    ranges: list[tuple[int, int, str | None]] = []
    for info in ex.func_table:
        if info.kind == VMFuncKind.VM_FUNC:
            dead = unreachable(code.flow(info))
            ranges += [(first, end, info.name) for first, end in dead]
    nobody = np.concatenate([[False], code.owner < 0, [False]]).astype(np.int8)
    edges = np.flatnonzero(np.diff(nobody)).tolist()
    ranges += [(a, b, None) for a, b in zip(edges[::2], edges[1::2], strict=True)]
    return [
        Finding(name, first, int(code.offset[first]), "unreachable", _dead_text(first, end, name))
        for first, end, name in sorted(ranges, key=lambda one: one[0])
    ]


def _dead_text(first: int, end: int, function: str | None) -> str:
    one = end == first + 1
    which = f"instruction {first}" if one else f"instructions {first} to {end - 1}"
    if function is None:
        why = f"{'it belongs' if one else 'they belong'} to no function"
    else:
        why = f"no path leads to {'it' if one else 'them'}"
    return f"{which} can never run: {why}"


class _Code:
    """The instruction stream as columns: one NumPy array per field."""

    def __init__(self, ex: "VMExecutable") -> None:
        self.offset: _Words = ex.instr_offset
        self.data: _Words = ex.instr_data
        count = len(self.offset)
        self.end: _Words = np.append(self.offset[1:], len(self.data))[:count]
        self.owner: _Words = np.full(count, -1, dtype=np.int64)
        for index, info in enumerate(ex.func_table):
            if info.kind == VMFuncKind.VM_FUNC:
                self.owner[info.start_instr : info.end_instr] = index
        self.opcode: _Words = np.zeros(count, dtype=np.int64)

    def name(self, ex: "VMExecutable", pc: int) -> str | None:
        owner = int(self.owner[pc])
        return ex.func_table[owner].name if owner >= 0 else None

    def word(self, pcs: _Words, position: int) -> _Words:
        return self.data[self.offset[pcs] + position]

    def is_op(self, opcode: Opcode) -> _Words:
        return np.flatnonzero(self.opcode == opcode)

    def flow(self, info: VMFuncInfo) -> Flow:
        span = slice(info.start_instr, info.end_instr)
        opcode, at = self.opcode[span], self.offset[span]
        false_offset = np.zeros(len(opcode), dtype=np.int64)
        branches = np.flatnonzero(opcode == Opcode.IF)
        false_offset[branches] = self.data[at[branches] + 2]
        return Flow(info.start_instr, opcode, self.data[at + 1], false_offset)


def _table_problems(ex: "VMExecutable") -> Iterator[Finding]:
    total = len(ex.instr_offset)
    ranges = []
    for info in ex.func_table:
        problem = _entry_problem(info, total)
        if problem is not None:
            yield Finding(info.name, None, None, "function-entry", problem)
        elif info.kind == VMFuncKind.VM_FUNC:
            ranges.append((info.start_instr, info.end_instr, info.name))
    ranges.sort()
    for before, after in pairwise(ranges):
        if after[0] < before[1]:
            yield Finding(
                after[2],
                after[0],
                None,
                "function-entry",
                f"its instructions {after[0]} to {after[1] - 1} overlap those of {before[2]!r}",
            )
    for index in ex.memory_scopes:
        if not 0 <= index < len(ex.constants):
            message = f"constant {index} does not exist, the pool has {len(ex.constants)}"
            yield Finding(None, None, None, "memory-scope", message)


def _entry_problem(info: VMFuncInfo, total: int) -> str | None:
    if info.kind == VMFuncKind.PACKED_FUNC:
        return None
    if info.kind not in (VMFuncKind.VM_FUNC, VMFuncKind.VMTIR_FUNC):
        return f"unknown kind {info.kind}, expected 0 (packed), 1 (bytecode) or 2 (compiled)"
    if info.num_args < 0:
        return f"it has {info.num_args} arguments: it was declared, but never defined"
    if info.num_args > _MAX_PARAMETERS:
        return f"{info.num_args} parameters, expected at most {_MAX_PARAMETERS}"
    if info.param_names and len(info.param_names) != info.num_args:
        return f"{len(info.param_names)} parameter names for {info.num_args} parameters"
    if info.kind == VMFuncKind.VMTIR_FUNC:
        if not info.num_args < info.register_file_size <= _MAX_TIR_REGISTERS:
            return (
                f"{info.register_file_size} registers, expected {info.num_args + 1} "
                f"to {_MAX_TIR_REGISTERS}"
            )
        return None
    if not 0 <= info.start_instr < info.end_instr <= total:
        return (
            f"instruction range {info.start_instr} to {info.end_instr}, "
            f"expected a range that is not empty inside 0 to {total}"
        )
    most = info.num_args + info.end_instr - info.start_instr
    if not info.num_args <= info.register_file_size <= most:
        return (
            f"{info.register_file_size} registers, expected {info.num_args} to {most} "
            "(the parameters and at most one for each instruction)"
        )
    return None


def _layout_problems(ex: "VMExecutable", code: _Code) -> Iterator[Finding]:
    """Find instructions that are not where the offsets say; fill in ``code.opcode``."""
    count, size = len(code.offset), len(code.data)
    if count == 0:
        if size:
            yield Finding(None, None, 0, "layout", f"{size} words, but no instruction")
        return
    starts_wrong = code.offset[0] != 0
    length = code.end - code.offset
    bad = np.flatnonzero((length < 2) | (code.offset < 0) | (code.end > size))
    if starts_wrong or len(bad):
        pc = 0 if starts_wrong else int(bad[0])
        at = int(code.offset[pc])
        yield Finding(
            code.name(ex, pc),
            pc,
            at,
            "layout",
            f"the instruction covers words {at} to {int(code.end[pc]) - 1}, expected at least "
            f"2 words that follow the instruction before, inside {size} words",
        )
        return
    code.opcode = code.data[code.offset]
    for pc in np.flatnonzero((code.opcode < Opcode.CALL) | (code.opcode > Opcode.IF))[
        :_MAX_FINDINGS
    ].tolist():
        message = f"unknown opcode {int(code.opcode[pc])}"
        yield Finding(code.name(ex, pc), pc, int(code.offset[pc]), "opcode", message)
    calls = code.is_op(Opcode.CALL)
    expected = np.full(count, 2, dtype=np.int64)
    expected[code.opcode == Opcode.IF] = 3
    expected[calls] = 4
    long_enough = calls[length[calls] >= 4]
    # a count near the limits of int64 must not wrap around into a plausible length
    arguments = np.clip(code.word(long_enough, 3), -1, size + 1)
    expected[long_enough] = np.where(arguments < 0, -1, 4 + arguments)
    for pc in np.flatnonzero(expected != length)[:_MAX_FINDINGS].tolist():
        if Opcode.CALL <= code.opcode[pc] <= Opcode.IF:
            wanted = int(expected[pc])
            yield Finding(
                code.name(ex, pc),
                pc,
                int(code.offset[pc]),
                "layout",
                f"{Opcode(int(code.opcode[pc])).name.title()} has {int(length[pc])} words, "
                f"expected {wanted if wanted >= 0 else 'a count of arguments from 0'}",
            )


def _arguments(code: _Code) -> tuple[_Words, _Words, _Words, _Words]:
    """Return all argument words: their instruction, position, kind and value."""
    calls = code.is_op(Opcode.CALL)
    counts = code.word(calls, 3)
    pcs = np.repeat(calls, counts)
    first = np.cumsum(counts) - counts
    within = np.arange(len(pcs), dtype=np.int64) - np.repeat(first, counts)
    at = code.offset[pcs] + 4 + within
    words = code.data[at]
    return pcs, at, (words >> 56) & 0xFF, (words << 8) >> 8


def _operand_problems(ex: "VMExecutable", code: _Code) -> Iterator[Finding]:
    table = ex.func_table
    owned = code.owner >= 0
    kinds: _Words = np.array([info.kind for info in table], dtype=np.int64)
    sizes: _Words = np.array([info.register_file_size for info in table], dtype=np.int64)
    arity: _Words = np.array([info.num_args for info in table], dtype=np.int64)

    def findings(mask: _Flags, pcs: _Words, at: _Words, rule: str, text: Any) -> Iterator[Finding]:
        for i in np.flatnonzero(mask)[:_MAX_FINDINGS].tolist():
            pc = int(pcs[i])
            yield Finding(code.name(ex, pc), pc, int(at[i]), rule, text(i))

    def registers(
        pcs: _Words, at: _Words, numbers: _Words, allowed: tuple[int, ...], role: str
    ) -> Iterator[Finding]:
        special = numbers >= FIRST_SPECIAL_REGISTER
        misplaced = special & ~np.isin(numbers, np.array(allowed, dtype=np.int64))
        yield from findings(
            misplaced,
            pcs,
            at,
            "sentinel",
            lambda i: f"{register_name(int(numbers[i]))} cannot be {role}",
        )
        limit = sizes[code.owner[pcs]]
        yield from findings(
            ~special & ((numbers < 0) | (numbers >= limit)),
            pcs,
            at,
            "register-bounds",
            lambda i: f"register {int(numbers[i])} as {role}, the function has {int(limit[i])}",
        )

    calls = code.is_op(Opcode.CALL)
    calls = calls[owned[calls]]
    callee, count, dst = code.word(calls, 2), code.word(calls, 3), code.word(calls, 1)
    at = code.offset[calls]
    missing = (callee < 0) | (callee >= len(table))
    yield from findings(
        missing,
        calls,
        at + 2,
        "function-index",
        lambda i: f"callee {int(callee[i])} does not exist, the table has {len(table)} entries",
    )
    both = (VOID_REGISTER, VM_REGISTER)
    yield from registers(calls, at + 1, dst, both, "a destination")
    if len(table):
        known = np.where(missing, 0, callee)
        relax = ~missing & (kinds[known] != VMFuncKind.PACKED_FUNC)
        yield from findings(
            relax & (arity[known] != count),
            calls,
            at + 3,
            "arity",
            lambda i: (
                f"{table[int(callee[i])].name!r} is called with {int(count[i])} arguments, "
                f"it has {int(arity[callee[i]])} parameters"
            ),
        )
        dropped = ~missing & (kinds[known] == VMFuncKind.VM_FUNC) & (dst >= FIRST_SPECIAL_REGISTER)
        # a well-formed table is certain here, a well-formed callee is not: see _gives_nothing
        empty = [i for i in np.unique(callee[dropped]).tolist() if _gives_nothing(ex, code, i)]
        yield from findings(
            dropped & ~np.isin(callee, np.array(empty, dtype=np.int64)),
            calls,
            at + 1,
            "sentinel",
            lambda i: (
                f"the result of the Relax function {table[int(callee[i])].name!r} "
                f"needs a register, got {register_name(int(dst[i]))}"
            ),
        )

    pcs, at, kind, value = _arguments(code)
    inside = owned[pcs]
    pcs, at, kind, value = pcs[inside], at[inside], kind[inside], value[inside]
    yield from findings(
        kind > ArgKind.FUNC_IDX,
        pcs,
        at,
        "argument-kind",
        lambda i: f"unknown argument kind {int(kind[i])}",
    )
    yield from findings(
        (kind == ArgKind.CONST_IDX) & ((value < 0) | (value >= len(ex.constants))),
        pcs,
        at,
        "constant-index",
        lambda i: f"constant {int(value[i])} does not exist, the pool has {len(ex.constants)}",
    )
    yield from findings(
        (kind == ArgKind.FUNC_IDX) & ((value < 0) | (value >= len(table))),
        pcs,
        at,
        "function-index",
        lambda i: f"function {int(value[i])} does not exist, the table has {len(table)} entries",
    )
    is_register = kind == ArgKind.REGISTER
    yield from registers(pcs[is_register], at[is_register], value[is_register], both, "an argument")

    for opcode, allowed, role in (
        (Opcode.RET, both, "a result"),
        (Opcode.IF, (), "a condition"),
    ):
        reads = code.is_op(opcode)
        reads = reads[owned[reads]]
        yield from registers(reads, code.offset[reads] + 1, code.word(reads, 1), allowed, role)


def _gives_nothing(ex: "VMExecutable", code: _Code, index: int) -> bool:
    """Whether every Ret of a function returns None or an empty tuple for certain.

    Compilers call a function of that type with a void destination. (TVM's machine fails when such
    a call returns; ours drops the result.)
    """
    info = ex.func_table[index]
    low, high = info.start_instr, info.end_instr
    data, names = code.data, [entry.name for entry in ex.func_table]
    writers: dict[int, list[int]] = {}
    pending: list[int] = []
    for at, opcode in zip(code.offset[low:high].tolist(), code.opcode[low:high], strict=True):
        if opcode == Opcode.CALL:
            writers.setdefault(int(data[at + 1]), []).append(at)
        elif opcode == Opcode.RET:
            pending.append(int(data[at + 1]))
    seen: set[int] = set()
    while pending:
        register = pending.pop()
        if register in seen or register == VOID_REGISTER:
            continue
        seen.add(register)
        if register < info.num_args or register not in writers:
            return False
        for at in writers[register]:
            callee, count = int(data[at + 2]), int(data[at + 3])
            name = names[callee] if 0 <= callee < len(names) else ""
            if name == "vm.builtin.copy" and count == 1 and data[at + 4] <= VOID_REGISTER:
                pending.append(int(data[at + 4]))
            elif count or name not in ("vm.builtin.null_value", "vm.builtin.make_tuple"):
                return False
    return True


def _jump_problems(ex: "VMExecutable", code: _Code) -> Iterator[Finding]:
    starts = np.array([info.start_instr for info in ex.func_table], dtype=np.int64)
    ends = np.array([info.end_instr for info in ex.func_table], dtype=np.int64)
    pcs = np.flatnonzero(code.owner >= 0)
    if not len(pcs):
        return
    opcode, owner = code.opcode[pcs], code.owner[pcs]
    low, high = starts[owner], ends[owner]
    falls = (opcode == Opcode.CALL) | (opcode == Opcode.IF)
    for i in np.flatnonzero(falls & (pcs + 1 >= high))[:_MAX_FINDINGS].tolist():
        pc = int(pcs[i])
        yield Finding(
            code.name(ex, pc),
            pc,
            int(code.offset[pc]),
            "jump-target",
            "control runs off the end of the function: expected a Ret or a Goto at the end",
        )
    for opcode_, position in ((Opcode.GOTO, 1), (Opcode.IF, 2)):
        at = np.flatnonzero(opcode == opcode_)
        jump = code.word(pcs[at], position)
        # compare distances, so that a huge offset cannot wrap around
        outside = (jump < low[at] - pcs[at]) | (jump >= high[at] - pcs[at])
        wrong = outside | (jump == 0 if opcode_ == Opcode.GOTO else jump < 2)
        for i in np.flatnonzero(wrong)[:_MAX_FINDINGS].tolist():
            pc = int(pcs[at[i]])
            least = "not 0" if opcode_ == Opcode.GOTO else "from 2"
            yield Finding(
                code.name(ex, pc),
                pc,
                int(code.offset[pc]) + position,
                "jump-target",
                f"a jump of {int(jump[i])} instructions, expected a target among instructions "
                f"{int(low[at[i]])} to {int(high[at[i]]) - 1} and an offset {least}",
            )


def _assignment_problems(ex: "VMExecutable", code: _Code) -> Iterator[Finding]:
    """Check that registers are written before they are read, on every path."""
    pcs, at, kind, value = _arguments(code)
    is_read = (kind == ArgKind.REGISTER) & (value < FIRST_SPECIAL_REGISTER)
    others = np.flatnonzero((code.opcode == Opcode.RET) | (code.opcode == Opcode.IF))
    numbers = code.word(others, 1)
    plain = numbers < FIRST_SPECIAL_REGISTER
    read_pc = np.concatenate([pcs[is_read], others[plain]])
    read_at = np.concatenate([at[is_read], code.offset[others[plain]] + 1])
    read_register = np.concatenate([value[is_read], numbers[plain]])
    order = np.lexsort((read_at, read_pc))
    read_pc, read_at, read_register = read_pc[order], read_at[order], read_register[order]
    write_pc = code.is_op(Opcode.CALL)
    write_register = code.word(write_pc, 1)
    kept = write_register < FIRST_SPECIAL_REGISTER
    write_pc, write_register = write_pc[kept], write_register[kept]
    for info in ex.func_table:
        if info.kind != VMFuncKind.VM_FUNC:
            continue
        reads = slice(*np.searchsorted(read_pc, [info.start_instr, info.end_instr]).tolist())
        writes = slice(*np.searchsorted(write_pc, [info.start_instr, info.end_instr]).tolist())
        local = read_register[reads] >= info.num_args  # parameters are always written
        pcs, places, registers = (one[reads][local] for one in (read_pc, read_at, read_register))
        found = undefined_reads(
            code.flow(info),
            info.register_file_size,
            pcs,
            registers,
            write_pc[writes],
            write_register[writes],
        )
        if found is None:
            message = "its jumps are too entangled to check that registers are written before use"
            yield Finding(info.name, info.start_instr, None, "complexity", message)
            continue
        for i in found[:_MAX_FINDINGS].tolist():
            message = (
                f"register %{int(registers[i])} is read, but some path to here does not write it"
            )
            yield Finding(info.name, int(pcs[i]), int(places[i]), "definite-assignment", message)
