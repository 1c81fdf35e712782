"""Builtins of every cache: sequences and rounds, for paged caches and recurrent states alike.

Counterpart: TVM's ``vm.builtin.kv_state_*`` (kv.md 2.1).

Examples
--------
>>> from relaxlab.runtime.packed_func import get_global_func
>>> get_global_func("vm.builtin.kv_state_popn").__name__
'popn'
"""

from typing import Any

from relaxlab.runtime.kv.kv_state import KVState
from relaxlab.runtime.kv.paged_kv_cache import PagedAttentionKVCache
from relaxlab.runtime.vm.builtin.table import as_int, as_shape, builtin, refusal

__all__: list[str] = []

_PREFIX = "vm.builtin.kv_state_"


@builtin(_PREFIX + "clear")
def clear(state: Any, /) -> None:
    """Forget all sequences."""
    as_state(state, _PREFIX + "clear").clear()


@builtin(_PREFIX + "add_sequence")
def add_sequence(state: Any, seq_id: Any, /) -> None:
    """Begin an empty sequence."""
    me = _PREFIX + "add_sequence"
    as_state(state, me).add_sequence(as_int(seq_id, me, "sequence id"))


@builtin(_PREFIX + "remove_sequence")
def remove_sequence(state: Any, seq_id: Any, /) -> None:
    """Drop a sequence."""
    me = _PREFIX + "remove_sequence"
    as_state(state, me).remove_sequence(as_int(seq_id, me, "sequence id"))


@builtin(_PREFIX + "fork_sequence")
def fork_sequence(state: Any, parent: Any, child: Any, position: Any, /) -> None:
    """Begin a sequence as the start of another one: (state, parent, child, position or -1)."""
    me = _PREFIX + "fork_sequence"
    as_state(state, me).fork_sequence(
        as_int(parent, me, "parent id"),
        as_int(child, me, "child id"),
        as_int(position, me, "fork position"),
    )


@builtin(_PREFIX + "popn")
def popn(state: Any, seq_id: Any, count: Any, /) -> None:
    """Forget the last tokens of a sequence."""
    me = _PREFIX + "popn"
    as_state(state, me).popn(as_int(seq_id, me, "sequence id"), as_int(count, me, "count"))


@builtin(_PREFIX + "begin_forward")
def begin_forward(*args: Any) -> None:
    """Fix the batch of the next round: (state, sequence ids, append lengths [, tree parents])."""
    me = _PREFIX + "begin_forward"
    if not 3 <= len(args) <= 4:
        raise TypeError(
            f"{me}: expected a state, sequence ids, append lengths and perhaps tree parents, "
            f"got {len(args)} arguments"
        )
    tree = args[3] if len(args) == 4 else None
    as_state(args[0], me).begin_forward(
        as_shape(args[1], me, "sequence ids"),
        as_shape(args[2], me, "append lengths"),
        None if tree is None else as_shape(tree, me, "token tree"),
    )


@builtin(_PREFIX + "end_forward")
def end_forward(state: Any, /) -> None:
    """Finish the round."""
    as_state(state, _PREFIX + "end_forward").end_forward()


def as_state(value: Any, me: str) -> KVState:
    """Cast to a KV state: a paged cache or a recurrent state."""
    # the exact type first: asking an abstract class takes a while, and every round asks
    if type(value) is PagedAttentionKVCache or isinstance(value, KVState):
        return value
    raise refusal(value, me, "state", "relax.vm.KVState")
