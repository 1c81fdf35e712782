"""Builtins of recurrent states.

Sequences and rounds are driven by ``vm.builtin.kv_state_*``, as those of a paged cache are.
Counterpart: ``vm.builtin.rnn_state_*`` of TVM's ``vm/rnn_state.cc``.

Examples
--------
>>> from relaxlab.runtime.kv.attention.moves import rnn_get, rnn_set
>>> from relaxlab.runtime.tensor import tensor
>>> state = create(1, 4, 2, [rnn_get], [rnn_set], [tensor([0.5])])
>>> state.add_sequence(0)
>>> debug_get(state, 0, 0, 0).numpy().tolist()
[0.5]
"""

from typing import Any

from relaxlab.runtime.kv.rnn_state import RNNState
from relaxlab.runtime.packed_func import PackedFunc
from relaxlab.runtime.tensor import Tensor
from relaxlab.runtime.vm.builtin.table import as_int, as_tensor, as_tuple, builtin, refusal

__all__: list[str] = []


def _as_state(value: Any, me: str) -> RNNState:
    if not isinstance(value, RNNState):
        raise refusal(value, me, "state", "relax.vm.RNNState")
    return value


def _functions(value: Any, me: str, parameter: str) -> list[PackedFunc]:
    functions = list(as_tuple(value, me, parameter))
    for index, function in enumerate(functions):
        if not callable(function):
            raise refusal(function, me, f"{parameter}, element {index}", "Function")
    return functions


@builtin("vm.builtin.rnn_state_create")
def create(
    num_layers: Any,
    reserved_num_seqs: Any,
    max_history: Any,
    f_gets: Any,
    f_sets: Any,
    init_values: Any,
    /,
) -> RNNState:
    """Return the state of ``num_layers`` layers, with one get, set and initial value per state."""
    me = "vm.builtin.rnn_state_create"
    values = [
        as_tensor(value, me, f"init_values, element {index}")
        for index, value in enumerate(as_tuple(init_values, me, "init_values"))
    ]
    return RNNState(
        as_int(num_layers, me, "num_layers"),
        as_int(reserved_num_seqs, me, "reserved_num_seqs"),
        as_int(max_history, me, "max_history"),
        _functions(f_gets, me, "f_gets"),
        _functions(f_sets, me, "f_sets"),
        values,
    )


@builtin("vm.builtin.rnn_state_get")
def get(state: Any, layer: Any, state_id: Any, out: Any, /) -> None:
    """Gather the current value of each sequence of the batch into ``out``."""
    me = "vm.builtin.rnn_state_get"
    found, target = _as_state(state, me), as_tensor(out, me, "out")
    found.get(as_int(layer, me, "layer"), as_int(state_id, me, "state id"), target)


@builtin("vm.builtin.rnn_state_set")
def set_values(state: Any, layer: Any, state_id: Any, data: Any, /) -> RNNState:
    """Write the next value of each sequence of the batch; return the same state."""
    me = "vm.builtin.rnn_state_set"
    found, values = _as_state(state, me), as_tensor(data, me, "data")
    found.set(as_int(layer, me, "layer"), as_int(state_id, me, "state id"), values)
    return found


@builtin("vm.builtin.rnn_state_debug_get")
def debug_get(state: Any, layer: Any, state_id: Any, seq_id: Any, /) -> Tensor:
    """Return a copy of the current value of one sequence."""
    me = "vm.builtin.rnn_state_debug_get"
    numbers = as_int(layer, me, "layer"), as_int(state_id, me, "state id")
    return _as_state(state, me).debug_get(*numbers, as_int(seq_id, me, "sequence"))
