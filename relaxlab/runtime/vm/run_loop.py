"""The loop that runs linked instructions.

This is the living definition of what bytecode means: everything else that runs Relax functions
must agree with it. A call of a Relax function pushes a frame and goes on in the same loop, so
recursion costs memory and never Python's stack. The loop is a generator: when somebody steps, it
stops before every instruction, and when nobody does it never stops and runs at full speed.
Counterpart: ``VirtualMachineImpl::RunLoop`` of TVM.

Examples
--------
>>> from relaxlab.runtime.device import cpu
>>> from relaxlab.runtime.vm.bytecode import VMFuncInfo
>>> from relaxlab.runtime.vm.executable import VMExecutable
>>> from relaxlab.runtime.vm.virtual_machine import VirtualMachine
>>> identity = VMExecutable([VMFuncInfo(1, "f", 0, 1, 1, 1)], (), {}, [0], [2, 0])
>>> vm = VirtualMachine(identity, cpu())
>>> frame = new_frame(vm, vm.program.functions["f"].function, (7,), None)
>>> list(run_loop(vm, [frame], None, None)), frame.result
([], 7)
"""

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, Final

from relaxlab.errors import InternalError
from relaxlab.runtime.container import Array
from relaxlab.runtime.vm.builtin.table import shown
from relaxlab.runtime.vm.disassemble import instruction_text
from relaxlab.runtime.vm.frame import Closure, Frame, LinkedFunction
from relaxlab.runtime.vm.instrument import Hooks
from relaxlab.runtime.vm.linker import CALL, GOTO, IF, INVOKE, RET, TRAP
from relaxlab.runtime.vm.watch import Watch

if TYPE_CHECKING:
    from relaxlab.runtime.vm.virtual_machine import VirtualMachine

__all__ = ["MAX_NOTES", "location", "new_frame", "run_loop", "unwind"]

MAX_NOTES: Final = 8
"""How many frames an error names."""


def run_loop(
    machine: "VirtualMachine",
    frames: list[Frame],
    watch: Watch | None,
    hooks: Hooks | None,
    below: int = 0,
) -> Generator[None]:
    """Run until the only frame of ``frames`` returns, and leave its value in ``frame.result``.

    With a ``watch`` it stops before every instruction; ``hooks`` are told and asked at the points
    that they define. On an error all frames are popped and the error passes through. ``below`` is
    how many frames of compiled functions are under the first one.
    """
    limit = machine.recursion_limit
    watched = watch is not None or hooks is not None
    frame = frames[-1]
    code, registers, pc = frame.function.code, frame.registers, frame.pc
    try:
        while True:
            operation, target, read, slot = code[pc]
            if watched:
                if watch is not None:
                    frame.pc = pc
                    watch.instruction(frame)
                    yield
            elif operation == CALL:  # most instructions of most runs, so without a detour
                result = target(*read(registers))
                if slot is not None:
                    registers[slot] = result
                pc += 1
                continue

            if operation == CALL or (operation == INVOKE and _is_host_call(read(registers))):
                arguments = read(registers)
                if hooks is None:
                    result = target(*arguments)
                else:
                    frame.pc = pc
                    result = hooks.call(frame, target, arguments)
                if slot is not None:
                    registers[slot] = result
                pc += 1
                if hooks is not None:
                    hooks.finished(frame, result, slot, pc)

            elif operation == IF:
                condition = registers[slot]
                if not isinstance(condition, int):  # a bool is an int
                    raise bad_condition(condition, slot)
                if hooks is not None:
                    hooks.branched(frame, slot, condition, target)
                pc = pc + 1 if condition else target

            elif operation == GOTO:
                if hooks is not None:
                    hooks.jumped(frame, target)
                pc = target

            elif operation == RET:
                result = registers[slot]
                if hooks is not None:
                    frame.pc = pc
                    hooks.returned(frame, result)
                callee = frames.pop()
                if not frames:
                    frame.result = result
                    return
                frame, slot = frames[-1], callee.return_slot
                code, registers, pc = frame.function.code, frame.registers, frame.pc
                if slot is not None:
                    registers[slot] = result
                elif result is not None and not _is_unit(result):
                    raise lost_result(callee.function, result)
                if hooks is not None:
                    hooks.left(result)
                    hooks.finished(frame, result, slot, pc + 1)
                pc += 1

            elif operation != TRAP:  # ENTER, or INVOKE of a closure
                frame.pc = pc
                arguments = read(registers)
                if hooks is not None:
                    arguments = hooks.entering(frame, target, arguments)
                    if arguments is None:  # an instrument asked not to run it
                        if slot is not None:
                            registers[slot] = None
                        pc += 1
                        hooks.finished(frame, None, slot, pc, skipped=True)
                        continue
                if operation == INVOKE:
                    _, closure, *given = arguments
                    target, arguments = closure.function, (*given, *closure.bound)
                if len(frames) + below >= limit:
                    raise too_deep(limit, target)
                frame = new_frame(machine, target, arguments, slot)
                frames.append(frame)
                code, registers, pc = target.code, frame.registers, frame.pc
                if hooks is not None:
                    hooks.entered(frame)

            else:
                error, message = target  # a trap: what is wrong was found when linking
                raise error(message)
    except GeneratorExit:
        unwind(frames, watch, None)
        raise
    except BaseException as raised:
        frame.pc = pc
        if below:
            machine.noted_frames = len(frames)
        unwind(frames, watch, raised, below)
        raise


