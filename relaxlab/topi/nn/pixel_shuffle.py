"""Channels become pixels.

TVM has the operator, but not this computation. Counterpart: none.

Examples
--------
>>> from relaxlab import te
>>> y = pixel_shuffle(te.placeholder((1, 4, 2, 3), name="x"), 2)
>>> [d.value for d in y.shape]
[1, 1, 4, 6]
"""

from relaxlab.ir import prim_ops
from relaxlab.te import Tensor
from relaxlab.topi.transform import reshape, transpose

__all__ = ["pixel_shuffle"]


def pixel_shuffle(data: Tensor, upscale_factor: int) -> Tensor:
    """Return an image with ``r * r`` channels made one that is ``r`` times as high and wide.

    Parameters
    ----------
    data
        An image; the last three dimensions are channel, height and width.
    upscale_factor
        ``r``.
    """
    r = upscale_factor
    lead, (channels, height, width) = data.shape[:-3], data.shape[-3:]
    factor = prim_ops.const(r, channels.dtype)
    fewer = prim_ops.floordiv(channels, r * r)
    split = reshape(data, (*lead, fewer, factor, factor, height, width))
    n = len(lead)
    order = [*range(n), n, n + 3, n + 1, n + 4, n + 2]
    return reshape(transpose(split, order), (*lead, fewer, height * r, width * r))
