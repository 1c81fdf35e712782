"""Convolutions, of any number of spatial dimensions and any order of dimensions.

Counterpart: ``tvm.topi.nn.conv1d``, ``conv2d`` and ``conv3d``, and the transposed ones.

Examples
--------
>>> from relaxlab import te
>>> x, w = te.placeholder((1, 2, 5, 5), name="x"), te.placeholder((3, 2, 3, 3), name="w")
>>> conv(x, w, (1, 1), (1, 1, 1, 1), (1, 1), 1, "NCHW", "OIHW").name
'conv2d_nchw'
"""

from collections.abc import Callable, Sequence
from typing import Any

from relaxlab import te
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr
from relaxlab.ir.prim import IntImm
from relaxlab.ir.sym import Analyzer
from relaxlab.runtime.dtype import DataType
from relaxlab.te import Tensor
from relaxlab.topi.nn.dilate import dilate
from relaxlab.topi.nn.padding import pad

__all__ = ["conv", "conv_transpose"]

#: Names of the loops over output pixels and over the window, by spatial dimension.
_OUTER, _WINDOW = ("yy", "xx", "zz"), ("ry", "rx", "rz")
#: Letters of the spatial dimensions, by their number.
_SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


def _grouped(extent: Expr, groups: int) -> Expr:
    return extent if groups == 1 else prim_ops.indexdiv(extent, groups)


def conv(
    data: Tensor,
    weight: Tensor,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    data_layout: str,
    kernel_layout: str,
    out_dtype: DataType | str | None = None,
) -> Tensor:
    """Return the convolution (correlation, strictly) of images with filters.

    Parameters
    ----------
    data
        Images.
    weight
        Filters.
    strides, dilation
        Steps of the window, and inside it, one per spatial dimension.
    padding
        Zeros before the first element of each spatial dimension, then those behind the last.
    groups
        Into how many groups the channels are divided, each with filters of its own.
    data_layout, kernel_layout
        Orders of dimensions, such as ``"NCHW"`` and ``"OIHW"``.
    out_dtype
        Dtype in which products are formed and added; that of the data by default.

    Raises
    ------
    ValueError
        If the window is larger than the padded image.
    """
    rank = len(data_layout) - 2
    letters = _SPATIAL[rank]
    at, kernel_at = data_layout.index, kernel_layout.index
    target = data.dtype if out_dtype is None else DataType(out_dtype)
    simplify = Analyzer().simplify
    before, after = [0] * (rank + 2), [0] * (rank + 2)
    for i, letter in enumerate(letters):
        before[at(letter)], after[at(letter)] = padding[i], padding[rank + i]
    window = [weight.shape[kernel_at(letter)] for letter in letters]
    extents: dict[str, Expr] = {
        "N": data.shape[at("N")],
        "C": simplify(weight.shape[kernel_at("O")]),
    }
    for i, letter in enumerate(letters):
        span = (window[i] - 1) * dilation[i] + 1
        room = data.shape[at(letter)] - span + padding[i] + padding[rank + i]
        extents[letter] = simplify(prim_ops.indexdiv(room, strides[i]) + 1)
    _check_room([extents[letter] for letter in letters])
    padded = pad(data, before, after, 0.0, name="pad_temp")
    inputs = simplify(_grouped(data.shape[at("C")], groups))
    filters = prim_ops.indexdiv(weight.shape[kernel_at("O")], groups)
    axes = {"C": te.reduce_axis((0, inputs), "rc")}
    for i, letter in enumerate(letters):
        axes[letter] = te.reduce_axis((0, window[i]), _WINDOW[i])
    reduced = _reduction_order(data_layout, letters)
    names = {"N": "nn", "C": "ff", **dict(zip(letters, _OUTER, strict=False))}

    def body(*indices: Expr) -> Any:
        index = dict(zip(data_layout, indices, strict=True))
        place: dict[str, Expr] = {"N": index["N"], "C": axes["C"].var}
        if groups > 1:
            place["C"] = prim_ops.indexdiv(index["C"], filters) * inputs + axes["C"].var
        for i, letter in enumerate(letters):
            place[letter] = index[letter] * strides[i] + axes[letter].var * dilation[i]
        chosen: dict[str, Expr] = {"O": index["C"], "I": axes["C"].var}
        chosen.update((letter, axes[letter].var) for letter in letters)
        x = prim_ops.cast(target, padded(*(place[a] for a in data_layout)))
        w = prim_ops.cast(target, weight(*(chosen[a] for a in kernel_layout)))
        return te.sum(x * w, axis=[axes[a] for a in reduced])

    prefix = "group_" if groups > 1 else ""
    result: Tensor = te.compute(
        [extents[a] for a in data_layout],
        body,
        name=f"{prefix}conv{rank}d_{data_layout.lower()}",
        tag=f"{prefix}conv{rank}d_{data_layout.lower()}",
        varargs_names=[names[a] for a in data_layout],
    )
    return result


