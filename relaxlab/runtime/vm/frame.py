"""What the machine works on while it runs: linked functions, closures of them, and frames.

A linked function is a bytecode function after decoding (see ``linker.py``); a closure is the
value that stands for one, with the arguments it has bound; a frame is one activation.
Counterparts: ``VMClosure`` and ``VMFrame`` of TVM.

Examples
--------
>>> add = LinkedFunction("add", num_args=2, num_registers=3)
>>> Closure(add).bind((5,)).bind((7,)).bound
(7, 5)
>>> Closure(add).bind((5,))
Closure(add, binding the last 1 of 2 parameters)
"""

from collections.abc import Callable
from typing import Any

from relaxlab.runtime.describe import Describer, FunctionValue
from relaxlab.runtime.vm.executable import VMExecutable

__all__ = ["Closure", "Frame", "LinkedFunction", "LinkedInstruction"]

LinkedInstruction = tuple[int, Any, Any, Any]
"""Operation, target, reader of the arguments, slot; ``linker.py`` says what each means."""


class LinkedFunction:
    """A Relax function ready to run.

    Attributes
    ----------
    name, num_args, param_names
        As in the function table.
    num_registers
        Slots ``0 .. num_registers-1`` of a frame are the function's registers.
    machine_slot
        Slot that reads as ``%vm``; it is filled when a frame is made.
    template
        What a new frame's slots hold: None for registers, then the constants.
    base
        Index in the executable of the first instruction of ``code``.
    entry
        Where ``code`` begins to run.
    length
        Number of instructions.
    code
        One linked instruction per instruction, then traps for jumps that lead nowhere.
    executable
        Where the function comes from; a closure may outlive its machine.
    home
        The linked program that it is part of.
    compiled
        The function as a Python function of a machine, calls left on the stack, and arguments;
        None unless the program's machine runs in compiled mode.
    """

    __slots__ = (
        "base",
        "code",
        "compiled",
        "entry",
        "executable",
        "home",
        "length",
        "machine_slot",
        "name",
        "num_args",
        "num_registers",
        "param_names",
        "template",
    )

    def __init__(
        self,
        name: str,
        num_args: int,
        num_registers: int,
        param_names: tuple[str, ...] = (),
        executable: VMExecutable | None = None,
    ) -> None:
        self.name = name
        self.num_args = num_args
        self.num_registers = num_registers
        self.param_names = param_names
        self.executable = executable
        self.machine_slot = num_registers
        self.template: list[Any] = [None] * (num_registers + 1)
        self.base = 0
        self.entry = 0
        self.length = 0
        self.code: list[LinkedInstruction] = []
        self.home: object = None
        self.compiled: Callable[..., Any] | None = None

    def __repr__(self) -> str:
        return f"LinkedFunction({self.name}, {len(self.code)} instructions)"


class Closure:
    """A Relax function as a value, together with values for its last parameters.

    It runs the function it was made from, on whichever machine invokes it. It cannot be called
    from Python: use ``vm.invoke_closure``.
    """

    __slots__ = ("__weakref__", "bound", "function")

    def __init__(self, function: LinkedFunction, bound: tuple[Any, ...] = ()) -> None:
        self.function = function
        self.bound = bound

    @property
    def name(self) -> str:
        """Name of the function."""
        return self.function.name

    def bind(self, values: tuple[Any, ...]) -> "Closure":
        """Return a closure that has bound ``values`` too, in front of what is bound already."""
        return Closure(self.function, values + self.bound)

    def held_values(self) -> tuple[Any, ...]:
        """Return what is bound: the description shows it."""
        return self.bound

    def describe(self, describer: Describer) -> FunctionValue:
        """Return what an event says about the closure."""
        return FunctionValue("closure", self.name, tuple(map(describer.describe, self.bound)))

    def __repr__(self) -> str:
        if not self.bound:
            return f"Closure({self.name})"
        return (
            f"Closure({self.name}, binding the last {len(self.bound)} of "
            f"{self.function.num_args} parameters)"
        )


class Frame:
    """One activation of a function.

    Attributes
    ----------
    function
        What runs.
    registers
        The slots: registers first, then the machine, void and the constants.
    pc
        Index into ``function.code``. The loop keeps it in a local variable; here it is up to
        date whenever somebody else can look: in a callee, at a stop, after an error.
    return_slot
        Slot of the frame below for the result; None if the result is dropped.
    result
        Set when an outermost frame has returned.
    """

    __slots__ = ("function", "pc", "registers", "result", "return_slot")

    result: Any

    def __init__(
        self, function: LinkedFunction, registers: list[Any], return_slot: int | None
    ) -> None:
        self.function = function
        self.registers = registers
        self.pc = function.entry
        self.return_slot = return_slot

    @property
    def instruction(self) -> int:
        """Index, in the whole executable, of the instruction the frame is at.

        At a trap behind the code it is the instruction that led there.
        """
        function, pc = self.function, self.pc
        if pc >= function.length and function.code:
            pc = function.code[pc][3]
        return function.base + pc

    def __repr__(self) -> str:
        return f"Frame({self.function.name}, instruction {self.instruction})"
