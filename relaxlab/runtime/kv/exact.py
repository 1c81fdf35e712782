"""One switch between right and TVM-exact behaviour of the caches.

Where TVM's cache is wrong in a way that programs can see, ours is right by default. To compare
with the real object, operation by operation, the same defects are needed: inside
``with exact():`` every call on a cache or a recurrent state behaves as TVM 0.27 does. That is:
a failed ``begin_forward`` is not rolled back, a commit asks the last sequence only whether
anything must be compacted, a second tree round of chains has no causal mask, a per-layer window
does not reach into the chunk and is cut from every block by itself, ``popn`` through a shared
block drops the window, and misuse is silent. What TVM leaves undefined stays right here too.

The switch is read at each call, per thread and per task.

Examples
--------
>>> is_exact()
False
>>> with exact():
...     is_exact()
True
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

__all__ = ["exact", "is_exact"]

_EXACT: Final[ContextVar[bool]] = ContextVar("relaxlab_kv_exact", default=False)


@contextmanager
def exact() -> Iterator[None]:
    """Behave as TVM 0.27 does, defects included, until the block ends."""
    token = _EXACT.set(True)
    try:
        yield
    finally:
        _EXACT.reset(token)


def is_exact() -> bool:
    """Whether the caller is inside :func:`exact`."""
    return _EXACT.get()
