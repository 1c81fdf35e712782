"""Statements of a kernel as Python text: whole nests as arrays, the rest as loops.

Each statement is tried as a nest of array operations first. One that is none becomes Python
control flow around its parts, which are tried in turn; what has no text at all is left to the
interpreter, so every kernel compiles. Counterpart: the statement visitors of TVM's back ends.

Examples
--------
>>> from relaxlab.codegen.numpy import generate
>>> from relaxlab.ir import IntImm, Var
>>> from relaxlab.tirx import PrimFunc, Return
>>> n = Var("n", "int64")
>>> kernel = generate(PrimFunc((n,), Return(n * 2)), "twice")
>>> kernel.function(21)
42
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

from relaxlab.codegen.numpy.nest import (
    Nest,
    copied_buffer,
    loaded_buffers,
    read_nest,
    stored_buffers,
)
from relaxlab.codegen.numpy.reduce import write_folding_loop, write_reduction
from relaxlab.codegen.numpy.scalar_code import checked_indices, scalar_code
from relaxlab.codegen.numpy.space import Axis, Space
from relaxlab.codegen.numpy.stores import write_elementwise
from relaxlab.codegen.numpy.writer import Unsupported, Writer
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Call, Var
from relaxlab.ir.node import structural_equal
from relaxlab.ir.op import Op
from relaxlab.ir.prim import IntImm, Range
from relaxlab.ir.prim_functor import defined_vars, post_order_visit
from relaxlab.tirx.buffer import is_buffer_var
from relaxlab.tirx.function import PrimFunc
from relaxlab.tirx.interp import Frame, Interpreter, error_class
from relaxlab.tirx.stmt import (
    AllocBuffer,
    AssertStmt,
    AttrStmt,
    Bind,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    IterVarType,
    Return,
    SBlock,
    SBlockRealize,
    SeqStmt,
    Stmt,
    While,
)

__all__ = ["StatementWriter"]


class StatementWriter:
    """Writes the body of one kernel.

    Parameters
    ----------
    writer
        Where lines go; the parameters are declared in it.
    func
        The kernel.
    sizes
        Its symbolic sizes.
    """

    def __init__(self, writer: Writer, func: PrimFunc, sizes: list[Var]) -> None:
        self.writer = writer
        self.func = func
        self.sizes = sizes
        self.interpreter = Interpreter(func, writer.name)
        # how many statements of the outermost sequence are still going to write a buffer
        self._writes_left: Counter[Var] = Counter()
        self._reads_left: Counter[Var] = Counter()
        self._outer = False
        self._loops: list[Axis] = []
        self._locals: set[Var] = set()

    def write(self, stmt: Stmt) -> None:
        """Write the whole body."""
        statements = list(self._outermost(stmt))
        if self.writer.no_alias:
            statements = self._forwarded(statements)
        for statement in statements:
            self._writes_left.update(set(stored_buffers(statement)))
            self._reads_left.update(set(loaded_buffers(statement)))
        for statement in statements:
            self._writes_left.subtract(set(stored_buffers(statement)))
            self._reads_left.subtract(set(loaded_buffers(statement)))
            self.writer.dying = {
                buffer
                for buffer in self._locals
                if not self._reads_left[buffer] and not self._writes_left[buffer]
            }
            self._outer = True
            self.statement(statement)

    def _forwarded(self, statements: list[Stmt]) -> list[Stmt]:
        """Drop copies of a local buffer to an output, letting the local be the output."""
        stores = Counter(buffer for s in statements for buffer in set(stored_buffers(s)))
        loads = Counter(buffer for s in statements for buffer in set(loaded_buffers(s)))
        kept = []
        for statement in statements:
            pair = copied_buffer(statement)
            if pair is not None:
                source, target = pair
                state = self.writer.buffers.get(target)
                once = stores[source] == loads[source] == stores[target] == 1
                if (
                    once
                    and not loads[target]
                    and source in self._locals
                    and state is not None
                    and state.holds == "array"
                    and structural_equal(source.ty, target.ty)
                ):
                    self.writer.buffers[source] = state
                    self._locals.discard(source)
                    continue
            kept.append(statement)
        return kept

    def _outermost(self, stmt: Stmt) -> Iterable[Stmt]:
        """Open the root block and sequences."""
        match stmt:
            case SeqStmt(seq=statements):
                for statement in statements:
                    yield from self._outermost(statement)
            case AttrStmt(body=body):
                yield from self._outermost(body)
            case SBlockRealize(
                block=SBlock(iter_vars=(), init=None, match_buffers=()) as block
            ) if isinstance(stmt.predicate, IntImm) and stmt.predicate.value:
                for buffer in block.alloc_buffers:
                    self._locals.add(buffer)
                    self.writer.declare(buffer, "nothing")
                yield from self._outermost(block.body)
            case _:
                yield stmt

    # ------------------------------------------------------------ one statement

    def statement(self, stmt: Any) -> None:
        """Write a statement in the best way that fits it."""
        outer, self._outer = self._outer, False
        nest = read_nest(stmt)
        if nest is not None and nest.axes and self._as_arrays(nest, outer):
            return
        self._make_room(stmt)
        try:
            with self.writer.attempt():
                self._as_control(stmt)
        except Unsupported:
            self._interpret(stmt)

    def _as_arrays(self, nest: Nest, outer: bool) -> bool:
        written = {store.buffer for store in nest.stores}
        defines = self._definable(nest, written) if outer else set()
        context = Space((), self.sizes, self._loops)
        for may_define in (defines, set()) if defines else (set(),):
            try:
                with self.writer.attempt():
                    self._make_room(nest.stores, but=may_define)
                    if any(axis.reduce for axis in nest.axes):
                        write_reduction(self.writer, nest, context, may_define)
                    else:
                        write_elementwise(self.writer, nest, context, may_define)
            except Unsupported:
                continue
            return True
        try:
            with self.writer.attempt():
                self._make_room(nest.stores)
                write_folding_loop(self.writer, nest, context)
        except Unsupported:
            return False
        return True

    def _definable(self, nest: Nest, written: set[Var]) -> set[Var]:
        """Return the buffers that may simply become what this nest computes.

        The nest must be the only one to write them, and nothing it reads may change later, since
        the result may be a view.
        """
        changing = any(self._writes_left[buffer] for buffer in loaded_buffers(nest_body(nest)))
        if changing:
            return set()
        return {
            buffer
            for buffer in written
            if buffer in self._locals
            and not self._writes_left[buffer]
            and self.writer.state(buffer).holds == "nothing"
        }

    def _make_room(self, stmt: Any, but: Iterable[Var] = ()) -> None:
        """Allocate local buffers that a statement is going to write."""
        written = stored_buffers(stmt) if not isinstance(stmt, list) else [s.buffer for s in stmt]
        for buffer in dict.fromkeys(written):
            state = self.writer.buffers.get(buffer)
            if state is None or buffer in but:
                continue
            if state.holds == "view" and buffer in self._locals:
                self.writer.line(f"{state.code} = np.array({state.code})")
                state.holds = "array"
            elif state.holds == "nothing":
                self._allocate(buffer)

    def _allocate(self, buffer: Var) -> None:
        state = self.writer.state(buffer)
        shape = ", ".join(scalar_code(self.writer, dim) for dim in state.shape)
        comma = "," if len(state.shape) == 1 else ""
        dtype = self.writer.dtype(state.dtype)
        self.writer.line(f"{state.code} = np.empty(({shape}{comma}), {dtype})")
        state.holds = "array"

    # ------------------------------------------------------------ control flow

    def _as_control(self, stmt: Any) -> None:
        handler = _HANDLERS.get(type(stmt))
        if handler is None:
            raise Unsupported
        handler(self, stmt)

    def _sequence(self, stmt: SeqStmt) -> None:
        for statement in stmt.seq:
            self.statement(statement)

    def _for(self, stmt: For) -> None:
        low, extent = stmt.min, stmt.extent
        name = self._scalar(stmt.loop_var)
        self.writer.analyzer.bind(stmt.loop_var, Range(low, extent), allow_override=True)
        high = scalar_code(self.writer, prim_ops.add(low, extent))
        bounds = high
        if not (isinstance(low, IntImm) and low.value == 0):
            bounds = f"{scalar_code(self.writer, low)}, {high}"
        self._loops.append(Axis(stmt.loop_var, low, prim_ops.add(low, extent)))
        try:
            with self.writer.block(f"for {name} in range({bounds}):"):
                self.statement(stmt.body)
        finally:
            self._loops.pop()

    def _scalar(self, var: Var) -> str:
        name = self.writer.scalars.get(var)
        if name is None:
            name = self.writer.scalars[var] = self.writer.fresh(var.name)
        return name

    def _block(self, stmt: SBlockRealize) -> None:
        block = stmt.block
        if block.match_buffers:
            raise Unsupported
        first = []
        for iter_var, value in zip(block.iter_vars, stmt.iter_values, strict=True):
            text = scalar_code(self.writer, value)
            name = self._scalar(iter_var.var)
            self.writer.line(f"{name} = {text}")
            self.writer.analyzer.bind(iter_var.var, value, allow_override=True)
            if iter_var.iter_type == IterVarType.COMM_REDUCE:
                first.append(f"{name} == {scalar_code(self.writer, iter_var.dom.min)}")
        if isinstance(stmt.predicate, IntImm):
            if stmt.predicate.value:
                self._block_body(block, first)
            return
        with self.writer.block(f"if {scalar_code(self.writer, stmt.predicate)}:"):
            self._block_body(block, first)

    def _block_body(self, block: SBlock, first: list[str]) -> None:
        for buffer in block.alloc_buffers:
            self.writer.declare(buffer, "nothing")
            self._allocate(buffer)
        if block.init is not None:
            if first:
                with self.writer.block(f"if {' and '.join(first)}:"):
                    self.statement(block.init)
            else:
                self.statement(block.init)
        self.statement(block.body)

    def _store(self, stmt: BufferStore) -> None:
        state = self.writer.state(stmt.buffer)
        if state.holds != "array":
            raise Unsupported
        value = stmt.value
        if value.dtype.lanes != 1:
            raise Unsupported
        indices = checked_indices(self.writer, stmt.buffer, stmt.indices, "check_write")
        text = scalar_code(self.writer, prim_ops.cast(state.dtype, value))
        self.writer.line(f"{state.code}[{', '.join(indices) or '()'}] = {text}")

    def _if(self, stmt: IfThenElse) -> None:
        with self.writer.block(f"if {scalar_code(self.writer, stmt.condition)}:"):
            self.statement(stmt.then_case)
        if stmt.else_case is not None:
            with self.writer.block("else:"):
                self.statement(stmt.else_case)

    def _while(self, stmt: While) -> None:
        with self.writer.block(f"while {scalar_code(self.writer, stmt.condition)}:"):
            self.statement(stmt.body)

    def _bind(self, stmt: Bind) -> None:
        text = scalar_code(self.writer, stmt.value)
        self.writer.line(f"{self._scalar(stmt.var)} = {text}")

    def _alloc(self, stmt: AllocBuffer) -> None:
        self.writer.declare(stmt.buffer, "nothing")
        self._allocate(stmt.buffer)

    def _declare(self, stmt: DeclBuffer) -> None:
        if stmt.data is not None:
            raise Unsupported
        self.writer.declare(stmt.buffer, "nothing")
        self._allocate(stmt.buffer)

    def _assert(self, stmt: AssertStmt) -> None:
        error = self.writer.constant(error_class(stmt.error_kind), stmt.error_kind)
        with self.writer.block(f"if not ({scalar_code(self.writer, stmt.condition)}):"):
            self.writer.line(f"raise {error}({''.join(stmt.message_parts)!r})")

    def _attr(self, stmt: AttrStmt) -> None:
        self.statement(stmt.body)

    def _evaluate(self, stmt: Evaluate) -> None:
        match stmt.value:
            case IntImm():
                pass
            case Call(op=Op(name="tirx.break_loop")):
                self.writer.line("break")
            case Call(op=Op(name="tirx.continue_loop")):
                self.writer.line("continue")
            case _:
                raise Unsupported

    def _return(self, stmt: Return) -> None:
        self.writer.line(f"return {scalar_code(self.writer, stmt.value)}")

    # ------------------------------------------------------------ the last resort

    def _interpret(self, stmt: Stmt) -> None:
        """Leave a statement to the interpreter, with the memory and values that it uses."""
        own = set(defined_vars(stmt))
        used: dict[Var, None] = {}
        post_order_visit(stmt, lambda n: used.setdefault(n) if isinstance(n, Var) else None)
        for buffer in stored_buffers(stmt):
            used.setdefault(buffer)
        buffers = [v for v in used if is_buffer_var(v) and v not in own]
        for buffer in buffers:
            if self.writer.state(buffer).holds == "nothing":
                self._allocate(buffer)
            self._note_sizes(buffer, used)
        scalars = [v for v in used if v in self.writer.scalars and v not in own]
        interpreter = self.interpreter

        def execute(*values: Any) -> None:
            arrays = dict(zip(buffers, values[: len(buffers)], strict=True))
            numbers = dict(zip(scalars, values[len(buffers) :], strict=True))
            interpreter.execute(stmt, Frame(arrays, numbers))

        name = self.writer.fresh("interpret")
        self.writer.namespace[name] = execute
        arguments = [self.writer.state(buffer).code for buffer in buffers]
        arguments += [self.writer.scalars[var] for var in scalars]
        kind = type(stmt).__name__
        self.writer.line(f"{name}({', '.join(arguments)})  # a {kind} statement, interpreted")

    def _note_sizes(self, buffer: Var, used: dict[Var, None]) -> None:
        for dim in self.writer.state(buffer).shape:
            post_order_visit(dim, lambda n: used.setdefault(n) if isinstance(n, Var) else None)


def nest_body(nest: Nest) -> Stmt:
    """Return the statements of a nest as one, to be walked."""
    return SeqStmt(nest.body)


_HANDLERS: Final[dict[type, Callable[[StatementWriter, Any], None]]] = {
    AllocBuffer: StatementWriter._alloc,
    AssertStmt: StatementWriter._assert,
    AttrStmt: StatementWriter._attr,
    Bind: StatementWriter._bind,
    BufferStore: StatementWriter._store,
    DeclBuffer: StatementWriter._declare,
    Evaluate: StatementWriter._evaluate,
    For: StatementWriter._for,
    IfThenElse: StatementWriter._if,
    Return: StatementWriter._return,
    SBlockRealize: StatementWriter._block,
    SeqStmt: StatementWriter._sequence,
    While: StatementWriter._while,
}
