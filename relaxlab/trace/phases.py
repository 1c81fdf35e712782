"""What happens inside one instruction: fetch, decode, read, call, write.

One step of the machine is one instruction, but a beginner asks what an instruction is made of. The
phases are told in words from what was recorded, so they are what this very step did. The page makes
the same lines from the compact trace (``static/replay.js``), and a test compares the two. There is
no TVM counterpart.

Examples
--------
>>> from relaxlab.runtime.vm.executable import VMExecutable
>>> from relaxlab.trace.timeline import Timeline
>>> phases_of(VMExecutable(), Timeline(), 0)
[]
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from relaxlab.runtime.vm.bytecode import (
    Arg,
    ArgKind,
    Call,
    Goto,
    If,
    Instruction,
    Ret,
    VMFuncKind,
    register_name,
)
from relaxlab.runtime.vm.disassemble import arg_text, function_name, instruction_text
from relaxlab.runtime.vm.executable import VMExecutable
from relaxlab.runtime.vm.observer import (
    CallFinished,
    FramePushed,
    RegisterChange,
    RegisterEdited,
    RunStarted,
)
from relaxlab.trace.explain import constant_text
from relaxlab.trace.timeline import Frame, Timeline

__all__ = ["BUILTINS", "Phase", "is_builtin_call", "phases_of"]

BUILTINS: Final = "vm.builtin."
"""How the names of the machine's own functions begin."""

_WORDS: Final = 8


class Phase(NamedTuple):
    """One phase: its name, and what it did."""

    name: str
    text: str


def is_builtin_call(ex: VMExecutable, pc: int) -> bool:
    """Whether an instruction calls one of the machine's own functions."""
    instruction = ex.instruction(pc)
    return isinstance(instruction, Call) and function_name(ex, instruction.func_idx).startswith(
        BUILTINS
    )


def phases_of(ex: VMExecutable, timeline: Timeline, position: int) -> list[Phase]:
    """Return the phases of the step at a position; none at the end, where no step runs.

    Parameters
    ----------
    ex
        The program.
    timeline
        A recording; the phases of a step that has not run yet end with ``read``.
    position
        Number of the step.
    """
    top = timeline.top(position)
    if top is None:
        return []
    instruction = ex.instruction(top.pc)
    phases = [
        Phase("fetch", f"instruction {top.pc} of {top.function}: {_words(ex, top.pc)}"),
        Phase("decode", " ".join(instruction_text(ex, instruction).split())),
        Phase("read", ", ".join(_read(ex, top, instruction)) or "nothing"),
    ]
    if position < timeline.end:
        phases.append(Phase("call", _called(ex, top, instruction)))
        phases.append(Phase("write", _written(timeline, position, top)))
    return phases


def _words(ex: VMExecutable, pc: int) -> str:
    """Return the words of an instruction in hexadecimal."""
    at = int(ex.instr_offset[pc])
    match ex.instruction(pc):
        case Call(args=args):
            length = 4 + len(args)
        case If():
            length = 3
        case _:
            length = 2
    shown = [f"0x{word & (2**64 - 1):x}" for word in ex.instr_data[at : at + length].tolist()]
    more = f" … ({length} words)" if length > _WORDS else ""
    return " ".join(shown[:_WORDS]) + more


def _read(ex: VMExecutable, top: Frame, instruction: Instruction) -> Iterator[str]:
    """Yield what is read besides the instruction itself, each once."""
    seen = set()
    match instruction:
        case Call(args=args):
            sources = args
        case Ret(number) | If(number):
            sources = (Arg(ArgKind.REGISTER, number),)
        case _:
            sources = ()
    for arg in sources:
        name = arg_text(ex, arg)
        if name in seen:
            continue
        seen.add(name)
        if arg.kind == ArgKind.REGISTER and 0 <= arg.value < len(top.registers):
            yield f"{name} = {top.registers[arg.value].text}"
        elif arg.kind == ArgKind.CONST_IDX and 0 <= arg.value < len(ex.constants):
            yield f"{name} = {constant_text(ex.constants[arg.value])}"


def _called(ex: VMExecutable, top: Frame, instruction: Instruction) -> str:
    match instruction:
        case Call(_, index, _):
            name = function_name(ex, index)
            inside = 0 <= index < len(ex.func_table)
            if inside and ex.func_table[index].kind == VMFuncKind.VM_FUNC:
                return f"the Relax function {name}: a frame is pushed"
            return name
        case Ret():
            return f"nothing: the frame of {top.function} is left"
        case Goto() | If():
            return "nothing"


def _written(timeline: Timeline, step: int, top: Frame) -> str:
    """Return the registers that a step wrote, and which instruction is next."""
    parts: list[str] = []
    for event in timeline.events_of(step):
        match event:
            case (
                CallFinished(changes=changes)
                | RunStarted(changes=changes)
                | RegisterEdited(changes=changes)
            ):
                parts += [_change(change, top.depth) for change in changes]
            case FramePushed(function=function):
                parts.append(f"the registers of a new frame of {function}")
            case _:
                pass
    after = timeline.top(step + 1)
    following = (
        "the run is over"
        if after is None
        else f"instruction {after.pc} of {after.function} is next"
    )
    return f"{', '.join(parts) or 'no register'}; {following}"


def _change(change: RegisterChange, depth: int) -> str:
    where = "" if change.depth == depth else f" of #{change.depth}"
    return f"{register_name(change.register)}{where} = {change.value.text}"
