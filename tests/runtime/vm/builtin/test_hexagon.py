"""DMA queues: copies happen when a wait asks for them, in order, per queue and machine."""

import numpy as np
import pytest

from relaxlab.errors import InternalError
from relaxlab.runtime import VirtualMachine, cpu, get_global_func, tensor
from relaxlab.runtime.vm import VMExecutable
from relaxlab.runtime.vm.builtin.hexagon import DMAQueues
from relaxlab.runtime.vm.extension import extension

COPY = get_global_func("vm.builtin.hexagon.dma_copy")
WAIT = get_global_func("vm.builtin.hexagon.dma_wait")


@pytest.fixture
def vm():
    return VirtualMachine(VMExecutable(), cpu())


def test_a_wait_leaves_so_many_copies_running(vm):
    sources = [tensor(np.full(2, value, "int8")) for value in (1, 2, 3)]
    target = tensor(np.zeros(2, "int8"))
    for source in sources:
        COPY(vm, source, target, 0, False)
    COPY(vm, sources[0], tensor(np.zeros(2, "int8")), 1, True)
    assert repr(extension(vm, DMAQueues)) == "DMAQueues(0: 3, 1: 1)"
    seen = []
    for remain in (3, 2, 2, 0):
        WAIT(vm, 0, remain, False, sources[0], target)
        seen.append(int(target.numpy()[0]))
    assert seen == [0, 1, 1, 3]
    assert repr(extension(vm, DMAQueues)) == "DMAQueues(0: 0, 1: 1)"
    other = VirtualMachine(VMExecutable(), cpu())
    assert repr(extension(other, DMAQueues)) == "DMAQueues(empty)"


def test_refusals_change_nothing(vm):
    x, y = tensor(np.zeros(2, "int8")), tensor(np.zeros(3, "int8"))
    for call, error, message in [
        (lambda: COPY(vm, x, y, 0, False), InternalError, r"cannot copy Tensor of shape \(2,\)"),
        (lambda: COPY(vm, x, x, -1, False), InternalError, "queue: expected a number >= 0"),
        (lambda: COPY(vm, x, None, 0, False), TypeError, "destination: expected Tensor"),
        (lambda: COPY(None, x, x, 0, False), TypeError, "machine: expected %vm"),
        (lambda: WAIT(vm, 0, -1, False, x, x), InternalError, "copies in flight: expected"),
        (lambda: WAIT(vm, 0, 0, None, x, x), TypeError, "bypass_cache: expected int"),
        (lambda: WAIT(vm, 0, 0, False, x, 1), TypeError, "destination: expected Tensor"),
    ]:
        with pytest.raises(error, match=message):
            call()
    assert not any(extension(vm, DMAQueues).waiting.values())
