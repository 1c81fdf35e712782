"""One line that says what long work is at: on a terminal only, and gone when it is done.

Examples
--------
>>> with progress("compiling"):
...     pass
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["progress"]


@contextmanager
def progress(text: str) -> Iterator[None]:
    """Show a line on standard error for the length of a block, whatever ends it."""
    _show(f"{text} …")
    try:
        yield
    finally:
        _show("")


def _show(text: str) -> None:
    # Standard output belongs to whoever reads the answer.
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
