"""Neural network operators. Counterpart: ``tvm.relax.op.nn``."""

from relaxlab.relax.op.nn.activation import (
    gelu,
    gelu_tanh,
    leakyrelu,
    log_softmax,
    relu,
    relu6,
    selu,
    silu,
    softmax,
    softplus,
)
from relaxlab.relax.op.nn.normalization import dropout, layer_norm, rms_norm
from relaxlab.relax.op.nn.padding import pad

__all__ = [
    "dropout",
    "gelu",
    "gelu_tanh",
    "layer_norm",
    "leakyrelu",
    "log_softmax",
    "pad",
    "relu",
    "relu6",
    "rms_norm",
    "selu",
    "silu",
    "softmax",
    "softplus",
]
