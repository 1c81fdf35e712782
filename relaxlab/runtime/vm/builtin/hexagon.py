"""Builtins that copy between memories of a Hexagon DSP in the background.

There a copy is put into a queue and runs while the processor goes on; a wait says how many copies
of the queue may still be running. Here there is no such engine, so a copy happens as late as it
may: when a wait asks for it. A program that forgets a wait reads old values, as it might there.
Counterpart: ``vm.builtin.hexagon.*`` of TVM, which exist in Hexagon builds only.

Examples
--------
>>> from relaxlab.runtime.vm import VirtualMachine, VMExecutable
>>> from relaxlab.runtime import cpu, tensor
>>> vm = VirtualMachine(VMExecutable(), cpu())
>>> x, y = tensor([1, 2]), tensor([0, 0])
>>> dma_copy(vm, x, y, 0, False)
>>> y.numpy().tolist(), dma_wait(vm, 0, 0, False, x, y), y.numpy().tolist()
([0, 0], None, [1, 2])
"""

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

from relaxlab.errors import InternalError
from relaxlab.runtime.tensor import Tensor
from relaxlab.runtime.vm.builtin.table import as_int, as_tensor, builtin, refusal, shown
from relaxlab.runtime.vm.extension import extension

if TYPE_CHECKING:
    from relaxlab.runtime.vm.virtual_machine import VirtualMachine

__all__ = ["DMAQueues"]


class DMAQueues:
    """Copies of one machine that have not happened yet, by queue."""

    def __init__(self) -> None:
        self.waiting: defaultdict[int, deque[tuple[Tensor, Tensor]]] = defaultdict(deque)

    def __repr__(self) -> str:
        counts = ", ".join(f"{queue}: {len(one)}" for queue, one in sorted(self.waiting.items()))
        return f"DMAQueues({counts or 'empty'})"


@builtin("vm.builtin.hexagon.dma_copy")
def dma_copy(
    machine: "VirtualMachine", src: Any, dst: Any, queue_id: Any, bypass_cache: Any, /
) -> None:
    """Put a copy of a tensor into a queue; a wait performs it.

    Parameters
    ----------
    machine
        ``%vm``.
    src, dst
        Tensors of one shape and dtype.
    queue_id
        Which queue, from 0.
    bypass_cache
        A bool; there is no cache to bypass here.

    Raises
    ------
    InternalError
        If the tensors differ in shape or dtype, or the queue is negative.
    TypeError
        If an argument is of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.hexagon.dma_copy``.
    """
    me = "vm.builtin.hexagon.dma_copy"
    queues = _queues(machine, me)
    source, target = as_tensor(src, me, "source"), as_tensor(dst, me, "destination")
    queue = _count(queue_id, me, "queue")
    as_int(bypass_cache, me, "bypass_cache")
    if source.shape != target.shape or source.dtype != target.dtype:
        raise InternalError(f"{me}: cannot copy {shown(source)} into {shown(target)}")
    queues.waiting[queue].append((source, target))


@builtin("vm.builtin.hexagon.dma_wait")
def dma_wait(
    machine: "VirtualMachine",
    queue_id: Any,
    inflight_dma: Any,
    bypass_cache: Any,
    src: Any,
    dst: Any,
    /,
) -> None:
    """Wait until no more than so many copies of a queue are running.

    Parameters
    ----------
    machine
        ``%vm``.
    queue_id
        Which queue, from 0.
    inflight_dma
        How many of its last copies may remain.
    bypass_cache
        A bool; there is no cache to bypass here.
    src, dst
        Tensors of the copy that is waited for: they order the calls of a program.

    Raises
    ------
    InternalError
        If a number is negative.
    TypeError
        If an argument is of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.hexagon.dma_wait``.
    """
    me = "vm.builtin.hexagon.dma_wait"
    queues = _queues(machine, me)
    queue, remain = _count(queue_id, me, "queue"), _count(inflight_dma, me, "copies in flight")
    as_int(bypass_cache, me, "bypass_cache")
    as_tensor(src, me, "source")
    as_tensor(dst, me, "destination")
    waiting = queues.waiting[queue]
    while len(waiting) > remain:
        source, target = waiting.popleft()
        target.copyfrom(source)


def _queues(machine: Any, me: str) -> DMAQueues:
    if not hasattr(machine, "extensions"):
        raise refusal(machine, me, "machine", "%vm")
    return extension(machine, DMAQueues)


def _count(value: Any, me: str, what: str) -> int:
    number = as_int(value, me, what)
    if number < 0:
        raise InternalError(f"{me}: {what}: expected a number >= 0, got {number}")
    return number
