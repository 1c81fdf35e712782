"""Builtins written out: what the common case of each one is in Python.

Most instructions of a compiled model are checks that hold, allocations of sizes known in advance,
and moves of values. Where the arguments that matter are constants, the source does the common case
itself; everything else, errors above all, is left to the builtin, which is called with the very
same arguments. No builtin of this file changes the items of an Array. Counterpart: none.

Examples
--------
>>> "vm.builtin.copy" in INLINE
True
"""

from collections.abc import Sequence
from typing import Any, Final

from relaxlab.errors import InternalError
from relaxlab.registry import Registry
from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.storage import layout
from relaxlab.runtime.vm.builtin.shapes import MakeShapeCode, MatchShapeCode
from relaxlab.runtime.vm.generated_source import CallSite, Guard, Inliner
from relaxlab.runtime.vm.source_writer import HEAP, Writer

__all__ = ["GUARDS", "INLINE"]

_TAB = "    "

INLINE: Final[Registry[Inliner]] = Registry("inlined builtin")
"""Who writes out a builtin, by name; a writer returns False for a call that it does not know."""

GUARDS: Final[Registry[Guard]] = Registry("guard")
"""Builtins that check a tensor, by name."""


@INLINE.registered("vm.builtin.copy")
def _copy(writer: Writer, call: CallSite) -> bool:
    if len(call.texts) != 1:
        return False
    if call.slot is not None:
        writer.line(f"{call.result} = {call.texts[0]}")
        if call.slots[0] in writer.arrays:
            writer.arrays[call.slot] = writer.arrays[call.slots[0]]
    return True


@INLINE.registered("vm.builtin.null_value")
def _null_value(writer: Writer, call: CallSite) -> bool:
    if call.texts:
        return False
    if call.slot is not None:
        writer.line(f"{call.result} = None")
    return True


@INLINE.registered("vm.builtin.make_tuple")
def _make_tuple(writer: Writer, call: CallSite) -> bool:
    if call.slot is not None:
        comma = "," if len(call.texts) == 1 else ""
        writer.line(f"{call.result} = Array(({', '.join(call.texts)}{comma}))")
        writer.arrays[call.slot] = len(call.texts)
    return True


@INLINE.registered("vm.builtin.tuple_getitem")
def _tuple_getitem(writer: Writer, call: CallSite) -> bool:
    if len(call.texts) != 2 or call.slot is None:
        return False
    index = call.values[1]
    if type(index) is not int or index < 0 or not writer.is_register(call.slots[0]):
        return False
    items, careful = call.texts[0], writer.builtin(call)
    if index < writer.arrays.get(call.slots[0], 0):
        writer.line(f"{call.result} = {items}[{index}]")
        return True
    writer.line(
        f"{call.result} = {items}[{index}] if type({items}) is Array and len({items}) > {index} "
        f"else {careful}"
    )
    return True


@INLINE.registered("vm.builtin.read_if_cond")
def _read_if_cond(writer: Writer, call: CallSite) -> bool:
    if len(call.texts) != 1 or call.slot is None:
        return False
    value = call.texts[0]
    writer.line(f"{call.result} = {value} if type({value}) is bool else {writer.builtin(call)}")
    writer.booleans.add(call.slot)
    return True


@INLINE.registered("vm.builtin.shape_of")
def _shape_of(writer: Writer, call: CallSite) -> bool:
    if len(call.texts) != 1 or call.slot is None or not writer.is_register(call.slots[0]):
        return False
    value = call.texts[0]
    writer.line(
        f"{call.result} = {value}.shape if type({value}) is Tensor else {writer.builtin(call)}"
    )
    return True


# ---- checks -------------------------------------------------------------------------------------


def _tensor_tests(writer: Writer, call: CallSite) -> list[str] | None:
    """Return when ``check_tensor_info`` must run because the check may fail; None if unknown."""
    if len(call.texts) not in (3, 4) or not writer.is_register(call.slots[0]):
        return None
    rank = call.values[1]
    if type(rank) is not int or not isinstance(call.values[-1], str):
        return None
    value = call.texts[0]
    tests = [f"type({value}) is not Tensor"]
    if len(call.texts) == 4 and call.values[2] is not None:
        if not isinstance(call.values[2], DataType):
            return None
        tests.append(f"{value}.dtype is not {call.texts[2]}")
    if rank != -1:
        tests.append(f"len({value}.shape) != {rank}")
    return tests


