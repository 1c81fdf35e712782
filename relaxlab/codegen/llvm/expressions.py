"""Scalar expressions as instructions: on one element, or on a vector of iterations at once.

An expression is written once and works both ways: where the loop that is done in lanes matters,
its values are vectors; everything else stays scalar and moves out of the loop by itself. Reads
that are neighbours become vector loads, others gathers; what a condition guards is read under a
mask. Every subscript that cannot be shown to be inside its buffer is checked before the read.
Counterpart: the expression visitors of TVM's ``CodeGenLLVM``.

Examples
--------
>>> Lane.__name__
'Lane'
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from relaxlab.codegen.llvm.arithmetic import (
    Arithmetic,
    Unsupported,
    memory_type,
    register_type,
)
from relaxlab.codegen.llvm.builder import Builder, Value
from relaxlab.codegen.llvm.indices import (
    Indices,
    Poly,
    added,
    as_constant,
    constant,
    multiplied,
    negated,
)
from relaxlab.codegen.llvm.sites import Sites
from relaxlab.codegen.llvm.walk import call_name
from relaxlab.ir.expr import Call, Expr, Var
from relaxlab.ir.node import children
from relaxlab.ir.op import Op
from relaxlab.ir.prim import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    And,
    BinaryExpr,
    Broadcast,
    Cast,
    CompareExpr,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Mod,
    Not,
    Or,
    Ramp,
    Select,
    TensorLoad,
)
from relaxlab.runtime.dtype import DataType
from relaxlab.tirx import scalar
from relaxlab.tirx.buffer import BufferType

__all__ = ["Expressions", "Lane", "Memory"]

_INT64 = DataType("int64")
_UINT64 = DataType("uint64")
_DIVISIONS = (Div, Mod, FloorDiv, FloorMod)
#: Levels of an expression that are done by recursion.
_STEP = 40
#: Lanes of a vector that the kernel itself speaks of; LLVM takes very long over many more.
_MOST_LANES = 256
#: Calls that are cheap and cannot fail.
_HARMLESS = frozenset({"ceil", "fabs", "floor", "isnan", "likely", "sqrt", "trunc"})


@dataclass(frozen=True, slots=True)
class Memory:
    """Where a buffer lies.

    Attributes
    ----------
    name
        What messages call it.
    pointer
        Its first element.
    dtype
        Of its elements.
    shape, strides
        In elements, one per dimension.
    trusted
        Whether subscripts were checked when they were made.
    key
        What stands for the memory where two buffers share it.
    """

    name: str
    pointer: Value
    dtype: DataType
    shape: tuple[Poly, ...]
    strides: tuple[Poly, ...]
    trusted: bool = False
    key: Any = None


@dataclass(frozen=True, slots=True)
class Lane:
    """A loop of which several iterations are done at once.

    Attributes
    ----------
    var
        Its variable.
    base
        Value of the variable in the first lane.
    lanes
        How many iterations.
    last
        Distance to the last active lane.
    mask
        Active lanes; None when all are.
    """

    var: Var
    base: Value
    lanes: int
    last: Value
    mask: Value | None


@dataclass(slots=True)
class _Known:
    """Values of expressions that were computed here, kept alive."""

    values: dict[int, tuple[Any, Value]] = field(default_factory=dict)


class Expressions:
    """Translates expressions in the middle of a function.

    Parameters
    ----------
    builder, arithmetic, indices
        Where instructions go, what operations become, and what is known of subscripts.
    sites
        What can go wrong, for messages.
    state
        Pointer to the caller's block for details and results.
    """

    def __init__(
        self,
        builder: Builder,
        arithmetic: Arithmetic,
        indices: Indices,
        sites: Sites,
        state: Value,
    ) -> None:
        self.b = builder
        self.arithmetic = arithmetic
        self.indices = indices
        self.sites = sites
        self.state = state
        self.memory: dict[Var, Memory] = {}
        self.scalars: dict[Var, Value] = {}
        self.promoted: dict[Var, Value] = {}
        self.lane: Lane | None = None
        self.mask: Value | None = None
        self._known = _Known()

    # ------------------------------------------------------------ context

    @contextmanager
    def in_lanes(self, lane: Lane) -> Iterator[None]:
        """Do a loop's iterations in lanes inside ``with``."""
        self.lane = lane
        # the same loop may have been done one by one before, with a counter that is gone
        self.scalars.pop(lane.var, None)
        try:
            with self.fresh_values(anew=True):
                yield
        finally:
            self.lane = None

    @contextmanager
    def masked(self, condition: Value) -> Iterator[None]:
        """Do things only in lanes where a condition holds."""
        before = self.mask
        self.mask = condition if before is None else self.b.binary("and", before, condition)
        try:
            with self.fresh_values():
                yield
        finally:
            self.mask = before

    @contextmanager
    def fresh_values(self, *, anew: bool = False) -> Iterator[None]:
        """Remember expressions computed inside ``with`` only until its end."""
        before = self._known
        self._known = _Known({} if anew else dict(before.values))
        try:
            yield
        finally:
            self._known = before

    @contextmanager
    def assuming(self, condition: Any, *, holds: bool) -> Iterator[None]:
        """Use what a condition says about subscripts inside ``with``."""
        mark = self.indices.assume(self._facts(condition, holds=holds))
        try:
            yield
        finally:
            self.indices.forget(mark)

    def _facts(self, condition: Any, *, holds: bool) -> list[Poly]:
        """Return polynomials that are not negative where a condition holds (or does not)."""
        match condition:
            case And(a=a, b=b) if holds:
                return [*self._facts(a, holds=True), *self._facts(b, holds=True)]
            case Or(a=a, b=b) if not holds:
                return [*self._facts(a, holds=False), *self._facts(b, holds=False)]
            case Not(a=a):
                return self._facts(a, holds=not holds)
            case Call(op=Op(name="tirx.likely"), args=(inner,)):
                return self._facts(inner, holds=holds)
            case LT(a=a, b=b) | LE(a=a, b=b) | GT(a=a, b=b) | GE(a=a, b=b) if a.dtype.is_int:
                low, high = (b, a) if isinstance(condition, GT | GE) else (a, b)
                strict = isinstance(condition, LT | GT)
                if not holds:
                    low, high, strict = high, low, not strict
                gap = added(self.indices.of(high), self.indices.of(low), -1)
                return [added(gap, constant(-1)) if strict else gap]
            case EQ(a=a, b=b) | NE(a=a, b=b) if a.dtype.is_int:
                if isinstance(condition, EQ) is holds:
                    gap = added(self.indices.of(a), self.indices.of(b), -1)
                    return [gap, negated(gap)]
        return []

    # ------------------------------------------------------------ expressions

    def value(self, expr: Any) -> Value:
        """Return an expression's value: a scalar, or a vector over the lanes."""
        known = self._known.values.get(id(expr))
        if known is not None:
            return known[1]
        result = self._compute(expr)
        self._known.values[id(expr)] = (expr, result)
        return result

    def deep_value(self, expr: Any) -> Value:
        """Return an expression's value, however deep it is: Python's own stack is not."""
        height: dict[int, int] = {}
        tall: list[Any] = []
        pending: list[tuple[Any, bool]] = [(expr, False)]
        while pending:
            node, opened = pending.pop()
            if id(node) in height:
                continue
            operands = _operands(node)
            if not opened:
                pending.append((node, True))
                pending += ((child, False) for child in operands)
                continue
            height[id(node)] = 1 + max((height[id(c)] for c in operands), default=0)
            if height[id(node)] % _STEP == 0:
                tall.append(node)
        # from the inside out
        for node in tall:
            self.value(node)
        return self.value(expr)

    def _compute(self, expr: Any) -> Value:
        arithmetic = self.arithmetic
        match expr:
            case IntImm(dtype=dtype, value=value) | FloatImm(dtype=dtype, value=value):
                return arithmetic.literal(value, dtype)
            case Var():
                return self._variable(expr)
            case TensorLoad():
                return self._load(expr)
            case And(a=a, b=b):
                if self.is_harmless(b):
                    return self.b.binary("and", self.value(a), self.value(b))
                no = self.b.literal(False, "i1")
                return self._chosen(a, lambda: self.value(b), lambda: no, (b, no))
            case Or(a=a, b=b):
                if self.is_harmless(b):
                    return self.b.binary("or", self.value(a), self.value(b))
                yes = self.b.literal(True, "i1")
                return self._chosen(a, lambda: yes, lambda: self.value(b), (yes, b))
            case BinaryExpr(a=a, b=b) | CompareExpr(a=a, b=b):
                return self._binary(expr, a, b)
            case Not(a=a):
                inner = self.value(a)
                return self.b.binary("xor", inner, self.b.literal(True, "i1"))
            case Cast(dtype=dtype, value=inner):
                return arithmetic.cast(self.value(inner), inner.dtype, dtype)
            case Select(condition=condition, true_value=yes, false_value=no):
                return self._choose(condition, yes, no)
            case Let(var=var, value=given, body=body):
                self.scalars[var] = self.value(given)
                return self.value(body)
            case Ramp(lanes=lanes) | Broadcast(lanes=lanes) if lanes > _MOST_LANES:
                raise Unsupported(f"a vector of {lanes} lanes")
            case Ramp(base=base, stride=stride, lanes=lanes):
                steps = self.b.iota(lanes, register_type(base.dtype))
                moved = self.b.binary("mul", steps, self.value(stride))
                return self.b.binary("add", moved, self.value(base))
            case Broadcast(value=inner, lanes=lanes):
                return self.b.splat(self.value(inner), lanes)
            case Call():
                return self._call(expr)
            case _:
                raise Unsupported(f"a {type(expr).__name__} expression")

    def _variable(self, var: Var) -> Value:
        lane = self.lane
        if lane is not None and var is lane.var:
            wide = self.b.binary(
                "add", self.b.splat(lane.base, lane.lanes), self.b.iota(lane.lanes)
            )
            return self.arithmetic.cast(wide, _INT64, var.dtype)
        found = self.scalars.get(var)
        if found is None:
            raise Unsupported(f"variable {var.name!r}, which nothing defines")
        if found.elem == "i64" and not isinstance(var.ty, BufferType):
            dtype = getattr(var.ty, "dtype", None)
            if dtype is not None and register_type(dtype) != "i64":
                return self.arithmetic.cast(found, _INT64, dtype)
        return found

    def _binary(self, expr: Any, a: Expr, b: Expr) -> Value:
        dtype = a.dtype
        left, right = self.value(a), self.value(b)
        if isinstance(expr, _DIVISIONS) and not dtype.is_float:
            self.refuse_zero(right)
        return self.arithmetic.binary(type(expr).__name__, left, right, dtype)

    def refuse_zero(self, divisor: Value) -> None:
        """End the kernel where a divisor is zero."""
        if not divisor.const:
            zero = self.b.literal(0, divisor.elem)
            self.refuse(self.b.compare("icmp eq", divisor, zero), self.sites.division(), ())

    def refuse(self, bad: Value, code: int, details: Sequence[Value]) -> None:
        """End the kernel where ``bad`` holds in an active lane."""
        # what is the same in all lanes is wrong in all of them
        active = self._active() if bad.lanes else self.mask
        if active is not None:
            bad = self.b.binary("and", bad, active)
        if not bad.lanes:
            self.b.fail_if(bad, code, [self.b.extract(v, 0) for v in details], self.state)
            return

        def fail() -> list[Value]:
            width = f"i{bad.lanes}"
            packed = self.b.fresh(f"bitcast {bad.typed} to {width}", width)
            never = self.b.literal(True, "i1")
            first = self.b.call(f"llvm.cttz.{width}", width, 0, packed, never)
            if bad.lanes < 64:
                first = self.b.convert("zext", first, "i64")
            elif bad.lanes > 64:
                first = self.b.convert("trunc", first, "i64")
            chosen = [self.b.extract(v, first) if v.lanes else v for v in details]
            self.b.fail(code, chosen, self.state)
            return []

        self.b.branch(self.b.any_lane(bad), fail)

    def _active(self) -> Value | None:
        """Return the lanes in which things happen; None when they do in all."""
        lane_mask = None if self.lane is None else self.lane.mask
        if self.mask is None:
            return lane_mask
        return self.mask if lane_mask is None else self.b.binary("and", self.mask, lane_mask)

    # ------------------------------------------------------------ choices

    def _choose(self, condition: Any, yes: Any, no: Any) -> Value:
        return self._chosen(condition, lambda: self.value(yes), lambda: self.value(no), (yes, no))

    def _chosen(
        self,
        condition: Any,
        yes: Callable[[], Value],
        no: Callable[[], Value],
        sides: tuple[Any, Any],
    ) -> Value:
        test = self.value(condition)
        if test.const is not None and not test.lanes:
            return yes() if test.const else no()
        if all(isinstance(side, Value) or self.is_harmless(side) for side in sides):
            return self.b.select(test, yes(), no())
        if test.lanes:
            other = self.b.binary("xor", test, self.b.literal(True, "i1"))
            with self.masked(test), self.assuming(condition, holds=True):
                first = yes()
            with self.masked(other), self.assuming(condition, holds=False):
                second = no()
            return self.b.select(test, first, second)
        return self._branched(condition, test, yes, no)

    def _branched(
        self, condition: Any, test: Value, yes: Callable[[], Value], no: Callable[[], Value]
    ) -> Value:
        lanes = 0

        def side(compute: Callable[[], Value], holds: bool) -> Callable[[], list[Value]]:
            def inner() -> list[Value]:
                nonlocal lanes
                with self.fresh_values(), self.assuming(condition, holds=holds):
                    result = compute()
                    # both sides must give the same type
                    if self.lane is not None:
                        result = self.b.splat(result, self.lane.lanes)
                return [result]

            return inner

        return self.b.branch(test, side(yes, True), side(no, False))[0]

    def is_harmless(self, expr: Any) -> bool:
        """Say whether computing an expression needlessly is cheap and cannot fail."""
        pending = [expr]
        seen: set[int] = set()
        while pending:
            node = pending.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            match node:
                case TensorLoad(buffer=buffer, indices=indices):
                    if buffer not in self.promoted and not self._is_inside(buffer, indices):
                        return False
                    pending += indices
                    continue
                case Call(op=op):
                    if getattr(op, "name", "").removeprefix("tirx.") not in _HARMLESS:
                        return False
                case Div() | Mod() | FloorDiv() | FloorMod() if not node.a.dtype.is_float:
                    if not (isinstance(node.b, IntImm) and node.b.value):
                        return False
                case Let():
                    return False
                case _:
                    pass
            pending += [c for c in children(node) if isinstance(c, Expr)]
        return True

    def _is_inside(self, buffer: Var, indices: Sequence[Any]) -> bool:
        """Say whether an element surely exists, whatever conditions are around."""
        memory = self.memory.get(buffer)
        if memory is None or any(i.dtype.lanes != 1 for i in indices):
            return False
        with self.indices.without_facts():
            return memory.trusted or all(
                self.indices.at_least(index, 0) and self.indices.below(index, extent)
                for index, extent in zip(indices, memory.shape, strict=True)
            )

    # ------------------------------------------------------------ calls

    def _call(self, call: Call) -> Value:
        name = call.op.name.removeprefix("tirx.") if isinstance(call.op, Op) else ""
        if name == "if_then_else":
            return self._choose(*call.args)
        if scalar.is_known_call(name):
            source = call.args[0].dtype
            values = [self.value(arg) for arg in call.args]
            if name.startswith("shift"):
                self._check_shift(name, values[1], call.dtype)
            operands = [
                self.arithmetic.cast(v, arg.dtype, source)
                if name in ("shift_left", "shift_right")
                else v
                for v, arg in zip(values, call.args, strict=True)
            ]
            return self.arithmetic.call(name, operands, call.dtype, source)
        return self.effect(call, name)

    def _check_shift(self, name: str, count: Value, dtype: DataType) -> None:
        if count.const is not None and 0 <= count.const < dtype.bits:
            return
        bad = self.b.compare("icmp uge", count, self.b.literal(dtype.bits, count.elem))
        wide = count if count.elem == "i64" else self.b.convert("sext", count, "i64")
        self.refuse(bad, self.sites.shift(name, str(dtype), dtype.bits), [wide])

    def effect(self, call: Call, name: str) -> Value:
        """Return the value of a call that does more than compute; for subclasses."""
        raise Unsupported(f"a call of {name or call.op!r}")

    # ------------------------------------------------------------ subscripts

    def number(self, poly: Poly, *, at_base: bool = False) -> Value:
        """Return an index polynomial as a 64-bit integer.

        ``at_base``: its value in the first lane, for one that is linear in the lane variable.
        """
        terms: list[Value] = []
        total = poly.get((), 0)
        for product, count in poly.items():
            if not product:
                continue
            factors = sorted((self._atom(n, at_base) for n in product), key=lambda v: v.depth)
            term = factors[0]
            for factor in factors[1:]:
                term = self.b.binary("mul", term, factor)
            terms.append(self.b.binary("mul", term, self.b.int64(count)))
        if not terms:
            return self.b.int64(total)
        terms.sort(key=lambda v: v.depth)
        # what changes least is added first, so that the sum stands as far out as it can
        result = self.b.binary("add", terms[0], self.b.int64(total)) if total else terms[0]
        for term in terms[1:]:
            result = self.b.binary("add", result, term)
        return result

    def _atom(self, number: int, at_base: bool) -> Value:
        atom = self.indices.atoms[number]
        if atom.kind in ("div", "mod"):
            return self._division(atom, at_base)
        expr = atom.expr
        if isinstance(expr, Var):
            if self.lane is not None and expr is self.lane.var and at_base:
                return self.lane.base
            found = self.scalars.get(expr)
            if found is not None and found.elem == "i64":
                return found
        return self.arithmetic.cast(self.value(expr), expr.dtype, _INT64)

    def _division(self, atom: Any, at_base: bool) -> Value:
        a, b = self.number(atom.a, at_base=at_base), self.number(atom.b, at_base=at_base)
        name = "FloorDiv" if atom.kind == "div" else "FloorMod"
        positive = self.indices.is_nonnegative(atom.b, strict=True)
        if not positive:
            self.refuse_zero(b)
        elif self.indices.is_nonnegative(atom.a):
            divisor = as_constant(atom.b)
            if divisor is not None and divisor & (divisor - 1) == 0:
                shift = divisor.bit_length() - 1
                if name == "FloorMod":
                    return self.b.binary("and", a, self.b.int64(divisor - 1))
                return self.b.binary("lshr", a, self.b.int64(shift)) if shift else a
            # without a sign, as both are positive
            return self.arithmetic.binary(name, a, b, _UINT64)
        return self.arithmetic.binary(name, a, b, _INT64)

    def offset(self, memory: Memory, polys: Sequence[Poly]) -> Poly:
        """Return the distance from a buffer's start, in elements."""
        total: Poly = {}
        for index, stride in zip(polys, memory.strides, strict=True):
            total = added(total, multiplied(index, stride))
        return total

    def check(
        self, memory: Memory, indices: Sequence[Any], polys: Sequence[Poly], verb: str
    ) -> bool:
        """Refuse subscripts outside a buffer; say whether that took a test at run time."""
        if memory.trusted:
            return False
        tested = False
        for axis, (expr, poly) in enumerate(zip(indices, polys, strict=True)):
            extent = memory.shape[axis]
            if self.indices.at_least(expr, 0) and self.indices.below(expr, extent):
                continue
            tested = True
            code = self.sites.index(verb, memory.name, len(polys), axis)
            for index in self._extremes(poly):
                limit = self.number(extent)
                bad = self.b.compare("icmp uge", index, limit)
                details = [limit, *(self._like(p, index) for p in polys)]
                details[1 + axis] = index
                self.refuse(bad, code, details)
        return tested

    def _like(self, poly: Poly, index: Value) -> Value:
        """Return a subscript beside a faulty one, for the message."""
        return self.number(poly, at_base=not index.lanes and self._is_linear(poly))

    def _is_linear(self, poly: Poly) -> bool:
        return self.lane is None or self.indices.coefficient(poly, self.lane.var) is not None

    def _extremes(self, poly: Poly) -> list[Value]:
        """Return what to test of a subscript: its ends where it is linear and nothing is masked."""
        lane = self.lane
        if lane is None or not self.indices.depends(poly, lane.var):
            return [self.number(poly)]
        parts = self.indices.coefficient(poly, lane.var)
        if parts is None or self.mask is not None:
            return [self.number(poly)]
        first = self.number(poly, at_base=True)
        step = self.b.binary("mul", self.number(parts[0]), lane.last)
        return [first, self.b.binary("add", first, step)]

    # ------------------------------------------------------------ memory

    def _load(self, load: TensorLoad) -> Value:
        current = self.promoted.get(load.buffer)
        if current is not None:
            return current
        memory = self._memory_of(load.buffer)
        if (load.indices and load.indices[-1].dtype.lanes != 1) or memory.dtype.lanes != 1:
            return self._load_vector(load, memory)
        polys = [self.indices.of(i) for i in load.indices]
        tested = self.check(memory, load.indices, polys, "reads")
        offset = self.offset(memory, polys)
        raw = self._read(memory, offset, tested)
        return self.arithmetic.from_memory(raw, memory.dtype)

    def _memory_of(self, buffer: Var) -> Memory:
        found = self.memory.get(buffer)
        if found is None:
            raise Unsupported(f"buffer {buffer.name!r}, which has no memory")
        return found

    def _read(self, memory: Memory, offset: Poly, tested: bool) -> Value:
        lane, b = self.lane, self.b
        elem, align = element_of(memory)
        key = memory.key
        if lane is None or not self.indices.depends(offset, lane.var):
            place = self.number(offset)
            if not place.lanes:
                return self._read_one(memory, place, tested)
            where = b.element(memory.pointer, place, elem)
            return b.load(where, elem, place.lanes, align, key, mask=self._mask_for(place.lanes))
        parts = self.indices.coefficient(offset, lane.var)
        step = None if parts is None else as_constant(parts[0])
        active = self._active()
        if step == 1:
            start = b.element(memory.pointer, self.number(offset, at_base=True), elem)
            return b.load(start, elem, lane.lanes, align, key, mask=active, pinned=tested)
        if step == -1 and active is None:
            low = added(offset, constant(-(lane.lanes - 1)))
            start = b.element(memory.pointer, self.number(low, at_base=True), elem)
            raw = b.load(start, elem, lane.lanes, align, key, pinned=tested)
            return b.shuffle(raw, range(lane.lanes - 1, -1, -1))
        where = b.element(memory.pointer, self.number(offset), elem)
        mask = active if active is not None else b.literal(True, "i1", lane.lanes)
        return b.load(where, elem, lane.lanes, align, key, mask=mask, pinned=tested)

    def _mask_for(self, lanes: int) -> Value:
        active = self._active()
        return self.b.literal(True, "i1", lanes) if active is None else self.b.splat(active, lanes)

    def _read_one(self, memory: Memory, place: Value, tested: bool) -> Value:
        """Read one element for all lanes; not at all if it is outside and no lane wants it."""
        elem, align = element_of(memory)

        def read() -> list[Value]:
            where = self.b.element(memory.pointer, place, elem)
            return [self.b.load(where, elem, 0, align, memory.key, pinned=tested)]

        if not tested or self.mask is None:
            return read()[0]
        wanted = self.b.any_lane(self._active() or self.b.literal(True, "i1"))
        zero = self.b.literal(0, elem)
        return self.b.branch(wanted, read, lambda: [zero])[0]

    def _load_vector(self, load: TensorLoad, memory: Memory) -> Value:
        """Read a vector that the kernel itself speaks of."""
        if self.lane is not None:
            raise Unsupported("vectors in a vectorized loop")
        elem, align = element_of(memory)
        where, lanes, mask = self.vector_place(load.buffer, load.indices, memory, "reads")
        raw = self.b.load(where, elem, lanes, align, memory.key, mask=mask)
        return self.arithmetic.from_memory(raw, memory.dtype.with_lanes(1))

    def vector_place(
        self, buffer: Var, indices: Sequence[Any], memory: Memory, verb: str
    ) -> tuple[Value, int, Value | None]:
        """Return address, lanes and mask of a vector access."""
        elem, _ = element_of(memory)
        width = memory.dtype.lanes
        values = [self.arithmetic.cast(self.value(i), i.dtype, _INT64) for i in indices]
        lanes = values[-1].lanes if values else 0
        place = self.b.int64(0)
        for axis, value in enumerate(values):
            limit = self.number(memory.shape[axis])
            code = self.sites.index(verb, memory.name, len(values), axis)
            self.refuse(self.b.compare("icmp uge", value, limit), code, [limit, *values])
            stride = self.number(memory.strides[axis])
            place = self.b.binary("add", place, self.b.binary("mul", value, stride))
        if width == 1:
            return self.b.element(memory.pointer, place, elem), lanes, self._mask_for(lanes)
        if lanes:
            raise Unsupported("a vector of vectors")
        scaled = self.b.binary("mul", place, self.b.int64(width))
        return self.b.element(memory.pointer, scaled, elem), width, None

    def write(self, buffer: Var, indices: Sequence[Any], value: Value, dtype: DataType) -> None:
        """Store a value of ``dtype`` into an element (or one into each lane's element)."""
        memory = self._memory_of(buffer)
        b, lane = self.b, self.lane
        element = memory.dtype.with_lanes(1)
        if buffer in self.promoted:
            self.promoted[buffer] = self.arithmetic.cast(value, dtype, element)
            return
        stored = self.arithmetic.to_memory(self.arithmetic.cast(value, dtype, element), element)
        elem, align = element_of(memory)
        if (indices and indices[-1].dtype.lanes != 1) or memory.dtype.lanes != 1:
            where, lanes, mask = self.vector_place(buffer, indices, memory, "writes")
            b.store(b.splat(stored, lanes), where, align, memory.key, mask)
            return
        polys = [self.indices.of(i) for i in indices]
        self.check(memory, indices, polys, "writes")
        offset = self.offset(memory, polys)
        if lane is None or not self.indices.depends(offset, lane.var):
            if stored.lanes or self.mask is not None:
                raise Unsupported("several lanes write one element")
            b.store(stored, b.element(memory.pointer, self.number(offset), elem), align, memory.key)
            return
        stored = b.splat(stored, lane.lanes)
        parts = self.indices.coefficient(offset, lane.var)
        active = self._active()
        if parts is not None and as_constant(parts[0]) == 1:
            start = b.element(memory.pointer, self.number(offset, at_base=True), elem)
            b.store(stored, start, align, memory.key, active)
            return
        where = b.element(memory.pointer, self.number(offset), elem)
        b.store(stored, where, align, memory.key, active or b.literal(True, "i1", lane.lanes))


def _operands(node: Any) -> tuple[Any, ...]:
    """Return what is computed before a node in any case."""
    if isinstance(node, BinaryExpr | CompareExpr) and not isinstance(node, And | Or):
        return (node.a, node.b)
    if isinstance(node, Cast):
        return (node.value,)
    return node.args if scalar.is_known_call(call_name(node)) else ()


def element_of(memory: Memory) -> tuple[str, int]:
    """Return the LLVM type of an element in memory and its size in bytes."""
    elem = memory_type(memory.dtype.with_lanes(1))
    sizes = {"float": 4, "double": 8}
    return elem, sizes.get(elem) or int(elem[1:]) // 8
