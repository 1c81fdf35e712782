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
import sys

from relaxlab.cli import Mistake
from relaxlab.cli._program import configure_program, open_call
from relaxlab.trace import DebugSession
from relaxlab.trace.commands import CommandError, Commands

__all__ = ["EXAMPLE", "configure", "run"]

EXAMPLE = """
relaxlab step model.bin main "[1.0, 2.0]" 3
relaxlab step model.bin main x.npy 3 --import my_kernels
relaxlab step model.so main x.npy w.npy
printf 'break main+2\\ncontinue\\nback\\n' | relaxlab step model.bin main x.npy 3
"""

_PROMPT = "(step) "


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``relaxlab step``."""
    configure_program(parser)


def run(args: argparse.Namespace) -> int:
    """Start the program, obey commands, and return 1 if the program had failed at the end."""
    machine, values = open_call(args)
    with DebugSession(machine, args.function, *values, limit=args.limit) as session:
        commands = Commands(session)
        print(session)
        if sys.stdin.isatty():
            _obey_terminal(commands)
        else:
            _obey_script(commands)
        return 1 if session.error is not None else 0


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
