"""Sums of products written by Einstein's rule.

An equation such as ``ij,jk->ik`` names the dimensions of the operands and of the result; what the
result does not name is added up. Counterpart: ``tvm.topi.einsum``.

Examples
--------
>>> from relaxlab import te
>>> a, b = te.placeholder((2, 3), name="a"), te.placeholder((3, 4), name="b")
>>> c = einsum("ij,jk->ik", a, b)
>>> c.name, [extent.value for extent in c.shape]
('T_einsum', [2, 4])
>>> parse_equation("ba,ac").output
('b', 'c')
"""

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass

from relaxlab import te
from relaxlab.errors import InternalError
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr
from relaxlab.ir.prim import IntImm
from relaxlab.te import Tensor
from relaxlab.topi.indices import broadcast_shape, compute_ax, is_one, same_extent, zero_of

__all__ = ["EinsumEquation", "einsum", "einsum_ndim", "einsum_shape", "parse_equation"]

#: The label that stands for all dimensions without a letter.
_REST = "..."


@dataclass(frozen=True)
class EinsumEquation:
    """An equation: the labels of each operand's dimensions and of the result's.

    A label is a letter or ``"..."``.
    """

    operands: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]


def _labels(text: str, equation: str) -> tuple[str, ...]:
    labels: list[str] = []
    at = 0
    while at < len(text):
        if text[at] == ".":
            if text[at : at + 3] != _REST:
                raise InternalError("Cannot parse the Einsum equation: invalid ellipsis")
            if _REST in labels:
                raise InternalError("Ellipsis can only appear once for each input and output")
            labels.append(_REST)
            at += 3
            continue
        if not (text[at].isascii() and text[at].isalpha()):
            raise InternalError(
                f"Cannot parse the Einsum equation: invalid character {text[at]} in equation "
                f"{equation}"
            )
        labels.append(text[at])
        at += 1
    return tuple(labels)


def parse_equation(equation: str) -> EinsumEquation:
    """Read an equation; without an arrow, the result has what occurs once, in order of letters.

    Parameters
    ----------
    equation
        Letters for the dimensions of each operand, separated by commas; optionally ``->`` and
        those of the result. ``...`` stands for further dimensions, which are broadcast.
    """
    text = equation.replace(" ", "")
    before, *after = text.split("->")
    if len(after) > 1:
        raise InternalError("Equation can only have one arrow")
    operands = tuple(_labels(part, equation) for part in before.split(","))
    flat = [label for operand in operands for label in operand]
    if not after:
        once = sorted(label for label in set(flat) - {_REST} if flat.count(label) == 1)
        return EinsumEquation(operands, ((_REST,) if _REST in flat else ()) + tuple(once))
    output = _labels(after[0], equation)
    for label in output:
        if label != _REST and label not in flat:
            raise InternalError(f"no operand has the dimension {label} of the result: {equation}")
        if output.count(label) > 1:
            raise InternalError(f"the result has the dimension {label} twice: {equation}")
    return EinsumEquation(operands, output)


@dataclass(frozen=True)
class _Resolved:
    """An equation for operands of known shapes; ``...2`` is the third dimension from the end."""

    operands: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]
    extents: dict[str, Expr]


def _rest(count: int) -> tuple[str, ...]:
    return tuple(f"{_REST}{i}" for i in reversed(range(count)))


def _spread(labels: tuple[str, ...], count: int) -> tuple[str, ...]:
    if _REST not in labels:
        return labels
    place = labels.index(_REST)
    return (*labels[:place], *_rest(count), *labels[place + 1 :])


def _merge(a: Expr, b: Expr) -> Expr:
    """Return the extent that two dimensions of one letter have in common."""
    if is_one(a) or is_one(b):
        return b if is_one(a) else a
    if same_extent(a, b):
        return a
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        raise InternalError(f"Cannot broadcast extents {a} and {b}")
    if isinstance(a, IntImm):
        return b
    return a if isinstance(b, IntImm) else prim_ops.max(a, b)


