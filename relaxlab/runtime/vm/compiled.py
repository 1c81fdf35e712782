"""Compiled mode: Relax functions run as Python functions that were generated from bytecode.

A function is translated when it is first called (``translate.py``), once per machine. Calls of
Relax functions are calls of Python functions, as long as few are nested; deeper calls go on in
the run loop, so that recursion never exhausts Python's stack and its limit is the machine's. What
it does is what the run loop does: results, errors, what errors say about where they passed. When
somebody observes, instruments or steps, the run loop runs instead. Counterpart: TVM's
``exec_mode="compiled"``, which makes machine code.

Examples
--------
>>> from relaxlab.runtime.device import cpu
>>> from relaxlab.runtime.vm.bytecode import VMFuncInfo
>>> from relaxlab.runtime.vm.executable import VMExecutable
>>> from relaxlab.runtime.vm.virtual_machine import VirtualMachine
>>> identity = VMExecutable([VMFuncInfo(1, "f", 0, 1, 1, 1)], (), {}, [0], [2, 0])
>>> vm = VirtualMachine(identity, cpu(), exec_mode="compiled")
>>> print(vm.compiled_source("f"))
# f: 1 instruction
def f0_f(machine, room, r0):
    return r0
>>> vm["f"](7)
7
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any, Final

from relaxlab.runtime.container import Array, ShapeTuple
from relaxlab.runtime.device import Device
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.storage import Storage
from relaxlab.runtime.tensor import Tensor
from relaxlab.runtime.values import PLAIN_TYPES, as_value
from relaxlab.runtime.vm.builtin.control import invoke_closure
from relaxlab.runtime.vm.builtin.shapes import ShapeHeap
from relaxlab.runtime.vm.builtin.table import shown
from relaxlab.runtime.vm.execution import Execution
from relaxlab.runtime.vm.frame import Closure, Frame, LinkedFunction
from relaxlab.runtime.vm.generated_source import Callees, Memory, Names, Source
from relaxlab.runtime.vm.inline import GUARDS, INLINE
from relaxlab.runtime.vm.linker import Program
from relaxlab.runtime.vm.memory_plan import ALONE, MemoryPlan, Plans, memory_plan, spare
from relaxlab.runtime.vm.run_loop import (
    MAX_NOTES,
    bad_condition,
    location,
    lost_result,
    new_frame,
    run_loop,
    too_deep,
    wrong_arity,
)
from relaxlab.runtime.vm.translate import translate, translate_door

if TYPE_CHECKING:
    from relaxlab.runtime.vm.virtual_machine import VirtualMachine

__all__ = ["CompiledProgram", "call_function"]

_STACK: Final = 64
"""How many calls of Relax functions may be nested on Python's stack, whose limit is 1000."""
_SELF: Final = "compiled_program"
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class _Place:
    """What lines of generated code mean."""

    function: LinkedFunction
    places: tuple[int, ...]
    is_door: bool


