"""A trace as one small piece of plain data, for a view that replays it without a kernel.

Python records once and sends this; the view scrubs it in the browser, and keeps working in a saved
notebook or an HTML file. Everything repeated is stored once: values and sentences in tables, steps
in columns, registers as changes. :func:`state_at` is the reference for the view's own decoder.
There is no TVM counterpart.

The structure (all of it JSON; ``n`` steps, ``n + 1`` positions):

==============  ===============================================================================
``version``     1
``functions``   ``[name, kind, first pc, end pc, parameter names, registers]`` of each entry
``code``        columns ``pc``, ``text``, ``op``, ``words`` (hexadecimal) and ``operands`` (as in
                the disassembly: ``%1``, ``i-3``, ``c[0]``, ``f[name]``) of visited functions
``constants``   text by index, of the constants that this code names
``values``      table of values, see below
``first_step``  number of the first step; steps before it were dropped
``start``       frames before the first step, outermost first:
                ``[function, pc, return register, [value, ...], [value at entry, ...]]``
``pc``          of each position: the instruction that runs next, -1 if no frame is there
``depth``       of each position: the number of its frame, from 0; -1 if no frame is there
``before``      numbers as in ``ops``, which lead from ``start`` to the first position
``ops``         of each step, one flat list of numbers that leads to the next position:
                ``0, depth, register, value`` writes a register ·
                ``1, function, pc, return register or -1, count, value...`` enters a frame ·
                ``2`` leaves the top frame
``lines``       table of sentences: each a number of a template and what fills its gaps
``templates``   sentences, with ``U+001A`` for each gap; :func:`line_text` fills them
``say``         sentence for each position: what comes next (at the end: the outcome)
``did``         sentence for each step: what it did
``console``     ``[step, text]`` pairs
``outcome``     ``{"result": value}``, ``{"error": type, "message": text}`` or ``{}``
==============  ===============================================================================

A value is a list that begins with its kind: ``[kind, text]``; ``["tensor", dtype, shape, device,
storage, offset, head, tail, minimum, maximum, NaN count, checksum]``;
``["tuple", length, value...]``; ``["storage", number, block, bytes, device]``;
``["function" or "closure", name, value...]``. Elements that a JavaScript number cannot hold are
texts.

Examples
--------
>>> from relaxlab.runtime.vm.executable import VMExecutable
>>> from relaxlab.trace.timeline import Timeline
>>> trace = compact_trace(VMExecutable(), Timeline())
>>> trace["version"], trace["pc"], trace["ops"]
(1, [-1], [])
"""

import re
from collections.abc import Hashable
from typing import Any, Final, assert_never

from relaxlab.runtime.vm.bytecode import Call, If, Opcode, Ret, VMFuncKind, register_name
from relaxlab.runtime.vm.disassemble import arg_text, instruction_text
from relaxlab.runtime.vm.executable import VMExecutable
from relaxlab.runtime.vm.observer import (
    CallFinished,
    Event,
    FramePopped,
    FramePushed,
    FrameState,
    FunctionValue,
    MachineState,
    ObjectValue,
    RegisterEdited,
    RunFailed,
    RunFinished,
    RunStarted,
    ScalarValue,
    StorageValue,
    TensorValue,
    TupleValue,
    Value,
)
from relaxlab.trace.explain import constant_text, explain_events, explain_next
from relaxlab.trace.timeline import Timeline

__all__ = ["VERSION", "compact_trace", "line_text", "state_at"]

VERSION: Final = 1
_WRITE, _ENTER, _LEAVE = 0, 1, 2
_EXACT_IN_JAVASCRIPT: Final = 2**53
_GAP: Final = "\x1a"
_NUMBER: Final = re.compile(r"(?<![\w%.\-])(?:-?[1-9]\d{0,14}|0)(?!\w|\.\d)")
"""Whole numbers between words, written as Python and JavaScript write them."""


