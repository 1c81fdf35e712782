"""Writes the lines of one function: structure, instructions, and what is known while it runs.

Registers become local variables, branches and loops become Python's. Every line knows its
instruction, so that an error can say where it happened. Counterpart: none.

Examples
--------
>>> from relaxlab.runtime.vm.linker import RET
>>> f = LinkedFunction("f", num_args=1, num_registers=1)
>>> f.code, f.length = [(RET, None, None, 0)], 1
>>> writer = Writer(f, Names(), Callees())
>>> writer.body()
>>> writer.source("f0").text
'return r0'
"""

from collections.abc import Sequence
from typing import Any, Final

from relaxlab.runtime.vm.frame import Closure, LinkedFunction
from relaxlab.runtime.vm.generated_source import (
    UNKNOWN,
    Callees,
    CallSite,
    Memory,
    Names,
    Source,
)
from relaxlab.runtime.vm.linker import CALL, ENTER, GOTO, IF, INVOKE, RET, TRAP
from relaxlab.runtime.vm.register_use import (
    builtin_name,
    host_function,
    private_heaps,
    read_unassigned,
)
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

__all__ = ["HEAP", "INDENT", "Writer"]

HEAP: Final = -1
"""Index under which a writer notes that a register holds a shape heap; see ``Writer.sizes``."""

INDENT: Final = "    "


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
    arrays
        How many items there are for certain in slots that hold an Array for certain.
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
        self.arrays: dict[int, int] = {}
        self.sizes: dict[tuple[int, int], str] = {}
        self.skipped: set[int] = set()
        self.heaps = private_heaps(function, callees.kernels)
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
        self._lines.append(INDENT * self.depth + text)
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
        fresh = [slot for slot in read_unassigned(function) if slot >= function.num_args]
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
        self.forget_types()  # what holds here need not hold where paths meet
        written = len(self._lines)
        self.nodes(nodes)
        if len(self._lines) == written:
            self.line("pass")
        self.forget_types()
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
        self.forget_types()
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
            self.line(f"{INDENT}raise bad_condition({text}, {slot})")
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
        if slot is not None:
            self.booleans.discard(slot)
            self.arrays.pop(slot, None)
        if operation == CALL:
            self.host_call(self.call_site(pc))
            return
        self.arrays.clear()  # whoever shares an Array may change it
        if operation == ENTER:
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
        self.line(f"{INDENT}return {otherwise}")
        names = [f"v{i}" for i in range(len(memory.plan.views))]
        names += ["_", *(f"d{i}" for i in memory.plan.devices)]
        self.line(f"{', '.join(names)}{',' * (len(names) == 1)} = kept")

    def give_back(self, memory: Memory) -> None:
        """Write that the memory is not in use any more."""
        self._pc = -1
        self.line("finally:")
        self.line(f"{INDENT}{memory.idle_name}.append(kept)")

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
        self.line(f"{INDENT}v{index} = spare(machine, {memory.plan_name}, kept, {index})")
        self.line(f"r{slot} = new_tensor(Tensor)")
        self.line(f"r{slot}.array = v{index}[...]")
        self.line(f"r{slot}.shape = {self.names.constant(view.shape)}")
        self.line(f"r{slot}.dtype = {self.names.constant(view.dtype)}")
        self.line(f"r{slot}.device = d{device}")
        self.line(f"r{slot}.byte_offset = {view.offset}")
        return True

    def host_call(self, call: CallSite) -> None:
        """Write a call of a host function."""
        name = builtin_name(call.target)
        inline = self.callees.inliners.get(name)
        if name != "vm.builtin.alloc_shape_heap":
            self.forget_sizes((-1 if call.slot is None else call.slot,), gone=True)
        if inline is not None and inline(self, call):
            return
        self.arrays.clear()
        if name:
            self.plain_call(call)
            return
        self.forget_sizes(call.slots)
        function = host_function(call.target)
        callee = self.names.name("k", function, getattr(call.target, "__name__", ""))
        text = f"{callee}({', '.join(call.texts)})"
        if call.slot is not None:
            self.line(f"{call.result} = {text}")
            self.line(f"if type({call.result}) not in PLAIN_TYPES:")
            self.line(f"{INDENT}{call.result} = as_value({call.result})")
        elif id(function) in self.callees.kernels:
            self.line(text)
        else:  # a result that is no value is an error, also where nobody wants it
            self.line(f"x = {text}")
            self.line("if x is not None:")
            self.line(f"{INDENT}as_value(x)")

    def plain_call(self, call: CallSite) -> None:
        """Write the call of a builtin, whose result is a register value."""
        assign = "" if call.slot is None else f"{call.result} = "
        self.line(assign + self.builtin(call))
        self.forget_sizes(call.slots)

    def forget_types(self) -> None:
        """Forget of what type values are."""
        self.booleans.clear()
        self.arrays.clear()

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
        name = builtin_name(call.target).removeprefix("vm.builtin.")
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
            self.line(f"{INDENT}lost({linked}, x)")

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
            self.line(f"{INDENT}lost_by_closure({texts[1]}, x)")