class CompiledProgram:
    """The functions of a linked program as Python functions.

    Parameters
    ----------
    program
        What to compile.
    attach
        Whether its functions get their ``compiled`` attribute, so that they run so.
    """

    def __init__(self, program: Program, attach: bool = True) -> None:
        self.functions = [value.function for value in program.pool if isinstance(value, Closure)]
        self.names = Names()
        self.names.values.update(_MODULE, **{_SELF: self})
        self.callees = Callees(
            {f: self.names.name("f", f, f.name) for f in self.functions},
            program.kernels,
            {name: INLINE.get(name) for name in INLINE},
            {name: GUARDS.get(name) for name in GUARDS},
        )
        self.places: dict[CodeType, _Place] = {}
        self._memories: dict[LinkedFunction, Memory | None] = {}
        self._doors: dict[LinkedFunction, Callable[..., Any] | None] = {}
        for function in self.functions if attach else ():
            function.compiled = self._on_first_call(function)
            self.names.values[self.callees.names[function]] = function.compiled

    def source(self, function: LinkedFunction) -> Source:
        """Return a function as Python source."""
        name = self.callees.names[function]
        return translate(function, name, self.names, self.callees, self._memory(function))

    def _memory(self, function: LinkedFunction) -> Memory | None:
        """Return what a function keeps from call to call."""
        if function not in self._memories:
            plan = memory_plan(function, self.callees.kernels)
            memory = None
            if plan is not None:
                otherwise = self.names.name("u", function, function.name)
                self.names.values[otherwise] = self._on_first_call(function, otherwise)
                plans = Plans()
                memory = Memory(
                    plan,
                    self.names.name("plan", plan),
                    self.names.name("plans", plans),
                    self.names.name("idle", plans.idle),
                    otherwise,
                )
            self._memories[function] = memory
        return self._memories[function]

    def door(self, function: LinkedFunction) -> Callable[..., Any] | None:
        """Return what makes of a machine what a host calls; None if the long way is as good."""
        if function not in self._doors:
            name = self.names.name("door", function, function.name)
            memory = self._memory(function)
            source = translate_door(function, name, self.names, self.callees, memory)
            self._doors[function] = (
                None if source is None else self._define(source, function, is_door=True)
            )
        return self._doors[function]

    def _on_first_call(
        self, function: LinkedFunction, otherwise: str | None = None
    ) -> Callable[..., Any]:
        def first_call(machine: "VirtualMachine", room: int, *args: Any) -> Any:
            if otherwise is None:
                compiled = self._define(self.source(function), function, is_door=False)
                function.compiled = compiled
            else:  # without memory that it keeps
                source = translate(function, otherwise, self.names, self.callees)
                compiled = self._define(source, function, is_door=False)
            return compiled(machine, room, *args)

        first_call.__qualname__ = f"{function.name}, with memory of the allocator"
        return first_call

    def _define(
        self, source: Source, function: LinkedFunction, is_door: bool
    ) -> Callable[..., Any]:
        """Run source that this package has just written, and return what it defines."""
        values = self.names.values
        code = compile(source.text, f"<{source.name} of {ascii(function.name)[1:-1]}>", "exec")
        exec(code, values)  # noqa: S102  # names in it are generated, strings are values
        defined: Callable[..., Any] = values[source.name]
        code = defined.__code__
        if is_door:
            code = next(one for one in code.co_consts if isinstance(one, CodeType))
        self.places[code] = _Place(function, source.places, is_door)
        return defined

    def close(self) -> None:
        """Forget everything; functions that are still referred to run in the run loop."""
        for function in self.functions:
            function.compiled = None
        # functions and the module that they run in refer to each other
        self.names.values.clear()
        self.places.clear()
        self._doors.clear()

    def listing(self, function: LinkedFunction) -> str:
        """Return the source of a function with a comment on every name that it uses."""
        source = self.source(function)
        used = set(_words(source.text))
        count = function.length
        lines = [f"# {_ascii(function.name)}: {count} instruction{'s' if count != 1 else ''}"]
        lines += [f"#   r{i} is {_ascii(name)}" for i, name in enumerate(function.param_names)]
        for name, value in self.names.values.items():
            if name in used and name not in _MODULE and name != source.name and name != _SELF:
                lines.append(f"#   {name} is {_ascii(_meaning(value))}")
        return "\n".join([*lines, source.text])


def call_function(machine: "VirtualMachine", function: LinkedFunction, args: Sequence[Any]) -> Any:
    """Call a function from outside the program, in the way that the machine asks for."""
    args = tuple(map(as_value, args))
    if machine.is_watched:
        return Execution(machine, function, args).run()
    if function.compiled is not None and function.home is machine.program:
        return run_compiled(machine, function, args)
    frame = new_frame(machine, function, args, None)
    for _ in run_loop(machine, [frame], None, None):
        pass
    return frame.result


def run_compiled(machine: "VirtualMachine", function: LinkedFunction, args: Sequence[Any]) -> Any:
    """Call a compiled function from outside the program."""
    if len(args) != function.num_args:
        raise wrong_arity(function, len(args))
    compiled = function.compiled
    assert compiled is not None
    try:
        return compiled(machine, stack_room(machine), *args)
    except BaseException as error:
        explain(machine, error)
        raise


def stack_room(machine: "VirtualMachine") -> int:
    """Return how many more calls may nest on Python's stack."""
    return max(0, min(_STACK, machine.recursion_limit - 1))


# ---- what generated code calls ------------------------------------------------------------------


def careful(machine: "VirtualMachine", function: LinkedFunction, args: Sequence[Any]) -> Any:
    """Call a function whose door has seen something that it leaves to others."""
    return call_function(machine, function, [value for value in args if value is not _ABSENT])


def enter(
    machine: "VirtualMachine", room: int, function: LinkedFunction, args: Sequence[Any]
) -> Any:
    """Call a function that was not known when the caller was translated."""
    compiled = function.compiled
    if (
        room > 0
        and compiled is not None
        and function.home is machine.program
        and len(args) == function.num_args
    ):
        return compiled(machine, room - 1, *args)
    return deep(machine, room, function, args)


