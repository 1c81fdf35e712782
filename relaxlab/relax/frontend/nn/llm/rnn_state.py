"""A recurrent state as a model sees it: get and set, and a function that makes one.

Counterpart: MLC's ``RNNState``, which wraps ``vm.builtin.rnn_state_*``.

Examples
--------
>>> from relaxlab import relax
>>> builder, state = relax.BlockBuilder(), relax.Var("state", relax.AnyType())
>>> x = relax.Var("x", relax.TensorType([3, 4], "float32"))
>>> with builder.function("main", [x, state]):
...     with builder.dataflow():
...         seen = RNNState(_expr=state, _name="state")
...         old = seen.get(0, 0, (3, 4), "float32")
...         after = seen.set(0, 0, Tensor(_expr=x))
...         out = builder.emit_output([old._expr, after._expr])
...     main = builder.emit_func_output(out)
>>> old.shape
[3, 4]
"""

from collections.abc import Sequence
from typing import Any

from relaxlab.ir.expr import Expr, Tuple
from relaxlab.ir.type import AnyType
from relaxlab.relax.frontend.nn.values import Object, Tensor, emit
from relaxlab.relax.op.packed_calls import call_dps_packed, call_pure_packed
from relaxlab.relax.type import TensorType

__all__ = ["RNNState"]


class RNNState(Object):
    """A recurrent state that a function of a model gets as an argument."""

    @staticmethod
    def create(
        num_hidden_layers: int,
        max_batch_size: Expr | int,
        max_history: Expr | int,
        init_values: Sequence[Tensor],
        name: str = "rnn_state",
    ) -> "RNNState":
        """Return a new state with one tensor per initial value and layer.

        Sizes may be variables of the function under construction.
        """

        def kernel(kind: str) -> Expr:
            return emit(call_pure_packed("relaxlab.kv.kernel", kind, "", "", ty_args=AnyType()))

        gets, sets = kernel("rnn_get"), kernel("rnn_set")
        count = len(init_values)
        call = call_pure_packed(
            "vm.builtin.rnn_state_create",
            num_hidden_layers,
            max_batch_size,
            max_history,
            Tuple((gets,) * count),
            Tuple((sets,) * count),
            Tuple(tuple(value._expr for value in init_values)),
            ty_args=AnyType(),
        )
        return RNNState(_expr=call, _name=name)

    def get(self, layer_id: int, state_id: int, shape: Sequence[Any], dtype: str) -> Tensor:
        """Return the current values of the batch, ``[batch, ...]`` of the given shape."""
        call = call_dps_packed(
            "vm.builtin.rnn_state_get",
            (self._expr, layer_id, state_id),
            TensorType(list(shape), dtype),
        )
        return Tensor(_expr=emit(call))

    def set(self, layer_id: int, state_id: int, value: Tensor) -> "RNNState":
        """Write the next values of the batch; later calls go to the state that is returned."""
        call = call_pure_packed(
            "vm.builtin.rnn_state_set",
            self._expr,
            layer_id,
            state_id,
            value._expr,
            ty_args=AnyType(),
        )
        return RNNState(_expr=call, _name="rnn_state")
