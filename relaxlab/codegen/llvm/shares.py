r"""Outer loops as functions of their first and last iteration, so that threads can share them.

A loop that may be shared and may be long becomes a function of its own, the part. The body calls
it for all iterations, or, where there is enough work at run time and the pool of threads that the
caller's block names has any, lets the pool call it for some iterations at a time. Short loops
stay where they are. Counterpart: TVM's ``parallel_launch`` and the functions that it takes.

Examples
--------
>>> from relaxlab import te
>>> from relaxlab.codegen.llvm.host import Host
>>> from relaxlab.codegen.llvm.kernel import make_plan
>>> x = te.placeholder((te.var("n", "int64"), 16), "float32", "x")
>>> twice = te.compute(x.shape, lambda i, j: x[i, j] * 2.0, name="y")
>>> plan = make_plan(te.create_prim_func([x, twice]), "twice", Host("", "", 16, False, False))
>>> plan.parts, "define internal i32 @twice.part0(ptr noalias %x, " in plan.text
(1, True)
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from relaxlab.codegen.llvm.arithmetic import Arithmetic
from relaxlab.codegen.llvm.builder import Builder, Value
from relaxlab.codegen.llvm.indices import Poly, added, as_constant, multiplied
from relaxlab.codegen.llvm.lower import ReduceLoop
from relaxlab.codegen.llvm.nests import Nest, read_nest
from relaxlab.codegen.llvm.parallel import SCALAR, cost_of, may_be_shared
from relaxlab.codegen.llvm.statements import Chunk, Statements
from relaxlab.codegen.llvm.walk import nodes_in
from relaxlab.ir.expr import Var
from relaxlab.ir.node import Node
from relaxlab.ir.prim import Let
from relaxlab.tirx.buffer import is_buffer_var
from relaxlab.tirx.stmt import Bind, For, Stmt

__all__ = ["POOL_SLOT", "SharedStatements", "Sharing"]

#: Where in the caller's block the address of the pool of threads is (see threads.py).
POOL_SLOT: Final = 18


@dataclass(slots=True)
class Sharing:
    """The loops of one kernel that are functions of their own.

    Attributes
    ----------
    arguments
        Variable, LLVM type and name of what the kernel's body gets.
    least
        Cost from which a loop is shared.
    parts
        The functions.
    doors
        Functions that take what a part needs from memory, and call it.
    own
        Buffers with no memory yet, which each iteration of the outermost loop has for itself.
    """

    arguments: Sequence[tuple[Var, str, str]]
    least: int
    parts: list[str] = field(default_factory=list)
    doors: list[str] = field(default_factory=list)
    own: list[Var] = field(default_factory=list)


class SharedStatements(Statements):
    """Statements of which the outermost loops may be shared.

    Attributes
    ----------
    sharing
        None where nothing is: in a part, and where everything is done in order.
    """

    sharing: Sharing | None = None

    def allocate_here(self, buffer: Var) -> None:
        """Give a buffer memory; to be overridden."""
        self.allocate(buffer)

    def outermost(self, stmt: Stmt, own: Sequence[Var]) -> None:
        """Add an outermost statement of which each iteration has some buffers for itself."""
        # simple nests have none; what is more complicated comes to `shared` as it is
        if self.sharing is None or not isinstance(stmt, For) or read_nest(stmt) is not None:
            for buffer in own:
                self.allocate_here(buffer)
        else:
            self.sharing.own = list(own)
        self.statement(stmt)

    def _settle(self) -> None:
        """Give all buffers memory that is the same for all iterations."""
        if self.sharing is not None:
            for buffer in self.sharing.own:
                self.allocate_here(buffer)
            self.sharing.own = []

    def shared(
        self, loop: For, write: "Callable[[SharedStatements], None]", *, slow: bool = False
    ) -> None:
        """Add a loop as a function of its own if threads may share it and it may be long."""
        sharing = self.sharing
        if sharing is None or self.b.in_loop:
            write(self)
            return
        indices = self.indices
        known = {var for var, _, _ in sharing.arguments}
        extent, cost = indices.of(loop.extent), cost_of(loop.body, indices, known)
        if slow:
            cost = multiplied(cost, {(): SCALAR})
        total = as_constant(multiplied(extent, cost))
        if (
            (total is not None and total < sharing.least)
            or as_constant(extent) == 1
            or not indices.variables(added(extent, indices.of(loop.min))) <= known
            or not may_be_shared(loop, loop.body, set(sharing.own), indices)
            or not _free(loop) <= known
        ):
            self._settle()
            write(self)
            return
        self._share(sharing, loop, write, cost)

    def streamed(self, nest: Nest, lane: Var, stream: Stmt) -> None:
        """Add a stream, which is not shared: narrower ones are slower than one is alone."""
        with self.without_sharing():
            super().streamed(nest, lane, stream)

    @contextmanager
    def without_sharing(self) -> Iterator[None]:
        """Keep all loops where they are inside ``with``."""
        before, self.sharing = self.sharing, None
        try:
            yield
        finally:
            self.sharing = before

    def _share(
        self,
        sharing: Sharing,
        loop: For,
        write: "Callable[[SharedStatements], None]",
        cost: Poly,
    ) -> None:
        own, sharing.own = sharing.own, []
        b, number = self.b, len(sharing.parts)
        inside = {n for n in nodes_in(loop) if is_buffer_var(n)} - set(own)
        pointers = {self.memory[v].pointer.text: self.memory[v].pointer for v in inside}
        operands: list[Value] = []
        parameters: list[tuple[str, str]] = []
        renamed: dict[str, Value] = {}
        for _, kind, text in sharing.arguments:
            if kind != "ptr" or pointers.pop(f"%{text}", None) is not None:
                operands.append(b.argument(text))
                parameters.append((f"{kind} noalias" if kind == "ptr" else kind, text))
        for position, (text, pointer) in enumerate(sorted(pointers.items())):
            operands.append(pointer)
            parameters.append(("ptr noalias", f"kept.{position}"))
            renamed[text] = Value(f"%kept.{position}", "ptr")
        name = f"{b.name}.part{number}"
        builder = Builder(
            name,
            [*parameters, ("i64", "first"), ("i64", "last"), ("ptr", "state")],
            # into its door: every function takes the compiler a millisecond
            attributes="alwaysinline",
        )
        part = type(self)(
            builder,
            Arithmetic(builder, self.arithmetic.host),
            self.indices,
            self.sites,
            builder.argument("state"),
        )
        names = {f"%{text}" for _, text in parameters}
        part.scalars = {
            v: x for v, x in self.scalars.items() if x.text in names or x.const is not None
        }
        for buffer in inside:
            memory = self.memory[buffer]
            pointer = renamed.get(memory.pointer.text, memory.pointer)
            part.memory[buffer] = replace(memory, pointer=pointer)
        chunk = Chunk(loop.loop_var, builder.argument("first"), builder.argument("last"))
        part.chunk = chunk
        for buffer in own:
            part.allocate_here(buffer)
        write(part)
        sharing.parts.append(builder.finish())
        sharing.doors.append(_door(name, operands))
        b.helpers.update(builder.helpers)
        b.declarations.update(builder.declarations)
        self._ask(loop, name, operands, chunk.multiple, cost)

    def _ask(
        self,
        loop: For,
        name: str,
        operands: Sequence[Value],
        multiple: int,
        cost: Poly,
    ) -> None:
        """Have all iterations done: by a call, or by the pool if there is one and much to do."""
        b, sharing = self.b, self.sharing
        assert sharing is not None
        context = b.allocate("i64", max(len(operands), 1), 8, "context")
        for position, operand in enumerate(operands):
            place = b.element(context, b.int64(position), "i64")
            b.line(f"store {operand.typed}, {place.typed}")
        low, extent = self.indices.of(loop.min), self.indices.of(loop.extent)
        first, last = self.number(low), self.number(added(low, extent))
        pool = b.load(b.element(self.state, b.int64(POOL_SLOT), "i64"), "ptr", 0, 8, "state")
        launch = b.fresh(f"load ptr, {pool.typed}", "ptr")
        alone = b.compare("icmp eq", launch, Value("null", "ptr"))
        work = multiplied(extent, cost)
        if as_constant(work) is None:
            little = b.compare("icmp slt", self.number(work), b.int64(sharing.least))
            alone = b.binary("or", alone, little)
        words = f"{first.typed}, {last.typed}"
        door, state = f"ptr @{name}.door", self.state.typed

        def call() -> list[Value]:
            text = f"call i32 @{name}.door({context.typed}, {words}, {state})"
            return [b.fresh(text, "i32")]

        def ask() -> list[Value]:
            terms = f"i64 {multiple}, {self.number(cost).typed}"
            given = f"{pool.typed}, {door}, {context.typed}, {words}, {terms}, {state}"
            return [b.fresh(f"call i32 {launch.text}({given})", "i32")]

        (status,) = b.branch(alone, call, ask)
        for key in self.written(loop):
            b.forget(key)

        def leave() -> list[Value]:
            b.leave(status)
            return []

        b.branch(b.compare("icmp ne", status, b.literal(0, "i32")), leave)


def _free(loop: Node) -> set[Var]:
    """Return the variables that a loop uses and does not define, without buffers."""
    used: set[Var] = set()
    defined: set[Var] = set()
    for node in nodes_in(loop):
        if isinstance(node, Var) and not is_buffer_var(node):
            used.add(node)
        elif isinstance(node, For):
            defined.add(node.loop_var)
        elif isinstance(node, Bind | ReduceLoop | Let):
            defined.add(node.var)
    return used - defined


def _door(name: str, operands: Sequence[Value]) -> str:
    """Return the function that takes operands from memory and calls a part."""
    lines = [
        f"define internal i32 @{name}.door(ptr %context, i64 %first, i64 %last, ptr %state) {{",
        "entry:",
    ]
    for position, operand in enumerate(operands):
        lines.append(f"  %at{position} = getelementptr i64, ptr %context, i64 {position}")
        lines.append(f"  %p{position} = load {operand.type}, ptr %at{position}")
    given = ", ".join(f"{v.type} %p{k}" for k, v in enumerate(operands))
    comma = ", " if given else ""
    lines.append(f"  %status = call i32 @{name}({given}{comma}i64 %first, i64 %last, ptr %state)")
    return "\n".join([*lines, "  ret i32 %status", "}", ""])
