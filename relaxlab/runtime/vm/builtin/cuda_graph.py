"""Builtins that capture a region as a CUDA graph once, and replay it ever after.

The compiler (RewriteCUDAGraph) puts the kernels of a region into a function of their own and calls
it through ``run_or_capture``; memory that regions share is allocated once, through
``get_cached_alloc``. What was captured belongs to the machine and outlives every call, failed ones
included. On a GPU the driver captures; on the CPU launches are recorded, by the same protocol.
Counterpart: ``vm.builtin.cuda_graph.*`` of TVM, which keeps a ``vm.CUDAGraphExtension``.

Examples
--------
>>> from relaxlab.runtime.vm import VirtualMachine, VMExecutable
>>> CUDAGraphExtension.of(VirtualMachine(VMExecutable(), []))
<CUDA graphs: 0 captured, 0 replays, 0 launches saved>
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from relaxlab.errors import InternalError
from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.cuda_graph import Graph, GraphBackend, graph_backend
from relaxlab.runtime.device import cpu
from relaxlab.runtime.tensor import Tensor
from relaxlab.runtime.vm.builtin.table import as_int, as_shape, as_tuple, builtin, refusal, shown
from relaxlab.runtime.vm.capture import CapturedProgram
from relaxlab.runtime.vm.extension import extension
from relaxlab.runtime.vm.frame import Closure
from relaxlab.runtime.vm.graph_state import GraphState, RegionState

if TYPE_CHECKING:
    from relaxlab.runtime.vm.virtual_machine import VirtualMachine
    from relaxlab.runtime.vm.watch import Watch

__all__ = ["CUDAGraphExtension", "CapturedRegion"]

GraphKey = tuple[int, tuple[int, ...]]
"""Index of the region, and the sizes it was captured for."""


@dataclass(frozen=True, slots=True, eq=False)
class CapturedRegion:
    """A graph, with what the region returned when it was captured.

    Attributes
    ----------
    key
        Index of the region and its sizes.
    graph
        The launches.
    result
        What every replay returns: one and the same object.
    arguments
        What the region was captured with: its memory is in the graph.
    """

    key: GraphKey
    graph: Graph
    result: Any
    arguments: tuple[Any, ...]


@dataclass(slots=True, eq=False, repr=False)
class CUDAGraphExtension:
    """What one machine has captured.

    Attributes
    ----------
    regions
        Captured regions by key.
    allocations
        Results of the functions that allocate, by index.
    backend
        What captures; chosen by the machine's first device at the first capture.
    program
        The program as a capture sees it.
    replay_counts
        How often each region was replayed since it was captured.
    """

    regions: dict[GraphKey, CapturedRegion] = field(default_factory=dict)
    allocations: dict[int, Any] = field(default_factory=dict)
    backend: GraphBackend | None = None
    program: CapturedProgram | None = None
    replay_counts: Counter[GraphKey] = field(default_factory=Counter)

    @classmethod
    def of(cls, machine: "VirtualMachine") -> Self:
        """Return the graphs of a machine."""
        return extension(machine, cls)

    @property
    def replays(self) -> int:
        """How often a graph was replayed."""
        return getattr(self.backend, "replays", 0)

    @property
    def launches_saved(self) -> int:
        """How many kernel launches the replays have saved."""
        return 0 if self.backend is None else self.backend.launches_saved

    def snapshot(self) -> GraphState:
        """Return what is captured as plain data; the events of the machine fold to the same."""
        regions = (
            RegionState(*key, region.graph.launches, self.replay_counts[key])
            for key, region in self.regions.items()
        )
        open_capture = self.program is not None and self.program.capture is not None
        recording = tuple(self.program.recorded) if open_capture and self.program else None
        return GraphState(tuple(self.allocations), tuple(regions), self.launches_saved, recording)

    def __repr__(self) -> str:
        return (
            f"<CUDA graphs: {len(self.regions)} captured, {self.replays} replays, "
            f"{self.launches_saved} launches saved>"
        )


@builtin("vm.builtin.cuda_graph.get_cached_alloc")
def get_cached_alloc(*args: Any) -> Any:
    """Return the storages of the module's graphs, allocated once for each machine.

    Parameters
    ----------
    machine
        ``%vm``.
    function
        The function that allocates; it is called the first time only.
    index : int
        Which allocation: the key.

    Returns
    -------
    tuple
        What the function returned; the same object every time.

    Raises
    ------
    InternalError
        If there are not exactly three arguments.
    TypeError
        If one is of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.cuda_graph.get_cached_alloc``.
    """
    me = "vm.builtin.cuda_graph.get_cached_alloc"
    if len(args) != 3:
        raise InternalError(f"{me}: expected (%vm, function, index), got {len(args)} arguments")
    machine, function, index = _machine(args[0], me), args[1], as_int(args[2], me, "index")
    state = CUDAGraphExtension.of(machine)
    known = index in state.allocations
    if not known:
        state.allocations[index] = machine.invoke_closure(_function(function, me))
    result = state.allocations[index]
    watch = _watch(machine)
    if watch is not None:
        watch.storages_kept(index, known, result)
    return result


@builtin("vm.builtin.cuda_graph.run_or_capture")
def run_or_capture(*args: Any) -> Any:
    """Replay a region, or capture it if its sizes are new.

    A new region runs twice: normally, then into the capture, where nothing executes. The graph
    is not launched then; its outputs hold what the first run left there.

    Parameters
    ----------
    machine
        ``%vm``.
    function
        The region's function.
    arguments : tuple
        Its arguments. Their memory becomes part of the graph.
    index : int
        Which region: the first part of the key.
    sizes : Shape, optional
        Values of its symbolic sizes: the second part of the key.

    Returns
    -------
    object
        What the region returned when it was captured.

    Raises
    ------
    InternalError
        If the number of arguments is wrong, or the region does something that a graph cannot
        hold: then nothing is kept, and the machine is as before.
    TypeError
        If an argument is of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.cuda_graph.run_or_capture``. TVM replays a graph with the memory it
    was captured with whatever is given later; here other memory, or another number, means that
    the region is captured again.
    """
    me = "vm.builtin.cuda_graph.run_or_capture"
    if len(args) not in (4, 5):
        raise InternalError(
            f"{me}: expected (%vm, function, arguments, index[, sizes]), got {len(args)} arguments"
        )
    machine, function = _machine(args[0], me), _function(args[1], me)
    arguments = tuple(as_tuple(args[2], me, "arguments"))
    sizes = as_shape(args[4], me, "sizes") if len(args) == 5 else ShapeTuple()
    key = (as_int(args[3], me, "index"), tuple(sizes))
    state, watch = CUDAGraphExtension.of(machine), _watch(machine)
    region = state.regions.get(key)
    if region is not None and _same_memory(region.arguments, arguments):
        region.graph.replay()
        state.replay_counts[key] += 1
        if watch is not None:
            watch.graph_replayed(key, region.graph.launches)
        return region.result
    region = state.regions[key] = _captured(machine, state, watch, key, function, arguments)
    state.replay_counts[key] = 0
    return region.result


def _captured(
    machine: "VirtualMachine",
    state: CUDAGraphExtension,
    watch: "Watch | None",
    key: GraphKey,
    function: Closure,
    arguments: tuple[Any, ...],
) -> CapturedRegion:
    """Run a region normally, then into a capture."""
    for position, value in enumerate(arguments):
        if isinstance(value, Closure) or (callable(value) and not isinstance(value, Tensor)):
            raise InternalError(
                f"cannot capture {function.name!r}: argument {position} is {shown(value)}, whose "
                "launches would be missed; expected tensors, storages, shapes and numbers"
            )
    if state.program is None:
        state.program = CapturedProgram(machine)
    if state.backend is None:
        state.backend = graph_backend(machine.devices[0] if machine.devices else cpu())
    program = state.program
    if machine is program.machine:
        raise InternalError(
            f"cannot capture {function.name!r} inside a region: a capture cannot hold another one"
        )
    program.run(function, arguments)
    capture = state.backend.begin()
    if watch is not None:
        watch.graph_capture_started(key)
        program.noted = watch.kernel_recorded
    program.capture = capture
    program.recorded.clear()
    try:
        result = program.run(function, arguments)
    except BaseException:
        capture.abandon()
        raise
    finally:
        program.capture = program.noted = None
    graph = capture.finish()
    if watch is not None:
        watch.graph_captured(key, graph.launches)
    return CapturedRegion(key, graph, result, arguments)


def _machine(value: Any, me: str) -> "VirtualMachine":
    if not hasattr(value, "invoke_closure"):
        raise refusal(value, me, "machine", "%vm")
    machine: VirtualMachine = value
    return machine


def _function(value: Any, me: str) -> Closure:
    if not isinstance(value, Closure):
        raise refusal(value, me, "function", "a Relax function")
    return value


def _watch(machine: "VirtualMachine") -> "Watch | None":
    return None if machine.current is None else machine.current.watch


def _same_memory(before: tuple[Any, ...], now: tuple[Any, ...]) -> bool:
    """Whether arguments are what a graph was captured with, as far as its kernels can tell."""
    return len(before) == len(now) and all(map(_same, before, now))


def _same(before: Any, now: Any) -> bool:
    if before is now:
        return True
    match before, now:
        case Tensor(), Tensor():
            return (
                before.data_ptr() == now.data_ptr()
                and before.shape == now.shape
                and before.dtype == now.dtype
                and before.array.strides == now.array.strides
            )
        case tuple() | list(), tuple() | list():
            return type(before) is type(now) and _same_memory(tuple(before), tuple(now))
        case bool() | int() | float() | str(), _:
            return type(before) is type(now) and bool(before == now)
        case _:
            return False
