"""The Relax virtual machine: an executable, linked and ready to be called.

A machine holds what does not change while programs run (the linked program, devices and
allocators) and what outlives a single call (saved functions, stateful inputs and outputs). One
call is an :class:`Execution`. Counterpart: ``tvm.runtime.vm.VirtualMachine``.

Examples
--------
>>> from relaxlab.runtime.device import cpu
>>> from relaxlab.runtime.vm.bytecode import VMFuncInfo
>>> identity = VMExecutable([VMFuncInfo(1, "f", 0, 1, 1, 1, ("x",))], (), {}, [0], [2, 0])
>>> vm = VirtualMachine(identity, cpu())
>>> vm["f"](7)
7
>>> vm["f"]()
Traceback (most recent call last):
relaxlab.errors.InternalError: function 'f' expects 1 arguments (x), got 0
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, cast, runtime_checkable
from weakref import finalize

from relaxlab.errors import InternalError
from relaxlab.runtime.container import Array
from relaxlab.runtime.describe import Describer, ObjectValue
from relaxlab.runtime.device import Device, cpu
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.packed_func import PackedFunc
from relaxlab.runtime.storage import Allocator, AllocatorKind, allocator_for
from relaxlab.runtime.tensor import Tensor, require_cpu
from relaxlab.runtime.values import PLAIN_TYPES, as_value
from relaxlab.runtime.vm.builtin.table import shown
from relaxlab.runtime.vm.compiled import CompiledProgram, call_function
from relaxlab.runtime.vm.executable import MODULE_FUNCTIONS, VMExecutable, VMFuncKind
from relaxlab.runtime.vm.execution import Execution
from relaxlab.runtime.vm.frame import Closure, LinkedFunction
from relaxlab.runtime.vm.linker import Program, link
from relaxlab.runtime.vm.module import MACHINE_FUNCTIONS, VMModule
from relaxlab.runtime.vm.observer import Observer
from relaxlab.runtime.vm.profile_report import Report
from relaxlab.runtime.vm.profiler import MAX_SPANS, profile
from relaxlab.runtime.vm.run_loop import new_frame, run_loop
from relaxlab.runtime.vm.stateful import as_tuples, bind_inputs
from relaxlab.runtime.vm.timing import BenchmarkResult, measure

__all__ = ["BenchmarkResult", "VMFunction", "VirtualMachine"]

DEFAULT_RECURSION_LIMIT: Final = 200_000
_ALLOCATOR_NUMBERS: Final[Mapping[object, AllocatorKind]] = {
    1: "naive",
    2: "pooled",
    "naive": "naive",
    "pooled": "pooled",
}

MemoryConfig = str | Mapping[Device, str | int] | None


@runtime_checkable
class VMFunction(Protocol):
    """A function of a machine, callable from Python; keeps the machine alive.

    Arguments go to registers as they are: no copy to the device, no check but what the bytecode
    does. NumPy arrays are wrapped without a copy, lists and tuples become Relax tuples.

    It is a plain Python function with attributes because calling one costs less than calling an
    object of any class.

    Attributes
    ----------
    machine : VirtualMachine
    closure : Closure
        What is called.
    drops_result : bool
        Whether None is returned whatever the function returns.
    """

    machine: "VirtualMachine"
    closure: Closure
    drops_result: bool

    def __call__(self, *args: Any) -> Any:
        """Call it."""


def _vm_function(
    machine: "VirtualMachine", closure: Closure, drops_result: bool = False
) -> VMFunction:
    """Return a closure as a function of a machine."""
    function = None
    if not closure.bound and not drops_result:
        function = machine.door(closure.function)
    if function is None:

        def function(*args: Any) -> Any:
            return _call(machine, closure, drops_result, args)

    function.__name__ = function.__qualname__ = closure.name
    function.__doc__ = f"Call {closure.name!r} of a virtual machine."
    made = cast(VMFunction, function)
    made.machine, made.closure, made.drops_result = machine, closure, drops_result
    return made


def _call(
    machine: "VirtualMachine", closure: Closure, drops_result: bool, args: tuple[Any, ...]
) -> Any:
    """Call a closure with the arguments of a host."""
    for value in args:
        if type(value) not in PLAIN_TYPES:
            args = tuple(map(as_value, args))
            break
    if closure.bound:
        args += closure.bound
    function = closure.function
    if machine.is_watched or function.compiled is not None:
        result = call_function(machine, function, args)
    else:
        frame = new_frame(machine, function, args, None)
        for _ in run_loop(machine, [frame], None, None):
            pass
        result = frame.result
    return None if drops_result else result


class VirtualMachine:
    """Runs the functions of one executable.

    Parameters
    ----------
    rt_mod
        The executable; it is not changed.
    device
        One device or several; the last is the host, and a CPU is added if it is none.
    memory_cfg
        ``"pooled"`` (the default) or ``"naive"`` for all devices, or one of them per device.
    exec_mode
        ``"bytecode"``: the run loop runs every instruction. ``"compiled"``: functions become
        Python source, which is faster and does the same; while somebody observes, instruments or
        steps, the run loop runs instead. When omitted, what the executable was built for.

    Attributes
    ----------
    executable : VMExecutable
        What runs: the given one, in which compiled functions have become bytecode.
    exec_mode : str
        How functions run when nobody watches.
    recursion_limit : int
        How many frames may be alive at once; more is a ``RecursionError`` that names the limit.
    observer : Observer or None
        Who is told of every event; set it to ``list.append`` of a list to record a run.
    instrument : callable or None
        What ``set_instrument`` attached.
    current : Execution or None
        The execution whose instructions are running now; None for a call that nobody watches.
    is_watched : bool
        Whether calls need an :class:`Execution`: somebody steps, observes or instruments.
    noted_frames : int
        How many frames of an error the run loop has named, for compiled functions below it.
    extensions : dict
        One object per extension type, such as caches of captured graphs.

    Raises
    ------
    ValueError
        If ``rt_mod`` is no executable, or ``exec_mode`` is unknown.
    """

    NAIVE_ALLOCATOR: Final = 1
    POOLED_ALLOCATOR: Final = 2

    def __init__(
        self,
        rt_mod: VMExecutable,
        device: Device | Sequence[Device],
        memory_cfg: MemoryConfig = None,
        *,
        exec_mode: str | None = None,
    ) -> None:
        if exec_mode not in (None, "bytecode", "compiled"):
            raise ValueError(f"Unknown exec_mode {exec_mode!r}: expected 'bytecode' or 'compiled'")
        if not isinstance(rt_mod, VMExecutable):
            raise ValueError(f"expected a VMExecutable, got {shown(rt_mod)}")
        self.devices: list[Device] = []
        self.allocators: list[Allocator] = []
        devices = _devices(device)
        for where, kind in zip(devices, _allocator_kinds(devices, memory_cfg), strict=True):
            self.add_device(where, kind)
        constants = [self.to_device(as_value(constant)) for constant in rt_mod.constants]
        self.program: Program = link(rt_mod, constants)
        self.executable: VMExecutable = self.program.executable
        if exec_mode is None:
            built = any(info.kind == VMFuncKind.VMTIR_FUNC for info in rt_mod.func_table)
            exec_mode = "compiled" if built else "bytecode"
        self.exec_mode = exec_mode
        self._compiled = CompiledProgram(self.program) if exec_mode == "compiled" else None
        if self._compiled is not None:
            finalize(self, self._compiled.close).atexit = False
        self.noted_frames = 0
        self.recursion_limit = DEFAULT_RECURSION_LIMIT
        self._observer: Observer | None = None
        self._instrument: PackedFunc | None = None
        self._current: Execution | None = None
        self.is_watched = False
        self.extensions: dict[type, Any] = {}
        # what vm[name] calls, and whether its result is dropped; names of module functions are
        # never in here
        self._doors: dict[str, tuple[Closure, bool]] = {
            name: (value, False)
            for name, value in self.program.functions.items()
            if isinstance(value, Closure) and name not in MACHINE_FUNCTIONS
        }
        self._inputs: dict[str, list[Any]] = {}
        self._outputs: dict[str, Any] = {}

    # ---- calling ----------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """Return the function called ``name``.

        Module functions (``set_input``, ...) come first, then saved functions, then the
        function table.

        Raises
        ------
        AttributeError
            If there is none.
        InternalError
            If the name is that of a packed function, which bytecode can call but a host cannot.
        """
        door = self._doors.get(name)
        if door is not None:
            return _vm_function(self, *door)
        found = self.module.find(name)
        if found is not None:
            return found
        if name in self.program.functions:
            raise _not_a_closure(name)
        known = ", ".join(self._doors) or "none"
        raise AttributeError(f"the machine has no function {name!r}; it has: {known}")

    def door(self, function: LinkedFunction) -> Callable[..., Any] | None:
        """Return what a host calls instead of ``function``; None if nothing was compiled for it."""
        if self._compiled is None or function.home is not self.program:
            return None
        door = self._compiled.door(function)
        made: Callable[..., Any] | None = None if door is None else door(self)
        return made

    def compiled_source(self, name: str) -> str:
        """Return the Python source that a function runs as in compiled mode.

        Works for machines in bytecode mode, too; they do not run it.

        Parameters
        ----------
        name
            A function of the table.

        Raises
        ------
        ValueError
            If there is no such function.
        """
        function = self.require_closure(name).function
        program = function.home
        assert isinstance(program, Program)
        compiled = self._compiled
        if compiled is None or program is not self.program:
            compiled = CompiledProgram(program, attach=False)
        return compiled.listing(function)

    @property
    def module(self) -> VMModule:
        """The machine seen as a module: ``vm.module["get_output"]("f", 0)``."""
        return VMModule(self)

    def start(self, func_name: str, *args: Any, observer: Observer | None = None) -> Execution:
        """Begin a call and stop before its first instruction; see :class:`Execution`.

        Parameters
        ----------
        func_name
            A function of the table, or a saved one.
        args
            Its arguments.
        observer
            Who is told of the events; the machine's own observer when omitted.
        """
        closure = self._steppable(func_name).closure
        values = [*map(as_value, args), *closure.bound]
        run = Execution(self, closure.function, values, stepping=True, observer=observer)
        run.step()  # up to the first instruction
        return run

    def profile(self, func_name: str, *args: Any, max_spans: int = MAX_SPANS) -> Report:
        """Call a function once and return where its time went; see :class:`Report`.

        Parameters
        ----------
        func_name
            A function of the table, or a saved one; errors are those of ``vm[func_name]``.
        args
            Its arguments.
        max_spans
            How many calls and frames the report's timeline keeps.
        """
        function = self._steppable(func_name)
        values = [*map(as_value, args), *function.closure.bound]
        report = profile(self, function.closure.function, values, max_spans)
        return replace(report, result=None) if function.drops_result else report

    def invoke_closure(self, closure: Any, *args: Any) -> Any:
        """Call a closure or a host function with ``args``.

        Raises
        ------
        InternalError
            If it is an object that cannot be called; a number is a ``TypeError``.
        """
        if isinstance(closure, Closure):
            return _vm_function(self, closure)(*args)
        if isinstance(closure, int | float | DataType | Device):
            raise TypeError(f"invoke_closure: expected a closure or Function, got {shown(closure)}")
        if not callable(closure):
            raise InternalError(
                f"invoke_closure expects a closure or Function, got {shown(closure)}"
            )
        return as_value(closure(*map(as_value, args)))

    def _steppable(self, name: str) -> VMFunction:
        function = self[name]
        if not isinstance(function, VMFunction):
            raise ValueError(f"{name!r} is a module function: it has no instructions to step")
        return function

    # The three reasons to watch are properties, so that a call has one flag to look at.

    @property
    def observer(self) -> Observer | None:
        """Who is told of every event."""
        return self._observer

    @observer.setter
    def observer(self, observer: Observer | None) -> None:
        self._observer = observer
        self._update_watched()

    @property
    def instrument(self) -> PackedFunc | None:
        """What is called before and after every call instruction."""
        return self._instrument

    @instrument.setter
    def instrument(self, instrument: PackedFunc | None) -> None:
        self._instrument = instrument
        self._update_watched()

    @property
    def current(self) -> Execution | None:
        """The execution whose instructions are running now."""
        return self._current

    @current.setter
    def current(self, execution: Execution | None) -> None:
        self._current = execution
        self._update_watched()

    def _update_watched(self) -> None:
        reasons = (self._observer, self._instrument, self._current)
        self.is_watched = any(reason is not None for reason in reasons)

    @property
    def zeroes_storage(self) -> bool:
        """Whether fresh storage must be cleared, so that a replay sees the same bytes."""
        return self._current is not None and self._current.watch is not None

    # ---- devices ----------------------------------------------------------------------------

    def add_device(self, device: Device, kind: object) -> None:
        """Append a device with an allocator, ``"naive"`` (1) or ``"pooled"`` (2).

        Raises
        ------
        InternalError
            If ``kind`` is neither.
        """
        if kind not in _ALLOCATOR_NUMBERS:
            raise InternalError(
                f"unknown allocator kind {kind!r}: expected 1 (naive) or 2 (pooled)"
            )
        self.allocators.append(allocator_for(require_cpu(device), _ALLOCATOR_NUMBERS[kind]))
        self.devices.append(device)

    @property
    def host_device(self) -> Device:
        """The device on which shapes are computed."""
        return self.devices[-1]

    def to_device(self, value: Any) -> Any:
        """Return ``value`` with its tensors on the first device; the same object if they are."""
        if isinstance(value, Tensor):
            device = self.devices[0] if self.devices else value.device
            return value if value.device == device else value.copyto(device)
        if isinstance(value, Array):
            return Array(map(self.to_device, value))
        return value

    # ---- stateful use -----------------------------------------------------------------------

    def save_function(
        self,
        func_name: str,
        saved_name: str,
        *args: Any,
        include_return: bool = True,
        **kwargs: Any,
    ) -> None:
        """Bind arguments to a function and keep it under another name.

        Positional arguments are the function's last parameters, so some may be left open.

        Parameters
        ----------
        func_name
            What to bind.
        saved_name
            Name for ``vm[saved_name]``; it may hide another function.
        *args, **kwargs
            What is bound, by place or by the parameter's name.
        include_return
            Whether the saved function returns the result, or None.
        """
        values = self._input_values(func_name, args, kwargs)
        self.module["save_function"](func_name, saved_name, include_return, *values)

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Store arguments for ``invoke_stateful``; numbers become 0-d tensors."""
        self.module["set_input"](func_name, *self._input_values(func_name, args, kwargs))

    def invoke_stateful(self, func_name: str) -> None:
        """Call a function with its stored arguments and store the result."""
        self.module["invoke_stateful"](func_name)

    def get_outputs(self, func_name: str) -> Any:
        """Return the stored result; Relax tuples as nested Python tuples."""
        return as_tuples(self.stored_output(func_name))

    def set_instrument(self, instrument: PackedFunc | str | None, *args: Any) -> None:
        """Have ``instrument`` called before and after every call instruction; None removes it.

        Parameters
        ----------
        instrument
            ``instrument(function, name, before_run, result, *args)``; returning
            ``VMInstrumentReturnKind.SKIP_RUN`` before a call skips it. Or the name of a global
            function that makes one.
        args
            Arguments for that global function.
        """
        self.module["set_instrument"](*(() if instrument is None else (instrument, *args)))

    def time_evaluator(
        self, func_name: str, dev: Device, number: int = 10, repeat: int = 1
    ) -> Callable[..., "BenchmarkResult"]:
        """Return a function that times ``vm[func_name](*args)``.

        It makes one call to warm up, then ``repeat`` measurements of ``number`` calls each.
        """
        return measure(self[func_name], number, repeat)

    # ---- what the module functions need -----------------------------------------------------

    def require_closure(self, name: str) -> Closure:
        """Return the closure of a table entry or a saved function; errors as the module's.

        Raises
        ------
        ValueError
            If there is no such function, or a saved value is none.
        """
        if name in self._doors:
            return self._doors[name][0]
        value = self.program.functions.get(name)
        if value is None:
            raise ValueError(f"Unknown function {name!r}: it is not in the function table")
        if not isinstance(value, Closure):
            raise _not_a_closure(name)
        return value

    def store_function(self, saved_name: str, closure: Closure, drops_result: bool) -> None:
        """Keep a closure under a name."""
        self._doors[saved_name] = (closure, drops_result)

    def store_input(self, name: str, values: list[Any]) -> None:
        """Keep the arguments of a function."""
        self._inputs[name] = values

    def stored_input(self, name: str) -> list[Any]:
        """Return the kept arguments; none is a ``ValueError``."""
        if name not in self._inputs:
            raise ValueError(f"no input for function {name!r}: call set_input({name!r}, ...) first")
        return self._inputs[name]

    def store_output(self, name: str, value: Any) -> None:
        """Keep the result of a function."""
        self._outputs[name] = value

    def stored_output(self, name: str) -> Any:
        """Return the kept result; none is a ``ValueError``."""
        if name not in self._outputs:
            raise ValueError(
                f"no output of function {name!r}: call invoke_stateful({name!r}) first"
            )
        return self._outputs[name]

    def _input_values(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        names = self.require_closure(name).function.param_names if kwargs else ()
        return bind_inputs(name, names, args, kwargs)

    def describe(self, _: Describer) -> ObjectValue:
        """Return what an event says about the machine as an argument."""
        return ObjectValue("vm", "%vm")

    def __repr__(self) -> str:
        return f"VirtualMachine({', '.join(self._doors)} on {', '.join(map(str, self.devices))})"


@MODULE_FUNCTIONS.registered("vm_load_executable")
def vm_load_executable(executable: VMExecutable) -> VMModule:
    """Return a machine without devices; ``module["vm_initialization"](...)`` adds them."""
    return VirtualMachine(executable, ()).module


def _devices(given: Device | Sequence[Device]) -> list[Device]:
    devices = [given] if isinstance(given, Device) else list(given)
    for device in devices:
        if not isinstance(device, Device):
            raise TypeError(f"expected a Device or a list of them, got {shown(device)}")
        require_cpu(device)
    if devices and devices[-1].type != "cpu":
        devices.append(cpu())
    return devices


def _allocator_kinds(devices: list[Device], config: MemoryConfig) -> list[object]:
    if config is None or isinstance(config, str):
        kinds: list[object] = [config or "pooled"] * len(devices)
    elif isinstance(config, Mapping):
        kinds = [config.get(device, "pooled") for device in devices]
    else:
        raise TypeError(f"memory_cfg: expected a string or a dict, got {shown(config)}")
    for kind in kinds:
        if kind not in _ALLOCATOR_NUMBERS:
            raise AssertionError(f"memory_cfg: expected 'naive' or 'pooled', got {kind!r}")
    return kinds


def _not_a_closure(name: str) -> InternalError:
    return InternalError(
        f"{name!r} is a packed function: it has no closure that a host could call; "
        "use get_global_func"
    )
