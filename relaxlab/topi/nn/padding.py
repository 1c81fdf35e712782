"""Extending a tensor at its borders.

Counterpart: ``tvm.topi.nn.pad``, ``reflect_pad``, ``replicate_pad`` and ``circular_pad``.

Examples
--------
>>> from relaxlab import te
>>> y = pad(te.placeholder((2, 3), name="x"), [0, 1], [1, 1])
>>> y.name, [d.value for d in y.shape]
('PadInput', [3, 5])
"""

from collections.abc import Callable, Sequence

from relaxlab import te
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr
from relaxlab.ir.sym import Analyzer
from relaxlab.te import Tensor

__all__ = ["circular_pad", "pad", "reflect_pad", "replicate_pad"]


def _padded_shape(
    data: Tensor, before: Sequence[Expr | int], after: Sequence[Expr | int]
) -> list[Expr]:
    if not len(before) == len(after) == data.ndim:
        raise ValueError(
            f"pad needs a width before and after each of {data.ndim} dimension(s), got "
            f"{len(before)} and {len(after)}"
        )
    return [
        Analyzer().simplify(extent + b + a)
        for extent, b, a in zip(data.shape, before, after, strict=True)
    ]


def pad(
    data: Tensor,
    before: Sequence[Expr | int],
    after: Sequence[Expr | int],
    pad_value: Expr | float = 0.0,
    name: str = "PadInput",
) -> Tensor:
    """Put ``pad_value`` around a tensor, ``before`` and ``after`` so many on each dimension."""
    dims = _padded_shape(data, before, after)
    filler = pad_value if isinstance(pad_value, Expr) else prim_ops.const(pad_value, data.dtype)

    def body(*indices: Expr) -> Expr:
        place: list[Expr] = []
        inside: list[Expr] = []
        for index, extent, b, a in zip(indices, data.shape, before, after, strict=True):
            if isinstance(b, int) and isinstance(a, int) and b == a == 0:
                place.append(index)
                continue
            place.append(index - b)
            inside.append(prim_ops.greater_equal(index, b))
            inside.append(prim_ops.less(index, extent + b))
        value = data(*place)
        return prim_ops.if_then_else(prim_ops.all(*inside), value, filler) if inside else value

    result: Tensor = te.compute(dims, body, name=name, tag="injective, pad")
    return result


_Place = Callable[[Expr, Expr, int], Expr]


def _mapped(
    data: Tensor, before: Sequence[int], after: Sequence[int], name: str, place: _Place
) -> Tensor:
    dims = _padded_shape(data, before, after)
    result: Tensor = te.compute(
        dims,
        lambda *i: data(*map(place, i, data.shape, before)),
        name=name,
        tag="injective, pad",
    )
    return result


def reflect_pad(data: Tensor, before: Sequence[int], after: Sequence[int]) -> Tensor:
    """Mirror a tensor at its borders, the border elements once."""

    def place(index: Expr, extent: Expr, b: int) -> Expr:
        last: Expr = extent - 1
        mirrored: Expr = last - prim_ops.abs(last - prim_ops.abs(index - b))
        return mirrored

    return _mapped(data, before, after, "ReflectPadInput", place)


def replicate_pad(data: Tensor, before: Sequence[int], after: Sequence[int]) -> Tensor:
    """Repeat the border elements of a tensor."""

    def place(index: Expr, extent: Expr, b: int) -> Expr:
        return prim_ops.max(0, prim_ops.min(extent - 1, index - b))

    return _mapped(data, before, after, "ReplicatePadInput", place)


def circular_pad(data: Tensor, before: Sequence[int], after: Sequence[int]) -> Tensor:
    """Continue a tensor with itself from the other side."""

    def place(index: Expr, extent: Expr, b: int) -> Expr:
        return prim_ops.floormod(index - b + extent, extent)

    return _mapped(data, before, after, "CircularPadInput", place)
