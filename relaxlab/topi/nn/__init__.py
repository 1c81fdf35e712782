"""Operations of neural networks.

Counterpart: ``tvm.topi.nn``.

Examples
--------
>>> from relaxlab import te, topi
>>> topi.nn.softmax(te.placeholder((2, 3), name="x")).name
'T_softmax_norm'
"""

from relaxlab.topi.nn.batch_matmul import batch_matmul
from relaxlab.topi.nn.batch_norm import batch_norm
from relaxlab.topi.nn.convolution import conv, conv_transpose
from relaxlab.topi.nn.dilate import dilate
from relaxlab.topi.nn.elementwise import leaky_relu, prelu, relu, softplus
from relaxlab.topi.nn.group_normalization import group_norm, instance_norm
from relaxlab.topi.nn.loss import nll_loss
from relaxlab.topi.nn.normalization import layer_norm, rms_norm
from relaxlab.topi.nn.padding import circular_pad, pad, reflect_pad, replicate_pad
from relaxlab.topi.nn.pixel_shuffle import pixel_shuffle
from relaxlab.topi.nn.pool_grad import pool_grad
from relaxlab.topi.nn.pooling import adaptive_pool, pool
from relaxlab.topi.nn.softmax import log_softmax, softmax

__all__ = [
    "adaptive_pool",
    "batch_matmul",
    "batch_norm",
    "circular_pad",
    "conv",
    "conv_transpose",
    "dilate",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "leaky_relu",
    "log_softmax",
    "nll_loss",
    "pad",
    "pixel_shuffle",
    "pool",
    "pool_grad",
    "prelu",
    "reflect_pad",
    "relu",
    "replicate_pad",
    "rms_norm",
    "softmax",
    "softplus",
]
