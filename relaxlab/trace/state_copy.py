"""A copy of a cache or a recurrent state, so that a program can run a second time from it.

What a cache is told changes it, so a second run must not be given the first run's cache: it would
start where that one ended, and change what somebody still uses. A copy has the same sequences,
pages and rows; kernels are shared, and nobody observes it. There is no TVM counterpart.

Examples
--------
>>> from relaxlab.runtime.kv.kv_state import KVState
>>> copied_state.__annotations__["state"] is KVState
True
"""

import copy
from typing import Any

from relaxlab.runtime.kv.kv_state import KVState

__all__ = ["copied_state"]


def copied_state(state: KVState) -> KVState:
    """Return a state that is equal to ``state`` and that changes of ``state`` do not reach."""
    shared: list[Any] = [getattr(state, "kernels", None), getattr(state, "observer", None)]
    for name in ("_get_kernels", "_set_kernels"):
        shared += [getattr(state, name, ())]
    # what carries rows to other machines is one thing, and may not be copied
    shared.append(getattr(getattr(state, "_attention", None), "_transfer", None))
    memo = {id(one): one for one in shared if one is not None}
    wrapped = {name for name in vars(state) if callable(getattr(type(state), name, None))}
    twin = copy.copy(state)
    for name in wrapped:  # what a recorder put around the methods would call the first object's
        delattr(twin, name)
    memo[id(state)] = twin
    for name, value in vars(twin).items():
        setattr(twin, name, copy.deepcopy(value, memo))
    if getattr(twin, "observer", None) is not None:
        twin.observer = None  # type: ignore[attr-defined]  # caches and recurrent states have one
    return twin
