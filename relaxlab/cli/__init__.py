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
traceback instead.

Examples
--------
>>> main(["--version"])
relaxlab 0.1.0
0
"""

import argparse
import ast
import os
import pkgutil
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import relaxlab

__all__ = ["Mistake", "command_names", "main", "summary"]

_DESCRIPTION = "A glass-box Relax: compiler, virtual machine and paged KV cache you can look into."


class Mistake(Exception):  # noqa: N818 - the user's, not the program's
    """What the user asked for cannot be done; the message says what to do instead."""


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
    """Return the first line of a command's docstring, read without importing the command."""
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
        0 for success, 1 for a failure, 2 for a mistaken command line, 130 after Ctrl-C.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words[: words.index("--")] if "--" in words else "--debug" in words
    try:
        code = _dispatch(words)
        sys.stdout.flush()
        return code
    except _Done:
        return 0
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader went away (`relaxlab dis x | head`). Python's own flush at exit must not
        # complain about it either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 - the one place where every failure becomes a line
        if debug:
            traceback.print_exc()
        else:
            print(f"relaxlab: {_one_line(error)}", file=sys.stderr)
        return 2 if isinstance(error, Mistake) else 1


def _dispatch(words: list[str]) -> int:
    names = command_names()
    # Only the command that is run gets imported, so that `relaxlab dis` never loads a compiler.
    name = next((word for word in words if not word.startswith("-")), None)
    parser, sub_parsers = _root_parser(names)
    if name not in names:
        parser.parse_args(words)
        parser.print_help()
        return 0
    command = import_module(f"{__name__}.{name}")
    _configure(sub_parsers.choices[name], command)
    args = parser.parse_args(words)
    code: int = command.run(args)
    return code


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
    if not message or isinstance(error, KeyError | AttributeError | AssertionError):
        return f"{type(error).__name__}: {message} (--debug shows where)"
    return message
