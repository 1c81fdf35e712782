"""The parts of a Llama decoder that do not care where keys and values are kept.

Counterpart: the modules of MLC's model definitions.

Examples
--------
>>> from relaxlab import relax
>>> from relaxlab.ir import TupleType, Var
>>> from relaxlab.models import tiny
>>> from relaxlab.models.weights import parameter_shapes
>>> shapes = parameter_shapes(tiny.CONFIG)
>>> types = tuple(relax.TensorType(shape, "float32") for shape in shapes.values())
>>> params, x = Var("params", TupleType(types)), Var("x", relax.TensorType([3, 64], "float32"))
>>> builder = relax.BlockBuilder()
>>> with builder.function("main", [x, params]):
...     fed = Layers(builder, tiny.CONFIG, params, list(shapes)).feed_forward(0, x)
...     _ = builder.emit_func_output(fed)
>>> [int(size) for size in fed.ty.shape.values]
[3, 64]
"""

from collections.abc import Sequence

from relaxlab import relax
from relaxlab.ir import Expr, Var
from relaxlab.models.config import LlamaConfig
from relaxlab.relax import op

__all__ = ["Layers"]


class Layers:
    """Emits parts of the network into the builder's current block.

    Parameters
    ----------
    builder
        Where to.
    config
        Sizes.
    params, names
        The tuple of parameters, and the names of its fields in order.
    """

    def __init__(
        self,
        builder: relax.BlockBuilder,
        config: LlamaConfig,
        params: Var,
        names: Sequence[str],
    ) -> None:
        self.emit = builder.emit
        self.config = config
        self.params = params
        self.index = {name: i for i, name in enumerate(names)}

    def param(self, name: str) -> Var:
        """Fetch a parameter from the tuple, under its own name."""
        return self.emit(relax.TupleGetItem(self.params, self.index[name]), name.replace(".", "_"))

    def norm(self, name: str, x: Expr) -> Var:
        """Emit an RMS norm."""
        return self.emit(op.nn.rms_norm(x, self.param(name), axes=[-1], epsilon=self.config.eps))

    def feed_forward(self, layer: int, x: Expr) -> Var:
        """Emit one gated feed-forward layer."""
        x = self.norm(f"layers.{layer}.mlp_norm", x)
        both = self.emit(op.matmul(x, self.param(f"layers.{layer}.gate_up")), "gate_up")
        halves = self.emit(op.split(both, 2, axis=1))
        gate = self.emit(op.nn.silu(self.emit(relax.TupleGetItem(halves, 0))))
        gated = self.emit(op.multiply(gate, self.emit(relax.TupleGetItem(halves, 1))))
        return self.emit(op.matmul(gated, self.param(f"layers.{layer}.down")), "fed")