def _shape_tests(_: Writer, call: CallSite) -> list[str] | None:
    """Return when a ``match_shape`` with constant sizes may fail on a tensor; None if unknown."""
    pairs = _pairs(call, 3, 1)
    if pairs is None or not isinstance(call.values[-1], str) or any(code for code, _ in pairs):
        return None
    value = call.texts[0]
    wanted = tuple(number for _, number in pairs)
    return [f"type({value}) is not Tensor", f"{value}.shape != {wanted!r}"]


GUARDS.register("vm.builtin.check_tensor_info", _tensor_tests)
GUARDS.register("vm.builtin.match_shape", _shape_tests)


@INLINE.registered("vm.builtin.check_tensor_info")
def _check_tensor_info(writer: Writer, call: CallSite) -> bool:
    tests = _tensor_tests(writer, call)
    if tests is None or call.slot is not None:
        return False
    writer.line(f"if {' or '.join(tests)}:")
    writer.line(_TAB + writer.builtin(call))
    return True


@INLINE.registered("vm.builtin.match_shape")
def _match_shape(writer: Writer, call: CallSite) -> bool:
    pairs = _pairs(call, 3, 1)
    if pairs is None or call.slot is not None or not isinstance(call.values[-1], str):
        return False
    if not writer.is_register(call.slots[0]):
        return False
    touched = any(code in (1, 3) for code, _ in pairs)
    if touched and call.slots[1] not in writer.heaps:
        return False
    value, heap, rank = call.texts[0], call.texts[1], len(pairs)
    sizes = f"{value}.shape if type({value}) is Tensor else {value} if type({value}) is ShapeTuple"
    if all(code == MatchShapeCode.ASSERT_EQUAL_TO_IMM for code, _ in pairs):
        wanted = tuple(number for _, number in pairs)
        writer.line(f"if ({sizes} else None) != {wanted!r}:")
        writer.line(_TAB + writer.builtin(call))
        return True
    stores: dict[int, int] = {}  # slot -> dimension
    tests = [f"len(s) != {rank}"]
    for dimension, (code, number) in enumerate(pairs):
        match code:
            case MatchShapeCode.ASSERT_EQUAL_TO_IMM:
                tests.append(f"s[{dimension}] != {number}")
            case MatchShapeCode.STORE_TO_HEAP:
                stores[number] = dimension
            case MatchShapeCode.ASSERT_EQUAL_TO_LOAD:
                if number in stores:
                    tests.append(f"s[{dimension}] != s[{stores[number]}]")
                else:
                    known = writer.size(call.slots[1], number)
                    if known is None:
                        return False
                    tests.append(f"s[{dimension}] != {known}")
            case MatchShapeCode.NO_OP:
                pass
            case _:
                return False
    if stores:
        if min(stores) < 0:
            return False
        tests.insert(0, f"type({heap}) is not ShapeHeap or len({heap}.origins) <= {max(stores)}")
    writer.line(f"s = {sizes} else ()")
    writer.line(f"if {' or '.join(tests)}:")
    writer.line(_TAB + writer.builtin(call))
    for slot in stores:
        writer.line(f"{_TAB}{_size_name(call.slots[1], slot)} = int({heap}.array[{slot}])")
    if stores:
        writer.line("else:")
    for slot, dimension in stores.items():
        name = _size_name(call.slots[1], slot)
        origin = writer.names.name("o", (call.values[-1], rank, dimension))
        writer.line(f"{_TAB}{heap}.array[{slot}] = {name} = s[{dimension}]")
        writer.line(f"{_TAB}{heap}.origins[{slot}] = {origin}")
        writer.sizes[call.slots[1], slot] = name
    return True


@INLINE.registered("vm.builtin.make_shape")
def _make_shape(writer: Writer, call: CallSite) -> bool:
    pairs = _pairs(call, 2, 0)
    if pairs is None or call.slot is None:
        return False
    texts = []
    for code, number in pairs:
        known = writer.size(call.slots[0], number) if code == MakeShapeCode.LOAD_SHAPE else None
        if code != MakeShapeCode.USE_IMM and known is None:
            return False
        texts.append(known or repr(number))
    comma = "," if len(texts) == 1 else ""
    writer.line(f"{call.result} = new_tuple(ShapeTuple, ({', '.join(texts)}{comma}))")
    return True