def _reduction_order(data_layout: str, letters: str) -> list[str]:
    """Return the dimensions of the window in the order in which TVM nests their loops.

    That is the order of the data's dimensions without the first, which TVM takes for the batch:
    where it is another one, those behind it in the canonical order move up.
    """
    order = [f"NC{letters}".index(axis) for axis in data_layout]
    return [f"C{letters}"[place - (place > order[0])] for place in order[1:]]


def _check_room(extents: Sequence[Expr]) -> None:
    if any(isinstance(extent, IntImm) and extent.value < 0 for extent in extents):
        shown = ", ".join(map(str, extents))
        raise ValueError(
            f"Invalid conv parameters: lead to negative output shape [{shown}]; the window must "
            "not be larger than the padded image"
        )


def conv_transpose(
    data: Tensor,
    weight: Tensor,
    strides: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    out_dtype: DataType | str | None = None,
) -> Tensor:
    """Return the transposed convolution: what :func:`conv` would have made ``data`` of.

    The image is spread out by ``strides`` and convolved with the mirrored filters. Layouts are
    batch, channel, spatial dimensions and input, output, spatial dimensions.

    Parameters
    ----------
    data, weight
        Images and filters.
    strides, padding, dilation, groups
        Of the convolution that this one undoes.
    output_padding
        How many elements are added at the end of each spatial dimension.
    out_dtype
        Dtype in which products are formed and added; that of the data by default.
    """
    rank = data.ndim - 2
    target = data.dtype if out_dtype is None else DataType(out_dtype)
    ones = (1, 1)
    if any(d != 1 for d in dilation):
        weight = dilate(weight, [*ones, *dilation], name="kernel_dilate")
    spread = dilate(data, [*ones, *strides], name="data_dilate")
    window = weight.shape[2:]
    before = [0, 0, *(k - 1 - padding[i] for i, k in enumerate(window))]
    after = [
        0,
        0,
        *(k - 1 - padding[rank + i] + output_padding[i] for i, k in enumerate(window)),
    ]
    padded = pad(spread, _literals(before), _literals(after), 0.0, name="data_pad")
    mirrored = _mirrored(weight, grouped=groups > 1)
    return _transposed_sum(padded, mirrored, target, groups, data.shape)


def _literals(widths: Sequence[Expr | int]) -> list[Any]:
    return [w.value if isinstance(w, IntImm) else w for w in widths]


def _mirrored(weight: Tensor, grouped: bool) -> Tensor:
    """Return the filters with outputs first and every window reversed."""
    rank = weight.ndim - 2
    window = weight.shape[2:]

    def body(*indices: Expr) -> Expr:
        out, inp, *place = indices
        back = [k - 1 - i for k, i in zip(window, place, strict=True)]
        return weight(inp, out, *back)

    # the names that TVM gives the first two loops are exchanged here, and only here
    first = ("i", "o") if grouped and rank == 2 else ("o", "i")
    result: Tensor = te.compute(
        (weight.shape[1], weight.shape[0], *window),
        body,
        name="kernel" if rank == 1 else "kernel_transform",
        varargs_names=[*first, *_SPATIAL[rank].lower()],
    )
    return result


def _transposed_sum(
    padded: Tensor,
    weight: Tensor,
    target: DataType,
    groups: int,
    data_shape: Sequence[Expr],
) -> Tensor:
    rank = padded.ndim - 2
    letters = _SPATIAL[rank].lower()
    simplify = Analyzer().simplify
    outputs, window = weight.shape[0], weight.shape[2:]
    inputs = simplify(_grouped(data_shape[1], groups))
    extents = [simplify(extent - k + 1) for extent, k in zip(padded.shape[2:], window, strict=True)]
    axes = [te.reduce_axis((0, inputs), "dc")]
    axes += [te.reduce_axis((0, k), f"d{a}") for a, k in zip(letters, window, strict=True)]
    channel: Callable[[Expr], Expr] = lambda c: axes[0].var  # noqa: E731  # chosen below
    if groups > 1:
        channel = lambda c: prim_ops.indexdiv(c, outputs) * inputs + axes[0].var  # noqa: E731

    def body(*indices: Expr) -> Any:
        b, c, *place = indices
        moved = [i + axis.var for i, axis in zip(place, axes[1:], strict=True)]
        out = prim_ops.indexmod(c, outputs) if groups > 1 else c
        x = prim_ops.cast(target, padded(b, channel(c), *moved))
        w = prim_ops.cast(target, weight(out, channel(c), *(a.var for a in axes[1:])))
        return te.sum(x * w, axis=axes)

    dims = (data_shape[0], simplify(outputs * groups), *extents)
    result: Tensor = te.compute(
        dims,
        body,
        tag=f"{'group_' if groups > 1 else ''}conv{rank}d_transpose",
        varargs_names=["b", "c", *letters],
    )
    return result
