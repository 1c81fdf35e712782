"""Places and changes at which a session stops.

Both know every step at which they fired, so a session asks the same question forwards and
backwards, and a hit count is the number of hits up to the cursor. There is no TVM counterpart.

Examples
--------
>>> point = Breakpoint(1, pc=5, place="main+2")
>>> point.hits += [3, 8]
>>> point.stops(8)
'breakpoint 1 at main+2, hit 2'
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from relaxlab.runtime.vm.observer import Value
from relaxlab.trace.condition import Expression, ExpressionError
from relaxlab.trace.timeline import Frame, Timeline

__all__ = ["Breakpoint", "LogText", "Stop", "Watch"]

_REGISTER: Final = re.compile(r"[%r](\d+)")
_GAP: Final = re.compile(r"\{([^{}]*)\}")


class LogText:
    """What a log point writes: a text with expressions in braces, such as ``"n is {r0}"``.

    Raises
    ------
    ExpressionError
        If what is in a pair of braces is no expression.

    Examples
    --------
    >>> LogText("step {step}")((), step=3)
    'step 3'
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._gaps = {gap: Expression(gap) for gap in _GAP.findall(text)}

    def __call__(
        self, registers: Sequence[Value], names: Sequence[str] = (), **variables: object
    ) -> str:
        """Return the line for a frame; an expression that has no value there says so in it."""

        def filled(match: re.Match[str]) -> str:
            try:
                value = self._gaps[match[1]](registers, names, **variables)
            except ExpressionError as error:
                whole = _register_named(match[1].strip(), registers, names)
                return f"({error})" if whole is None else whole.text
            return str(value)

        return _GAP.sub(filled, self.text)


class Stop(NamedTuple):
    """Where a command ends, and why."""

    position: int
    reason: str


def _register_named(text: str, registers: Sequence[Value], names: Sequence[str]) -> Value | None:
    """Return what a register holds that is named alone: a tensor has no value, but a text."""
    found = _REGISTER.fullmatch(text)
    number = int(found[1]) if found else names.index(text) if text in names else len(registers)
    return registers[number] if number < len(registers) else None


@dataclass(slots=True)
class Breakpoint:
    """Stops before an instruction.

    Attributes
    ----------
    number
        How it is called.
    pc, place
        The instruction: its index in the executable, and in words.
    condition
        It counts only where this is true; one that has no value there counts too, and says so.
    ignore
        How many hits to pass by.
    enabled
        Whether it stops; hits are counted anyway.
    log
        Makes it a log point: it stops nothing, and writes this line instead.
    hits
        Every step at which it was hit.
    logged
        The lines it wrote, by step.
    """

    number: int
    pc: int
    place: str
    condition: Expression | None = None
    ignore: int = 0
    enabled: bool = True
    log: LogText | None = None
    hits: list[int] = field(default_factory=list)
    logged: dict[int, str] = field(default_factory=dict)
    _problems: dict[int, str] = field(default_factory=dict)

    def reach(self, position: int, top: Frame, names: Sequence[str]) -> None:
        """Note that the instruction was reached, in order of position."""
        if self.condition is not None:
            try:
                if not self.condition(
                    top.registers, names, step=position, depth=top.depth, hits=len(self.hits)
                ):
                    return
            except ExpressionError as error:
                self._problems[position] = str(error)
        if self.log is not None and len(self.hits) >= self.ignore:
            self.logged[position] = self.log(
                top.registers, names, step=position, depth=top.depth, hits=len(self.hits)
            )
        self.hits.append(position)

    def forget(self) -> None:
        """Forget the hits: the program begins again."""
        self.hits.clear()
        self.logged.clear()
        self._problems.clear()

    def count(self, position: int) -> int:
        """Return how often it was hit up to (and at) a position."""
        return bisect_right(self.hits, position)

    def stops(self, position: int) -> str | None:
        """Return why a session stops at a position, or None if it does not."""
        index = bisect_left(self.hits, position)
        if self.log is not None or not self.enabled or index < self.ignore:
            return None
        if self.hits[index : index + 1] != [position]:
            return None
        problem = self._problems.get(position)
        ending = f", condition failed: {problem}" if problem else ""
        return f"breakpoint {self.number} at {self.place}, hit {index + 1}{ending}"

    def __str__(self) -> str:
        kind = "breakpoint" if self.log is None else "log point"
        parts = [f"{kind} {self.number} at {self.place} (instruction {self.pc})"]
        if self.condition is not None:
            parts.append(f"if {self.condition.text}")
        if self.ignore:
            parts.append(f"after {self.ignore} hits")
        if self.log is not None:
            parts.append(f"writes {self.log.text!r}")
        if not self.enabled:
            parts.append("disabled")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Watch:
    """Stops at a change of one register of one frame, or of one piece of memory.

    ``frame`` is the number of a frame (see ``Frame.number``) and a register.
    """

    number: int
    text: str
    frame: tuple[int, int] | None = None
    storage: int | None = None

    def fires(self, timeline: Timeline, step: int) -> bool:
        """Whether a step changes what is watched."""
        if self.frame is not None:
            writes = timeline.writes(*self.frame)
            index = bisect_right(writes, step, key=lambda write: write.step) - 1
            if index < 0 or writes[index].step != step:
                return False
            return index == 0 or writes[index].value != writes[index - 1].value
        if self.storage is None:
            return False
        steps = timeline.memory_writes(self.storage)
        index = bisect_left(steps, step)
        return index < len(steps) and steps[index] == step

    def __str__(self) -> str:
        return f"watch {self.number} of {self.text}"
