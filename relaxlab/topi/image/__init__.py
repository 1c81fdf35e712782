"""Images: resizing, and sampling at places that a tensor names.

Counterpart: ``tvm.topi.image``.
"""

from relaxlab.topi.image.grid_sample import affine_grid, grid_sample
from relaxlab.topi.image.resize import resize

__all__ = ["affine_grid", "grid_sample", "resize"]
