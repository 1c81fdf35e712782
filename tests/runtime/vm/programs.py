"""Random Relax programs in bytecode, for properties of the machine.

Every program has one function ``main(x, n)`` of a float32[4] tensor and an int, and always ends:
it goes forward, calls small functions, and writes memory that other registers see.
"""

from hypothesis import strategies as st

from relaxlab.relax.exec_builder import ExecBuilder
from relaxlab.runtime import DataType, ShapeTuple, register_global_func
from relaxlab.runtime.vm import VMExecutable
from tests.golden_values import with_golden

BUMP = "programs.bump"


@register_global_func(BUMP, override=True)
def bump(tensor, amount):
    """Add to every element, in place."""
    tensor.array[...] += amount


@register_global_func("programs.again", override=True)
def again(machine, closure, tensor):
    """Write, call the machine again, write: what a host function may do."""
    tensor.array[0] += 1
    result = machine.invoke_closure(closure, tensor)
    tensor.array[1] += 1
    return result


@register_global_func("programs.count", override=True)
def count(value):
    """Return an int that depends on the value."""
    return len(value) if isinstance(value, list) else int(value.array.sum()) % 7


class _Writer:
    """Emits instructions and knows the kind of every register."""

    def __init__(self, draw) -> None:
        self.draw = draw
        self.ib = ExecBuilder()
        self.kinds = {0: "tensor", 1: "int"}
        self.next = 2

    def new(self, kind: str) -> int:
        self.kinds[self.next] = kind
        self.next += 1
        return self.next - 1

    def pick(self, kind: str):
        found = [reg for reg, known in self.kinds.items() if known == kind]
        return self.ib.r(self.draw(st.sampled_from(found)))

    def has(self, kind: str) -> bool:
        return kind in self.kinds.values()

    def call(self, name: str, args, kind: str | None) -> None:
        dst = None if kind is None else self.new(kind)
        if dst is None:
            self.ib.emit_call(name, args=args)
        else:
            self.ib.emit_call(name, args=args, dst=dst)

    def statement(self, depth: int) -> None:
        ib = self.ib
        choices = ["copy", "bump", "view", "alloc", "tuple", "call", "closure", "again", "count"]
        if self.has("tuple"):
            choices += ["item", "reset", "count_tuple"]
        if depth < 2:
            choices.append("if")
        match self.draw(st.sampled_from(choices)):
            case "copy":
                self.call("vm.builtin.copy", [self.pick("tensor")], "tensor")
            case "bump":
                self.call(BUMP, [self.pick("tensor"), self.pick("int")], None)
            case "view":
                shape = ib.convert_constant(ShapeTuple((2, 2)))
                self.call("vm.builtin.reshape", [self.pick("tensor"), shape], "matrix")
            case "alloc":
                scope, dtype = ib.convert_constant("global"), DataType("float32")
                size = ib.convert_constant(ShapeTuple((32,)))
                hint = ib.convert_constant(DataType("uint8"))
                self.call(
                    "vm.builtin.alloc_storage", [ib.vm_state(), size, ib.imm(0), hint, scope], "s"
                )
                offset = ib.imm(self.draw(st.sampled_from([0, 16])))
                shape = ib.convert_constant(ShapeTuple((4,)))
                args = [self.pick("s"), offset, shape, ib.convert_constant(dtype)]
                self.call("vm.builtin.alloc_tensor", args, "tensor")
                # fresh memory is undefined: a program must write before it reads
                self.call("golden.fill", [ib.r(self.next - 1), ib.imm(2)], None)
            case "tuple":
                items = [self.pick("tensor"), self.pick("tensor"), self.pick("int")]
                self.call("vm.builtin.make_tuple", items, "tuple")
            case "item":
                index = ib.imm(self.draw(st.integers(0, 2)))
                self.call("vm.builtin.tuple_getitem", [self.pick("tuple"), index], "any")
            case "reset":
                self.call("vm.builtin.tuple_reset_item", [self.pick("tuple"), ib.imm(1)], None)
            case "call":
                name = self.draw(st.sampled_from(["add_one", "shapes"]))
                self.call(name, [self.pick("tensor")], "tensor")
            case "closure":
                self.call("vm.builtin.make_closure", [ib.f("add"), self.pick("int")], "closure")
                args = [ib.vm_state(), self.pick("closure"), self.pick("tensor")]
                self.call("vm.builtin.invoke_closure", args, "tensor")
            case "again":
                args = [ib.vm_state(), ib.f("add_one"), self.pick("tensor")]
                self.call("programs.again", args, "tensor")
            case "count":
                self.call("programs.count", [self.pick("tensor")], "int")
            case "count_tuple":
                self.call("programs.count", [self.pick("tuple")], "int")
            case "if":
                self.branch(depth + 1)

    def branch(self, depth: int) -> None:
        """Emit ``if n: statements``; registers of the branch are unknown afterwards."""
        before = dict(self.kinds)
        condition = self.pick("int")
        # offsets are known only afterwards, so emit the branch as a function of its own
        body = self.draw(st.integers(1, 2))
        self.ib.emit_if(condition, body + 1)
        for _ in range(body):
            self.call(BUMP, [self.pick("tensor"), self.ib.imm(depth)], None)
        self.kinds = before


@st.composite
def executables(draw) -> VMExecutable:
    """Return a random executable; call its ``main`` with a float32[4] tensor and an int."""
    writer = _Writer(draw)
    ib = writer.ib
    for name in ("add_one", "add", "shapes"):
        ib.declare_function(name, 1)
    with ib.function("main", num_inputs=2, param_names=["x", "n"]):
        for _ in range(draw(st.integers(1, 8))):
            writer.statement(0)
        ib.emit_call(
            "vm.builtin.make_tuple", args=[writer.pick("tensor"), writer.pick("int")], dst=99
        )
        ib.emit_ret(ib.r(99))
    with ib.function("add_one", num_inputs=1):
        ib.emit_call(BUMP, args=[ib.r(0), ib.imm(1)])
        ib.emit_ret(ib.r(0))
    with ib.function("add", num_inputs=2):
        ib.emit_call(BUMP, args=[ib.r(0), ib.r(1)])
        ib.emit_call("add_one", args=[ib.r(0)], dst=2)
        ib.emit_ret(ib.r(2))
    with ib.function("shapes", num_inputs=1):
        ib.emit_call("vm.builtin.alloc_shape_heap", args=[ib.vm_state(), ib.imm(1)], dst=1)
        ib.emit_call(
            "vm.builtin.match_shape",
            args=[ib.r(0), ib.r(1), ib.imm(1), ib.imm(1), ib.imm(0), ib.convert_constant("ctx")],
        )
        ib.emit_call(
            "vm.builtin.make_shape", args=[ib.r(1), ib.imm(1), ib.imm(1), ib.imm(0)], dst=2
        )
        ib.emit_call("vm.builtin.reshape", args=[ib.r(0), ib.r(2)], dst=3)
        ib.emit_ret(ib.r(3))
    return with_golden(ib.get())
