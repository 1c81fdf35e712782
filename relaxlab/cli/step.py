"""Step through a program, forwards and backwards, in a terminal.

Why it exists: the machine can be stopped before every instruction, and a terminal is the least one
needs to do so. Commands come from the keyboard, or from standard input, one a line, when that is
not a terminal. Kernels in a library that TVM exported are called, where ``apache-tvm-ffi`` is
installed; without it the program can be stepped up to the first of them. TVM has no counterpart.

Examples
--------
``echo "continue" | relaxlab step model.bin main "[1.0, 2.0]"``
"""

import argparse
import ast
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from relaxlab.cli import Mistake
from relaxlab.interop.tvm_ffi import open_program
from relaxlab.runtime import cpu
from relaxlab.runtime.container import Array
from relaxlab.runtime.tensor import tensor
from relaxlab.runtime.vm import VirtualMachine
from relaxlab.trace import DebugSession
from relaxlab.trace.commands import CommandError, Commands

__all__ = ["EXAMPLE", "configure", "parse_argument", "run"]

EXAMPLE = """
relaxlab step model.bin main "[1.0, 2.0]" 3
relaxlab step model.bin main x.npy --import my_kernels
relaxlab step model.so main x.npy
printf 'break main+2\\ncontinue\\nback\\n' | relaxlab step model.bin main 3
"""

_PROMPT = "(step) "
_ARGUMENTS = """\
arguments are Python literals: numbers, strings, booleans and None as they are, a list is a tensor
(float32, int64 or bool), a tuple is a Relax tuple; a path that ends in .npy is a tensor"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``relaxlab step``."""
    parser.add_argument("file", metavar="FILE", type=Path, help="an executable or a library")
    parser.add_argument("function", metavar="FUNC", help="a Relax function of it")
    parser.add_argument("arguments", metavar="ARG", nargs="*", help=_ARGUMENTS)
    parser.add_argument(
        "--import",
        dest="modules",
        metavar="MODULE",
        action="append",
        default=[],
        help="import a Python module first: it may register the packed functions that are called",
    )
    parser.add_argument(
        "--limit",
        metavar="N",
        type=int,
        default=100_000,
        help="how many of the last steps to keep (default: 100000)",
    )


def run(args: argparse.Namespace) -> int:
    """Start the program, obey commands, and return 1 if the program had failed at the end."""
    executable = open_program(args.file)
    values = [parse_argument(text, number) for number, text in enumerate(args.arguments, 1)]
    for module in args.modules:
        import_module(module)
    if args.limit < 1:
        raise Mistake("--limit must be at least 1")
    machine = VirtualMachine(executable, cpu())
    with DebugSession(machine, args.function, *values, limit=args.limit) as session:
        commands = Commands(session)
        print(session)
        if sys.stdin.isatty():
            _obey_terminal(commands)
        else:
            _obey_script(commands)
        return 1 if session.error is not None else 0


def parse_argument(text: str, number: int = 1) -> Any:
    """Return the value that an argument of the command line stands for.

    Raises
    ------
    Mistake
        If it is no literal and no readable .npy file.
    """
    if text.endswith(".npy"):
        try:
            return tensor(np.load(text, allow_pickle=False))
        except (OSError, ValueError, TypeError) as error:
            raise Mistake(f"argument {number}: cannot read {text}: {error}") from None
    try:
        return _value(ast.literal_eval(text))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise Mistake(
            f"argument {number}: expected a Python literal or the path of a .npy file, got {text!r}"
        ) from None


def _value(literal: Any) -> Any:
    match literal:
        case list():
            array = np.array(literal)
            if array.dtype.kind == "f" or not array.size:
                array = array.astype(np.float32)
            if array.dtype.kind not in "fib":
                raise ValueError
            return tensor(array)
        case tuple():
            return Array(map(_value, literal))
        case bool() | int() | float() | str() | None:
            return literal
        case _:
            raise ValueError


def _obey_script(commands: Commands) -> None:
    for number, line in enumerate(sys.stdin, 1):
        if not line.partition("#")[0].strip():
            continue
        try:
            shown = commands.run(line)
        except CommandError as error:
            raise Mistake(f"line {number}: {error}") from None
        print(f"\n{_PROMPT}{line.strip()}")
        if shown:
            print(shown)
        if commands.finished:
            return


def _obey_terminal(commands: Commands) -> None:
    print("type help for the commands")
    while not commands.finished:
        try:
            shown = commands.run(input(_PROMPT))
        except CommandError as error:
            print(error)
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print()
        else:
            if shown:
                print(shown)
