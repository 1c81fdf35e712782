"""Silence NumPy's floating point warnings inside a kernel, cheaply.

Overflow, NaN and division by zero are results of a kernel, not mistakes. ``np.errstate`` says so
in about a microsecond, which is longer than a small kernel takes. NumPy 2 keeps its error state
in a context variable; setting that directly takes a fifth of the time but uses a private name,
so it is tried and checked here, once, with the public function as the other way.

Examples
--------
>>> import numpy as np
>>> before = np.geterr()
>>> state = silence()
>>> np.geterr()["over"]
'ignore'
>>> restore(state)
>>> np.geterr() == before
True
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

__all__ = ["restore", "silence"]


def _public_silence() -> Any:
    return np.seterr(all="ignore")


def _public_restore(state: Any) -> None:
    np.seterr(**state)


def _direct() -> tuple[Callable[[], Any], Callable[[Any], Any]] | None:
    """Return the fast pair of functions, or None where this NumPy has no such thing."""
    try:
        from numpy._core import umath  # noqa: PLC0415  # an optional, private part

        variable = umath._extobj_contextvar
        ignoring = umath._make_extobj(all="ignore")
        fast_silence, fast_restore = partial(variable.set, ignoring), variable.reset
        before = np.geterr()
        state = fast_silence()
        silent = set(np.geterr().values()) == {"ignore"}
        fast_restore(state)
    except (AttributeError, ImportError, TypeError, ValueError):
        return None
    return (fast_silence, fast_restore) if silent and np.geterr() == before else None


#: ``state = silence()`` ... ``restore(state)``, always in pairs.
silence, restore = _direct() or (_public_silence, _public_restore)
