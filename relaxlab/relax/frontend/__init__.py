"""Ways to write a model: classes whose methods emit Relax.

Counterpart: ``tvm.relax.frontend``.

Examples
--------
>>> from relaxlab.relax.frontend import nn
>>> nn.Tensor.__name__
'Tensor'
"""

from relaxlab.relax.frontend import nn

__all__ = ["nn"]