def compact_trace(ex: VMExecutable, timeline: Timeline) -> dict[str, Any]:
    """Return a recorded run as plain data; see the module's docstring."""
    tables = _Tables(ex)
    first = timeline.first_step
    start = timeline.start
    trace: dict[str, Any] = {
        "version": VERSION,
        "functions": [
            [
                info.name,
                info.kind,
                info.start_instr,
                info.end_instr,
                list(info.param_names),
                info.register_file_size,
            ]
            for info in ex.func_table
        ],
        "first_step": first,
        "start": [
            [
                tables.function(frame.function),
                frame.pc,
                -1 if frame.return_register is None else frame.return_register,
                [tables.value(value) for value in frame.registers],
                [tables.value(value) for value in frame.entry],
            ]
            for frame in reversed([] if start is None else [*start.stack()])
        ],
    }
    pcs: list[int] = []
    depths: list[int] = []
    ops: list[list[int]] = []
    say: list[int] = []
    did: list[int] = []
    trace["before"] = tables.ops(timeline.preamble)
    for step, top, events in timeline.walk():
        begun = timeline.instruction(step)
        pcs.append(begun.pc)
        depths.append(begun.depth)
        ops.append(tables.ops(events))
        say.append(tables.line(explain_next(ex, top)))
        did.append(tables.line(explain_events(events)))
    last = timeline.top(timeline.end)
    pcs.append(-1 if last is None else last.pc)
    depths.append(-1 if last is None else last.depth)
    newest = timeline.last_event
    ending = explain_events((newest,)) if isinstance(newest, RunFinished | RunFailed) else ""
    say.append(tables.line(ending or explain_next(ex, last)))
    trace |= {"pc": pcs, "depth": depths, "ops": ops, "say": say, "did": did}
    trace["code"], trace["constants"] = _code(ex, set(pcs))
    trace["console"] = [[step, text] for step, text in timeline.console if step >= first]
    trace["outcome"] = tables.outcome(timeline)
    trace["lines"], trace["templates"] = tables.lines, list(tables.templates)
    trace["values"] = tables.values
    return trace


def _code(ex: VMExecutable, visited: set[int]) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """Return the instructions of the functions that were visited, and the constants they name."""
    code: dict[str, list[Any]] = {"pc": [], "text": [], "op": [], "operands": [], "words": []}
    constants: dict[str, str] = {}
    for info in ex.func_table:
        span = range(info.start_instr, info.end_instr)
        if info.kind != VMFuncKind.VM_FUNC or visited.isdisjoint(span):
            continue
        for pc in span:
            instruction = ex.instruction(pc)
            at = int(ex.instr_offset[pc])
            operands: list[str] = []
            match instruction:
                case Call(_, _, args):
                    operands = [arg_text(ex, arg) for arg in args]
                    for arg, text in zip(args, operands, strict=True):
                        if text.startswith("c[") and 0 <= arg.value < len(ex.constants):
                            constants[str(arg.value)] = constant_text(ex.constants[arg.value])
                case Ret(register) | If(register):
                    operands = [register_name(register)]
                case _:
                    pass
            length = 4 + len(operands) if isinstance(instruction, Call) else 2
            length += isinstance(instruction, If)
            code["pc"].append(pc)
            code["text"].append(instruction_text(ex, instruction))
            code["op"].append(Opcode(int(ex.instr_data[at])).name.lower())
            code["operands"].append(operands)
            code["words"].append(
                [f"{word & (2**64 - 1):x}" for word in ex.instr_data[at : at + length].tolist()]
            )
    return code, constants


class _Tables:
    """Stores every value and every sentence once."""

    def __init__(self, ex: VMExecutable) -> None:
        self.values: list[list[Any]] = []
        self.lines: list[list[int]] = []
        self.templates: dict[str, int] = {}
        self._known_lines: dict[str, int] = {}
        self._known: dict[Value, int] = {}
        self._encoded: dict[Hashable, int] = {}
        self._functions = ex.func_map

    def function(self, name: str) -> int:
        return self._functions[name]

    def line(self, text: str) -> int:
        index = self._known_lines.get(text)
        if index is None:
            # a loop says the same with other numbers: the words are stored once
            template = self.templates.setdefault(_NUMBER.sub(_GAP, text), len(self.templates))
            index = self._known_lines[text] = len(self.lines)
            self.lines.append([template, *map(int, _NUMBER.findall(text))])
        return index

    def value(self, value: Value) -> int:
        index = self._known.get(value)
        # 1, 1.0 and True are equal to Python, so tensors that differ in that alone are told apart
        if index is None or isinstance(value, TensorValue | TupleValue | FunctionValue):
            encoded = self._encode(value)
            index = self._encoded.setdefault(repr(encoded), len(self.values))
            if index == len(self.values):
                self.values.append(encoded)
            self._known[value] = index
        return index

    def _encode(self, value: Value) -> list[Any]:
        match value:
            case ScalarValue(kind, text) | ObjectValue(kind, text):
                return [kind, text]
            case TensorValue():
                return [
                    "tensor",
                    value.dtype,
                    list(value.shape),
                    value.device,
                    value.storage,
                    value.offset,
                    [_element(one) for one in value.head],
                    [_element(one) for one in value.tail],
                    _element(value.minimum),
                    _element(value.maximum),
                    value.nan_count,
                    value.checksum,
                ]
            case TupleValue(items, length):
                return ["tuple", length, *map(self.value, items)]
            case StorageValue(storage, block, nbytes, device):
                return ["storage", storage, block, nbytes, device]
            case FunctionValue(kind, name, bound):
                return [kind, name, *map(self.value, bound)]
            case _:
                assert_never(value)

    def ops(self, events: tuple[Event, ...]) -> list[int]:
        flat: list[int] = []
        for event in events:
            match event:
                case (
                    CallFinished(changes=changes)
                    | RunStarted(changes=changes)
                    | RegisterEdited(changes=changes)
                ):
                    for change in changes:
                        flat += [_WRITE, change.depth, change.register, self.value(change.value)]
                case FramePushed(_, _, function, pc, registers, return_register):
                    target = -1 if return_register is None else return_register
                    flat += [_ENTER, self.function(function), pc, target, len(registers)]
                    flat += map(self.value, registers)
                case FramePopped():
                    flat.append(_LEAVE)
                case _:
                    pass
        return flat

    def outcome(self, timeline: Timeline) -> dict[str, Any]:
        match timeline.last_event:
            case RunFinished(depth=0, result=result):
                return {"result": self.value(result)}
            case RunFailed(depth=0, error_type=error_type, message=message):
                return {"error": error_type, "message": message}
            case _:
                return {}


