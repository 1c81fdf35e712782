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
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from relaxlab.cli import Mistake
from relaxlab.cli._files import FILE_HELP, PROGRAM, reading
from relaxlab.errors import InternalError
from relaxlab.interop.tvm_ffi import open_program
from relaxlab.runtime import cpu
from relaxlab.runtime.container import Array
from relaxlab.runtime.tensor import Tensor, tensor
from relaxlab.runtime.vm import VirtualMachine
from relaxlab.runtime.vm.bytecode import VMFuncKind

__all__ = ["configure_program", "open_call", "parse_argument"]

_SHOWN: Final = 60
_MAGIC: Final = b"\x93NUMPY"

_ARGUMENTS = """\
arguments are Python literals: numbers, strings, booleans and None as they are, a list is a tensor
(float32, int64 or bool), a tuple is a Relax tuple; a path that ends in .npy is a tensor"""


def configure_program(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that :func:`open_call` reads, and ``--limit``."""
    parser.add_argument("file", metavar="FILE", type=Path, help=FILE_HELP)
    parser.add_argument(
        "function", metavar="FUNC", help="a Relax function of it, as `relaxlab dis FILE` lists them"
    )
    parser.add_argument("arguments", metavar="ARG", nargs="*", default=[], help=_ARGUMENTS)
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
        help="how many of the last steps to keep (default 100000)",
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
    with reading(args.file, PROGRAM):
        executable = open_program(args.file)
    values = [parse_argument(text, number) for number, text in enumerate(args.arguments, 1)]
    for module in args.modules:
        _import(module)
    if args.limit < 1:
        raise Mistake(f"--limit must be at least 1, got {args.limit}")
    names = [info.name for info in executable.func_table if info.kind == VMFuncKind.VM_FUNC]
    if args.function not in names:
        known = ", ".join(names) or "none"
        raise Mistake(f"no function {args.function!r} in {args.file}; it has: {known}")
    try:
        return VirtualMachine(executable, cpu()), values
    except InternalError as error:
        if "cannot find the packed function" not in str(error):
            raise
        raise InternalError(
            f"{error}; --import a module that registers it, or use the library that "
            "export_library wrote, which holds its kernels"
        ) from error


def parse_argument(text: str, number: int = 1) -> Any:
    """Return the value that an argument of the command line stands for.

    Raises
    ------
    Mistake
        If it is no literal and no readable .npy file.
    """
    if text.endswith(".npy"):
        try:
            return _array(Path(text))
        except (OSError, EOFError, ValueError, TypeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise Mistake(f"argument {number}: cannot read {text}: {reason}") from None
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    try:
        literal = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise Mistake(
            f"argument {number}: expected a Python literal or the path of a .npy file, "
            f"got {shown!r}"
        ) from None
    try:
        return _value(literal)
    except (ValueError, TypeError):
        raise Mistake(
            f"argument {number}: expected a Python literal made of numbers, strings, booleans, "
            "None, tuples of them, and lists of numbers or booleans whose rows are equally long; "
            f"got {shown!r}"
        ) from None


def _array(path: Path) -> Tensor:
    """Read a tensor, and say in NumPy's stead what a file is that it cannot read."""
    with path.open("rb") as stream:
        start = stream.read(len(_MAGIC))
        if start != _MAGIC:
            raise ValueError(f"expected an array that numpy.save wrote, got {start!r}")
        stream.seek(0)
        try:
            array = np.load(stream, allow_pickle=False)
        except ValueError as error:
            if "allow_pickle" in str(error):
                raise ValueError("it holds Python objects, not numbers") from None
            raise
    return tensor(array)


def _import(module: str) -> None:
    """Import a module that is installed or lies in the current folder, as ``python -m`` would."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # at the end: nothing that is installed gets hidden
    try:
        import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # it was found, and misses something itself
        raise Mistake(f"--import: no module {module!r} is installed or lies in {here}") from None


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
