"""Instruments that come with the compiler: times, printed modules, dumped modules.

An instrument is told of every pass, also of passes inside passes; give it to a
:class:`~relaxlab.ir.transform.PassContext`. Counterpart: ``tvm.instrument``.

Examples
--------
>>> from relaxlab.ir import IRModule, PassContext, module_pass
>>> @pass_instrument
... class Names:
...     def run_before_pass(self, mod, info):
...         print(info.name)
>>> @module_pass(opt_level=0, name="Same")
... def same(mod, ctx):
...     return mod
>>> with PassContext(instruments=[Names()]):
...     mod = same(IRModule())
Same
"""

import re
import shutil
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relaxlab.ir.module import IRModule
from relaxlab.ir.transform import PassInfo, PassInstrument

__all__ = [
    "DumpIR",
    "PassInstrument",
    "PassPrintingInstrument",
    "PassTimingInstrument",
    "PrintAfterAll",
    "PrintBeforeAll",
    "pass_instrument",
]


def pass_instrument(pi_cls: type | None = None) -> Any:
    """Make an instrument of a class that has some of an instrument's methods."""

    def decorate(cls: type) -> type:
        if issubclass(cls, PassInstrument):
            return cls
        names = {"__doc__": cls.__doc__, "__module__": cls.__module__}
        return type(cls.__name__, (cls, PassInstrument), names)

    return decorate if pi_cls is None else decorate(pi_cls)


@dataclass(slots=True)
class _Timed:
    """A pass that ran, or is running."""

    name: str
    start: float
    seconds: float = 0.0
    inside: "list[_Timed]" = field(default_factory=list)

    def lines(self, depth: int, of_parent: float, total: float) -> Iterable[str]:
        own = self.seconds - sum(one.seconds for one in self.inside)
        yield (
            f"{chr(9) * depth}{self.name}: {self.seconds * 1e6:.0f}us [{own * 1e6:.0f}us] "
            f"({_percent(self.seconds, total)}; {_percent(self.seconds, of_parent)})\n"
        )
        for one in self.inside:
            yield from one.lines(depth + 1, self.seconds, total)


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole if whole else 0:.2f}%"


class PassTimingInstrument(PassInstrument):
    """How long each pass takes; ask with :meth:`render` before the context is left."""

    def __init__(self) -> None:
        self._top = _Timed("", 0.0)
        self._open: list[_Timed] = [self._top]

    def enter_pass_ctx(self) -> None:
        """Forget what was measured before."""
        self._top = _Timed("", 0.0)
        self._open = [self._top]

    exit_pass_ctx = enter_pass_ctx

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Start the clock of a pass."""
        timed = _Timed(info.name, time.perf_counter())
        self._open[-1].inside.append(timed)
        self._open.append(timed)

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Stop it."""
        timed = self._open.pop()
        timed.seconds = time.perf_counter() - timed.start

    def pass_failed(self, mod: IRModule, info: PassInfo, error: BaseException) -> None:
        """Stop it."""
        self.run_after_pass(mod, info)

    def render(self) -> str:
        """Return a line for each pass: time, time of its own, share of the whole and of its parent.

        Empty when no pass has run since the context was entered.
        """
        total = sum(one.seconds for one in self._top.inside)
        return "".join(line for one in self._top.inside for line in one.lines(0, total, total))


class PrintBeforeAll(PassInstrument):
    """Print the module before every pass."""

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Print pass and module."""
        sys.stdout.write(f"Before Running Pass: {info}\n{mod}\n")


class PrintAfterAll(PassInstrument):
    """Print the module after every pass."""

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Print pass and module."""
        sys.stdout.write(f"After Running Pass: {info}\n{mod}\n")


class PassPrintingInstrument(PassInstrument):
    """Print the module before, or after, passes of some names.

    Parameters
    ----------
    print_before_pass_names, print_after_pass_names
        The names.
    """

    def __init__(
        self, print_before_pass_names: Iterable[str], print_after_pass_names: Iterable[str]
    ) -> None:
        self.before = frozenset(print_before_pass_names)
        self.after = frozenset(print_after_pass_names)

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Print the module if the pass is one of them."""
        if info.name in self.before:
            sys.stdout.write(f"Print IR before: {info.name}\n{mod}\n\n")

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Print the module if the pass is one of them."""
        if info.name in self.after:
            sys.stdout.write(f"Print IR after: {info.name}\n{mod}\n\n")


class DumpIR(PassInstrument):
    """Write the module after every pass to ``<number>_<pass>.py`` in a folder.

    Parameters
    ----------
    dump_dir
        The folder; it is made.
    refresh
        Whether what is in it is deleted first.
    """

    def __init__(self, dump_dir: Path | str, refresh: bool = False) -> None:
        self.dump_dir = Path(dump_dir)
        if refresh and self.dump_dir.exists():
            shutil.rmtree(self.dump_dir)
        self.dump_dir.mkdir(parents=True, exist_ok=True)
        self.counter = 0

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Write the module."""
        name = re.sub(r"[^0-9A-Za-z_.-]", "_", info.name)
        path = self.dump_dir / f"{self.counter:03}_{name}.py"
        path.write_text(mod.script() + "\n", encoding="utf-8")
        self.counter += 1
