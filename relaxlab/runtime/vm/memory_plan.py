"""Memory that a compiled function needs again and again, prepared once.

A model allocates the same storages and tensors on every call, gives them to kernels, and drops
them. Where nobody else can see such a tensor (it goes to kernels and checks only), the function
keeps it for its next call; a tensor that it returns is made of a block that it keeps, as soon as
the caller has dropped the last one. To everybody else the blocks that a function keeps are free:
the allocator takes them back when it needs one of that size, or when somebody looks. Counterpart:
none; TVM asks its allocator every time.

Only functions without jumps and without host functions are planned: nothing but kernels and
builtins can run while a plan is in use.

Examples
--------
>>> from relaxlab.runtime.vm.frame import LinkedFunction
>>> memory_plan(LinkedFunction("f", 0, 0), frozenset()) is None
True
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from relaxlab.errors import InternalError
from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.storage import PAGE_BYTES, PooledAllocator, layout
from relaxlab.runtime.vm.builtin.table import BUILTINS
from relaxlab.runtime.vm.builtin.tensors import reshape
from relaxlab.runtime.vm.frame import LinkedFunction
from relaxlab.runtime.vm.linker import CALL, RET

if TYPE_CHECKING:
    from relaxlab.runtime.vm.virtual_machine import VirtualMachine

__all__ = ["ALONE", "MemoryPlan", "Plans", "memory_plan", "spare"]

# Builtins that can be called while a plan is in use: they call nothing of somebody else.
_QUIET: Final = frozenset(
    f"vm.builtin.{name}"
    for name in (
        "alloc_shape_heap",
        "alloc_storage",
        "alloc_tensor",
        "check_func_info",
        "check_prim_value_info",
        "check_shape_info",
        "check_string_info",
        "check_tensor_info",
        "check_tuple_info",
        "copy",
        "make_closure",
        "make_prim_value",
        "make_shape",
        "make_tuple",
        "match_prim_value",
        "match_shape",
        "null_value",
        "read_if_cond",
        "reshape",
        "shape_of",
        "tensor_to_shape",
        "tuple_getitem",
    )
)
_CHECKS: Final = ("vm.builtin.check_tensor_info", "vm.builtin.match_shape", "vm.builtin.shape_of")
_SPARES: Final = 2
_NEVER: Final = sys.maxsize


def _users(values: list[Any], position: int) -> int:
    return sys.getrefcount(values[position])


def _users_of_variable(values: list[Any]) -> int:
    (value,) = values
    return sys.getrefcount(value)


# What these say of an object that nobody else holds depends on the interpreter.
_ALONE_IN_LIST: Final = _users([object()], 0)
ALONE: Final = _users_of_variable([object()])
"""References to an object that only a list and a local variable hold."""


class Plans:
    """The prepared memory of one function that is not in use.

    Attributes
    ----------
    idle
        One entry per activation that was alive at once: what :meth:`MemoryPlan.make` returned.
    """

    __slots__ = ("__weakref__", "idle")

    def __init__(self) -> None:
        self.idle: list[list[Any]] = []

    def take_back(self) -> None:
        """Let all of it go."""
        while self.idle:
            self.idle.pop()


@dataclass(frozen=True, slots=True)
class _View:
    """A tensor that the plan holds."""

    block: int
    shape: ShapeTuple
    dtype: DataType
    offset: int
    source: int | None = None
    """Which of the plan's tensors it is a reshaped view of."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What a function keeps.

    Attributes
    ----------
    blocks
        Device index and bytes of every block.
    views
        The tensors, each on a block or a view of another one; those of ``outputs`` are arrays.
    outputs
        Indices of the views that the function gives away, and how they are used.
    assigned
        Instructions that put a prepared tensor into their register, with the index of the view.
    done
        Instructions that need nothing done.
    """

    blocks: tuple[tuple[int, int], ...]
    views: tuple[_View, ...]
    outputs: frozenset[int]
    assigned: dict[int, int]
    done: frozenset[int]

    def make(self, machine: "VirtualMachine", plans: Plans) -> list[Any] | None:
        """Return new memory; None if this machine has none of the kind."""
        allocators = machine.allocators
        if any(device >= len(allocators) for device, _ in self.blocks):
            return None
        if any(type(allocators[device]) is not PooledAllocator for device, _ in self.blocks):
            return None
        try:
            storages = [allocators[device].storage(nbytes) for device, nbytes in self.blocks]
            held: list[Any] = []
            for view in self.views:
                if view.source is not None:
                    held.append(reshape(held[view.source], view.shape))
                else:
                    storage = storages[view.block]
                    held.append(storage.tensor(view.shape, view.dtype, view.offset))
        except (InternalError, MemoryError, TypeError, ValueError):
            return None  # the long way says what is wrong, and where
        for index in self.outputs:
            held[index] = held[index].array
        for device in {device for device, _ in self.blocks}:
            allocator = allocators[device]
            assert isinstance(allocator, PooledAllocator)
            on_it = zip(storages, self.blocks, strict=True)
            allocator.lend(plans, {storage.nbytes for storage, (at, _) in on_it if at == device})
        # arrays for outputs while the one in its place is in use, and the devices
        spares: dict[int, list[Any]] = {index: [] for index in self.outputs}
        return [*held, spares, *(allocators[device].device for device in self.devices)]

    @property
    def devices(self) -> tuple[int, ...]:
        """The indices of the devices that outputs are on."""
        return tuple(sorted({self.blocks[self.views[i].block][0] for i in self.outputs}))


def spare(machine: "VirtualMachine", plan: MemoryPlan, held: list[Any], index: int) -> Any:
    """Return an array for an output while the kept one is in use, and keep this one instead."""
    others: list[Any] = held[len(plan.views)][index]
    for position in range(len(others)):
        if _users(others, position) == _ALONE_IN_LIST:
            held[index], others[position] = others[position], held[index]
            return held[index]
    view = plan.views[index]
    device, nbytes = plan.blocks[view.block]
    storage = machine.allocators[device].storage(nbytes)
    others.insert(0, held[index])
    del others[_SPARES:]
    held[index] = storage.tensor(view.shape, view.dtype, view.offset).array
    return held[index]


# ---- finding out what can be prepared -----------------------------------------------------------


@dataclass(eq=False, slots=True)
class _Tensor:
    """A tensor that an instruction makes."""

    pc: int
    storage: "_Storage"
    shape: ShapeTuple
    dtype: DataType
    offset: int
    source: "_Tensor | None" = None
    escapes: bool = False


@dataclass(eq=False, slots=True)
class _Storage:
    """A storage that an instruction makes; ``end`` is where the last sight of it is lost."""

    pc: int
    device: int
    nbytes: int
    tensors: list[_Tensor] = field(default_factory=list)
    end: int = 0
    escapes: bool = False

    @property
    def is_planned(self) -> bool:
        """Whether it can be prepared: all its tensors are private, or the only one goes out."""
        if self.escapes or not self.tensors:
            return False
        own = [tensor for tensor in self.tensors if tensor.source is None]
        return len(own) == len(self.tensors) == 1 or not any(t.escapes for t in self.tensors)


def memory_plan(function: LinkedFunction, kernels: frozenset[int]) -> MemoryPlan | None:
    """Return what a function can keep; None if nothing, or if its memory could be seen.

    Parameters
    ----------
    function
        The function.
    kernels
        Identities of the host functions that forget their arguments.
    """
    finder = _Finder(function, kernels)
    storages = finder.find() if not function.entry else None
    planned = [storage for storage in storages or () if storage.is_planned]
    return _Layout(planned, finder).plan() if planned else None


class _Finder:
    """Follows the values of a function without jumps."""

    def __init__(self, function: LinkedFunction, kernels: frozenset[int]) -> None:
        self.function = function
        self.kernels = kernels
        template, count = function.template, function.num_registers
        self.values = [None] * (count + 1) + template[count + 1 :]
        self.holds: dict[int, _Tensor | _Storage] = {}
        #: Where None was put into a register, by register.
        self.cleared: dict[int, int] = {}
        #: What such an instruction took from the register, until somebody reads the None.
        self.idle: dict[int, _Storage] = {}
        self.storages: list[_Storage] = []

    def find(self) -> list[_Storage] | None:
        """Return the storages that it makes; None if it jumps or calls somebody else."""
        for pc, (operation, target, read, slot) in enumerate(self.function.code):
            if operation == RET:
                self.use((slot,), pc)
                return self.storages
            name = getattr(target, "__qualname__", "") if operation == CALL else ""
            is_builtin = BUILTINS.find(name) is target
            is_kernel = id(getattr(target, "__wrapped__", target)) in self.kernels
            if operation != CALL or not (is_kernel or (is_builtin and name in _QUIET)):
                return None
            slots = read(range(len(self.values)))
            made = self.made(name, pc, slots) if is_builtin else None
            if made is None:
                private = is_kernel or name in _CHECKS
                self.use(slots, pc, private)
            if slot is not None:
                lost = self.overwrite(slot, pc)
                if made is not None:
                    self.holds[slot] = made
                elif name == "vm.builtin.null_value":
                    self.cleared[slot] = pc
                    if lost is not None:
                        self.idle[pc] = lost
        return None

    def overwrite(self, slot: int, pc: int) -> _Storage | None:
        """Take note that a register gets another value; return the storage it gave sight of."""
        held = self.holds.pop(slot, None)
        self.cleared.pop(slot, None)
        if held is None:
            return None
        storage = held if isinstance(held, _Storage) else held.storage
        storage.end = max(storage.end, pc)
        return storage

    def use(self, slots: Sequence[int], pc: int, private: bool = False) -> None:
        """Take note that values are read; what is not private may be held by anybody from now."""
        for slot in slots:
            if slot in self.cleared:
                self.idle.pop(self.cleared[slot], None)
            held = self.holds.get(slot)
            if held is not None and not (private and isinstance(held, _Tensor)):
                held.escapes = True

    def made(self, name: str, pc: int, slots: Sequence[int]) -> _Tensor | _Storage | None:
        """Return the storage or tensor that a call makes, if everything about it is known."""
        values = [self.values[slot] for slot in slots]
        match name:
            case "vm.builtin.alloc_storage":
                return self.made_storage(pc, slots, values)
            case "vm.builtin.alloc_tensor" if len(values) in (4, 5):
                storage = self.holds.get(slots[0])
                offset, shape, dtype = values[1:4]
                if (
                    isinstance(storage, _Storage)
                    and type(offset) is int
                    and type(shape) is ShapeTuple
                    and isinstance(dtype, DataType)
                    and _fits(storage, offset, shape, dtype)
                ):
                    return self.added(_Tensor(pc, storage, shape, dtype, offset))
            case "vm.builtin.reshape" if len(values) == 2:
                source = self.holds.get(slots[0])
                if isinstance(source, _Tensor) and type(values[1]) is ShapeTuple:
                    made = _Tensor(pc, source.storage, values[1], source.dtype, 0, source)
                    return self.added(made)
            case _:
                pass
        return None

    def made_storage(self, pc: int, slots: Sequence[int], values: list[Any]) -> _Storage | None:
        if len(values) != 5 or slots[0] != self.function.machine_slot:
            return None
        _, shape, device, hint, scope = values
        if type(shape) is not ShapeTuple or type(device) is not int or not 0 <= device < 64:
            return None
        if not isinstance(hint, DataType) or scope not in ("", "global"):
            return None
        if min(shape, default=0) < 0:
            return None
        storage = _Storage(pc, device, shape.numel() * hint.itemsize)
        self.storages.append(storage)
        return storage

    def added(self, tensor: _Tensor) -> _Tensor:
        tensor.storage.tensors.append(tensor)
        return tensor


def _fits(storage: _Storage, offset: int, shape: ShapeTuple, dtype: DataType) -> bool:
    try:
        _, _, needed = layout(shape, dtype)
    except InternalError:
        return False
    return offset >= 0 and offset + needed <= _rounded(storage.nbytes)


def _rounded(nbytes: int) -> int:
    return -(-nbytes // PAGE_BYTES) * PAGE_BYTES


class _Layout:
    """Gives planned storages their blocks, in the order of the program, as the pool would."""

    def __init__(self, storages: list[_Storage], finder: _Finder) -> None:
        self.storages = storages
        self.finder = finder
        self.blocks: list[tuple[int, int]] = []
        self.views: list[_View] = []
        self.outputs: set[int] = set()
        self.assigned: dict[int, int] = {}

    def plan(self) -> MemoryPlan:
        held = set(map(id, self.finder.holds.values()))
        free: list[tuple[int, int]] = []  # when a block becomes free, which one
        for storage in self.storages:
            seen_at_the_end = id(storage) in held or any(id(t) in held for t in storage.tensors)
            end = _NEVER if seen_at_the_end else storage.end
            goes_out = any(tensor.escapes for tensor in storage.tensors)
            block = None if goes_out else self.reusable(storage, free)
            if block is None:
                block = len(self.blocks)
                self.blocks.append((storage.device, storage.nbytes))
            if not goes_out:
                free.append((end, block))
            for tensor in storage.tensors:
                self.assigned[tensor.pc] = self.view(tensor, block, goes_out)
        done = {storage.pc for storage in self.storages}
        # a register need not be cleared if the plan holds what it held anyway
        private = [s for s in self.storages if not any(t.escapes for t in s.tensors)]
        done.update(pc for pc, storage in self.finder.idle.items() if storage in private)
        return MemoryPlan(
            tuple(self.blocks),
            tuple(self.views),
            frozenset(self.outputs),
            self.assigned,
            frozenset(done),
        )

    def reusable(self, storage: _Storage, free: list[tuple[int, int]]) -> int | None:
        """Return the block of that size that was freed last before, and take it."""
        for entry in sorted(free, reverse=True):
            end, block = entry
            device, nbytes = self.blocks[block]
            same = device == storage.device and _rounded(nbytes) == _rounded(storage.nbytes)
            if end < storage.pc and same:
                free.remove(entry)
                return block
        return None

    def view(self, tensor: _Tensor, block: int, goes_out: bool) -> int:
        source = None if tensor.source is None else self.assigned[tensor.source.pc]
        view = _View(block, tensor.shape, tensor.dtype, tensor.offset, source)
        if not goes_out and view in self.views:
            return self.views.index(view)
        self.views.append(view)
        if goes_out:
            self.outputs.add(len(self.views) - 1)
        return len(self.views) - 1
