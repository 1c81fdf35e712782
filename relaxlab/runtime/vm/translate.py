"""One linked function as Python source.

Registers become local variables, branches and loops become Python's, constants and callees become
names of the module that the source runs in. Nothing of a program is ever part of the text except
integers: names are generated, strings are values. Every line knows its instruction, so that an
error can say where it happened. Builtins whose arguments are known are written out, see
``inline.py``. Counterpart: none.

Examples
--------
>>> from relaxlab.runtime.vm.frame import LinkedFunction
>>> from relaxlab.runtime.vm.linker import RET
>>> f = LinkedFunction("f", num_args=1, num_registers=1)
>>> f.code, f.length = [(RET, None, None, 0)], 1
>>> print(translate(f, "f0", Names()).text)
def f0(machine, room, r0):
    return r0
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from relaxlab.runtime.vm.builtin.table import BUILTINS
from relaxlab.runtime.vm.frame import Closure, LinkedFunction
from relaxlab.runtime.vm.linker import CALL, ENTER, GOTO, IF, INVOKE, RET, TRAP
from relaxlab.runtime.vm.memory_plan import MemoryPlan
from relaxlab.runtime.vm.structure import (
    Block,
    Branch,
    Jump,
    Node,
    Repeat,
    Step,
    blocks_of,
    structured,
)

__all__ = [
    "CallSite",
    "Callees",
    "Guard",
    "HEAP",
    "Inliner",
    "Memory",
    "Names",
    "Source",
    "UNKNOWN",
    "Writer",
    "translate",
    "translate_door",
]

UNKNOWN: Final = object()
"""What stands for the value of a register when values of arguments are asked for."""

HEAP: Final = -1

_LARGEST: Final = 2**63
_LONGEST_DOOR: Final = 100
_INDENT: Final = "    "


class Names:
    """The module that generated source runs in: a name for every constant and callee.

    Attributes
    ----------
    values
        What the names mean.
    """

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._known: dict[tuple[str, int], str] = {}
        self._counts: dict[str, int] = {}

    def constant(self, value: Any) -> str:
        """Return an expression for a constant."""
        if value is None or value is True or value is False:
            return repr(value)
        if type(value) is int and -_LARGEST <= value < _LARGEST:
            return repr(value) if value >= 0 else f"({value!r})"
        return self.name("c", value)

    def name(self, kind: str, value: Any, hint: str = "") -> str:
        """Return the name of an object; ``hint`` makes it readable."""
        key = (kind, id(value))  # the object stays alive: it is in ``values``
        name = self._known.get(key)
        if name is None:
            legible = "".join(c if c.isascii() and c.isalnum() else "_" for c in hint)[:60]
            number = self._counts[kind] = self._counts.get(kind, -1) + 1
            name = f"{kind}{number}" + (f"_{legible}" if legible else "")
            self._known[key] = name
            self.values[name] = value
        return name


@dataclass(frozen=True, slots=True)
class Source:
    """A function as text.

    Attributes
    ----------
    name
        What the text defines.
    text
        The source, without a final newline.
    places
        For each line the index of its instruction in the linked code, or -1.
    """

    name: str
    text: str
    places: tuple[int, ...]

    def without(self, line: str) -> "Source":
        """Return the source without a line."""
        lines = self.text.split("\n")
        at = lines.index(line)
        places = self.places[:at] + self.places[at + 1 :]
        return Source(self.name, "\n".join(lines[:at] + lines[at + 1 :]), places)


@dataclass(frozen=True, slots=True)
class CallSite:
    """A call of a host function with what is known about it.

    Attributes
    ----------
    pc
        Index of the instruction.
    target
        What is called.
    texts
        Expressions of the arguments.
    slots
        Their slots.
    values
        Their values, ``UNKNOWN`` for registers.
    slot
        Where the result goes; None drops it.
    """

    pc: int
    target: Callable[..., Any]
    texts: Sequence[str]
    slots: Sequence[int]
    values: Sequence[Any]
    slot: int | None

    @property
    def result(self) -> str:
        """The local variable of the result."""
        return f"r{self.slot}"


Inliner = Callable[["Writer", CallSite], bool]
"""Writes a builtin out; False for a call that it does not know."""

Guard = Callable[["Writer", CallSite], list[str] | None]
"""The conditions on which a check may fail: first that the value is no tensor, then others about
the tensor; None if they are not known."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What a function keeps from call to call, and what the source calls it.

    Attributes
    ----------
    plan
        What is kept.
    plan_name, plans_name, idle_name
        Names of the plan, of what it made, and of the list of that which is not in use.
    otherwise
        Name of the function that does the same without keeping anything.
    """

    plan: MemoryPlan
    plan_name: str
    plans_name: str
    idle_name: str
    otherwise: str


@dataclass(frozen=True, slots=True)
class Callees:
    """What is known of the functions that a program calls.

    Attributes
    ----------
    names
        Names of its own functions, which may be called directly.
    kernels
        Host functions that forget their arguments when they return.
    inliners, guards
        What is known of builtins, by name.
    """

    names: dict[LinkedFunction, str] = field(default_factory=dict)
    kernels: frozenset[int] = frozenset()
    inliners: Mapping[str, Inliner] = field(default_factory=dict)
    guards: Mapping[str, Guard] = field(default_factory=dict)


def translate(
    function: LinkedFunction,
    name: str,
    names: Names,
    callees: "Callees | None" = None,
    memory: "Memory | None" = None,
) -> Source:
    """Return a function as Python source.

    It takes the machine, how many more calls may go on Python's stack, and the arguments.

    Parameters
    ----------
    function
        What to translate.
    name
        What the source calls it.
    names
        Receives constants and callees.
    callees
        What is known of the functions that it may call.
    memory
        What it keeps from call to call.
    """
    writer = Writer(function, names, callees or Callees(), memory)
    params = ", ".join(("machine", "room", *(f"r{i}" for i in range(function.num_args))))
    writer.line(f"def {name}({params}):")
    writer.depth = 1
    if memory is None:
        writer.body()
        return writer.source(name)
    writer.take(memory, f"{memory.otherwise}({params})")
    writer.line("try:")
    writer.depth = 2
    writer.body()
    writer.depth = 1
    writer.give_back(memory)
    return writer.source(name)


def translate_door(
    function: LinkedFunction,
    name: str,
    names: Names,
    callees: Callees,
    memory: "Memory | None" = None,
) -> Source | None:
    """Return the function as a host calls it; None for one that is too long to be written twice.

    The source defines a function of the machine that returns a function of the arguments. If this
    sees at once that nobody watches, that
    the arguments are register values, and that the checks at the beginning hold, it does the rest
    of the function; otherwise ``careful`` does everything.
    """
    if function.length > _LONGEST_DOOR:
        return None
    writer = Writer(function, names, callees, memory)
    guards = _guards(writer)
    params = [f"r{i}=ABSENT" for i in range(function.num_args)]
    # the machine is a variable of the function around it: a bound argument would cost more
    writer.line(f"def {name}(machine):")
    writer.depth = 1
    writer.line(f"def door({', '.join([*params, '/', '*more'] if params else ['*more'])}):")
    writer.depth = 2
    writer.line(f"if more or machine.is_watched{''.join(f' or {test}' for test in guards)}:")
    args = "".join(f"r{i}, " for i in range(function.num_args))
    linked = names.name("F", function, function.name)
    careful = f"careful(machine, {linked}, [{args}*more])"
    writer.line(f"{_INDENT}return {careful}")
    if memory is not None:
        writer.take(memory, careful)
    writer.line("try:")
    writer.depth = 3
    writer.line("room = stack_room(machine)")
    writer.body()
    writer.depth = 2
    writer.finish()
    writer.line("except BaseException as error:")
    writer.line(f"{_INDENT}explain(machine, error)")
    writer.line(f"{_INDENT}raise")
    if memory is not None:
        writer.give_back(memory)
    writer.depth = 1
    writer.line("return door")
    source = writer.source(name)
    if source.text.count("room") == source.text.count("stack_room") + 1:
        return source.without(f"{3 * _INDENT}room = stack_room(machine)")
    return source


def _guards(writer: "Writer") -> list[str]:
    """Return when a door must be careful; checks that this covers are not written again.

    The first instructions of most functions check their parameters. Nothing of these checks can be
    seen if they hold, so they may be made before anything else.
    """
    function, code = writer.function, writer.code
    loops = any(op == GOTO and target <= pc for pc, (op, target, *_) in enumerate(code))
    tests: dict[int, list[str]] = {}
    for pc in range(0 if loops or function.entry else function.length):
        operation, target, _, slot = code[pc]
        if operation != CALL:
            break
        name = _builtin_name(target)
        guard = writer.callees.guards.get(name)
        call = writer.call_site(pc)
        if guard is not None and call.slots and call.slots[0] < function.num_args:
            found = guard(writer, call)
            if found is None or slot is not None:
                break
            known = tests.setdefault(call.slots[0], [])
            known += [test for test in found if test not in known]
            writer.skipped.add(pc)
        elif name != "vm.builtin.alloc_shape_heap" or (slot or 0) < function.num_args:
            break
    guards: list[str] = []
    for parameter in range(function.num_args):
        ours = tests.get(parameter, [f"type(r{parameter}) not in PLAIN_TYPES"])
        # whole shapes that are compared have a rank, so that need not be
        whole = f"r{parameter}.shape != ("
        shapes = (test.removeprefix(whole) for test in ours if test.startswith(whole))
        ranks = {sum(size.strip(") ") != "" for size in shape.split(",")) for shape in shapes}
        implied = {f"len(r{parameter}.shape) != {rank}" for rank in ranks}
        guards += [test for test in ours if test not in implied]
    return guards


class Writer:
    """Writes the lines of one function.

    Attributes
    ----------
    names
        Constants and callees.
    depth
        Indentation of the next line.
    booleans
        Slots that hold a bool for certain.
    skipped
        Instructions that need no text: what they do is done.
    heaps
        Registers that hold nothing but a shape heap that no host function sees.
    sizes
        Local variables that hold what a shape heap holds, by slot of the heap and index in it. At
        index ``HEAP`` stands how many elements a heap has that is in its register for certain.
    """

    def __init__(
        self,
        function: LinkedFunction,
        names: Names,
        callees: Callees,
        memory: Memory | None = None,
    ) -> None:
        self.function = function
        self.code = function.code
        self.names = names
        self.callees = callees
        self.memory = memory
        self.depth = 0
        self.booleans: set[int] = set()
        self.sizes: dict[tuple[int, int], str] = {}
        self.skipped: set[int] = set()
        self.heaps = _heaps(function, callees.kernels)
        self._lines: list[str] = []
        self._places: list[int] = []
        self._pc = -1
        template, count = function.template, function.num_registers
        self._texts = [f"r{slot}" for slot in range(count)]
        self._texts += ["machine", *map(names.constant, template[count + 1 :])]
        self._values = [UNKNOWN] * (count + 1) + template[count + 1 :]

    # ---- text -------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        """Append a line that belongs to the current instruction."""
        self._lines.append(_INDENT * self.depth + text)
        self._places.append(self._pc)

    def finish(self) -> None:
        """Say that what follows belongs to no instruction."""
        self._pc = -1

    def source(self, name: str) -> Source:
        """Return what was written."""
        return Source(name, "\n".join(self._lines), tuple(self._places))

    # ---- structure --------------------------------------------------------------------------

    def body(self) -> None:
        """Write all instructions."""
        function = self.function
        fresh = [slot for slot in _read_unassigned(function) if slot >= function.num_args]
        for start in range(0, len(fresh), 20):
            self.line(" = ".join(f"r{slot}" for slot in fresh[start : start + 20]) + " = None")
        nodes = structured(self.code, function.entry, function.length)
        if nodes is not None:
            self.nodes(nodes)
        else:
            self.dispatch(blocks_of(self.code, function.entry))

    def nodes(self, nodes: list[Node]) -> None:
        """Write structured code."""
        for node in nodes:
            match node:
                case Step(pc):
                    self.step(pc)
                case Branch(pc, then, otherwise):
                    self.branch(self._texts[self.condition(pc)], then, otherwise)
                case Repeat(head, inner):
                    self._pc = head
                    self.sizes.clear()  # the end of the loop leads here, too
                    self.block("while True:", inner)
                    self.sizes.clear()
                case Jump(where):
                    self.line(where)

    def branch(self, condition: str, then: list[Node], otherwise: list[Node]) -> None:
        """Write a branch; what holds behind it is what holds at the end of both ways."""
        before = dict(self.sizes)
        after = [before]
        for header, nodes in ((f"if {condition}:", then), ("else:", otherwise)):
            if not nodes:
                continue
            self.sizes = dict(before)
            self.block(header if then else f"if not {condition}:", nodes)
            after.append(self.sizes)
        common = set.intersection(*(set(sizes) for sizes in after))
        self.sizes = {key: before[key] for key in before if key in common}

    def block(self, header: str, nodes: list[Node]) -> None:
        """Write an indented block."""
        self.line(header)
        self.depth += 1
        self.booleans.clear()  # what holds here need not hold where paths meet
        written = len(self._lines)
        self.nodes(nodes)
        if len(self._lines) == written:
            self.line("pass")
        self.booleans.clear()
        self.depth -= 1

    def dispatch(self, blocks: list[Block]) -> None:
        """Write code whose jumps have no structure: a loop that picks the next block."""
        numbers = {block.start: number for number, block in enumerate(blocks)}
        self.line(f"at = {numbers[self.function.entry]}")
        self.line("while True:")
        self.depth += 1
        self.choose(blocks, 0, numbers)
        self.depth -= 1

    def choose(self, blocks: list[Block], first: int, numbers: dict[int, int]) -> None:
        """Write the choice among ``blocks``, the first of which has number ``first``."""
        if len(blocks) == 1:
            self.one_block(blocks[0], numbers)
            return
        middle = len(blocks) // 2
        self.line(f"if at < {first + middle}:")
        self.depth += 1
        self.choose(blocks[:middle], first, numbers)
        self.depth -= 1
        self.line("else:")
        self.depth += 1
        self.choose(blocks[middle:], first + middle, numbers)
        self.depth -= 1

    def one_block(self, block: Block, numbers: dict[int, int]) -> None:
        """Write one block of :meth:`dispatch`."""
        self.booleans.clear()
        self.sizes.clear()
        for pc in range(block.start, block.end):
            operation, target = self.code[pc][:2]
            if operation == IF:
                slot = self.condition(pc)
                self.line(f"at = {numbers[pc + 1]} if r{slot} else {numbers[target]}")
            elif operation == GOTO:
                self._pc = pc
                self.line(f"at = {numbers[target]}")
            else:
                self.step(pc)
        if self.code[block.end - 1][0] not in (IF, GOTO, RET, TRAP):
            self.line(f"at = {numbers[block.end]}")

    def condition(self, pc: int) -> int:
        """Write the check of an If's condition and return its slot."""
        self._pc = pc
        slot: int = self.code[pc][3]
        text = self._texts[slot]
        if slot not in self.booleans:
            self.line(f"if type({text}) is not bool and not isinstance({text}, int):")
            self.line(f"{_INDENT}raise bad_condition({text}, {slot})")
        return slot

    # ---- instructions -----------------------------------------------------------------------

    def step(self, pc: int) -> None:
        """Write an instruction that is no jump."""
        if pc in self.skipped:
            return
        self._pc = pc
        if self.memory is not None and self.prepared(pc, self.memory):
            return
        operation, target, read, slot = self.code[pc]
        if operation == RET:
            self.line(f"return {self._texts[slot]}")
            return
        if operation == TRAP:
            error, message = target
            names = self.names
            self.line(f"raise {names.name('e', error)}({names.name('m', message)})")
            return
        self.booleans.discard(-1 if slot is None else slot)
        if operation == CALL:
            self.host_call(self.call_site(pc))
        elif operation == ENTER:
            self.enter(target, read(self._texts), slot)
        elif operation == INVOKE:
            self.invoke(read(self._texts), read(self._values), slot)

    def call_site(self, pc: int) -> CallSite:
        """Return the call of a host function at ``pc``."""
        _, target, read, slot = self.code[pc]
        slots = read(range(len(self._texts)))
        return CallSite(pc, target, read(self._texts), slots, read(self._values), slot)

    def take(self, memory: Memory, otherwise: str) -> None:
        """Write where the function gets the memory that it keeps."""
        idle, plan, plans = memory.idle_name, memory.plan_name, memory.plans_name
        self.line(f"kept = {idle}.pop() if {idle} else {plan}.make(machine, {plans})")
        self.line("if kept is None:")
        self.line(f"{_INDENT}return {otherwise}")
        names = [f"v{i}" for i in range(len(memory.plan.views))]
        names += ["_", *(f"d{i}" for i in memory.plan.devices)]
        self.line(f"{', '.join(names)}{',' * (len(names) == 1)} = kept")

    def give_back(self, memory: Memory) -> None:
        """Write that the memory is not in use any more."""
        self._pc = -1
        self.line("finally:")
        self.line(f"{_INDENT}{memory.idle_name}.append(kept)")

    def prepared(self, pc: int, memory: Memory) -> bool:
        """Write an instruction whose memory is there already; False for any other."""
        if pc in memory.plan.done:
            return True
        index = memory.plan.assigned.get(pc)
        if index is None:
            return False
        slot = self.code[pc][3]
        if slot is None:
            return True
        if index not in memory.plan.outputs:
            self.line(f"r{slot} = v{index}")
            return True
        view = memory.plan.views[index]
        device, _ = memory.plan.blocks[view.block]
        self.line(f"if references(v{index}) != ALONE:")
        self.line(f"{_INDENT}v{index} = spare(machine, {memory.plan_name}, kept, {index})")
        self.line(f"r{slot} = new_tensor(Tensor)")
        self.line(f"r{slot}.array = v{index}[...]")
        self.line(f"r{slot}.shape = {self.names.constant(view.shape)}")
        self.line(f"r{slot}.dtype = {self.names.constant(view.dtype)}")
        self.line(f"r{slot}.device = d{device}")
        self.line(f"r{slot}.byte_offset = {view.offset}")
        return True

    def host_call(self, call: CallSite) -> None:
        """Write a call of a host function."""
        name = _builtin_name(call.target)
        inline = self.callees.inliners.get(name)
        if name != "vm.builtin.alloc_shape_heap":
            self.forget_sizes((-1 if call.slot is None else call.slot,), gone=True)
        if inline is not None and inline(self, call):
            return
        if name:
            self.plain_call(call)
            return
        self.forget_sizes(call.slots)
        function = _raw(call.target)
        callee = self.names.name("k", function, getattr(call.target, "__name__", ""))
        text = f"{callee}({', '.join(call.texts)})"
        if call.slot is not None:
            self.line(f"{call.result} = {text}")
            self.line(f"if type({call.result}) not in PLAIN_TYPES:")
            self.line(f"{_INDENT}{call.result} = as_value({call.result})")
        elif id(function) in self.callees.kernels:
            self.line(text)
        else:  # a result that is no value is an error, also where nobody wants it
            self.line(f"x = {text}")
            self.line("if x is not None:")
            self.line(f"{_INDENT}as_value(x)")

    def plain_call(self, call: CallSite) -> None:
        """Write the call of a builtin, whose result is a register value."""
        assign = "" if call.slot is None else f"{call.result} = "
        self.line(assign + self.builtin(call))
        self.forget_sizes(call.slots)

    def forget_sizes(self, slots: Sequence[int], gone: bool = False) -> None:
        """Forget what the shape heaps among ``slots`` hold: somebody may have written to them.

        With ``gone`` forget that there is a heap, too.
        """
        for slot, size in list(self.sizes):
            if slot in slots and (gone or size != HEAP):
                del self.sizes[slot, size]

    def size(self, heap: int, index: int) -> str | None:
        """Return a local variable that holds an element of a shape heap; None if it may be none."""
        if not 0 <= index < int(self.sizes.get((heap, HEAP), "0")):
            return None
        name = self.sizes.get((heap, index))
        if name is None:
            name = self.sizes[heap, index] = f"h{heap}_{index}"
            self.line(f"{name} = r{heap}.array.item({index})")
        return name

    def builtin(self, call: CallSite) -> str:
        """Return the expression that calls the builtin itself."""
        name = _builtin_name(call.target).removeprefix("vm.builtin.")
        return f"{self.names.name('b', call.target, name)}({', '.join(call.texts)})"

    def is_register(self, slot: int) -> bool:
        """Whether a slot is a register, not a constant."""
        return slot < self.function.num_registers

    def enter(self, target: LinkedFunction, texts: Sequence[str], slot: int | None) -> None:
        """Write the call of a Relax function."""
        result = "x" if slot is None else f"r{slot}"
        linked = self.names.name("F", target, target.name)
        name = self.callees.names.get(target)
        listed = ", ".join(texts)
        rest = f"deep(machine, room, {linked}, ({listed}{',' if texts else ''}))"
        if name is None or len(texts) != target.num_args:
            self.line(f"{result} = {rest}")
        else:
            args = ", ".join(("machine", "room - 1", *texts))
            self.line(f"{result} = {name}({args}) if room > 0 else {rest}")
        if slot is None:
            self.line("if x is not None:")
            self.line(f"{_INDENT}lost({linked}, x)")

    def invoke(self, texts: Sequence[str], values: Sequence[Any], slot: int | None) -> None:
        """Write a call of ``vm.builtin.invoke_closure``."""
        closure = values[1]
        if type(closure) is Closure:
            bound = map(self.names.constant, closure.bound)
            self.enter(closure.function, (*texts[2:], *bound), slot)
            return
        result = "x" if slot is None else f"r{slot}"
        self.line(f"{result} = invoke(machine, room, ({', '.join(texts)}))")
        if slot is None:
            self.line("if x is not None:")
            self.line(f"{_INDENT}lost_by_closure({texts[1]}, x)")