def _element(value: Any) -> Any:
    if type(value) is int and abs(value) > _EXACT_IN_JAVASCRIPT:
        return str(value)
    return value


# ---- the decoder ----------------------------------------------------------------------------


def state_at(trace: dict[str, Any], position: int) -> MachineState:
    """Return the state at a position of a compact trace, as ``Timeline.state`` does.

    Views decode in their own language; this says what they must find.

    Raises
    ------
    IndexError
        If the position is outside the trace.
    """
    first, steps = trace["first_step"], len(trace["ops"])
    if not first <= position <= first + steps:
        raise IndexError(f"position {position} is outside the trace: {first} to {first + steps}")
    frames: list[list[Any]] = [
        [function, pc, target, list(registers)]
        for function, pc, target, registers, _ in trace["start"]
    ]
    _apply(frames, trace["before"])
    for index in range(position - first + 1):
        if index:
            _apply(frames, trace["ops"][index - 1])
        if frames:
            frames[trace["depth"][index]][1] = trace["pc"][index]
    return MachineState(
        position,
        tuple(
            FrameState(
                trace["functions"][function][0],
                pc,
                None if target < 0 else target,
                tuple(_decode(trace, index) for index in registers),
            )
            for function, pc, target, registers in frames
        ),
    )


def line_text(trace: dict[str, Any], index: int) -> str:
    """Return a sentence of a compact trace: entry ``index`` of its table of lines."""
    template, *numbers = trace["lines"][index]
    first, *rest = trace["templates"][template].split(_GAP)
    return str(first) + "".join(f"{n}{words}" for n, words in zip(numbers, rest, strict=True))


def _apply(frames: list[list[Any]], ops: list[int]) -> None:
    at = 0
    while at < len(ops):
        match ops[at]:
            case 0:
                _, depth, register, value = ops[at : at + 4]
                frames[depth][3][register] = value
                at += 4
            case 1:
                _, function, pc, target, count = ops[at : at + 5]
                frames.append([function, pc, target, ops[at + 5 : at + 5 + count]])
                at += 5 + count
            case _:
                frames.pop()
                at += 1


def _decode(trace: dict[str, Any], index: int) -> Value:
    kind, *rest = trace["values"][index]
    match kind:
        case "tensor":
            dtype, shape, device, storage, offset, head, tail, low, high, nans, checksum = rest
            return TensorValue(
                dtype,
                tuple(shape),
                device,
                storage,
                offset,
                tuple(map(_number, head)),
                tuple(map(_number, tail)),
                _number(low),
                _number(high),
                nans,
                checksum,
            )
        case "tuple":
            length, *items = rest
            return TupleValue(tuple(_decode(trace, item) for item in items), length)
        case "storage":
            return StorageValue(*rest)
        case "function" | "closure":
            name, *bound = rest
            return FunctionValue(kind, name, tuple(_decode(trace, item) for item in bound))
        case "vm" | "map" | "object":
            return ObjectValue(kind, *rest)
        case _:
            return ScalarValue(kind, *rest)


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.lstrip("-").isdecimal() else value
