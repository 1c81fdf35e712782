"""One plain-English line for every step.

A reader who does not know the opcodes yet can follow a program by these lines alone: what the next
instruction is going to do with the values that are there, and what the last one did. The text twin
and the views show the same lines. There is no TVM counterpart.

Examples
--------
>>> from relaxlab.runtime.vm.bytecode import Goto
>>> from relaxlab.runtime.vm.executable import VMExecutable
>>> explain_instruction(VMExecutable(), 7, Goto(-3), ())
'Go back to instruction 4.'
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.tensor import Tensor
from relaxlab.runtime.vm.bytecode import (
    FIRST_SPECIAL_REGISTER,
    VM_REGISTER,
    VOID_REGISTER,
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
from relaxlab.runtime.vm.disassemble import function_name
from relaxlab.runtime.vm.executable import VMExecutable
from relaxlab.runtime.vm.observer import (
    Branched,
    CallFinished,
    ErrorRaised,
    Event,
    FramePushed,
    GraphCaptured,
    GraphReplayed,
    Jumped,
    RegisterEdited,
    Returned,
    RunFailed,
    RunFinished,
    ScalarValue,
    StorageValue,
    TensorValue,
    Value,
)
from relaxlab.trace.timeline import Frame

__all__ = ["constant_text", "explain_events", "explain_instruction", "explain_next", "short"]

_WIDTH: Final = 60


def short(text: str, width: int = _WIDTH) -> str:
    """Return ``text`` on one line, cut to ``width``."""
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1] + "…"


def constant_text(value: object) -> str:
    """Return a constant of the pool in a few words."""
    match value:
        case Tensor():
            elements = value.array.reshape(-1)
            shown = ", ".join(str(one) for one in elements[:4].tolist())
            more = ", …" if elements.size > 4 else ""
            return f"{value.dtype}[{', '.join(map(str, value.shape))}] [{shown}{more}]"
        case ShapeTuple():
            return f"shape {tuple.__repr__(value)}"
        case DataType():
            return str(value) or "void"
        case _:
            return short(repr(value))


def explain_instruction(
    ex: VMExecutable,
    pc: int,
    instruction: Instruction,
    registers: Sequence[Value],
    caller: str | None = None,
    return_register: int | None = None,
) -> str:
    """Return what an instruction is going to do.

    Parameters
    ----------
    ex, pc, instruction
        The program, and the instruction at index ``pc``.
    registers
        What the registers hold; may be empty.
    caller, return_register
        Where a Ret goes: the function below, and its register; None for the host.
    """
    match instruction:
        case Goto(offset):
            return f"Go {'back' if offset < 0 else 'on'} to instruction {pc + offset}."
        case If(cond, offset):
            value = _value(registers, cond)
            where = f"instruction {pc + offset}"
            if not isinstance(value, ScalarValue) or value.kind not in ("int", "bool"):
                return f"Go on if {_register(registers, cond)} is not 0, else go to {where}."
            if value.text in ("0", "False"):
                return f"{_register(registers, cond)}, so go to {where}."
            return f"{_register(registers, cond)}, so go on with the next instruction."
        case Ret(result):
            if caller is None:
                return f"Return {_register(registers, result)} to the host."
            target = "" if return_register is None else f", into its %{return_register}"
            return f"Return {_register(registers, result)} to {caller}{target}."
        case Call(dst, func_idx, args):
            name = function_name(ex, func_idx)
            words = [_operand(ex, registers, arg) for arg in args]
            known = _PHRASES.get(name)
            if known is not None:
                count, phrase = known
                if len(words) >= count:
                    return f"{phrase(words)}{_into(dst)}."
            is_relax = (
                0 <= func_idx < len(ex.func_table)
                and ex.func_table[func_idx].kind == VMFuncKind.VM_FUNC
            )
            what = f"Enter the Relax function {name}" if is_relax else f"Call {name}"
            given = f" with {_listed(words)}" if words else ""
            return f"{what}{given}{_into(dst)}."


def explain_next(ex: VMExecutable, top: Frame | None) -> str:
    """Return what the current instruction of the top frame is going to do; empty without one."""
    if top is None:
        return ""
    return explain_instruction(
        ex,
        top.pc,
        ex.instruction(top.pc),
        top.registers,
        None if top.below is None else top.below.function,
        top.return_register,
    )


def explain_events(events: Iterable[Event]) -> str:
    """Return what a step did; an empty text for a step without a result."""
    said = ""
    for event in events:
        match event:
            case ErrorRaised(_, _, _, _, error_type, message):
                return f"{error_type}: {short(message, 120)}"
            case GraphCaptured(_, _, index, _, kernels):
                said = f"Captured {_launches(kernels)} as graph {index}; nothing was launched."
            case GraphReplayed(_, _, index, _, kernels):
                said = f"Replayed graph {index}: one launch in place of {_launches(kernels)}."
            case CallFinished(callee="vm.builtin.cuda_graph.run_or_capture") if said:
                pass
            case CallFinished(_, _, _, callee, result, destination, changes, _, skipped):
                if skipped:
                    said = f"An instrument skipped {callee}."
                elif destination is not None:
                    said = f"{callee} gave %{destination} = {short(result.text)}."
                else:
                    others = sorted({f"%{change.register}" for change in changes})
                    said = f"{callee} is done."
                    if others:
                        verb = "shows" if len(others) == 1 else "show"
                        said = f"{callee} changed what {_listed(others)} {verb}."
            case Jumped(_, _, _, next_pc):
                said = f"Went to instruction {next_pc}."
            case Branched(_, _, _, register, _, taken, next_pc):
                answer = "true" if taken else "false"
                said = f"%{register} was {answer}: went to instruction {next_pc}."
            case FramePushed(_, _, function) if not said:
                said = f"Entered {function}."
            case Returned(_, _, _, _, value):
                said = f"Returned {short(value.text)}."
            case RunFinished(_, _, function, result):
                said = f"{function} returned {short(result.text)} to the host."
            case RegisterEdited(_, _, function, register, changes):
                given = short(changes[-1].value.text)
                said = f"{said} EDITED: %{register} of {function} was set to {given}.".strip()
            case RunFailed(_, _, _, error_type, message):
                said = f"{error_type}: {short(message, 120)}"
            case _:
                pass
    return said


def _launches(kernels: Sequence[str]) -> str:
    return "1 launch" if len(kernels) == 1 else f"{len(kernels)} launches"


def _value(registers: Sequence[Value], number: int) -> Value | None:
    return registers[number] if 0 <= number < len(registers) else None


def _register(registers: Sequence[Value], number: int) -> str:
    if number >= FIRST_SPECIAL_REGISTER:
        return {VOID_REGISTER: "nothing", VM_REGISTER: "the machine"}.get(
            number, register_name(number)
        )
    value = _value(registers, number)
    if value is None:
        return f"%{number}"
    if isinstance(value, StorageValue):
        return f"%{number} (storage s{value.storage})"
    if isinstance(value, TensorValue):
        return f"%{number} ({value.dtype}[{', '.join(map(str, value.shape))}])"
    return f"%{number} = {short(value.text)}"


def _operand(ex: VMExecutable, registers: Sequence[Value], arg: Arg) -> str:
    match arg.kind:
        case ArgKind.REGISTER:
            return _register(registers, arg.value)
        case ArgKind.IMMEDIATE:
            return str(arg.value)
        case ArgKind.CONST_IDX:
            if 0 <= arg.value < len(ex.constants):
                return constant_text(ex.constants[arg.value])
            return f"c[{arg.value}]"
        case ArgKind.FUNC_IDX:
            return f"the function {function_name(ex, arg.value)}"


def _into(dst: int) -> str:
    if dst >= FIRST_SPECIAL_REGISTER:
        return ""
    return f"; the result goes to %{dst}"


def _listed(words: Sequence[str]) -> str:
    if len(words) <= 2:
        return " and ".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


_PHRASES: Final[Mapping[str, tuple[int, Callable[[list[str]], str]]]] = {
    "vm.builtin.alloc_shape_heap": (2, lambda a: f"Make room for {a[1]} symbolic sizes"),
    "vm.builtin.alloc_storage": (
        4,
        lambda a: f"Allocate a storage for {a[1]} of {a[3]} on device {a[2]}",
    ),
    "vm.builtin.alloc_tensor": (
        4,
        lambda a: f"View {a[0]} from byte {a[1]} as a tensor of {a[2]} and {a[3]}",
    ),
    "vm.builtin.call_tir_dyn": (1, lambda a: f"Call {a[0]} with {_listed(a[1:])}"),
    "vm.builtin.check_func_info": (1, lambda a: f"Check that {a[0]} is a function"),
    "vm.builtin.check_prim_value_info": (2, lambda a: f"Check that {a[0]} is of type {a[1]}"),
    "vm.builtin.check_shape_info": (2, lambda a: f"Check that {a[0]} is a shape of rank {a[1]}"),
    "vm.builtin.check_string_info": (1, lambda a: f"Check that {a[0]} is a string"),
    "vm.builtin.check_tensor_info": (
        3,
        lambda a: f"Check that {a[0]} is a tensor of rank {a[1]} and dtype {a[2]}",
    ),
    "vm.builtin.check_tuple_info": (2, lambda a: f"Check that {a[0]} is a tuple of {a[1]}"),
    "vm.builtin.copy": (1, lambda a: f"Take {a[0]} (the same value, nothing is copied)"),
    "vm.builtin.cuda_graph.get_cached_alloc": (
        3,
        lambda a: f"Take the memory of graphs, number {a[2]}; {a[1]} allocates it the first time",
    ),
    "vm.builtin.cuda_graph.run_or_capture": (
        4,
        lambda a: f"Replay graph {a[3]} of {a[1]}, or capture it",
    ),
    "vm.builtin.invoke_closure": (2, lambda a: f"Invoke {a[1]} with {_listed(a[2:]) or 'nothing'}"),
    "vm.builtin.make_closure": (1, lambda a: f"Bind {_listed(a[1:]) or 'nothing'} to {a[0]}"),
    "vm.builtin.make_shape": (1, lambda a: f"Build a shape from the sizes in {a[0]}"),
    "vm.builtin.make_tuple": (0, lambda a: f"Make a tuple of {_listed(a) or 'nothing'}"),
    "vm.builtin.match_prim_value": (1, lambda a: f"Match {a[0]} with the symbolic sizes"),
    "vm.builtin.match_shape": (1, lambda a: f"Match the shape of {a[0]} with the symbolic sizes"),
    "vm.builtin.null_value": (0, lambda a: "Take None, which lets go of what was there"),
    "vm.builtin.read_if_cond": (1, lambda a: f"Read the condition in {a[0]}"),
    "vm.builtin.reshape": (2, lambda a: f"View {a[0]} with {a[1]}"),
    "vm.builtin.shape_of": (1, lambda a: f"Take the shape of {a[0]}"),
    "vm.builtin.tuple_getitem": (2, lambda a: f"Take element {a[1]} of {a[0]}"),
    "vm.builtin.tuple_reset_item": (2, lambda a: f"Clear element {a[1]} of {a[0]}"),
}
"""Sentences for builtins that every compiled program uses: least number of operands, and text."""
