"""The words a debugging session understands, as typed in a terminal.

One line in, one text out: the terminal program, its tests and notebooks use the same table, and
``help`` is made from it. There is no TVM counterpart; the names follow gdb where it has them.

Examples
--------
>>> from relaxlab.relax.exec_builder import ExecBuilder
>>> from relaxlab.runtime import cpu
>>> from relaxlab.runtime.vm import VirtualMachine
>>> ib = ExecBuilder()
>>> with ib.function("main", 1, ["x"]):
...     ib.emit_ret(ib.r(0))
>>> commands = Commands(DebugSession(VirtualMachine(ib.get(), cpu()), "main", 7))
>>> print(commands.run("where"))
  > #0 main, instruction 0
>>> print(commands.run("step"))
main: step 1 of 1; finished with 7
done: main returned 7 to the host.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from relaxlab.runtime.tensor import Tensor
from relaxlab.trace.debug_session import DebugSession
from relaxlab.trace.text import frame_lines

__all__ = ["COMMANDS", "Command", "CommandError", "Commands"]

_REGISTER: Final = re.compile(r"%?r?(\d+)")
_STORAGE: Final = re.compile(r"s(\d+)")


class CommandError(ValueError):
    """A line is no command, or asks for what is not there."""


@dataclass(frozen=True, slots=True)
class Command:
    """One word: its names, the form of its arguments, a line of help, and what it does."""

    names: tuple[str, ...]
    form: str
    summary: str
    run: Callable[["Commands", str], str]


class Commands:
    """Runs typed commands on a session.

    Parameters
    ----------
    session
        The session.

    Attributes
    ----------
    finished : bool
        Whether ``quit`` was typed.
    """

    def __init__(self, session: DebugSession) -> None:
        self.session = session
        self.finished = False
        self._last = ""

    def run(self, line: str) -> str:
        """Do what a line says and return what to show; an empty line does the last one again.

        Raises
        ------
        CommandError
            If the line is no command, or asks for what is not there. Nothing has changed then.
        """
        line = line.partition("#")[0].strip() or self._last
        if not line:
            return ""
        word, _, rest = line.partition(" ")
        command = _BY_NAME.get(word)
        if command is None:
            raise CommandError(f"unknown command {word!r}; try help")
        try:
            shown = command.run(self, rest.strip())
        except (IndexError, KeyError, ValueError, RuntimeError) as error:
            message = error.args[0] if isinstance(error, KeyError) and error.args else error
            raise CommandError(str(message)) from error
        self._last = line if command.names[0] in _REPEATABLE else ""
        return shown


# ---- moving -----------------------------------------------------------------------------


def _step(commands: Commands, rest: str) -> str:
    return str(commands.session.step(_times(rest)))


def _over(commands: Commands, rest: str) -> str:
    return str(commands.session.over(_times(rest)))


def _out(commands: Commands, rest: str) -> str:
    return str(commands.session.out())


def _back(commands: Commands, rest: str) -> str:
    return str(commands.session.back(_times(rest)))


def _back_over(commands: Commands, rest: str) -> str:
    return str(commands.session.back_over())


def _back_out(commands: Commands, rest: str) -> str:
    return str(commands.session.back_out())


def _continue(commands: Commands, rest: str) -> str:
    return str(commands.session.continue_(_number(rest) if rest else None))


def _reverse_continue(commands: Commands, rest: str) -> str:
    return str(commands.session.reverse_continue())


def _goto(commands: Commands, rest: str) -> str:
    return str(commands.session.goto(_number(rest)))


def _restart(commands: Commands, rest: str) -> str:
    return str(commands.session.restart())


# ---- stopping -------------------------------------------------------------------------------


def _break(commands: Commands, rest: str) -> str:
    place, _, condition = rest.partition(" if ")
    place = place.strip()
    if place.isdecimal():
        made = commands.session.break_at(pc=int(place), condition=condition.strip() or None)
    else:
        name, plus, pc = place.rpartition("+")
        if not (plus and pc.isdecimal()):
            name, pc = place, "0"
        made = commands.session.break_at(name, int(pc), condition=condition.strip() or None)
    return str(made)


def _watch(commands: Commands, rest: str) -> str:
    storage = _STORAGE.fullmatch(rest)
    if storage:
        return str(commands.session.watch_storage(int(storage[1])))
    return str(commands.session.watch(_register(rest)))


def _delete(commands: Commands, rest: str) -> str:
    commands.session.remove(_number(rest))
    return f"removed {rest}"


def _points(commands: Commands, rest: str) -> str:
    session = commands.session
    lines = [
        f"{point}: {point.count(session.position)} hits" for point in session.breakpoints.values()
    ]
    lines += map(str, session.watches.values())
    return "\n".join(lines) or "no breakpoints, no watches"


# ---- looking --------------------------------------------------------------------------------


def _show(commands: Commands, rest: str) -> str:
    return str(commands.session)


def _where(commands: Commands, rest: str) -> str:
    top = commands.session.top
    if top is None:
        return "no frame is there: the program is over"
    return "\n".join(frame_lines(top, commands.session.depth))


def _frame(commands: Commands, rest: str) -> str:
    return str(commands.session.select(_number(rest)))


def _up(commands: Commands, rest: str) -> str:
    return str(commands.session.select(commands.session.depth - 1))


def _down(commands: Commands, rest: str) -> str:
    return str(commands.session.select(commands.session.depth + 1))


def _print(commands: Commands, rest: str) -> str:
    register = _REGISTER.fullmatch(rest)
    if register is None:
        return repr(commands.session.evaluate(rest))
    value = commands.session.value(int(register[1]))
    return repr(value.array if isinstance(value, Tensor) else value)


def _display(commands: Commands, rest: str) -> str:
    commands.session.display(rest)
    return str(commands.session)


def _writer(commands: Commands, rest: str) -> str:
    storage = _STORAGE.fullmatch(rest)
    if storage:
        step = commands.session.last_storage_writer(int(storage[1]))
        return f"no step before this wrote {rest}" if step is None else f"step {step}"
    write = commands.session.last_writer(_register(rest))
    if write is None:
        return f"nothing wrote {rest} in the steps that are kept"
    how = {
        "argument": "as an argument, when the function was entered",
        "result": "as the result of a call",
        "memory": "by writing the memory that it shows",
    }[write.cause]
    return f"step {write.step}, {how}: {write.value.text}"


def _storages(commands: Commands, rest: str) -> str:
    lines = []
    for use in commands.session.timeline.storages(commands.session.position):
        size = "" if use.nbytes is None else f", {use.nbytes} bytes"
        places = ", ".join(f"%{register} of #{depth}" for depth, register in use.registers)
        lines.append(f"s{use.storage}{size}: {places}")
    return "\n".join(lines) or "no register reaches any memory"


def _list(commands: Commands, rest: str) -> str:
    return commands.session.vm.executable.as_text().rstrip("\n")


def _help(commands: Commands, rest: str) -> str:
    rows = [(f"{', '.join(one.names)} {one.form}".rstrip(), one.summary) for one in COMMANDS]
    width = max(len(usage) for usage, _ in rows)
    return "\n".join(f"{usage:<{width}}  {summary}" for usage, summary in rows)


def _quit(commands: Commands, rest: str) -> str:
    commands.finished = True
    return ""


def _times(text: str) -> int:
    return _number(text) if text else 1


def _number(text: str) -> int:
    if not text.isdecimal():
        raise CommandError(f"expected a number, got {text!r}")
    return int(text)


def _register(text: str) -> int:
    match = _REGISTER.fullmatch(text)
    if match is None:
        raise CommandError(f"expected a register such as %3, got {text!r}")
    return int(match[1])


COMMANDS: Final = (
    Command(("step", "s", "into"), "[N]", "run one instruction (or N)", _step),
    Command(("over", "next", "n"), "[N]", "step, but run calls to their end", _over),
    Command(("out", "finish"), "", "run until this function has returned", _out),
    Command(("continue", "c"), "[N]", "run to a breakpoint or the end", _continue),
    Command(("back", "b"), "[N]", "go back one instruction (or N)", _back),
    Command(("back-over", "bn"), "[N]", "go back past whole calls", _back_over),
    Command(("back-out",), "", "go back to the call of this function", _back_out),
    Command(("reverse", "rc"), "", "go back to a breakpoint or the start", _reverse_continue),
    Command(("goto", "g"), "STEP", "move to a step", _goto),
    Command(("restart",), "", "begin again", _restart),
    Command(("break",), "F[+I] [if E]", "stop before instruction I of function F", _break),
    Command(("watch",), "%R or sN", "stop when a register or a memory changes", _watch),
    Command(("delete",), "N", "remove breakpoint or watch N", _delete),
    Command(("points",), "", "list breakpoints and watches", _points),
    Command(("show",), "", "show the state again", _show),
    Command(("where", "bt"), "", "list the frames", _where),
    Command(("frame", "f"), "N", "look at frame N", _frame),
    Command(("up",), "", "look at the caller's frame", _up),
    Command(("down",), "", "look at the callee's frame", _down),
    Command(("print", "p"), "%R or E", "print a whole value, or an expression", _print),
    Command(("display",), "E", "show an expression at every stop", _display),
    Command(("writer", "w"), "%R or sN", "who wrote it last", _writer),
    Command(("storages",), "", "list memory and who sees it", _storages),
    Command(("list",), "", "print the whole program", _list),
    Command(("help", "?", "h"), "", "this list", _help),
    Command(("quit", "q", "exit"), "", "leave", _quit),
)
"""Every command, in the order of ``help``."""

_BY_NAME: Final = {name: command for command in COMMANDS for name in command.names}
_REPEATABLE: Final = {"step", "over", "out", "continue", "back", "back-over", "reverse"}
