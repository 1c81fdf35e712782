"""LegalizeOps: from operators to kernels.

``legalize.py`` is the pass; each other file registers how one family of operators is legalized.
Counterpart: ``tvm.relax.transform.LegalizeOps`` and ``tvm.relax.transform.legalize_ops``.
"""

from relaxlab.relax.transform.legalize_ops import (
    attention,
    binary,
    convolution,
    create,
    datatype,
    gather,
    grad,
    image,
    index,
    inspect,
    linear_algebra,
    loss,
    manipulate,
    nn,
    normalization,
    pooling,
    qdq,
    rearrange,
    search,
    shape,
    statistical,
    unary,
)
from relaxlab.relax.transform.legalize_ops.legalize import LegalizeOps
from relaxlab.relax.transform.legalize_ops.registration import register_legalize

__all__ = [
    "LegalizeOps",
    "attention",
    "binary",
    "convolution",
    "create",
    "datatype",
    "gather",
    "grad",
    "image",
    "index",
    "inspect",
    "linear_algebra",
    "loss",
    "manipulate",
    "nn",
    "normalization",
    "pooling",
    "qdq",
    "rearrange",
    "register_legalize",
    "search",
    "shape",
    "statistical",
    "unary",
]