def _broadcast(a: Sequence[Expr], b: Sequence[Expr]) -> tuple[Expr, ...]:
    for x, y in zip(reversed(a), reversed(b), strict=False):
        clash = isinstance(x, IntImm) and isinstance(y, IntImm) and not same_extent(x, y)
        if clash and not is_one(x) and not is_one(y):
            raise InternalError(
                f"Incompatible broadcast dims: {x} and {y} in: {_shown(a)} and {_shown(b)}"
            )
    return broadcast_shape(a, b)[0]


def _shown(shape: Sequence[Expr]) -> str:
    return f"({', '.join(map(str, shape))})"


def _rest_counts(equation: EinsumEquation, ndims: Sequence[int]) -> list[int]:
    """Return how many dimensions of each operand ``...`` stands for."""
    if len(equation.operands) != len(ndims):
        raise InternalError("Number of operands does not match the equation")
    counts = []
    for labels, ndim in zip(equation.operands, ndims, strict=True):
        count = ndim - len(labels) + (_REST in labels)
        if count < 0 or (count and _REST not in labels):
            raise InternalError(
                f"Einsum: {''.join(labels) or 'no letter'} cannot name the dimensions of an "
                f"operand of {ndim} dimension(s)"
            )
        counts.append(count)
    return counts


def _resolve(equation: EinsumEquation, shapes: Sequence[Sequence[Expr]]) -> _Resolved:
    counts = _rest_counts(equation, [len(shape) for shape in shapes])
    extents: dict[str, Expr] = {}
    rest: tuple[Expr, ...] = ()
    operands = []
    for labels, shape, count in zip(equation.operands, shapes, counts, strict=True):
        spread = _spread(labels, count)
        operands.append(spread)
        own = []
        for label, extent in zip(spread, shape, strict=True):
            if label.startswith(_REST):
                own.append(extent)
            else:
                extents[label] = _merge(extents[label], extent) if label in extents else extent
        rest = _broadcast(rest, own)
    extents.update(zip(_rest(len(rest)), rest, strict=True))
    return _Resolved(tuple(operands), _spread(equation.output, len(rest)), extents)


def einsum_ndim(equation: str, ndims: Sequence[int]) -> int:
    """Return the number of dimensions of the result for operands of the given numbers."""
    parsed = parse_equation(equation)
    rest = max(_rest_counts(parsed, ndims))
    return len(_spread(parsed.output, rest))


def einsum_shape(equation: str, shapes: Sequence[Sequence[Expr]]) -> tuple[Expr, ...]:
    """Return the shape of the result for operands of the given shapes."""
    resolved = _resolve(parse_equation(equation), shapes)
    return tuple(resolved.extents[label] for label in resolved.output)


def einsum(equation: str, *operands: Tensor) -> Tensor:
    """Return the sum of products that an equation describes.

    Parameters
    ----------
    equation
        As for :func:`parse_equation`.
    operands
        As many as the equation has.
    """
    resolved = _resolve(parse_equation(equation), [operand.shape for operand in operands])
    summed = sorted(set(resolved.extents) - set(resolved.output))
    axes = {
        label: te.reduce_axis((0, resolved.extents[label]), label.replace(_REST, "rest"))
        for label in summed
    }

    def body(*indices: Expr) -> Expr:
        where: dict[str, Expr] = dict(zip(resolved.output, indices, strict=True))
        where.update((label, axis.var) for label, axis in axes.items())

        def element(operand: Tensor, labels: tuple[str, ...]) -> Expr:
            place = [
                zero_of(extent)
                if is_one(extent) and not is_one(resolved.extents[label])
                else where[label]
                for label, extent in zip(labels, operand.shape, strict=True)
            ]
            value: Expr = operand(*place)
            return value

        factors = map(element, operands, resolved.operands)
        product: Expr = functools.reduce(operator.mul, factors)
        return te.sum(product, axis=list(axes.values())) if axes else product

    shape = [resolved.extents[label] for label in resolved.output]
    return compute_ax(shape, body, "T_einsum", "matmul")
