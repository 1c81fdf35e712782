"""What the stepper's page is told beside the trace: watched expressions, and where code comes from.

Python evaluates an expression at every step once, so that the page needs no second evaluator and
shows the same words without a kernel. There is no TVM counterpart.

Examples
--------
>>> from relaxlab.relax.exec_builder import ExecBuilder
>>> from relaxlab.runtime.device import cpu
>>> from relaxlab.runtime.vm import VirtualMachine
>>> from relaxlab.trace import DebugSession
>>> ib = ExecBuilder()
>>> with ib.function("main", 1, ["x"]):
...     ib.emit_ret(ib.r(0))
>>> session = DebugSession(VirtualMachine(ib.get(), cpu()), "main", 7).record()
>>> session.display("x + 1")
>>> display_values(session)
[['x + 1', [0, 1], ['8', '']]]
"""

from typing import Any

from relaxlab.trace import DebugSession
from relaxlab.trace.condition import Expression, ExpressionError
from relaxlab.trace.explain import short
from relaxlab.trace.timeline import Frame

__all__ = ["display_values", "sources_of"]


def display_values(session: DebugSession) -> list[list[Any]]:
    """Return ``[text, [position, ...], [value, ...]]`` of each display of a recorded session.

    A value holds, in the top frame, from its position on until the next one; where no frame is
    there it is empty.
    """
    if not session.displays:
        return []
    tables: list[list[Any]] = [[one.text, [], []] for one in session.displays]
    timeline, ex = session.timeline, session.vm.executable
    names = {info.name: info.param_names for info in ex.func_table}

    def look(position: int, top: Frame | None) -> None:
        for expression, (_, positions, values) in zip(session.displays, tables, strict=True):
            value = "" if top is None else _value(expression, position, top, names[top.function])
            if not values or values[-1] != value:
                positions.append(position)
                values.append(value)

    for step, top, _ in timeline.walk():
        look(step, top)
    look(timeline.end, timeline.top(timeline.end))
    return tables


def _value(expression: Expression, position: int, top: Frame, names: tuple[str, ...]) -> str:
    try:
        return short(repr(expression(top.registers, names, step=position, depth=top.depth)))
    except ExpressionError as error:
        return f"({error})"


def sources_of(session: DebugSession) -> dict[str, list[Any]]:
    """Return ``[places, binding, kernel]`` by instruction, of the functions that were visited.

    ``places`` are lines of the program with file and number, ``binding`` is what the lowered
    program says there, ``kernel`` what it calls (or an empty text).
    """
    ex, timeline = session.vm.executable, session.timeline
    found: dict[str, list[Any]] = {}
    for info in ex.func_table:
        span = range(info.start_instr, info.end_instr)
        if not any(timeline.visits(pc) for pc in span):
            continue
        for pc in span:
            origin = ex.source_map.get(pc)
            if origin is not None:
                places = list(dict.fromkeys(map(str, origin.places)))
                found[str(pc)] = [places, origin.binding, origin.kernel or ""]
    return found
