"""The machine as a module: its functions found by name, as TVM's hosts call them.

Programs written against TVM reach some of the machine's API only as module functions, such as
``vm.module["get_output"]``; each is defined here once, and the Python methods of the machine use
them. Counterpart: the function table of TVM's ``VirtualMachineImpl``.

Examples
--------
>>> sorted(MACHINE_FUNCTIONS.names())[:3]
['get_function_arity', 'get_function_param_name', 'get_output']
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from relaxlab.errors import InternalError
from relaxlab.registry import Registry
from relaxlab.runtime.container import Array
from relaxlab.runtime.device import Device
from relaxlab.runtime.packed_func import get_global_func
from relaxlab.runtime.values import as_value
from relaxlab.runtime.vm.builtin.table import shown
from relaxlab.runtime.vm.bytecode import VMFuncInfo

if TYPE_CHECKING:
    from relaxlab.runtime.vm.virtual_machine import VirtualMachine

__all__ = ["MACHINE_FUNCTIONS", "VMModule"]

MACHINE_FUNCTIONS: Final[Registry[Callable[..., Any]]] = Registry("machine function")


class VMModule:
    """A machine's functions by name; ``module["name"]`` or ``module.get_function("name")``.

    Attributes
    ----------
    machine
        The machine.
    """

    kind: Final = "relax.VirtualMachine"

    __slots__ = ("machine",)

    def __init__(self, machine: "VirtualMachine") -> None:
        self.machine = machine

    def find(self, name: str) -> Callable[..., Any] | None:
        """Return the module function called ``name``, or None; see ``MACHINE_FUNCTIONS``."""
        function = MACHINE_FUNCTIONS.find(name)
        if function is None:
            return None
        machine = self.machine

        def bound(*args: Any) -> Any:
            return function(machine, *args)

        return bound

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self.machine[name]

    def get_function(self, name: str) -> Callable[..., Any]:
        """Return the function called ``name``, as ``module[name]`` does."""
        return self.machine[name]

    def __repr__(self) -> str:
        return f"VMModule({self.machine!r})"


@MACHINE_FUNCTIONS.registered("vm_initialization")
def vm_initialization(machine: "VirtualMachine", *args: int) -> None:
    """Add devices: (type, id, allocator kind) each, as numbers; kind 1 is naive, 2 pooled."""
    if len(args) % 3:
        raise InternalError(
            f"vm_initialization: expected a multiple of 3 arguments, got {len(args)}"
        )
    for number, index, kind in zip(args[::3], args[1::3], args[2::3], strict=True):
        machine.add_device(Device.from_dlpack(number, index), kind)


@MACHINE_FUNCTIONS.registered("invoke_closure")
def invoke_closure(machine: "VirtualMachine", closure: Any, *args: Any) -> Any:
    """Call a closure or a host function."""
    return machine.invoke_closure(closure, *args)


@MACHINE_FUNCTIONS.registered("save_function")
def save_function(machine: "VirtualMachine", *args: Any) -> None:
    """Keep a function with its last arguments bound: (name, saved name, include_return, ...)."""
    if len(args) < 3:
        raise InternalError(
            "save_function expects a name, a saved name, include_return and arguments, "
            f"got {len(args)} arguments"
        )
    name, saved_name, include_return, *values = args
    if saved_name in MACHINE_FUNCTIONS:
        raise ValueError(
            f"save_function: {saved_name!r} is the name of a module function: "
            "the saved function could never be called"
        )
    closure = machine.require_closure(name)
    bound = tuple(machine.to_device(as_value(value)) for value in values)
    machine.store_function(saved_name, closure.bind(bound), not include_return)


@MACHINE_FUNCTIONS.registered("set_input")
def set_input(machine: "VirtualMachine", name: str, *args: Any) -> None:
    """Keep the arguments of the next ``invoke_stateful(name)``, copied to the first device."""
    info = _require_info(machine, name)
    machine.require_closure(name)
    if len(args) != info.num_args:
        names = f" ({', '.join(info.param_names)})" if info.param_names else ""
        raise InternalError(
            f"set_input: the number of arguments for function {name!r} must be {info.num_args}, "
            f"one per param{names}, got {len(args)}"
        )
    machine.store_input(name, [machine.to_device(as_value(value)) for value in args])


@MACHINE_FUNCTIONS.registered("set_input_with_param_module")
def set_input_with_param_module(machine: "VirtualMachine", name: str, *args: Any) -> None:
    """Like ``set_input``; the last argument is a module whose ``get_params()`` is used."""
    if not args or not hasattr(args[-1], "get_function"):
        what = shown(args[-1]) if args else "nothing"
        raise TypeError(f"set_input_with_param_module: expected a Module at the end, got {what}")
    set_input(machine, name, *args[:-1], args[-1].get_function("get_params")())


@MACHINE_FUNCTIONS.registered("invoke_stateful")
def invoke_stateful(machine: "VirtualMachine", name: str) -> None:
    """Call a function with the arguments kept by ``set_input``; keep its result."""
    closure = machine.require_closure(name)
    machine.store_output(name, machine.invoke_closure(closure, *machine.stored_input(name)))


@MACHINE_FUNCTIONS.registered("get_output_arity")
def get_output_arity(machine: "VirtualMachine", name: str, *indices: int) -> int:
    """Return the number of elements of a kept result, or -1 if it is no tuple."""
    value = _select(machine.stored_output(name), name, indices)
    return len(value) if isinstance(value, Array) else -1


@MACHINE_FUNCTIONS.registered("get_output")
def get_output(machine: "VirtualMachine", name: str, *indices: int) -> Any:
    """Return a kept result, or the element of it that the indices lead to."""
    value = _select(machine.stored_output(name), name, indices)
    if isinstance(value, Array):
        raise ValueError(
            f"get_output: the return value of {name!r} at {_path(indices)} is a tuple of "
            f"{len(value)} elements: add an index to select one"
        )
    return value


@MACHINE_FUNCTIONS.registered("get_function_arity")
def get_function_arity(machine: "VirtualMachine", name: str) -> int:
    """Return the number of parameter names: 0 for packed functions, and where names are absent."""
    return len(_require_info(machine, name).param_names)


@MACHINE_FUNCTIONS.registered("get_function_param_name")
def get_function_param_name(machine: "VirtualMachine", name: str, index: int) -> str:
    """Return the name of one parameter."""
    names = _require_info(machine, name).param_names
    if not 0 <= index < len(names):
        raise ValueError(
            f"get_function_param_name: index {index} is out of range: "
            f"function {name!r} has {len(names)} parameter names"
        )
    return names[index]


@MACHINE_FUNCTIONS.registered("set_instrument")
def set_instrument(machine: "VirtualMachine", instrument: Any = None, *args: Any) -> None:
    """Attach an instrument, or the one that a named global function makes; None removes it."""
    if isinstance(instrument, str):
        factory = get_global_func(instrument, allow_missing=True)
        if factory is None:
            raise InternalError(f"set_instrument: there is no global function {instrument!r}")
        instrument = factory(*args)
    if instrument is not None and not callable(instrument):
        raise TypeError(f"set_instrument: expected a function, got {shown(instrument)}")
    machine.instrument = instrument


def _require_info(machine: "VirtualMachine", name: str) -> VMFuncInfo:
    info = machine.program.entries.get(name)
    if info is None:
        raise ValueError(f"Unknown function {name!r}: it is not in the function table")
    return info


def _select(value: Any, name: str, indices: tuple[int, ...]) -> Any:
    for position, index in enumerate(indices):
        if not isinstance(value, Array):
            raise ValueError(
                f"index {index} into the return value of {name!r} at "
                f"{_path(indices[:position])}: it is {shown(value)}, not a tuple"
            )
        if not 0 <= index < len(value):
            raise IndexError(
                f"Index {index} is out of bounds: the return value of {name!r} at "
                f"{_path(indices[:position])} has {len(value)} elements"
            )
        value = value[index]
    return value


def _path(indices: tuple[int, ...]) -> str:
    return "".join(f"[{index}]" for index in indices) or "the top"
