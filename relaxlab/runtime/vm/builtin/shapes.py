"""Builtins for symbolic shapes: the heap of sizes, matching values to it, making values of it.

Sizes that are known only at run time live in a small int64 tensor, the shape heap, one slot per
expression. A failed match changes nothing: every dimension is compared before one is stored.
Counterpart: the shape functions of TVM's ``vm/builtin.cc``.

Examples
--------
>>> heap = ShapeHeap(1)
>>> match_shape(ShapeTuple((3, 4)), heap, 2, 1, 0, 0, 4, "")
>>> make_shape(heap, 2, 1, 0, 0, 9)
ShapeTuple((3, 9))
>>> match_shape(ShapeTuple((5, 4)), heap, 2, 3, 0, 0, 4, "")
Traceback (most recent call last):
RuntimeError: match_cast: shape[0] is 5, but heap slot 0 is populated with 3 by an earlier check, \
dimension 0
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from relaxlab.errors import InternalError
from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.tensor import Tensor
from relaxlab.runtime.vm.builtin.error_context import place, prefix, size_name
from relaxlab.runtime.vm.builtin.table import (
    as_context,
    as_int,
    as_shape,
    as_string,
    as_tensor,
    builtin,
)

if TYPE_CHECKING:
    from relaxlab.runtime.vm.virtual_machine import VirtualMachine

__all__ = ["MakeShapeCode", "MatchShapeCode", "ShapeHeap"]


class MatchShapeCode(IntEnum):
    """What to do with one size of a matched shape."""

    ASSERT_EQUAL_TO_IMM = 0
    STORE_TO_HEAP = 1
    NO_OP = 2
    ASSERT_EQUAL_TO_LOAD = 3


class MakeShapeCode(IntEnum):
    """Where one size of a new shape comes from."""

    USE_IMM = 0
    LOAD_SHAPE = 1


# Plain integers: comparing with members of an enumeration would be most of the work here.
_EQUAL, _STORE, _NOTHING, _LOAD = map(int, MatchShapeCode)
_IMMEDIATE, _FROM_HEAP = map(int, MakeShapeCode)


class ShapeHeap(Tensor):
    """A shape heap that remembers who stored each slot, for error messages.

    Attributes
    ----------
    origins : list
        Per slot: the error context of the check that stored it, the rank and the dimension.
    """

    __slots__ = ("origins",)

    def __init__(self, slots: int) -> None:
        # zeros rather than what the memory held: a replay must see the same bytes
        super().__init__(np.zeros(slots, np.int64))
        self.origins: list[tuple[str | None, int, int] | None] = [None] * slots


@builtin("vm.builtin.alloc_shape_heap")
def alloc_shape_heap(machine: "VirtualMachine", size: int, /) -> ShapeHeap:
    """Return a heap of ``size`` slots on the host.

    Parameters
    ----------
    machine
        ``%vm``.
    size
        Number of int64 slots.

    Raises
    ------
    InternalError
        If the size is negative.
    TypeError
        If it is no integer.

    Notes
    -----
    Source: TVM's ``vm.builtin.alloc_shape_heap``. TVM leaves the slots as the memory was; here
    they are 0.
    """
    slots = as_int(size, "vm.builtin.alloc_shape_heap", "size")
    if slots < 0:
        raise InternalError(f"vm.builtin.alloc_shape_heap: expected a size >= 0, got {slots}")
    return ShapeHeap(slots)


@builtin("vm.builtin.match_shape")
def match_shape(value: Any, heap: Any, rank: Any, /, *rest: Any) -> None:
    """Match a tensor's shape, or a shape, to ``rank`` pairs of code and value, then a context.

    Parameters
    ----------
    value
        A tensor, or a shape (a tuple of integers counts).
    heap
        Slots for symbolic sizes; None if no code touches them.
    rank
        How many sizes.
    rest
        ``rank`` pairs of code (:class:`MatchShapeCode`) and value, then the context.

    Raises
    ------
    RuntimeError
        If the rank or a size differs; the message names the variable and who bound it first.
    InternalError
        If there are too few arguments, a code is unknown, or a slot is out of range.
    TypeError
        If the value has no shape, the heap is needed and missing, or the context is no string.

    Notes
    -----
    Source: TVM's ``vm.builtin.match_shape``. TVM stores sizes one by one; here a failed match
    stores nothing.
    """
    me = "vm.builtin.match_shape"
    if isinstance(value, Tensor | np.ndarray):
        shape: Sequence[int] = value.shape
    else:
        shape = as_shape(value, me, "value")
    rank = as_int(rank, me, "rank")
    if len(rest) != 2 * rank + 1:
        raise InternalError(
            f"{me}: expected {rank} pairs of code and value and a context, "
            f"got {len(rest)} arguments"
        )
    ctx = as_string(rest[-1], me, "context")
    if len(shape) != rank:
        raise RuntimeError(
            f"{prefix(ctx)}match_cast: expected a shape of size {rank}, "
            f"got shape {tuple(shape)} of size {len(shape)}"
        )
    _match(me, shape, heap, rest[:-1], ctx)


@builtin("vm.builtin.match_prim_value")
def match_prim_value(value: Any, heap: Any, code: Any, reg: Any, ctx: Any, /) -> None:
    """Match one integer, as :func:`match_shape` does with one dimension.

    Parameters
    ----------
    value
        An integer.
    heap
        The slots; a tensor even if no code touches it.
    code, reg
        As one pair of :func:`match_shape`.
    ctx
        Text in front of the message: what is checked, and where.

    Raises
    ------
    RuntimeError
        If the value differs.
    InternalError
        If the code is unknown, or the slot out of range.
    TypeError
        If an argument is of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.match_prim_value``.
    """
    me = "vm.builtin.match_prim_value"
    ctx = as_context(ctx, me)
    if type(heap) is not ShapeHeap:
        heap = as_tensor(heap, me, "heap")
    _match(me, (as_int(value, me, "value"),), heap, (code, reg), ctx)


@builtin("vm.builtin.make_shape")
def make_shape(heap: Any, rank: Any, /, *pairs: Any) -> ShapeTuple:
    """Return the shape that ``rank`` pairs of code and value describe.

    Parameters
    ----------
    heap
        The slots; None if no code needs them.
    rank
        How many sizes.
    pairs
        ``rank`` pairs of code (:class:`MakeShapeCode`) and value.

    Raises
    ------
    InternalError
        If there are too few arguments, a code is unknown, or a slot is out of range.
    TypeError
        If an argument is of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.make_shape``.
    """
    me = "vm.builtin.make_shape"
    rank = as_int(rank, me, "rank")
    if len(pairs) != 2 * rank:
        raise InternalError(
            f"{me}: expected {rank} pairs of code and value, got {len(pairs)} arguments"
        )
    pieces = iter(pairs)
    return tuple.__new__(
        ShapeTuple,
        [_make(me, heap, code, value) for code, value in zip(pieces, pieces, strict=True)],
    )


@builtin("vm.builtin.make_prim_value")
def make_prim_value(heap: Any, code: Any, value: Any, /) -> int:
    """Return an integer, given or from the heap.

    Parameters
    ----------
    heap
        The slots; a tensor in any case.
    code, value
        As one pair of :func:`make_shape`.

    Raises
    ------
    InternalError
        If the code is unknown, or the slot out of range.
    TypeError
        If an argument is of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.make_prim_value``.
    """
    me = "vm.builtin.make_prim_value"
    return _make(me, as_tensor(heap, me, "heap"), code, value)


def _match(me: str, sizes: Sequence[int], heap: Any, pairs: Sequence[Any], ctx: str | None) -> None:
    """Compare all sizes, then store those that are to be stored."""
    stores: dict[int, tuple[int, int]] = {}  # slot -> size, dimension
    for dimension, size in enumerate(sizes):
        code, value = pairs[2 * dimension], pairs[2 * dimension + 1]
        if type(code) is not int or type(value) is not int:
            code = as_int(code, me, f"code of dimension {dimension}")
            value = as_int(value, me, f"value of dimension {dimension}")
        if code == _EQUAL:
            if size != value:
                raise RuntimeError(
                    f"{prefix(ctx)}match_cast: shape[{dimension}] is {size}, "
                    f"but the annotation wants the constant {value}"
                )
        elif code == _STORE:
            _heap_slots(me, heap, value)
            stores[value] = (size, dimension)
        elif code == _LOAD:
            slots = _heap_slots(me, heap, value)
            known = stores[value][0] if value in stores else int(slots[value])
            if size != known:
                origin = (ctx, len(sizes), stores[value][1]) if value in stores else None
                raise _mismatch(ctx, len(sizes), dimension, size, known, heap, value, origin)
        elif code != _NOTHING:
            raise InternalError(
                f"{prefix(ctx)}{me}: Unknown code {code} for shape[{dimension}]: expected 0 "
                "(equal to constant), 1 (store), 2 (nothing) or 3 (equal to heap slot)"
            )
    for slot, (size, dimension) in stores.items():
        heap.array[slot] = size
        if isinstance(heap, ShapeHeap):
            heap.origins[slot] = (ctx, len(sizes), dimension)


def _make(me: str, heap: Any, code: Any, value: Any) -> int:
    if type(code) is not int or type(value) is not int:
        code, value = as_int(code, me, "code"), as_int(value, me, "value")
    number: int = value
    if code == _IMMEDIATE:
        return number
    if code == _FROM_HEAP:
        return int(_heap_slots(me, heap, number)[number])
    raise InternalError(
        f"{me}: Unknown code {code} to make a shape: expected 0 (constant) or 1 (heap slot)"
    )


def _heap_slots(me: str, heap: Any, slot: int) -> Any:
    """Return the heap's array after checking that it has the slot."""
    slots = heap.array if type(heap) is ShapeHeap else as_tensor(heap, me, "heap").array
    if slots.ndim != 1 or slots.dtype != np.int64:
        raise InternalError(
            f"{me}: heap: expected int64 slots, got {slots.dtype} of shape {slots.shape}"
        )
    if not 0 <= slot < len(slots):
        raise InternalError(f"{me}: heap slot {slot} is out of range: the heap has {len(slots)}")
    return slots


def _mismatch(
    ctx: str | None,
    rank: int,
    dimension: int,
    size: int,
    known: int,
    heap: Any,
    slot: int,
    origin: tuple[str | None, int, int] | None,
) -> RuntimeError:
    """Return the error for a size that has two values: its name, and who bound it first."""
    if origin is None and isinstance(heap, ShapeHeap):
        origin = heap.origins[slot]
    name = size_name(ctx, rank, dimension)
    who = ""
    if origin is not None:
        first_ctx, first_rank, first_dimension = origin
        name = name or size_name(first_ctx, first_rank, first_dimension)
        who = f" by {place(first_ctx)}, dimension {first_dimension}"
    subject = f"variable {name}" if name and name.isidentifier() else name or f"heap slot {slot}"
    return RuntimeError(
        f"{prefix(ctx)}match_cast: shape[{dimension}] is {size}, "
        f"but {subject} is populated with {known}{who}"
    )
