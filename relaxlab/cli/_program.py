"""The words ``FILE FUNC [ARG...]``: a program, a function of it and what to call it with.

Shared by the commands that run a program; a module whose name begins with an underscore is no
command.

Examples
--------
>>> parse_argument("[1.0, 2.0]").numpy().tolist()
[1.0, 2.0]
"""

import argparse
import ast
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
from relaxlab.runtime.vm.bytecode import VMFuncKind

__all__ = ["configure_program", "open_call", "parse_argument"]

_ARGUMENTS = """\
arguments are Python literals: numbers, strings, booleans and None as they are, a list is a tensor
(float32, int64 or bool), a tuple is a Relax tuple; a path that ends in .npy is a tensor"""


def configure_program(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that :func:`open_call` reads, and ``--limit``."""
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


def open_call(args: argparse.Namespace) -> tuple[VirtualMachine, list[Any]]:
    """Return the machine and the values to call ``args.function`` with.

    Raises
    ------
    Mistake
        If an argument or an option makes no sense.
    Exception
        Whatever the file, or an imported module, is refused with.
    """
    executable = open_program(args.file)
    values = [parse_argument(text, number) for number, text in enumerate(args.arguments, 1)]
    for module in args.modules:
        import_module(module)
    if args.limit < 1:
        raise Mistake("--limit must be at least 1")
    names = [info.name for info in executable.func_table if info.kind == VMFuncKind.VM_FUNC]
    if args.function not in names:
        known = ", ".join(names) or "none"
        raise Mistake(f"no function {args.function!r} in {args.file}; it has: {known}")
    return VirtualMachine(executable, cpu()), values


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
