"""Operations of neural networks.

Counterpart: ``tvm.topi.nn``.

Examples
--------
>>> from relaxlab import te, topi
>>> topi.nn.softmax(te.placeholder((2, 3), name="x")).name
'T_softmax_norm'
"""

from relaxlab.topi.nn.elementwise import leaky_relu, prelu, relu, softplus
from relaxlab.topi.nn.normalization import layer_norm, rms_norm
from relaxlab.topi.nn.softmax import log_softmax, softmax

__all__ = [
    "layer_norm",
    "leaky_relu",
    "log_softmax",
    "prelu",
    "relu",
    "rms_norm",
    "softmax",
    "softplus",
]
