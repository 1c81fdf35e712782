"""What the registers of a function are used for, as far as its instructions say.

Counterpart: none.

Examples
--------
>>> from relaxlab.runtime.vm.frame import LinkedFunction
>>> f = LinkedFunction("f", num_args=1, num_registers=2)
>>> f.code, f.length = [(RET, None, None, 1)], 1
>>> read_unassigned(f)
[1]
"""

from typing import Any, Final

from relaxlab.runtime.vm.builtin.table import BUILTINS
from relaxlab.runtime.vm.frame import LinkedFunction
from relaxlab.runtime.vm.linker import CALL, ENTER, GOTO, IF, INVOKE, RET, TRAP
from relaxlab.runtime.vm.structure import Block, blocks_of

__all__ = ["builtin_name", "host_function", "private_heaps", "read_unassigned"]


def builtin_name(target: Any) -> str:
    """Return the name of a builtin; an empty string for any other function."""
    name = getattr(target, "__qualname__", "")
    return name if BUILTINS.find(name) is target else ""


_HEAP_USERS: Final = (
    "vm.builtin.match_shape",
    "vm.builtin.match_prim_value",
    "vm.builtin.make_shape",
    "vm.builtin.make_prim_value",
)


def private_heaps(function: LinkedFunction, kernels: frozenset[int]) -> set[int]:
    """Return the registers that hold only shape heaps, which only kernels and builtins see."""
    made: set[int] = set()
    others: set[int] = set(range(function.num_args))
    indices = range(len(function.template))
    for operation, target, read, slot in function.code:
        if operation not in (CALL, ENTER, INVOKE):
            if operation == RET:
                others.add(slot)
            continue
        name = builtin_name(target) if operation == CALL else ""
        if slot is not None and name != "vm.builtin.null_value":
            (made if name == "vm.builtin.alloc_shape_heap" else others).add(slot)
        # as the second argument, or the first of the makers
        if name not in _HEAP_USERS and not (
            operation == CALL and id(host_function(target)) in kernels
        ):
            others.update(read(indices))
        elif name in _HEAP_USERS:
            place = 1 if name in _HEAP_USERS[:2] else 0
            others.update(used for i, used in enumerate(read(indices)) if i != place)
    return made - others


def host_function(target: Any) -> Any:
    """Return a host function without what the linker put around it."""
    return getattr(target, "__wrapped__", target)


def read_unassigned(function: LinkedFunction) -> list[int]:
    """Return the registers that may be read before anything was written to them; they are None."""
    code, count = function.code, function.num_registers
    start_mask = (1 << function.num_args) - 1
    blocks = blocks_of(code, function.entry)
    assigned: dict[int, int] = {function.entry: start_mask}
    pending = [function.entry]
    by_start = {block.start: block for block in blocks}
    found: set[int] = set()
    while pending:
        block = by_start[pending.pop()]
        mask = assigned[block.start]
        for pc in range(block.start, block.end):
            operation, _, read, slot = code[pc]
            used = read(range(len(function.template))) if read is not None else ()
            if operation in (IF, RET):
                used = (slot,)
            for one in used:
                if one < count and not mask >> one & 1:
                    found.add(one)
            if operation in (CALL, ENTER, INVOKE) and slot is not None:
                mask |= 1 << slot
        for successor in _successors(code, block):
            known = assigned.get(successor)
            merged = mask if known is None else known & mask
            if merged != known:
                assigned[successor] = merged
                pending.append(successor)
    return sorted(found)


def _successors(code: list[Any], block: Block) -> tuple[int, ...]:
    last = block.end - 1
    operation, target = code[last][:2]
    match operation:
        case _ if operation in (RET, TRAP):
            return ()
        case _ if operation == GOTO:
            return (target,)
        case _ if operation == IF:
            return (block.end, target)
        case _:
            return (block.end,)
