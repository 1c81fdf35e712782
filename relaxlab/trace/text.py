"""A session as text: what the widget shows, for terminals, tests and screen readers.

``print(session)`` draws the frames, the code around the current instruction, the registers with
marks for what changed since another step showed this frame, what the program printed, and one
sentence on what comes next. Marks are symbols, never colour alone. There is no TVM counterpart.

Examples
--------
>>> from relaxlab.runtime.vm.observer import ScalarValue
>>> mark(ScalarValue("int", "1"), ScalarValue("int", "2"))
'*'
"""

from typing import TYPE_CHECKING, Final

from relaxlab.runtime.vm.bytecode import Call, If, Instruction, Ret
from relaxlab.runtime.vm.disassemble import instruction_text
from relaxlab.runtime.vm.executable import VMExecutable
from relaxlab.runtime.vm.observer import Value
from relaxlab.trace.condition import ExpressionError
from relaxlab.trace.explain import explain_events, explain_next, short
from relaxlab.trace.timeline import Frame

if TYPE_CHECKING:
    from relaxlab.trace.debug_session import DebugSession

__all__ = [
    "code_lines",
    "frame_lines",
    "mark",
    "register_lines",
    "render",
    "source_places",
]

_CODE_LINES: Final = 11
_FRAMES: Final = 8
_REGISTERS: Final = 24
_CONSOLE_LINES: Final = 5
_SOURCE_LINES: Final = 5
_NEVER: Final = "None"


def render(session: "DebugSession") -> str:
    """Return the state at the cursor of a session as text, without a final newline."""
    timeline, position = session.timeline, session.position
    more = "" if session.finished else " so far"
    parts = [f"{session.function}: step {position} of {timeline.end}{more}; {session.reason}"]
    if timeline.first_step:
        parts.append(f"(the first {timeline.first_step} steps were dropped)")
    parts += [
        f"EDITED {edit}: from there on this is no run of the program" for edit in session.edits
    ]
    parts += [f"note: {text}" for step, text in session.notes if step == position]
    frame = session.frame
    top = session.top
    if frame is not None and top is not None:
        ex = session.vm.executable
        parts.append("frames")
        parts += frame_lines(top, frame.depth)
        stops = {point.pc for point in session.breakpoints.values() if point.enabled}
        parts.append(f"code of {frame.function}")
        parts += code_lines(ex, frame.pc, stops)
        parts += [f"source {place}" for place in source_places(ex, frame.pc)]
        parts.append(f"registers of #{frame.depth} {frame.function}")
        parts += register_lines(ex, frame, session.previous_registers)
        if session.inside:
            parts.append(f"inside instruction {top.pc}")
            parts += [f"  {name:<6}  {short(text, 100)}" for name, text in session.phases()]
        if session.displays:
            parts.append("displays")
            parts += [f"  {one.text} = {_shown(session, one.text)}" for one in session.displays]
    console = timeline.text(position).splitlines()
    if console:
        parts.append("printed")
        parts += [f"  {line}" for line in console[-_CONSOLE_LINES:]]
    logs = session.logs
    if logs:
        parts.append("logged")
        parts += [f"  step {step}: {line}" for step, line in logs[-_CONSOLE_LINES:]]
    if position > timeline.first_step:
        did = explain_events(timeline.events_of(position - 1))
        if did:
            parts.append(f"done: {did}")
    if top is not None:
        parts.append(f"next: {explain_next(session.vm.executable, top)}")
    return "\n".join(parts)


def _shown(session: "DebugSession", text: str) -> str:
    try:
        return short(repr(session.evaluate(text)))
    except ExpressionError as error:
        return f"({error})"


def frame_lines(top: Frame, selected: int) -> list[str]:
    """Return the call stack, innermost first; ``>`` is the selected frame."""
    lines: list[str] = []
    total = top.depth + 1
    for index, frame in enumerate(top.stack()):
        near = index < _FRAMES - 2 or frame.depth < 2
        if near or frame.depth == selected:
            pointer = ">" if frame.depth == selected else " "
            lines.append(f"  {pointer} #{frame.depth} {frame.function}, instruction {frame.pc}")
        elif index == _FRAMES - 2:
            lines.append(f"      … {total - _FRAMES} more")
    return lines


def code_lines(ex: VMExecutable, pc: int, stops: set[int]) -> list[str]:
    """Return the instructions around ``pc``; ``=>`` is the current one, ``o`` a breakpoint."""
    info = ex.function_at(pc)
    if info is None:
        return [f"  => {pc}"]
    first = max(info.start_instr, min(pc - _CODE_LINES // 2, info.end_instr - _CODE_LINES))
    last = min(info.end_instr, first + _CODE_LINES)
    width = len(str(last - 1))
    lines = []
    if first > info.start_instr:
        lines.append("     …")
    for index in range(first, last):
        arrow = "=>" if index == pc else "  "
        stop = "o" if index in stops else " "
        text = instruction_text(ex, ex.instruction(index))
        lines.append(f" {stop}{arrow} {index:>{width}}  {text}".rstrip())
    if last < info.end_instr:
        lines.append("     …")
    return lines


def source_places(ex: VMExecutable, pc: int) -> list[str]:
    """Return the lines of the program that an instruction runs, with file and number."""
    origin = ex.source_map.get(pc)
    if origin is None:
        return []
    lines = dict.fromkeys(str(place) for place in origin.places)
    more = len(lines) - _SOURCE_LINES
    return [*lines][:_SOURCE_LINES] + ([f"… {more} more"] if more > 0 else [])


def mark(before: Value, now: Value) -> str:
    """Return the change mark of a register: ``+`` new, ``-`` let go, ``*`` changed, or a space."""
    if before == now:
        return " "
    if before.kind == "none":
        return "+"
    return "-" if now.kind == "none" else "*"


def register_lines(ex: VMExecutable, frame: Frame, before: tuple[Value, ...]) -> list[str]:
    """Return the registers of a frame, with marks against what they held ``before``.

    A large frame shows what changed, what the current instruction names, and the first ones.
    """
    index = ex.func_map.get(frame.function)
    names = () if index is None else ex.func_table[index].param_names
    marks = [mark(old, new) for old, new in zip(before, frame.registers, strict=True)]
    chosen = set(range(len(frame.registers)))
    if len(chosen) > _REGISTERS:
        urgent = [number for number, sign in enumerate(marks) if sign != " "][:_REGISTERS]
        chosen = {*urgent, *_named(ex.instruction(frame.pc)) & chosen}
        for number in range(len(frame.registers)):
            if len(chosen) >= _REGISTERS:
                break
            chosen.add(number)
    width = max((len(_label(number, names)) for number in chosen), default=0)
    lines = []
    for number in sorted(chosen):
        value = frame.registers[number]
        text = short(value.text, 100)
        if marks[number] in ("*", "-"):
            text += f"   (was {short(before[number].text, 40)})"
        lines.append(f"  {marks[number]} {_label(number, names):<{width}}  {text}")
    hidden = len(frame.registers) - len(chosen)
    if hidden:
        lines.append(f"    … {hidden} more")
    return lines or ["    none"]


def _label(number: int, names: tuple[str, ...]) -> str:
    return f"%{number} {names[number]}" if number < len(names) else f"%{number}"


def _named(instruction: Instruction) -> set[int]:
    match instruction:
        case Call(dst, _, args):
            return {dst, *(arg.value for arg in args if arg.kind == 0)}
        case Ret(register) | If(register):
            return {register}
        case _:
            return set()
