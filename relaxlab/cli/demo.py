"""Tour a compile, a stepped run and a paged cache, here in the terminal.

Why it exists: the first look at the package should cost one command and no notebook. Everything is
real: a network is compiled and stepped, and a model answers two users whose pages are shared. With
``--export`` the same (and more) becomes pages to open in a browser, offline. TVM has no
counterpart.

Examples
--------
``relaxlab demo`` or ``relaxlab demo --export out``
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from relaxlab.cli import Mistake
from relaxlab.cli._files import writing
from relaxlab.cli._model import open_named
from relaxlab.cli._progress import progress
from relaxlab.runtime.device import cpu
from relaxlab.runtime.vm import VirtualMachine
from relaxlab.trace import DebugSession, PoolTimeline
from relaxlab.trace.phases import phases_of
from relaxlab.trace.pool_events import explain_pool_event
from relaxlab.trace.pool_text import counters, render_pool
from relaxlab.widgets import demos

__all__ = ["EXAMPLE", "configure", "run"]

EXAMPLE = """
relaxlab demo
relaxlab demo --export pages
"""

_PAUSE: Final = 0.25
_FRAMES: Final = 12
_TOLD: Final = ("PrefixHit", "Evicted", "Preempted", "PartialPageCopied", "PagesShared")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``relaxlab demo``."""
    parser.add_argument(
        "--export",
        metavar="OUT",
        type=Path,
        help="write five pages into this folder instead of the tour (made if it is not there)",
    )
    parser.add_argument(
        "--model",
        metavar="NAME|PATH",
        help="whose pages the tour shows: smollm2, tiny, or a GGUF file (default tiny)",
    )


def run(args: argparse.Namespace) -> int:
    """Show the tour, or write the pages."""
    if args.export is not None:
        if args.model is not None:
            raise Mistake("--model is for the tour: leave it out with --export")
        _export(args.export)
        return 0
    model = args.model or "tiny"
    open_named(model)  # a name that is none is told before, not after half of the tour
    for chapter in (_compile(), _step(), _pages(model)):
        for line in chapter:
            print(line, flush=True)
    print("\nNext: relaxlab demo --export pages, or relaxlab lab for the notebooks.")
    return 0


def _export(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise Mistake(f"expected a folder after --export, {folder} is a file")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for name in demos.names():
        path = folder / f"{name}.html"
        with progress(f"{path}: {demos.title(name)}"), writing(path):
            demos.demo(name).to_html(path)
        print(f"{path}  {path.stat().st_size / 1e6:.1f} MB  {demos.title(name)}", flush=True)


def _heading(number: int, text: str) -> str:
    return f"\n== {number}. {text} =="


def _compile() -> Iterator[str]:
    yield _heading(1, "A network as a program, and as bytecode")
    yield demos.NETWORK.strip()
    yield ""
    yield demos.compiled().as_text().rstrip()


def _step() -> Iterator[str]:
    yield _heading(2, "The machine, one instruction at a time, and back")
    machine = VirtualMachine(demos.compiled(), cpu())
    with DebugSession(machine, "main", *demos.arguments()) as session:
        session.record()
        ex, timeline = machine.executable, session.timeline
        calls = (ex.source_map.get(timeline.instruction(at).pc) for at in range(timeline.end))
        kernels = [at for at, origin in enumerate(calls) if origin is not None and origin.kernel]
        at = kernels[0] if kernels else 0
        yield str(session.goto(at))
        yield ""
        yield "Inside this one instruction:"
        yield from (f"  {name:<6}  {text}" for name, text in phases_of(ex, timeline, at))
        yield ""
        yield f"One step, and what changed: {' '.join(_done(session.step()))}"
        yield f"One step back: {session.back()!r}"
        yield f"The result: {session.result}"


def _done(session: DebugSession) -> list[str]:
    return [line[6:] for line in str(session).splitlines() if line.startswith("done: ")]


def _pages(model: str) -> Iterator[str]:
    yield _heading(3, "Two users, one prompt, too few pages")
    timeline = demos.two_users(model).timelines[0]
    chosen = _moments(timeline)
    for position in chosen:
        yield ""
        if position and type(timeline.events[position - 1]).__name__ in _TOLD:
            yield f"* {explain_pool_event(timeline.events[position - 1])}"
        yield from _frame(timeline, position)
        if sys.stdout.isatty():
            time.sleep(_PAUSE)
    yield ""
    yield "What happened, in short:"
    for event in timeline.events:
        if type(event).__name__ in _TOLD:
            yield f"  {explain_pool_event(event)}"


def _moments(timeline: PoolTimeline) -> list[int]:
    """Return positions to draw: after each event that is worth a word, and some between."""
    end = len(timeline)
    told = [at + 1 for at, one in enumerate(timeline.events) if type(one).__name__ in _TOLD]
    between = [round(end * part / _FRAMES) for part in range(1, _FRAMES + 1)]
    return sorted({*told, *between})


def _frame(timeline: PoolTimeline, position: int) -> Iterator[str]:
    """Yield the counters and the grid of pages."""
    yield f"event {position} of {len(timeline)}: {counters(timeline.state(position))}"
    lines = iter(render_pool(timeline, position).splitlines())
    for line in lines:
        if line == "pages":
            break
    for line in lines:
        if not line:
            return
        yield line
