"""Operators on images. Counterpart: ``tvm.relax.op.image``."""

from relaxlab.relax.op.image.image import affine_grid, grid_sample, resize2d, resize3d

__all__ = ["affine_grid", "grid_sample", "resize2d", "resize3d"]
