"""The command line: ``relaxlab COMMAND ...``.

Why it exists: everything the package does for a reader should be one command away from a terminal,
with one style of help, of errors and of exit codes. TVM's counterpart is ``tvmc``.

A command is one module (or package) of this package, named as it is typed; ``relaxlab dis`` is
``relaxlab/cli/dis.py``. To add one, add one file. Nothing else is registered: its name is its file
name, the summary in ``relaxlab --help`` is the first line of its docstring, and it is imported only
when it is run. A name with a leading underscore is no command. The module has three names:

``EXAMPLE : str``
    One or more command lines, shown under ``examples:`` by ``--help``.
``configure(parser: argparse.ArgumentParser) -> None``
    Adds the arguments.
``run(args: argparse.Namespace) -> int``
    Does the work and returns the exit code: 0, or 1 for "ran, and the answer is no".

A user's mistake (no such file, a bad argument, a refused program) is any exception: raise
:class:`Mistake` where no better class exists. It becomes one line on standard error and exit code
2 for a :class:`Mistake` or a mistyped command line, 1 for everything else; ``--debug`` shows the
traceback instead. Ctrl-C and a supervisor's SIGTERM unwind like an exception, so that whatever is
being written is taken back; they end in 130 and 143.

Examples
--------
>>> main(["--version"])
relaxlab 0.1.0
0
"""

import _thread
import argparse
import ast
import io
import os
import pkgutil
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FrameType, ModuleType
from typing import Final, NoReturn

import relaxlab

__all__ = ["Mistake", "Stopped", "command_names", "main", "summary", "whole_parser"]

_DESCRIPTION = "A glass-box Relax: compiler, virtual machine and paged KV cache you can look into."
# What ends a program that does not listen; Windows has the first only.
_ENDINGS: Final = ("SIGTERM", "SIGHUP")
_AGAIN_SECONDS: Final = 0.01


class Mistake(Exception):  # noqa: N818 - the user's, not the program's
    """What the user asked for cannot be done; the message says what to do instead."""


class Stopped(KeyboardInterrupt):
    """A signal other than Ctrl-C asked to stop; it unwinds as Ctrl-C does.

    Attributes
    ----------
    number
        The signal's.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _Done(Exception):  # noqa: N818 - argparse wants to stop, successfully
    """Help or the version was printed."""


class _Parser(argparse.ArgumentParser):
    """An ``ArgumentParser`` which raises instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        """Refuse the command line in one line, where argparse would print the usage too."""
        raise Mistake(f"{message} (see {self.prog} --help)")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Stop after printing help or the version."""
        raise _Done(message or "")


def command_names() -> list[str]:
    """Every command, sorted: the modules of this package without a leading underscore."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted(name for name in names if not name.startswith("_"))


