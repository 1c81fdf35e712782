"""Neural network operators. Counterpart: ``tvm.relax.op.nn``."""

from relaxlab.relax.op.nn.activation import (
    gelu,
    gelu_tanh,
    leakyrelu,
    log_softmax,
    prelu,
    relu,
    relu6,
    selu,
    silu,
    softmax,
    softplus,
)
from relaxlab.relax.op.nn.attention import attention, attention_var_len
from relaxlab.relax.op.nn.channel_normalization import batch_norm, group_norm, instance_norm
from relaxlab.relax.op.nn.convolution import (
    conv1d,
    conv1d_transpose,
    conv2d,
    conv2d_transpose,
    conv3d,
    conv3d_transpose,
)
from relaxlab.relax.op.nn.loss import cross_entropy_with_logits, nll_loss
from relaxlab.relax.op.nn.normalization import dropout, layer_norm, rms_norm
from relaxlab.relax.op.nn.padding import pad
from relaxlab.relax.op.nn.pixels import batch_flatten, pixel_shuffle
from relaxlab.relax.op.nn.pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "attention",
    "attention_var_len",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "batch_flatten",
    "batch_norm",
    "conv1d",
    "conv1d_transpose",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "conv3d_transpose",
    "cross_entropy_with_logits",
    "dropout",
    "gelu",
    "gelu_tanh",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "leakyrelu",
    "log_softmax",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "nll_loss",
    "pad",
    "pixel_shuffle",
    "prelu",
    "relu",
    "relu6",
    "rms_norm",
    "selu",
    "silu",
    "softmax",
    "softplus",
]