def deep(
    machine: "VirtualMachine", room: int, function: LinkedFunction, args: Sequence[Any]
) -> Any:
    """Call a function in the run loop, above the frames that are on Python's stack."""
    below = stack_room(machine) - room + 1
    if below >= machine.recursion_limit:
        raise too_deep(machine.recursion_limit, function)
    frame = new_frame(machine, function, args, None)
    for _ in run_loop(machine, [frame], None, None, below):
        pass
    return frame.result


def invoke(machine: "VirtualMachine", room: int, args: Sequence[Any]) -> Any:
    """Do what a call of ``vm.builtin.invoke_closure`` does: (machine, closure, arguments...)."""
    closure = args[1]
    if type(closure) is Closure:
        return enter(machine, room, closure.function, (*args[2:], *closure.bound))
    return invoke_closure(*args)


def storage_of(machine: "VirtualMachine", shape: Any, device: int, itemsize: int) -> Storage | None:
    """Return a storage for a shape; None if that is for ``vm.builtin.alloc_storage`` to refuse."""
    allocators = machine.allocators
    if type(shape) is not ShapeTuple or device >= len(allocators) or min(shape, default=0) < 0:
        return None
    return allocators[device].storage(shape.numel() * itemsize)


def lost(function: LinkedFunction, result: Any) -> None:
    """Refuse a result that has no destination, unless it is empty."""
    if not (isinstance(result, Array) and not result):
        raise lost_result(function, result)


def lost_by_closure(closure: Any, result: Any) -> None:
    """Do what :func:`lost` does if the callee was a closure; a host's result may be dropped."""
    if type(closure) is Closure:
        lost(closure.function, result)


_MODULE: Final[dict[str, Any]] = {
    "ABSENT": _ABSENT,
    "ALONE": ALONE,
    "Array": Array,
    "PLAIN_TYPES": PLAIN_TYPES,
    "ShapeHeap": ShapeHeap,
    "ShapeTuple": ShapeTuple,
    "Storage": Storage,
    "Tensor": Tensor,
    "as_value": as_value,
    "bad_condition": bad_condition,
    "careful": careful,
    "deep": deep,
    "invoke": invoke,
    "lost": lost,
    "lost_by_closure": lost_by_closure,
    "new_tensor": Tensor.__new__,
    "new_tuple": tuple.__new__,
    "references": sys.getrefcount,
    "spare": spare,
    "storage_of": storage_of,
    "stack_room": stack_room,
}
_PASSED_THROUGH: Final = (run_compiled.__code__, enter.__code__, invoke.__code__)


# ---- errors -------------------------------------------------------------------------------------


def explain(machine: "VirtualMachine", error: BaseException) -> None:
    """Add to an error where it passed through, as the run loop does, from its traceback."""
    found: list[tuple[LinkedFunction, int]] = []
    noted = 0
    traceback = error.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        code, owner = frame.f_code, frame.f_globals.get(_SELF)
        place = owner.places.get(code) if isinstance(owner, CompiledProgram) else None
        if place is not None:
            if place.is_door and found:
                break  # another call from outside, which has explained itself
            pc = place.places[traceback.tb_lineno - 1]
            if pc >= 0:
                found.append((place.function, pc))
        elif code is deep.__code__:
            noted, machine.noted_frames = machine.noted_frames, 0
            break
        elif code not in _PASSED_THROUGH and code.co_name != "first_call":
            break
        traceback = traceback.tb_next
    left = MAX_NOTES - noted
    for function, pc in found[: -left - 1 : -1] if left > 0 else ():
        at = Frame(function, [], None)
        at.pc = pc
        error.add_note(location(at))
    if 0 < left < len(found):
        error.add_note(f"  … and {len(found) - left} frames below")


_MODULE["explain"] = explain


def _ascii(text: str) -> str:
    return ascii(text)[1:-1]


def _meaning(value: Any) -> str:
    if isinstance(value, LinkedFunction):
        return f"function {value.name}"
    if isinstance(value, DataType | Device):
        return str(value)
    if isinstance(value, MemoryPlan):
        return f"memory for {len(value.views)} tensors in {len(value.blocks)} blocks"
    if isinstance(value, list):
        return "such memory that is not in use"
    name = getattr(value, "__qualname__", None) if callable(value) else None
    return f"{name or shown(value)}"


def _words(text: str) -> list[str]:
    return "".join(c if c.isalnum() or c == "_" else " " for c in text).split()