@INLINE.registered("vm.builtin.make_prim_value")
def _make_prim_value(writer: Writer, call: CallSite) -> bool:
    if len(call.texts) != 3 or call.slot is None or call.slots[0] not in writer.heaps:
        return False
    code, number = call.values[1:]
    if type(number) is not int or type(code) is not int or code != MakeShapeCode.LOAD_SHAPE:
        return False
    known = writer.size(call.slots[0], number)
    if known is None:
        return False
    writer.line(f"{call.result} = {known}")
    return True


@INLINE.registered("vm.builtin.alloc_shape_heap")
def _alloc_shape_heap(writer: Writer, call: CallSite) -> bool:
    if len(call.texts) != 2 or call.slot is None:
        return False
    slots = call.values[1]
    if type(slots) is not int or not 0 <= slots < 2**20:
        return False
    writer.line(f"{call.result} = ShapeHeap({slots})")
    writer.forget_sizes((call.slot,), gone=True)
    if call.slot in writer.heaps:
        writer.sizes[call.slot, HEAP] = str(slots)
    return True


def _pairs(call: CallSite, before: int, behind: int) -> list[tuple[int, int]] | None:
    """Return pairs of code and value, all constants, after a rank that says how many there are."""
    rank = call.values[before - 1] if len(call.values) >= before else None
    if type(rank) is not int or len(call.texts) != before + 2 * rank + behind:
        return None
    numbers: Sequence[Any] = call.values[before : before + 2 * rank]
    if any(type(number) is not int for number in numbers):
        return None
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _size_name(heap: int, slot: int) -> str:
    return f"h{heap}_{slot}"


# ---- memory -------------------------------------------------------------------------------------


@INLINE.registered("vm.builtin.alloc_storage")
def _alloc_storage(writer: Writer, call: CallSite) -> bool:
    if len(call.texts) != 5 or call.slot is None:
        return False
    if call.slots[0] != writer.function.machine_slot:
        return False
    _, shape, index, dtype, scope = call.values
    if type(index) is not int or index < 0 or not isinstance(dtype, DataType):
        return False
    if type(scope) is not str or scope not in ("", "global"):
        return False
    careful, allocators = writer.builtin(call), "machine.allocators"
    if type(shape) is ShapeTuple and min(shape, default=0) >= 0:
        enough = allocators if index == 0 else f"len({allocators}) > {index}"
        made = f"{allocators}[{index}].storage({shape.numel() * dtype.itemsize}) if {enough} else"
    elif writer.is_register(call.slots[1]):
        made = f"storage_of(machine, {call.texts[1]}, {index}, {dtype.itemsize}) or"
    else:
        return False
    writer.line(f"{call.result} = {made} {careful}")
    return True


@INLINE.registered("vm.builtin.alloc_tensor")
def _alloc_tensor(writer: Writer, call: CallSite) -> bool:
    if len(call.texts) not in (4, 5) or call.slot is None:
        return False
    if not writer.is_register(call.slots[0]):
        return False
    offset, shape, dtype = call.values[1:4]
    if type(offset) is not int or not isinstance(dtype, DataType):
        return False
    if len(call.texts) == 5 and type(call.values[4]) is not str:
        return False
    storage = call.texts[0]
    if type(shape) is ShapeTuple:
        try:
            known = writer.names.name("l", layout(shape, dtype))
        except InternalError:
            return False  # the builtin says what is wrong
        cut = f"{storage}.cut({call.texts[2]}, {call.texts[3]}, {offset}, {known})"
        writer.line(
            f"{call.result} = {cut} if type({storage}) is Storage else {writer.builtin(call)}"
        )
        return True
    size = call.texts[2]
    if not writer.is_register(call.slots[2]):
        return False
    usual = f"type({storage}) is Storage and type({size}) is ShapeTuple"
    cut = f"{storage}.tensor({size}, {call.texts[3]}, {offset})"
    writer.line(f"{call.result} = {cut} if {usual} else {writer.builtin(call)}")
    return True