def new_frame(
    machine: "VirtualMachine",
    function: LinkedFunction,
    arguments: Sequence[Any],
    return_slot: int | None,
) -> Frame:
    """Return a frame with the arguments in the first registers."""
    if len(arguments) != function.num_args:
        raise wrong_arity(function, len(arguments))
    registers = function.template.copy()
    registers[: function.num_args] = arguments
    registers[function.machine_slot] = machine
    return Frame(function, registers, return_slot)


def unwind(
    frames: list[Frame], watch: Watch | None, error: BaseException | None, below: int = 0
) -> None:
    """Pop every frame; ``error`` gets notes on where it passes through.

    Of the ``below`` compiled frames only the number is told here, if the notes are used up.
    """
    if error is not None:
        for frame in frames[: -MAX_NOTES - 1 : -1]:
            error.add_note(location(frame))
        more = len(frames) + below - MAX_NOTES
        if len(frames) >= MAX_NOTES and more > 0:
            error.add_note(f"  … and {more} frames below")
        if watch is not None:
            watch.error_raised(frames[-1], error)
    while frames:
        frame = frames.pop()
        if watch is not None:
            watch.popped(frame, unwound=True)


def _is_host_call(arguments: Sequence[Any]) -> bool:
    """Whether arguments of ``vm.builtin.invoke_closure`` name no closure: no frame is needed."""
    return type(arguments[1]) is not Closure


def _is_unit(value: Any) -> bool:
    return isinstance(value, Array) and not value


def location(frame: Frame) -> str:
    """Return the note that an error gets at a frame."""
    return f"  in @{frame.function.name}, instruction {frame.instruction}{_text(frame)}"


def _text(frame: Frame) -> str:
    executable = frame.function.executable
    if executable is None or not 0 <= frame.instruction < executable.num_instructions:
        return ""
    try:
        instruction = executable.instruction(frame.instruction)
    except InternalError:  # it cannot be decoded, which the error says already
        return ""
    return f": {instruction_text(executable, instruction)}"


def wrong_arity(function: LinkedFunction, given: int) -> InternalError:
    """Return the error for a call with another number of arguments."""
    names = f" ({', '.join(function.param_names)})" if function.param_names else ""
    return InternalError(
        f"function {function.name!r} expects {function.num_args} arguments{names}, got {given}"
    )


def too_deep(limit: int, function: LinkedFunction) -> RecursionError:
    """Return the error for a call beyond the recursion limit."""
    return RecursionError(
        f"calling {function.name!r} would make more than {limit} frames; if the recursion is "
        "meant to be that deep, raise vm.recursion_limit"
    )


def bad_condition(condition: Any, slot: int) -> TypeError:
    """Return the error for an If on another value than a number."""
    from_kind = shown(condition)
    return TypeError(f"If: register %{slot}: expected an int or a bool, got {from_kind}")


def lost_result(function: LinkedFunction, result: Any) -> InternalError:
    """Return the error for a result that has no destination."""
    return InternalError(
        f"function {function.name!r} returned {shown(result)}, but the call has destination %void: "
        "expected None or an empty tuple; give the call a destination register"
    )