def _builtin_name(target: Any) -> str:
    name = getattr(target, "__qualname__", "")
    return name if BUILTINS.find(name) is target else ""


_HEAP_USERS: Final = (
    "vm.builtin.match_shape",
    "vm.builtin.match_prim_value",
    "vm.builtin.make_shape",
    "vm.builtin.make_prim_value",
)


def _heaps(function: LinkedFunction, kernels: frozenset[int]) -> set[int]:
    """Return the registers that hold only shape heaps, which only kernels and builtins see."""
    made: set[int] = set()
    others: set[int] = set(range(function.num_args))
    indices = range(len(function.template))
    for operation, target, read, slot in function.code:
        if operation not in (CALL, ENTER, INVOKE):
            if operation == RET:
                others.add(slot)
            continue
        name = _builtin_name(target) if operation == CALL else ""
        if slot is not None and name != "vm.builtin.null_value":
            (made if name == "vm.builtin.alloc_shape_heap" else others).add(slot)
        # as the second argument, or the first of the makers
        if name not in _HEAP_USERS and not (operation == CALL and id(_raw(target)) in kernels):
            others.update(read(indices))
        elif name in _HEAP_USERS:
            place = 1 if name in _HEAP_USERS[:2] else 0
            others.update(used for i, used in enumerate(read(indices)) if i != place)
    return made - others


def _raw(target: Any) -> Any:
    """Return a host function without what the linker put around it."""
    return getattr(target, "__wrapped__", target)


def _read_unassigned(function: LinkedFunction) -> list[int]:
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
