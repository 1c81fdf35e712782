"""The program as a capture sees it: kernels are noted, and what a capture cannot hold is refused.

A region is captured by running its function on a second machine with the same bytecode. There
every host function is a gate: a kernel goes to the open capture, a builtin that only looks at
shapes or makes views runs at once (a replay does not need it again), and everything else is
refused with its reason. The machine itself stays as it is, so calls outside a capture cost
nothing. Counterpart: the rules of CUDA's stream capture, which a driver enforces.

Examples
--------
>>> refusal_of("vm.builtin.alloc_storage", ())
'it allocates memory: allocate before the region, as get_cached_alloc does'
>>> refusal_of("vm.builtin.read_if_cond", (1,)), refusal_of("vm.builtin.make_tuple", ())
(None, None)
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from relaxlab.errors import InternalError
from relaxlab.registry import Registry
from relaxlab.runtime.cuda_graph.protocol import Capture
from relaxlab.runtime.packed_func import PackedFunc
from relaxlab.runtime.tensor import Tensor
from relaxlab.runtime.vm.builtin.table import BUILTINS, shown
from relaxlab.runtime.vm.executable import KernelLibrary, VMExecutable
from relaxlab.runtime.vm.frame import Closure

if TYPE_CHECKING:
    from relaxlab.runtime.vm.virtual_machine import VirtualMachine

__all__ = ["CAPTURABLE", "CapturedProgram", "refusal_of"]

CAPTURABLE: Final[Registry[bool]] = Registry("capturable function")
"""Global functions that do nothing but launch kernels, such as the doors of a GPU library: a
capture may hold them. Other global functions run on the host, where a replay does not go."""

_LOOKS_ONLY: Final = frozenset(
    "vm.builtin." + name
    for name in (
        "alloc_shape_heap",
        "alloc_tensor",
        "call_tir_dyn",
        "check_func_info",
        "check_prim_value_info",
        "check_shape_info",
        "check_string_info",
        "check_tensor_info",
        "check_tuple_info",
        "copy",
        "invoke_closure",
        "make_closure",
        "make_prim_value",
        "make_shape",
        "make_tuple",
        "match_prim_value",
        "match_shape",
        "null_value",
        "reshape",
        "shape_of",
        "tuple_getitem",
        "tuple_reset_item",
    )
)
_ALLOCATES: Final = "it allocates memory: allocate before the region, as get_cached_alloc does"
_WAITS: Final = "it reads device memory on the host, which would wait for the device"
_ON_HOST: Final = "it runs on the host, where a replay does not go"
_NESTED: Final = "a capture cannot hold another one"
_REASONS: Final = {
    "vm.builtin.alloc_storage": _ALLOCATES,
    "vm.builtin.apply_presence_and_frequency_penalty": _WAITS,
    "vm.builtin.apply_repetition_penalty": _WAITS,
    "vm.builtin.apply_softmax_with_temperature": _WAITS,
    "vm.builtin.cuda_graph.get_cached_alloc": _ALLOCATES,
    "vm.builtin.cuda_graph.run_or_capture": _NESTED,
    "vm.builtin.debug_print": _WAITS,
    "vm.builtin.memory_manager.clear": "it frees memory that the graph may use",
    "vm.builtin.multinomial_from_uniform": _WAITS,
    "vm.builtin.read_if_cond": _WAITS,
    "vm.builtin.sample_top_p_from_logits": _WAITS,
    "vm.builtin.sample_top_p_from_prob": _WAITS,
    "vm.builtin.tensor_to_shape": _WAITS,
    "vm.builtin.to_device": _ALLOCATES,
}


def refusal_of(name: str, arguments: Sequence[Any]) -> str | None:
    """Return why a capture cannot hold a call of a builtin; None if it can.

    Parameters
    ----------
    name
        The builtin's name.
    arguments
        What it is called with: some builtins copy or wait only for some values.
    """
    if name in _LOOKS_ONLY:
        return None
    value = arguments[0] if arguments else None
    if name == "vm.builtin.read_if_cond" and isinstance(value, int):
        return None
    if name == "vm.builtin.ensure_zero_offset":
        copies = isinstance(value, Tensor) and value.byte_offset % 64
        return _ALLOCATES if copies else None
    return _REASONS.get(name, _ON_HOST)


class CapturedProgram:
    """A machine's program with gates in place of its host functions.

    Attributes
    ----------
    capture
        Where kernels are noted. None outside a capture: then everything runs as it is.
    noted
        Called with the name of each kernel that was noted.
    recorded
        Names of the kernels of the capture that is open.
    """

    def __init__(self, machine: "VirtualMachine") -> None:
        self._machine = machine
        self.capture: Capture | None = None
        self.noted: Callable[[str], object] | None = None
        self.recorded: list[str] = []
        self._heaps: list[Any] = []
        self._returning: set[str] = set()
        self._gates: set[Callable[..., Any]] = set()
        executable = machine.program.executable
        gated = VMExecutable(
            executable.func_table,
            machine.program.constants,
            executable.memory_scopes,
            executable.instr_offset,
            executable.instr_data,
            [_Gates(self, executable.imports)],
        )
        self.machine = type(machine)(gated, ())
        self.machine.devices[:] = machine.devices
        self.machine.allocators[:] = machine.allocators

    def run(self, function: Closure, arguments: Sequence[Any]) -> Any:
        """Run a function of the machine on the gated program; errors pass through."""
        outer, inner = self._machine, self.machine
        gated = inner.program.pool[_index_of(function, outer.program.pool)]
        assert isinstance(gated, Closure)
        inner.recursion_limit = outer.recursion_limit
        inner.extensions = outer.extensions
        inner.observer, inner.instrument = outer.observer, outer.instrument
        inner.current = outer.current
        self._heaps = []
        try:
            return inner.invoke_closure(gated.bind(function.bound), *arguments)
        finally:
            inner.current = None
            self._heaps = []

    # ---- gates ------------------------------------------------------------------------------

    def gate(self, name: str, function: PackedFunc, imports: list[KernelLibrary]) -> PackedFunc:
        """Return what the gated program calls for a host function of the machine."""
        if function is BUILTINS.find(name):
            return self._builtin(name, function)
        is_kernel = _is_in(imports, name) or name in CAPTURABLE

        def call(*args: Any) -> Any:
            capture = self.capture
            if capture is not None and not is_kernel:
                raise _refused(name, f"{_ON_HOST}: a kernel comes from an imported library")
            if capture is None or self._is_about_shapes(args):
                result = function(*args)
                if result is not None and not any(result is one for one in args):
                    self._returning.add(name)
                return result
            if name in self._returning:
                raise _refused(
                    name, "it returned a value: expected a kernel that writes into its arguments"
                )
            capture.launch(name, function, args)
            self.recorded.append(name)
            if self.noted is not None:
                self.noted(name)
            return None

        call.__wrapped__ = function  # type: ignore[attr-defined]  # what an instrument is shown
        self._gates.add(call)
        return call

    def _builtin(self, name: str, function: PackedFunc) -> PackedFunc:
        if name == "vm.builtin.invoke_closure":
            return function  # the loop knows it, and pushes a frame

        def call(*args: Any) -> Any:
            if self.capture is not None:
                reason = refusal_of(name, args)
                if reason is not None:
                    raise _refused(name, reason)
                if name == "vm.builtin.call_tir_dyn" and args and args[0] not in self._gates:
                    raise _refused(name, "the function came from outside the region")
            result = function(*args)
            if name == "vm.builtin.alloc_shape_heap":
                self._heaps.append(result)
            return result

        call.__wrapped__ = function  # type: ignore[attr-defined]  # what an instrument is shown
        return call

    def _is_about_shapes(self, arguments: Sequence[Any]) -> bool:
        """Whether a generated function computes sizes on the host: it has no tensors to write."""
        tensors = [value for value in arguments if isinstance(value, Tensor)]
        return all(any(value is heap for heap in self._heaps) for value in tensors)


class _Gates:
    """The library that a gated program imports: it has every name."""

    kind: Final = "capture"

    def __init__(self, program: CapturedProgram, imports: list[KernelLibrary]) -> None:
        self.imports: list[KernelLibrary] = []
        self._program = program
        self._imports = imports
        linked = program._machine.program
        self._functions = {
            info.name: value
            for info, value in zip(linked.executable.func_table, linked.pool, strict=True)
        }

    def get_function(self, name: str) -> PackedFunc | None:
        """Return the gate of a host function."""
        found = self._functions.get(name)
        if found is None or isinstance(found, Closure):
            return None
        return self._program.gate(name, found, self._imports)


def _is_in(libraries: Iterable[KernelLibrary], name: str) -> bool:
    return any(
        library.get_function(name) is not None or _is_in(library.imports, name)
        for library in libraries
    )


def _index_of(function: Closure, pool: Sequence[Any]) -> int:
    for index, value in enumerate(pool):
        if isinstance(value, Closure) and value.function is function.function:
            return index
    raise InternalError(
        f"cannot capture {shown(function)}: expected a function of the machine that captures"
    )


def _refused(name: str, reason: str) -> InternalError:
    return InternalError(f"{name!r} cannot be captured: {reason}")
