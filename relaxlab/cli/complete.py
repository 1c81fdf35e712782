"""Print a script that lets a shell complete commands, options, choices and file names.

Why it exists: names that a key completes need not be remembered, and cannot be mistyped. The script
is text and starts no Python when the key is pressed; make it again after an upgrade. TVM has no
counterpart.

Examples
--------
``relaxlab complete bash > ~/.local/share/bash-completion/completions/relaxlab``
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import shtab

from relaxlab.cli import whole_parser

__all__ = ["EXAMPLE", "configure", "run", "script"]

EXAMPLE = """
relaxlab complete bash > ~/.local/share/bash-completion/completions/relaxlab
relaxlab complete zsh > ~/.zfunc/_relaxlab
relaxlab complete fish > ~/.config/fish/completions/relaxlab.fish
"""

_SHELLS = ("bash", "zsh", "fish")
# Of the arguments that are text in Python, those that may name a file.
_FILES = ("ARG", "NAME|PATH", "PATH")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the name of the shell."""
    parser.add_argument("shell", metavar="SHELL", choices=_SHELLS, help=", ".join(_SHELLS))
    parser.epilog = (
        f"{parser.epilog}\n\n"
        "The folder must exist, and for zsh be listed in $fpath. A new shell then completes."
    )


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    print(script(args.shell))
    return 0


def script(shell: str) -> str:
    """Return the script of a shell: ``"bash"``, ``"zsh"`` or ``"fish"``."""
    parser = whole_parser()
    for action in _actions(parser):
        if action.type is Path or action.metavar in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined] # shtab's way to be told
    made: str = shtab.complete(parser, shell)
    return made


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield every option and argument of a parser and of those below it."""
    for action in parser._actions:  # argparse has no public list of them
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _actions(below)
