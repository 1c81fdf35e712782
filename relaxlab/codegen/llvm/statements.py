"""Statements as instructions: loops, choices, stores, and reductions kept in registers.

A nest of loops around simple statements is done in lanes along the loop that ``nests.py``
chooses; a reduction accumulates in registers, along its own loop with several partial results
where the order of terms is free. Everything else is done one element at a time, just as it is
written. Counterpart: the statement visitors of TVM's ``CodeGenLLVM``, and what LLVM's
vectorizers would do.

Examples
--------
>>> Statements.__name__
'Statements'
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from relaxlab.codegen.llvm.arithmetic import Unsupported, is_narrow, memory_type, register_type
from relaxlab.codegen.llvm.builder import Value
from relaxlab.codegen.llvm.expressions import Expressions, Lane, Memory
from relaxlab.codegen.llvm.indices import Poly, added, as_constant, constant, multiplied
from relaxlab.codegen.llvm.lower import Reduce, ReduceLoop
from relaxlab.codegen.llvm.matmul import read_product
from relaxlab.codegen.llvm.nests import (
    Accumulation,
    Nest,
    accumulations,
    choose_lane,
    is_leaf,
    lanes_for,
    read_nest,
    stores_in,
)
from relaxlab.codegen.llvm.parts import PARTS
from relaxlab.codegen.llvm.streams import AHEAD, Ahead, collapsed, streamed
from relaxlab.codegen.llvm.walk import call_name, escaping, loads_in, nodes_in
from relaxlab.ir.expr import Var
from relaxlab.ir.node import Node
from relaxlab.ir.prim import Add, IntImm, Mul, TensorLoad
from relaxlab.runtime.dtype import DataType
from relaxlab.tirx.buffer import buffer_type
from relaxlab.tirx.stmt import (
    AllocBuffer,
    AssertStmt,
    Bind,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    Return,
    SeqStmt,
    Stmt,
    While,
)

__all__ = ["Chunk", "RESULT_SLOT", "Statements"]

_INT64: Final = DataType("int64")
#: Where in the caller's block the result of a ``return`` goes.
RESULT_SLOT: Final = 16
#: Bytes that memory is fetched in.
_LINE: Final = 64
_IDENTITY: Final = {"Add": 0.0, "Mul": 1.0, "And": True, "Or": False}


@dataclass(slots=True)
class Chunk:
    """Some iterations of a loop.

    Attributes
    ----------
    var
        Variable of the loop.
    start, stop
        The first iteration, and the one after the last.
    multiple
        What their number must be a multiple of, except at the end of the loop.
    """

    var: Var
    start: Value
    stop: Value
    multiple: int = 1


class Statements(Expressions):
    """Translates statements.

    Attributes
    ----------
    plain
        Do everything one element at a time and in order, as memory that overlaps demands.
    returns
        Dtype of what the kernel returns, once a ``return`` was met.
    chunk
        The loop of which only some iterations are done.
    """

    plain = False
    returns: DataType | None = None
    chunk: Chunk | None = None

    # ------------------------------------------------------------ dispatch

    def statement(self, stmt: Any) -> None:
        """Add a statement."""
        match stmt:
            case SeqStmt(seq=statements):
                for inner in statements:
                    self.statement(inner)
            case For():
                self._for(stmt)
            case Reduce():
                self._reduce(stmt)
            case BufferStore():
                self._store(stmt)
            case IfThenElse():
                self._if(stmt)
            case Bind(var=var, value=value):
                with self.fresh_values(anew=True):
                    self.scalars[var] = self.deep_value(value)
            case AllocBuffer(buffer=buffer):
                self.allocate(buffer)
            case DeclBuffer(buffer=buffer, data=data):
                self._declare(buffer, data)
            case AssertStmt(condition=condition, error_kind=kind, message_parts=parts):
                with self.fresh_values(anew=True):
                    good = self.value(condition)
                    bad = self.b.binary("xor", good, self.b.literal(True, "i1"))
                    self.refuse(bad, self.sites.failed_assert(kind, "".join(parts)), ())
            case While(condition=condition, body=body):
                self._while(condition, body)
            case Evaluate(value=value):
                if not isinstance(value, IntImm):
                    with self.fresh_values(anew=True):
                        self.value(value)
            case Return(value=value):
                self._return(value)
            case _:
                raise Unsupported(f"a {type(stmt).__name__} statement")

    def _store(self, store: BufferStore) -> None:
        with self.fresh_values(anew=True):
            self.write(store.buffer, store.indices, self._stored(store), store.value.dtype)

    def _stored(self, store: BufferStore) -> Value:
        """Return the value of a store; one more term of a sum is added with one rounding."""
        value: Any = store.value
        products: list[Mul] = []
        while isinstance(value, Add) and isinstance(value.b, Mul):
            products.append(value.b)
            value = value.a
        if (
            products
            and isinstance(value, TensorLoad)
            and value.buffer is store.buffer
            and register_type(value.dtype) in ("float", "double")
            and not is_narrow(value.dtype)
            and not self.plain
        ):
            total = self.value(value)
            for product in reversed(products):
                total = self.b.fma(self.value(product.a), self.value(product.b), total)
            return total
        return self.deep_value(store.value)

    def _if(self, stmt: IfThenElse) -> None:
        condition, yes, no = stmt.condition, stmt.then_case, stmt.else_case
        with self.fresh_values(anew=True):
            test = self.value(condition)
        if not test.lanes:

            def side(inner: Stmt, holds: bool) -> Callable[[], list[Value]]:
                def write() -> list[Value]:
                    with self.assuming(condition, holds=holds):
                        self.statement(inner)
                    return []

                return write

            self.b.branch(test, side(yes, True), None if no is None else side(no, False))
            return
        with self.masked(test), self.assuming(condition, holds=True):
            self.statement(yes)
        if no is not None:
            other = self.b.binary("xor", test, self.b.literal(True, "i1"))
            with self.masked(other), self.assuming(condition, holds=False):
                self.statement(no)

    def _while(self, condition: Any, body: Stmt) -> None:
        """Loop without a count: up to the largest one, left by a jump."""
        writes = self.written(body)
        with self.b.loop(
            self.b.int64(0), self.b.int64(2**63 - 1), 1, writes=writes, runs=True, jumps=True
        ):
            with self.fresh_values(anew=True):
                go_on = self.value(condition)
            stop = self.b.binary("xor", go_on, self.b.literal(True, "i1"))

            def leave() -> list[Value]:
                self.b.jump("break")
                return []

            self.b.branch(stop, leave)
            self.statement(body)

    def _return(self, value: Any) -> None:
        with self.fresh_values(anew=True):
            result = self.value(value)
        self.returns = value.dtype
        if value.dtype.is_float:
            wide = self.arithmetic.cast(result, value.dtype, DataType("float64"))
        else:
            wide = self.arithmetic.cast(result, value.dtype, _INT64)
        place = self.b.element(self.state, self.b.int64(RESULT_SLOT), "i64")
        self.b.line(f"store {wide.typed}, {place.typed}")
        self.b.leave()

    # ------------------------------------------------------------ memory

    def allocate(self, buffer: Var) -> None:
        """Give a buffer memory that lives as long as the kernel runs; to be overridden."""
        raise Unsupported(f"memory for {buffer.name!r}")

    def _declare(self, buffer: Var, data: Any) -> None:
        """Give a buffer memory that is there already."""
        if data is None:
            self.allocate(buffer)
            return
        ty = buffer_type(buffer)
        with self.fresh_values(anew=True):
            pointer = self.value(data)
        if pointer.elem == "i64":
            null = self.b.compare("icmp eq", pointer, self.b.int64(0))
            self.refuse(null, self.sites.too_small(buffer.name), ())
            pointer = self.b.convert("inttoptr", pointer, "ptr")
        if ty.elem_offset is not None:
            start = self.number(self.indices.of(ty.elem_offset))
            pointer = self.b.element(pointer, start, memory_type(ty.dtype))
        self.place(buffer, pointer)

    def place(self, buffer: Var, pointer: Value, *, key: Any = None) -> None:
        """Say where a buffer lies."""
        ty = buffer_type(buffer)
        shape = tuple(self.indices.of(dim) for dim in ty.shape)
        strides: list[Poly] = []
        step = constant(1)
        for size in reversed(shape):
            strides.insert(0, step)
            step = multiplied(step, size)
        self.memory[buffer] = Memory(
            buffer.name,
            pointer,
            ty.dtype,
            shape,
            tuple(strides),
            key=buffer if key is None else key,
        )

    def written(self, stmt: Node) -> frozenset[Any]:
        """Return the memory that a statement may write to."""
        buffers = {s.buffer for s in stores_in(stmt)} | escaping(stmt)
        memories = (self.memory.get(b) for b in buffers)
        return frozenset(
            buffer if memory is None else memory.key
            for buffer, memory in zip(buffers, memories, strict=True)
        )

    # ------------------------------------------------------------ loops

    def _for(self, loop: For) -> None:
        if self.plain or self.lane is not None:
            self._loop(loop, lambda: self.statement(loop.body))
            return
        product = read_product(loop, self.indices)
        if product is not None and product.is_large() is not False:
            self.product(loop, product)
            return
        self.nest(loop)

    def product(self, stmt: Stmt, product: Any) -> None:
        """Add a matrix product; to be overridden by who can call BLAS."""
        self.nest(stmt)

    def nest(self, stmt: Stmt) -> None:
        """Add loops, in lanes if they are a nest that lanes suit."""
        nest = read_nest(stmt)
        if nest is None or not nest.loops:
            self._plainly(stmt)
            return
        if not isinstance(nest.inner, Reduce):
            nest = self._collapsed(nest)
        lane = choose_lane(nest, self.indices)
        if lane is None or all(f.loop_var is not lane for f in nest.loops):
            slow = lane is None and not isinstance(nest.inner, Reduce)
            self._shared_nest(nest, nest.loops, lambda w: w._plain_nest(nest), slow=slow)
            return
        stream = streamed(nest, lane, self.indices)
        if stream is not None:
            # the same statements with the loops in another order
            self.streamed(nest, lane, stream)
            return
        chosen = next(f for f in nest.loops if f.loop_var is lane)
        order = [*(f for f in nest.loops if f is not chosen), chosen]
        self._shared_nest(nest, order, lambda w: w._nest_in_lanes(nest, lane))

    def _shared_nest(
        self,
        nest: Nest,
        order: Sequence[For],
        write: "Callable[[Statements], None]",
        *,
        slow: bool = False,
    ) -> None:
        body = nest.inner
        for loop in reversed(order[1:]):
            body = replace(loop, body=body)
        self.shared(replace(order[0], body=body), write, slow=slow)

    def streamed(self, nest: Nest, lane: Var, stream: Stmt) -> None:
        """Add a nest as a stream; to be overridden by who has threads."""
        self.statement(stream)

    def shared(
        self, loop: For, write: "Callable[[Statements], None]", *, slow: bool = False
    ) -> None:
        """Add a loop that threads may share; to be overridden by who has threads.

        Parameters
        ----------
        loop
            The outer loop with all others inside, in the order they are done in.
        write
            Adds it; where there is a chunk, only that.
        slow
            Whether it is done one element at a time.
        """
        write(self)

    def _collapsed(self, nest: Nest) -> Nest:
        """Make one loop of loops that follow each other through memory."""
        merged = collapsed(nest, self.indices)
        if merged is None:
            return nest
        for flat, origin in merged.flat.items():
            memory = self.memory[origin]
            size = self.indices.of(buffer_type(flat).shape[0])
            self.memory[flat] = Memory(
                memory.name,
                memory.pointer,
                memory.dtype,
                (size,),
                (constant(1),),
                trusted=True,
                key=memory.key,
            )
        return merged.nest

    def _plainly(self, stmt: Any) -> None:
        if isinstance(stmt, For):
            self.shared(stmt, lambda w: w._loop(stmt, lambda: w.statement(stmt.body)))
        else:
            self.statement(stmt)

    def _plain_nest(self, nest: Nest) -> None:
        """Add the loops one inside the other; a reduction inside may still use lanes."""

        def inner(position: int) -> None:
            if position == len(nest.loops):
                self.statement(nest.inner)
                return
            self._loop(nest.loops[position], lambda: inner(position + 1))

        inner(0)

    def _loop(self, loop: For, body: Callable[[], None]) -> None:
        low, extent = self.indices.of(loop.min), self.indices.of(loop.extent)
        jumps = _jumps(loop.body)
        with self.fresh_values(anew=True):
            start, stop = self._ends(loop.loop_var, low, extent)
        with self.b.loop(
            start, stop, 1, writes=self.written(loop), runs=_runs(extent), jumps=jumps
        ) as opened:
            self._enter(loop.loop_var, low, extent, opened.index)
            body()

    def _ends(self, var: Var, low: Poly, extent: Poly) -> tuple[Value, Value]:
        """Return the first iteration to do, and the one after the last."""
        if self.chunk is not None and self.chunk.var is var:
            return self.chunk.start, self.chunk.stop
        return self.number(low), self.number(added(low, extent))

    def _enter(self, var: Var, low: Poly, extent: Poly, index: Value) -> None:
        self.indices.enter(var, low, extent)
        self.scalars[var] = index

    # ------------------------------------------------------------ lanes

    def _nest_in_lanes(self, nest: Nest, lane: Var) -> None:
        chosen = next(f for f in nest.loops if f.loop_var is lane)
        others = [f for f in nest.loops if f is not chosen]
        for loop in nest.loops:
            self.indices.enter(
                loop.loop_var, self.indices.of(loop.min), self.indices.of(loop.extent)
            )

        def inner(position: int) -> None:
            if position < len(others):
                self._loop(others[position], lambda: inner(position + 1))
                return
            self._lane_loop(nest, chosen)

        inner(0)

    def _lane_loop(self, nest: Nest, loop: For) -> None:
        low, extent = self.indices.of(loop.min), self.indices.of(loop.extent)
        # several chains of instructions at a time: one alone would wait for its own results
        registers = 4 if isinstance(nest.inner, Reduce) else 2
        wanted = lanes_for(nest.inner, self.arithmetic.host, registers)
        lanes = self._lanes_for(extent, wanted)
        writes = self.written(nest.inner)

        ahead: Ahead | None = loop.annotations.get(AHEAD)

        def body(accumulators: list[Value]) -> list[Value]:
            if ahead is not None:
                self._fetch(ahead, low)
            self.statement(nest.inner)
            return accumulators

        rest = self._over_lanes(loop.loop_var, low, extent, lanes, [], body, writes)[1]
        if rest is not None:
            start, stop = rest
            with self.b.loop(start, stop, 1, writes=writes) as opened:
                self._enter(loop.loop_var, low, extent, opened.index)
                self.statement(nest.inner)

    def _fetch(self, ahead: Ahead, low: Poly) -> None:
        """Ask for the part of the memory needed next that belongs to the lanes of now."""
        lane, b = self.lane, self.b
        assert lane is not None
        memory = self._memory_of(ahead.buffer)
        elem = memory_type(memory.dtype)
        done = b.binary("sub", lane.base, self.number(low))
        done = b.binary("mul", done, b.int64(ahead.times))
        place = b.binary("add", self.number(self.indices.of(ahead.start)), done)
        bits = lane.lanes * ahead.times * memory.dtype.bits
        for line in range(0, bits // 8, _LINE):
            part = b.binary("add", place, b.int64(line * 8 // memory.dtype.bits))
            b.prefetch(b.element(memory.pointer, part, elem))

    def _lanes_for(self, extent: Poly, wanted: int) -> int:
        """Return how many lanes to use for a loop: a power of two, at most what there is to do."""
        size = as_constant(extent)
        if size is None:
            return wanted
        lanes = wanted
        while lanes > 2 and (
            lanes >= 2 * size or (not self.arithmetic.host.masks and lanes > size)
        ):
            lanes //= 2
        return lanes

    def _over_lanes(
        self,
        var: Var,
        low: Poly,
        extent: Poly,
        lanes: int,
        accumulators: list[Value],
        body: Callable[[list[Value]], list[Value]],
        writes: frozenset[Any],
    ) -> tuple[list[Value], tuple[Value, Value] | None]:
        """Add a loop that does several iterations at once.

        Returns
        -------
        The accumulators after it, and the range of iterations that is left for single steps
        where lanes cannot be switched off
        """
        b = self.b
        self.indices.enter(var, low, extent)
        size = as_constant(extent)
        fills = size is not None and size % lanes == 0
        start, stop = self._ends(var, low, extent)
        divided = self.chunk is not None and self.chunk.var is var
        if self.chunk is not None and divided:
            # whoever deals them out keeps to it, so that lanes are filled as without chunks
            self.chunk.multiple = lanes
            size = None
        if size is not None:
            middle = self.number(added(low, constant(size // lanes * lanes)))
        else:
            length = b.binary("sub", stop, start) if divided else self.number(extent)
            count = b.binary("and", length, b.int64(-lanes))
            # an extent below zero is no extent
            count = b.select(b.compare("icmp slt", count, b.int64(0)), b.int64(0), count)
            middle = b.binary("add", start, count)
        if size is None or size >= lanes:
            runs = None if size is None else True
            with b.loop(
                start, middle, lanes, carried=accumulators, writes=writes, runs=runs
            ) as opened:
                at = Lane(var, opened.index, lanes, b.int64(lanes - 1), None)
                with self.in_lanes(at):
                    opened.next = body(opened.carried)
            accumulators = opened.results
        if fills:
            return accumulators, None
        if not self.arithmetic.host.masks:
            return accumulators, (middle, stop)
        left = b.binary("sub", stop, middle)

        def tail() -> list[Value]:
            active = b.compare("icmp slt", b.iota(lanes), left)
            at = Lane(var, middle, lanes, b.binary("sub", left, b.int64(1)), active)
            with self.in_lanes(at):
                return body(accumulators)

        if size is not None:
            return tail(), None
        more = b.compare("icmp slt", middle, stop)
        return b.branch(more, tail, lambda: accumulators) if accumulators else (
            b.branch(more, tail)
        ), None

    # ------------------------------------------------------------ reductions

    def _reduce(self, reduce: Reduce) -> None:
        """Add a reduction; nothing happens if one of its loops does not run."""
        condition: Value | None = None
        for loop in reduce.loops:
            extent = self.indices.of(loop.extent)
            if not _runs(extent):
                some = self.b.compare("icmp sgt", self.number(extent), self.b.int64(0))
                condition = some if condition is None else self.b.binary("and", condition, some)
        if condition is None:
            self._running_reduce(reduce)
            return

        def body() -> list[Value]:
            self._running_reduce(reduce)
            return []

        self.b.branch(condition, body)

    def _running_reduce(self, reduce: Reduce) -> None:
        for loop in reduce.loops:
            self.indices.enter(loop.var, self.indices.of(loop.min), self.indices.of(loop.extent))
        targets = self._registers(reduce)
        if targets is None:
            self.statement(reduce.init)
            self._reduce_loops(reduce.loops, [], lambda _: self._once(reduce.body), reduce)
            return
        first = self._first_values(reduce, targets)
        lane = None
        if self.lane is None and not self.plain:
            lane = choose_lane(Nest((), reduce), self.indices)
        found = accumulations(reduce) if lane is not None else None
        if lane is None or found is None:
            results = self._in_order(reduce, targets, first)
        else:
            results = self._in_lanes(reduce, lane, found, targets, first)
        for store, result in zip(targets, results, strict=True):
            with self.fresh_values(anew=True):
                element = buffer_type(store.buffer).dtype
                self.write(store.buffer, store.indices, result, element)

    def _once(self, stmt: Stmt) -> list[Value]:
        self.statement(stmt)
        return []

    def _registers(self, reduce: Reduce) -> list[BufferStore] | None:
        """Return the stores whose elements can stay in registers; None if they cannot."""
        if self.plain or not (is_leaf(reduce.init) and is_leaf(reduce.body)):
            return None
        statements = reduce.body.seq if isinstance(reduce.body, SeqStmt) else (reduce.body,)
        stores = [s for s in statements if isinstance(s, BufferStore)]
        if not all(isinstance(s, BufferStore | Bind) for s in statements) or not stores:
            return None
        elements = {s.buffer: tuple(self.indices.of(i) for i in s.indices) for s in stores}
        if len(elements) != len(stores):
            return None
        for polys in elements.values():
            if any(self.indices.depends(p, f.var) for p in polys for f in reduce.loops):
                return None
        for part in (reduce.init, reduce.body):
            for load in loads_in(part):
                if load.buffer in elements:
                    polys = tuple(self.indices.of(i) for i in load.indices)
                    if polys != elements[load.buffer]:
                        return None
        starts = stores_in(reduce.init)
        if any(
            s.buffer not in elements
            or tuple(self.indices.of(i) for i in s.indices) != elements[s.buffer]
            for s in starts
        ) or {s.buffer for s in starts} != set(elements):
            return None
        return stores

    def _first_values(self, reduce: Reduce, targets: list[BufferStore]) -> list[Value]:
        """Return what the elements are before the first term."""
        for store in targets:
            # subscripts are checked before anything is computed
            memory = self._memory_of(store.buffer)
            polys = [self.indices.of(i) for i in store.indices]
            self.check(memory, store.indices, polys, "writes")
            dtype = buffer_type(store.buffer).dtype
            self.promoted[store.buffer] = self.arithmetic.literal(0, dtype)
        self.statement(reduce.init)
        first = [self._spread(self.promoted[s.buffer]) for s in targets]
        for store in targets:
            del self.promoted[store.buffer]
        return first

    def _spread(self, value: Value) -> Value:
        return value if self.lane is None else self.b.splat(value, self.lane.lanes)

    def _in_order(
        self, reduce: Reduce, targets: list[BufferStore], first: Sequence[Value]
    ) -> list[Value]:
        """Accumulate term after term, as the kernel says."""

        def body(accumulators: list[Value]) -> list[Value]:
            for store, value in zip(targets, accumulators, strict=True):
                self.promoted[store.buffer] = value
            self.statement(reduce.body)
            return [self._spread(self.promoted.pop(s.buffer)) for s in targets]

        return self._reduce_loops(reduce.loops, list(first), body, reduce)

    def _reduce_loops(
        self,
        loops: Sequence[ReduceLoop],
        accumulators: list[Value],
        body: Callable[[list[Value]], list[Value]],
        reduce: Reduce,
    ) -> list[Value]:
        if not loops:
            return body(accumulators)
        loop = loops[0]
        low, extent = self.indices.of(loop.min), self.indices.of(loop.extent)
        writes = frozenset() if accumulators else self.written(reduce)
        start, stop = self.number(low), self.number(added(low, extent))
        with self.b.loop(start, stop, 1, carried=accumulators, writes=writes, runs=True) as opened:
            self._enter(loop.var, low, extent, opened.index)
            opened.next = self._reduce_loops(loops[1:], opened.carried, body, reduce)
        return opened.results

    # ------------------------------------------------------------ reductions in lanes

    def _in_lanes(
        self,
        reduce: Reduce,
        lane: Var,
        found: list[Accumulation],
        targets: list[BufferStore],
        first: list[Value],
    ) -> list[Value]:
        """Accumulate partial results in the lanes and combine them at the end."""
        chosen = next(f for f in reduce.loops if f.var is lane)
        others = [f for f in reduce.loops if f is not chosen]
        low, extent = self.indices.of(chosen.min), self.indices.of(chosen.extent)
        registers = 4 if len(found) < PARTS else 1
        wanted = lanes_for(reduce, self.arithmetic.host, registers)
        lanes = self._lanes_for(extent, wanted)
        b = self.b
        start = [b.splat(self._identity(a), lanes) for a in found]
        unordered = [k for k, a in enumerate(found) if _forgets_nan(a)]
        start += [b.literal(False, "i1", lanes) for _ in unordered]
        rest: tuple[Value, Value] | None = None

        def step(accumulators: list[Value]) -> list[Value]:
            return self._one_term(found, unordered, accumulators)

        def along(accumulators: list[Value]) -> list[Value]:
            nonlocal rest
            vectors, rest = self._over_lanes(
                lane, low, extent, lanes, accumulators[: len(start)], step, frozenset()
            )
            scalars = accumulators[len(start) :]
            if rest is not None:
                with b.loop(rest[0], rest[1], 1, carried=scalars) as opened:
                    self._enter(lane, low, extent, opened.index)
                    opened.next = self._one_term(found, unordered, opened.carried)
                scalars = opened.results
            return [*vectors, *scalars]

        carried = list(start)
        size = as_constant(extent)
        if not self.arithmetic.host.masks and (size is None or size % lanes):
            carried += [self._identity(a) for a in found]
            carried += [b.literal(False, "i1") for _ in unordered]
        totals = self._reduce_loops(others, carried, along, reduce)
        vectors, scalars = totals[: len(start)], totals[len(start) :]
        results: list[Value] = []
        for position, accumulation in enumerate(found):
            total = self._across(accumulation, vectors[position])
            if scalars:
                total = self._combine(accumulation, total, scalars[position])
            results.append(self._combine(accumulation, first[position], total))
        if not unordered:
            return results
        seen = [b.any_lane(v) for v in vectors[len(found) :]] + scalars[len(found) :]
        strange = seen[0]
        for other in seen[1:]:
            strange = b.binary("or", strange, other)
        # with a NaN the order decides, so it is done again in order
        return b.branch(strange, lambda: self._in_order(reduce, targets, first), lambda: results)

    def _one_term(
        self, found: list[Accumulation], unordered: list[int], accumulators: list[Value]
    ) -> list[Value]:
        with self.fresh_values(anew=True):
            return self._terms(found, unordered, accumulators)

    def _terms(
        self, found: list[Accumulation], unordered: list[int], accumulators: list[Value]
    ) -> list[Value]:
        b = self.b
        mask = None if self.lane is None else self.lane.mask
        after: list[Value] = []
        terms: list[Value] = []
        for accumulation, before in zip(found, accumulators, strict=False):
            term: Any = accumulation.term
            if isinstance(term, Mul) and accumulation.combine == "Add" and term.dtype.is_float:
                total = b.fma(self.value(term.a), self.value(term.b), before)
                terms.append(total)
            else:
                terms.append(self.deep_value(term))
                total = self._combine(accumulation, before, terms[-1])
            total = self._spread(total)
            after.append(total if mask is None else b.select(mask, total, before))
        for flag, position in zip(accumulators[len(found) :], unordered, strict=True):
            nan = self._spread(b.compare("fcmp uno", terms[position], terms[position]))
            if mask is not None:
                nan = b.binary("and", nan, mask)
            after.append(b.binary("or", flag, nan))
        return after

    def _identity(self, accumulation: Accumulation) -> Value:
        dtype = accumulation.dtype
        if accumulation.combine in _IDENTITY:
            return self.arithmetic.literal(_IDENTITY[accumulation.combine], dtype)
        largest = accumulation.combine == "Min"
        if dtype.is_float:
            return self.arithmetic.literal(float("inf") if largest else float("-inf"), dtype)
        if dtype.is_int:
            edge = 2 ** (dtype.bits - 1)
            return self.arithmetic.literal(edge - 1 if largest else -edge, dtype)
        return self.arithmetic.literal(2**dtype.bits - 1 if largest else 0, dtype)

    def _combine(self, accumulation: Accumulation, a: Value, b: Value) -> Value:
        if accumulation.combine in ("And", "Or"):
            return self.b.binary(accumulation.combine.lower(), a, b)
        return self.arithmetic.binary(accumulation.combine, a, b, accumulation.dtype)

    def _across(self, accumulation: Accumulation, vector: Value) -> Value:
        """Combine the lanes of a vector: half with half, until one is left."""
        while vector.lanes > 1:
            half = vector.lanes // 2
            low = self.b.shuffle(vector, range(half))
            high = self.b.shuffle(vector, range(half, vector.lanes))
            vector = self._combine(accumulation, low, high)
        return self.b.extract(vector, 0)


def _runs(extent: Poly) -> bool | None:
    size = as_constant(extent)
    return None if size is None else size > 0


def _forgets_nan(accumulation: Accumulation) -> bool:
    return accumulation.combine in ("Max", "Min") and accumulation.dtype.is_float


def _jumps(stmt: Node) -> bool:
    """Say whether a loop body may leave its loop early."""
    return any(call_name(n) in ("break_loop", "continue_loop") for n in nodes_in(stmt))