def summary(name: str) -> str:
    """Return the first line of a command's docstring, read without importing the command.

    Raises
    ------
    Mistake
        If there is no such command.
    """
    spec = find_spec(f"{__name__}.{name}")
    if spec is None or spec.origin is None:
        raise Mistake(f"no command {name!r}")
    docstring = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8")))
    return (docstring or "").partition("\n")[0].rstrip(".")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code.

    Parameters
    ----------
    argv
        The words after ``relaxlab``; ``sys.argv[1:]`` when None.

    Returns
    -------
    int
        0 for success, 1 for a failure, 2 for a mistaken command line, 128 and the number of the
        signal that stopped it (130 for Ctrl-C).
    """
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words[: words.index("--")] if "--" in words else "--debug" in words
    _mend_streams()
    try:
        with _stoppable():
            code = _dispatch(words)
            # Here, and not when Python ends: a full disk is an error like any other.
            sys.stdout.flush()
            return code
    except KeyboardInterrupt as stop:
        _settle_output()
        number = _number(stop)
        by = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        print(f"relaxlab: stopped by {by}", file=sys.stderr)
        return 128 + number
    except BrokenPipeError:
        _settle_output()
        return 0  # the reader went away: `relaxlab dis x | head`
    except Exception as error:  # noqa: BLE001 - the one place where every failure becomes a line
        _settle_output()
        if debug:
            traceback.print_exc()
        else:
            print(f"relaxlab: {_one_line(error)}", file=sys.stderr)
        return 2 if isinstance(error, Mistake) else 1


def _settle_output() -> None:
    """Write what is left to standard output, or drop it where nothing can be written.

    Otherwise Python would try again when it ends, and complain in its own way.
    """
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(words: list[str]) -> int:
    names = command_names()
    # Only the command that is run gets imported, so that `relaxlab dis` never loads a compiler.
    name = next((word for word in words if not word.startswith("-")), None)
    parser, sub_parsers = _root_parser(names)
    try:
        if name not in names:
            parser.parse_args(words)
            parser.print_help()
            return 0
        command = import_module(f"{__name__}.{name}")
        _configure(sub_parsers.choices[name], command)
        args, unknown = parser.parse_known_args(words)
        if unknown:
            # argparse would send the reader to the help of the root, which does not list them
            sub_parsers.choices[name].error(f"unrecognized arguments: {' '.join(unknown)}")
    except _Done:
        return 0
    code: int = command.run(args)
    return code


def whole_parser() -> argparse.ArgumentParser:
    """Return the parser of every command, each imported: what a completion script is made from."""
    parser, sub_parsers = _root_parser(command_names())
    for name, sub_parser in sub_parsers.choices.items():
        _configure(sub_parser, import_module(f"{__name__}.{name}"))
    return parser


def _mend_streams() -> None:
    """Let a closed stream be an empty one, and let no text be refused for its characters."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            empty = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - for good
            setattr(sys, name, empty)
        elif mode == "w" and isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            # a console with a small alphabet, a file name that is not UTF-8
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def _stoppable() -> Iterator[None]:
    """Make other endings unwind as Ctrl-C does, and let none of them get lost."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may listen
        return
    hook = sys.unraisablehook
    timers: list[threading.Timer] = []

    def again(lost: "sys.UnraisableHookArgs") -> None:
        # Raised while a `__del__` ran, where Python drops whatever is raised: ask once more.
        if isinstance(lost.exc_value, KeyboardInterrupt):
            timer = threading.Timer(
                _AGAIN_SECONDS, _thread.interrupt_main, [_number(lost.exc_value)]
            )
            timers.append(timer)
            timer.start()
        else:
            hook(lost)

    def end(number: int, _: FrameType | None) -> None:
        raise Stopped(number)

    numbers = [getattr(signal, name) for name in _ENDINGS if hasattr(signal, name)]
    # One that is ignored (`nohup`) or has an owner stays as it is.
    ours = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, end)
    sys.unraisablehook = again
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
        sys.unraisablehook = hook
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _number(stop: KeyboardInterrupt) -> int:
    return stop.number if isinstance(stop, Stopped) else signal.SIGINT


def _root_parser(
    names: list[str],
) -> tuple[_Parser, "argparse._SubParsersAction[_Parser]"]:
    parser = _Parser(
        prog="relaxlab",
        description=_DESCRIPTION,
        epilog="examples:\n  relaxlab lab\n  relaxlab doctor",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"relaxlab {relaxlab.__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    sub_parsers = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    for name in names:
        sub_parsers.add_parser(
            name,
            help=summary(name),
            description=summary(name) + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    return parser, sub_parsers


def _configure(parser: argparse.ArgumentParser, command: ModuleType) -> None:
    lines = "\n".join(f"  {line}" for line in command.EXAMPLE.strip().splitlines())
    parser.epilog = f"examples:\n{lines}"
    # SUPPRESS: `relaxlab --debug dis` must not be undone by the sub-parser's default.
    parser.add_argument(
        "--debug",
        action="store_true",
        default=argparse.SUPPRESS,
        help="show the traceback of an error",
    )
    command.configure(parser)


def _one_line(error: Exception) -> str:
    """Squeeze an error into one line; the class is named where the message would not explain it."""
    if isinstance(error, OSError) and error.strerror:
        named = f": {error.filename}" if error.filename is not None else ""
        return f"{error.strerror}{named}"
    message = " ".join(str(error).split())
    if isinstance(error, MemoryError):
        return f"not enough memory: {message or 'ask for less'}"
    if not message or isinstance(error, KeyError | AttributeError | AssertionError):
        return f"{type(error).__name__}: {message} (--debug shows where)"
    return message
