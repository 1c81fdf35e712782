"""LLVM IR as text, one function at a time, with loops and branches that nest.

Instructions are put as far out as their operands allow and never twice, so what does not change
in a loop stands before it, and no optimizer has to run afterwards. A :class:`Value` knows how
deep it was defined. Counterpart: ``llvm::IRBuilder`` and two of LLVM's passes.

Examples
--------
>>> b = Builder("twice", [("i64", "n")])
>>> n = b.argument("n")
>>> with b.loop(b.int64(0), n, 1) as loop:
...     _ = b.binary("mul", loop.index, n), b.binary("mul", n, n)
>>> print(b.finish(), end="")
define internal i32 @twice(i64 %n) noinline {
entry:
  %status = alloca i32
  store i32 0, ptr %status
  %v0 = icmp sgt i64 %n, 0
  %v2 = mul i64 %n, %n
  br i1 %v0, label %loop.0, label %done.0
loop.0:
  %i0 = phi i64 [ 0, %entry ], [ %i0.next, %loop.0 ]
  %v1 = mul i64 %i0, %n
  %i0.next = add nuw nsw i64 %i0, 1
  %i0.more = icmp slt i64 %i0.next, %n
  br i1 %i0.more, label %loop.0, label %done.0
done.0:
  br label %leave
leave:
  %code = load i32, ptr %status
  ret i32 %code
}
"""

import ctypes
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

__all__ = ["Builder", "Loop", "Value", "helper_name", "mangled", "mangled_type"]

Number = int | float | bool

_FOLD: Final[dict[str, Callable[[int, int], int]]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
}


@dataclass(frozen=True, slots=True)
class Value:
    """The result of an instruction, an argument, or a literal.

    Attributes
    ----------
    text
        How an operand is written: ``%12`` or a literal.
    elem
        LLVM type of one element.
    lanes
        Elements of a vector; 0 for a scalar.
    depth
        How many loops and branches are around its definition.
    const
        The number, of a literal.
    """

    text: str
    elem: str
    lanes: int = 0
    depth: int = 0
    const: Number | None = None

    @property
    def type(self) -> str:
        """The LLVM type."""
        return f"<{self.lanes} x {self.elem}>" if self.lanes else self.elem

    @property
    def typed(self) -> str:
        """Type and text, as in an argument list."""
        return f"{self.type} {self.text}"


@dataclass(slots=True)
class _Scope:
    """Text of the body of a loop or of one side of a branch, while it is written."""

    kind: Literal["function", "loop", "branch"]
    label: str
    lines: list[str] = field(default_factory=list)
    memo: dict[Any, Value] = field(default_factory=dict)
    # of a loop: the condition that it runs at all (None: it does), buffers written inside
    runs: Value | None = None
    writes: frozenset[Any] = frozenset()
    jumps: bool = False
    exit: str = ""
    latch: str = ""


@dataclass(slots=True)
class Loop:
    """A loop whose body is being written.

    Attributes
    ----------
    index
        The counter.
    carried
        Values that change from iteration to iteration, as the body sees them.
    next
        What the body makes of them; to be set before the body ends.
    results
        Their values after the loop; known once the body has ended.
    """

    index: Value
    carried: list[Value]
    next: list[Value]
    results: list[Value]


def _float_text(value: float, elem: str) -> str:
    """Return a float literal: always hexadecimal, so that no digit is lost."""
    if elem == "float":
        # LLVM writes a float as the double of the same value
        value = ctypes.c_float(value).value
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _literal_text(value: Number, elem: str) -> str:
    """Return a literal of a scalar type."""
    if elem in ("float", "double"):
        return _float_text(float(value), elem)
    if elem == "i1":
        return "true" if value else "false"
    return str(int(value))


class Builder:
    """Writes one function that returns a status: 0, or the number of what went wrong.

    Parameters
    ----------
    name
        Name of the function.
    parameters
        LLVM type (with attributes) and name of each.
    result
        LLVM type of the result; None for a status.
    attributes
        Function attributes.
    export
        Whether it can be called from outside the module.
    """

    def __init__(
        self,
        name: str,
        parameters: Sequence[tuple[str, str]],
        *,
        result: str | None = None,
        attributes: str = "noinline",
        export: bool = False,
    ) -> None:
        self.name = name
        self.declarations: dict[str, str] = {}
        self.helpers: dict[tuple[Any, ...], None] = {}
        self._attributes = attributes
        self._linkage = "" if export else "internal "
        self._result = result
        self._parameters = list(parameters)
        self._arguments = {
            n: Value(f"%{n}", t.split(" ", 1)[0], _lanes_of(t)) for t, n in parameters
        }
        for t, n in parameters:
            if t.startswith("<"):
                count, elem = t[1:-1].split(" x ")
                self._arguments[n] = Value(f"%{n}", elem, int(count))
        self._scopes = [_Scope("function", "entry")]
        self._count = 0
        self._labels = 0
        self._cold: list[str] = []
        self._entry: list[str] = []
        self._cleanup: list[str] = []
        self._versions: dict[Any, int] = {}

    # ------------------------------------------------------------ values

    def argument(self, name: str) -> Value:
        """Return a parameter as a value."""
        return self._arguments[name]

    def literal(self, value: Number, elem: str, lanes: int = 0) -> Value:
        """Return a literal, or a vector of equal literals."""
        text = _literal_text(value, elem)
        if lanes:
            text = f"splat ({elem} {text})"
        return Value(text, elem, lanes, 0, value)

    def int64(self, value: int) -> Value:
        """Return a 64-bit integer literal."""
        return Value(str(value), "i64", 0, 0, value)

    def iota(self, lanes: int, elem: str = "i64") -> Value:
        """Return the vector 0, 1, 2, ..."""
        return Value("<" + ", ".join(f"{elem} {k}" for k in range(lanes)) + ">", elem, lanes)

    def splat(self, value: Value, lanes: int) -> Value:
        """Return a vector of equal elements; a vector of that many lanes stays itself."""
        if value.lanes == lanes:
            return value
        if value.const is not None:
            return self.literal(value.const, value.elem, lanes)
        kind = f"<{lanes} x {value.elem}>"
        one = self._pure(
            ("insert", value.text, lanes, value.elem),
            f"insertelement {kind} poison, {value.typed}, i64 0",
            value.elem,
            lanes,
            (value,),
        )
        return self._pure(
            ("splat", one.text, lanes),
            f"shufflevector {one.typed}, {kind} poison, <{lanes} x i32> zeroinitializer",
            value.elem,
            lanes,
            (one,),
        )

    def same_lanes(self, *values: Value) -> tuple[Value, ...]:
        """Return the values with scalars spread to the lanes of the vectors among them."""
        lanes = max(v.lanes for v in values)
        return tuple(self.splat(v, lanes) for v in values) if lanes else values

    # ------------------------------------------------------------ instructions

    def binary(self, op: str, a: Value, b: Value) -> Value:
        """Return ``op a, b``; a scalar operand is spread; integer literals are folded."""
        folded = self._folded(op, a, b)
        if folded is not None:
            return folded
        a, b = self.same_lanes(a, b)
        return self._pure(
            (op, a.text, b.text, a.type), f"{op} {a.typed}, {b.text}", a.elem, a.lanes, (a, b)
        )

    def _folded(self, op: str, a: Value, b: Value) -> Value | None:
        if op not in ("add", "sub", "mul", "and", "or") or a.elem in ("float", "double"):
            return None
        if a.const is not None and b.const is not None and op in _FOLD and a.elem == "i64":
            return self.literal(_FOLD[op](int(a.const), int(b.const)), "i64", max(a.lanes, b.lanes))
        for x, y, swapped in ((a, b, False), (b, a, True)):
            if y.const is None:
                continue
            if op in ("add", "or") and y.const in (0, False):
                return self.splat(x, y.lanes) if y.lanes else x
            if op == "sub" and y.const == 0 and not swapped:
                return self.splat(x, y.lanes) if y.lanes else x
            if op == "mul" and y.const == 1 and a.elem != "i1":
                return self.splat(x, y.lanes) if y.lanes else x
            if op == "mul" and y.const == 0:
                return self.splat(y, x.lanes) if x.lanes else y
            if op == "and" and y.const is True and a.elem == "i1":
                return self.splat(x, y.lanes) if y.lanes else x
        return None

    def compare(self, op: str, a: Value, b: Value) -> Value:
        """Return ``op a, b`` (``icmp slt``, ``fcmp ogt``, ...) as i1."""
        a, b = self.same_lanes(a, b)
        return self._pure(
            (op, a.text, b.text, a.type), f"{op} {a.typed}, {b.text}", "i1", a.lanes, (a, b)
        )

    def unary(self, op: str, a: Value) -> Value:
        """Return ``op a``, of the same type (``fneg``)."""
        return self._pure((op, a.text, a.type), f"{op} {a.typed}", a.elem, a.lanes, (a,))

    def convert(self, op: str, a: Value, elem: str) -> Value:
        """Return ``op a to elem`` (``sext``, ``fptosi``, ``bitcast``, ...)."""
        keeps = op == "sext" or (op == "zext" and a.const is not None and a.const >= 0)
        if a.const is not None and keeps and a.elem != "i1":
            return self.literal(a.const, elem, a.lanes)
        kind = f"<{a.lanes} x {elem}>" if a.lanes else elem
        return self._pure(
            (op, a.text, a.type, elem), f"{op} {a.typed} to {kind}", elem, a.lanes, (a,)
        )

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        """Return ``a`` where the condition holds, else ``b``."""
        if condition.const is not None and not condition.lanes:
            return a if condition.const else b
        if condition.lanes:
            condition, a, b = self.same_lanes(condition, a, b)
        else:
            a, b = self.same_lanes(a, b)
        return self._pure(
            ("select", condition.text, a.text, b.text, a.type),
            f"select {condition.typed}, {a.typed}, {b.typed}",
            a.elem,
            a.lanes,
            (condition, a, b),
        )

    def call(self, function: str, elem: str, lanes: int, *arguments: Value) -> Value:
        """Return a call of a function without effects, which is declared if need be."""
        kind = f"<{lanes} x {elem}>" if lanes else elem
        self.declarations.setdefault(
            function, f"declare {kind} @{function}({', '.join(a.type for a in arguments)})"
        )
        operands = ", ".join(a.typed for a in arguments)
        return self._pure(
            ("call", function, *(a.text for a in arguments)),
            f"call {kind} @{function}({operands})",
            elem,
            lanes,
            arguments,
        )

    def call_helper(self, name: str, elem: str, arguments: Sequence[Value]) -> Value:
        """Return a call of a function of ``mathematics.py``, which the module will define."""
        kinds = tuple((a.elem, a.lanes) for a in arguments)
        self.helpers[name, elem, kinds] = None
        function = helper_name(name, elem, kinds)
        lanes = arguments[0].lanes
        kind = f"<{lanes} x {elem}>" if lanes else elem
        operands = ", ".join(a.typed for a in arguments)
        return self._pure(
            ("call", function, *(a.text for a in arguments)),
            f"call {kind} @{function}({operands})",
            elem,
            lanes,
            arguments,
        )

    def intrinsic(self, name: str, *arguments: Value) -> Value:
        """Return a call of an LLVM intrinsic that is overloaded on its first operand."""
        arguments = self.same_lanes(*arguments)
        first = arguments[0]
        return self.call(f"llvm.{name}.{mangled(first)}", first.elem, first.lanes, *arguments)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """Return ``a * b + c``, rounded once where the machine can."""
        return self.intrinsic("fmuladd", a, b, c)

    def shuffle(self, a: Value, order: Sequence[int]) -> Value:
        """Return the elements of ``a`` at the given positions."""
        picks = ", ".join(f"i32 {k}" for k in order)
        return self._pure(
            ("shuffle", a.text, picks),
            f"shufflevector {a.typed}, {a.type} poison, <{len(order)} x i32> <{picks}>",
            a.elem,
            len(order),
            (a,),
        )

    def join(self, a: Value, b: Value) -> Value:
        """Return the elements of one vector, then those of another of the same type."""
        lanes = 2 * a.lanes
        picks = ", ".join(f"i32 {k}" for k in range(lanes))
        return self._pure(
            ("join", a.text, b.text),
            f"shufflevector {a.typed}, {b.typed}, <{lanes} x i32> <{picks}>",
            a.elem,
            lanes,
            (a, b),
        )

    def extract(self, a: Value, lane: int | Value) -> Value:
        """Return one element of a vector; a scalar is its own element."""
        if not a.lanes:
            return a
        at = lane if isinstance(lane, Value) else self.int64(lane)
        return self._pure(
            ("extract", a.text, at.text),
            f"extractelement {a.typed}, {at.typed}",
            a.elem,
            0,
            (a, at),
        )

    def any_lane(self, a: Value) -> Value:
        """Return whether an i1 holds in any lane."""
        return self._reduce_lanes("or", a)

    def _reduce_lanes(self, op: str, a: Value) -> Value:
        if not a.lanes:
            return a
        name = f"llvm.vector.reduce.{op}.{mangled(a)}"
        return self.call(name, a.elem, 0, a)

    # ------------------------------------------------------------ memory

    def element(self, base: Value, index: Value, elem: str) -> Value:
        """Return the address of an element, or a vector of addresses."""
        if index.const == 0 and not index.lanes:
            return base
        kind = f"<{index.lanes} x ptr>" if index.lanes else "ptr"
        return self._pure(
            ("gep", base.text, index.text, elem, kind),
            f"getelementptr {elem}, {base.typed}, {index.typed}",
            "ptr",
            index.lanes,
            (base, index),
        )

    def load(
        self,
        address: Value,
        elem: str,
        lanes: int,
        align: int,
        buffer: Any,
        *,
        mask: Value | None = None,
        pinned: bool = False,
    ) -> Value:
        """Return what lies at an address: an element, a vector, or elements at many addresses.

        Parameters
        ----------
        address
            Where; a vector of addresses reads one element from each.
        elem, lanes, align
            Type of the result, and the alignment of one element in bytes.
        buffer
            What the memory belongs to; a read moves out of loops that do not write to it.
        mask
            Lanes to read; the others are zero.
        pinned
            Whether it must stay inside loops that may not run at all.
        """
        kind = f"<{lanes} x {elem}>" if lanes else elem
        if mask is not None:
            zero = f"{kind} zeroinitializer"
            family = "gather" if address.lanes else "load"
            name = f"llvm.masked.{family}.{mangled_type(elem, lanes)}.{mangled(address)}"
            self.declarations.setdefault(
                name, f"declare {kind} @{name}({address.type}, {mask.type}, {kind})"
            )
            text = f"call {kind} @{name}({_aligned(address, align)}, {mask.typed}, {zero})"
            operands: tuple[Value, ...] = (address, mask)
        else:
            text, operands = f"load {kind}, {address.typed}, align {align}", (address,)
        depth = self._load_depth(operands, buffer, pinned)
        key = ("load", text, buffer, self._versions.get(buffer, 0))
        return self._place(key, text, elem, lanes, operands, depth)

    def _load_depth(self, operands: Sequence[Value], buffer: Any, pinned: bool) -> int:
        depth = max((v.depth for v in operands), default=0)
        for level in range(len(self._scopes) - 1, depth, -1):
            scope = self._scopes[level]
            if scope.kind == "branch" or buffer in scope.writes or scope.jumps:
                return level
            if pinned and scope.runs is not None:
                return level
        return depth

    def store(
        self, value: Value, address: Value, align: int, buffer: Any, mask: Value | None = None
    ) -> None:
        """Write an element, a vector, or one element to each of many addresses."""
        self._versions[buffer] = self._versions.get(buffer, 0) + 1
        if mask is None:
            self.line(f"store {value.typed}, {address.typed}, align {align}")
            return
        family = "scatter" if address.lanes else "store"
        name = f"llvm.masked.{family}.{mangled(value)}.{mangled(address)}"
        self.declarations.setdefault(
            name, f"declare void @{name}({value.type}, {address.type}, {mask.type})"
        )
        place = _aligned(address, align)
        self.line(f"call void @{name}({value.typed}, {place}, {mask.typed})")

    def prefetch(self, address: Value) -> None:
        """Ask for memory that is read soon, into the second-level cache; any address will do."""
        name = "llvm.prefetch.p0"
        self.declarations.setdefault(name, f"declare void @{name}(ptr, i32, i32, i32)")
        self.line(f"call void @{name}({address.typed}, i32 0, i32 2, i32 1)")

    def forget(self, buffer: Any) -> None:
        """Say that a buffer was written to by other means."""
        self._versions[buffer] = self._versions.get(buffer, 0) + 1

    def line(self, text: str) -> None:
        """Add an instruction here, with whatever effect it has."""
        self._scopes[-1].lines.append(f"  {text}")

    def fresh(self, text: str, elem: str, lanes: int = 0) -> Value:
        """Add an instruction with an effect here and return its result."""
        name = self._name()
        self.line(f"{name} = {text}")
        return Value(name, elem, lanes, len(self._scopes) - 1)

    def allocate(self, elem: str, count: int, align: int, hint: str) -> Value:
        """Return the address of stack memory that lives as long as the function runs."""
        name = f"%{hint}.{self._labels}"
        self._labels += 1
        self._entry.append(f"  {name} = alloca {elem}, i64 {count}, align {align}")
        return Value(name, "ptr")

    def at_entry(self, line: str) -> None:
        """Add an instruction that runs before all others, after what was allocated so far."""
        self._entry.append(f"  {line}")

    def at_exit(self, line: str) -> None:
        """Add an instruction that runs whenever the function ends."""
        self._cleanup.append(f"  {line}")

    # ------------------------------------------------------------ control

    @property
    def depth(self) -> int:
        """How many loops and branches are open."""
        return len(self._scopes) - 1

    @property
    def in_loop(self) -> bool:
        """Whether a loop is open."""
        return any(scope.kind == "loop" for scope in self._scopes)

    @contextmanager
    def loop(
        self,
        start: Value,
        stop: Value,
        step: int,
        *,
        carried: Sequence[Value] = (),
        writes: frozenset[Any] = frozenset(),
        runs: bool | None = None,
        jumps: bool = False,
    ) -> Iterator[Loop]:
        """Open a loop over ``start, start + step, ...`` below ``stop``.

        Parameters
        ----------
        start, stop, step
            Of the counter; scalars of one integer type.
        carried
            Values before the first iteration; see :class:`Loop`.
        writes
            Buffers that the body writes to.
        runs
            Whether there is at least one iteration; found out at run time when None.
        jumps
            Whether the body may leave by :meth:`jump`.
        """
        if runs is None and start.const is not None and stop.const is not None:
            runs = start.const < stop.const
        number, parent = self._labels, self._scopes[-1]
        self._labels += 1
        head, exit_, name = f"loop.{number}", f"done.{number}", f"%i{number}"
        condition = None if runs else self.compare("icmp sgt", stop, start)
        scope = _Scope("loop", head, runs=condition, writes=writes, jumps=jumps, exit=exit_)
        scope.latch = f"next.{number}" if jumps else ""
        self._scopes.append(scope)
        depth = len(self._scopes) - 1
        index = Value(name, start.elem, 0, depth)
        phis = [replace(v, text=self._name(), depth=depth, const=None) for v in carried]
        opened = Loop(index, phis, list(phis), [])
        yield opened
        if jumps:
            scope.lines.append(f"  br label %{scope.latch}")
            scope.lines.append(f"{scope.latch}:")
            scope.label = scope.latch
        scope.lines.append(f"  {name}.next = add nuw nsw {start.type} {name}, {step}")
        scope.lines.append(f"  {name}.more = icmp slt {start.type} {name}.next, {stop.text}")
        scope.lines.append(f"  br i1 {name}.more, label %{head}, label %{exit_}")
        self._scopes.pop()
        enter = (
            f"br i1 {condition.text}, label %{head}, label %{exit_}"
            if condition is not None
            else f"br label %{head}"
        )
        parent.lines.append(f"  {enter}")
        before, after = parent.label, scope.label
        parent.lines.append(f"{head}:")
        parent.lines.append(
            f"  {name} = phi {start.type} [ {start.text}, %{before} ], [ {name}.next, %{after} ]"
        )
        for phi, first, following in zip(phis, carried, opened.next, strict=True):
            parent.lines.append(
                f"  {phi.text} = phi {phi.type} [ {first.text}, %{before} ], "
                f"[ {following.text}, %{after} ]"
            )
        parent.lines.extend(scope.lines)
        parent.lines.append(f"{exit_}:")
        parent.label = exit_
        for first, following in zip(carried, opened.next, strict=True):
            if condition is None:
                opened.results.append(replace(following, depth=depth - 1))
                continue
            name = self._name()
            parent.lines.append(
                f"  {name} = phi {first.type} [ {first.text}, %{before} ], "
                f"[ {following.text}, %{after} ]"
            )
            opened.results.append(replace(first, text=name, depth=depth - 1, const=None))
        self._forget_written(writes)

    def _forget_written(self, writes: frozenset[Any]) -> None:
        for buffer in writes:
            self.forget(buffer)

    def branch(
        self,
        condition: Value,
        then: Callable[[], Sequence[Value]],
        otherwise: Callable[[], Sequence[Value]] | None = None,
    ) -> list[Value]:
        """Write both sides of a choice and return the values that the chosen side gives."""
        if condition.const is not None:
            side = then if condition.const else otherwise
            return list(side()) if side is not None else []
        number, parent = self._labels, self._scopes[-1]
        self._labels += 1
        labels = (f"then.{number}", f"else.{number}", f"join.{number}")
        sides: list[tuple[_Scope, list[Value]]] = []
        for label, side in zip(labels, (then, otherwise), strict=False):
            if side is None:
                continue
            scope = _Scope("branch", label)
            self._scopes.append(scope)
            sides.append((scope, list(side())))
            self._scopes.pop()
        target = labels[1] if otherwise is not None else labels[2]
        parent.lines.append(f"  br i1 {condition.text}, label %{labels[0]}, label %{target}")
        for (scope, _), label in zip(sides, labels, strict=False):
            parent.lines.append(f"{label}:")
            parent.lines.extend(scope.lines)
            parent.lines.append(f"  br label %{labels[2]}")
        parent.lines.append(f"{labels[2]}:")
        parent.label = labels[2]
        if otherwise is None:
            return []
        return [
            self._merged(a, b, sides, number) for a, b in zip(sides[0][1], sides[1][1], strict=True)
        ]

    def _merged(
        self, a: Value, b: Value, sides: list[tuple[_Scope, list[Value]]], number: int
    ) -> Value:
        name = self._name()
        (first, _), (second, _) = sides
        self.line(
            f"{name} = phi {a.type} [ {a.text}, %{first.label} ], [ {b.text}, %{second.label} ]"
        )
        return Value(name, a.elem, a.lanes, len(self._scopes) - 1)

    def fail_if(self, bad: Value, code: int, details: Sequence[Value], state: Value) -> None:
        """End the function with a status where ``bad`` holds.

        The test moves out of loops that do not change it, except that a loop that never runs
        must not fail.

        Parameters
        ----------
        bad
            A scalar i1.
        code
            The status.
        details
            64-bit integers for the message, stored at ``state``.
        state
            Where the caller looks for details.
        """
        if bad.const is not None and not bad.const:
            return
        depth = max([bad.depth, *(v.depth for v in details)])
        level = len(self._scopes) - 1
        while level > depth:
            scope = self._scopes[level]
            if scope.kind == "branch" or scope.jumps:
                break
            if scope.runs is not None:
                if scope.runs.depth > depth:
                    break
                bad = self.binary("and", bad, scope.runs)
            level -= 1
        key = ("fail", bad.text, code)
        if any(key in s.memo for s in self._scopes[: level + 1]):
            return
        scope = self._scopes[level]
        scope.memo[key] = bad
        number = self._labels
        self._labels += 1
        scope.lines.append(f"  br i1 {bad.text}, label %fail.{number}, label %fine.{number}")
        scope.lines.append(f"fine.{number}:")
        scope.label = f"fine.{number}"
        self._cold.append(f"fail.{number}:")
        for position, value in enumerate(details):
            place = f"%detail.{number}.{position}"
            self._cold.append(f"  {place} = getelementptr i64, {state.typed}, i64 {position}")
            self._cold.append(f"  store {value.typed}, ptr {place}")
        self._cold.append(f"  store i32 {code}, ptr %status")
        self._cold.append("  br label %leave")

    def fail(self, code: int, details: Sequence[Value], state: Value) -> None:
        """End the function here with a status; see :meth:`fail_if`."""
        for position, value in enumerate(details):
            place = self.element(state, self.int64(position), "i64")
            self.line(f"store {value.typed}, {place.typed}")
        self.leave(self.literal(code, "i32"))

    def leave(self, code: Value | None = None) -> None:
        """End the function here, with a status if one is given."""
        if code is not None:
            self.line(f"store {code.typed}, ptr %status")
        self._jump("leave")

    def jump(self, where: Literal["break", "continue"]) -> None:
        """Leave the innermost loop, or go on with its next iteration."""
        scope = next(s for s in reversed(self._scopes) if s.kind == "loop")
        self._jump(scope.exit if where == "break" else scope.latch)

    def _jump(self, label: str) -> None:
        scope = self._scopes[-1]
        scope.lines.append(f"  br label %{label}")
        # what follows is never reached, but it must stand in a block
        scope.label = f"never.{self._labels}"
        self._labels += 1
        scope.lines.append(f"{scope.label}:")

    def finish(self, value: Value | None = None) -> str:
        """Return the text of the function; ``value`` is what a plain function returns."""
        header = ", ".join(f"{t} %{n}" for t, n in self._parameters)
        result = self._result or "i32"
        name = f"{self._linkage}{result} @{self.name}"
        lines = [f"define {name}({header}) {self._attributes} {{", "entry:"]
        root = self._scopes[0]
        if self._result is not None and value is not None:
            lines += [*self._entry, *root.lines, f"  ret {value.typed}", "}"]
            return "\n".join(lines) + "\n"
        lines += ["  %status = alloca i32", *self._entry, "  store i32 0, ptr %status"]
        lines += [*root.lines, "  br label %leave", *self._cold, "leave:", *self._cleanup]
        lines += ["  %code = load i32, ptr %status", "  ret i32 %code", "}"]
        return "\n".join(lines) + "\n"

    # ------------------------------------------------------------ placing

    def _name(self) -> str:
        name = f"%v{self._count}"
        self._count += 1
        return name

    def _pure(self, key: Any, text: str, elem: str, lanes: int, operands: Sequence[Value]) -> Value:
        depth = 0
        for operand in operands:
            depth = max(depth, operand.depth)
        # computed outside a branch only if it stands there already
        level = len(self._scopes) - 1
        while level > depth and self._scopes[level].kind != "branch":
            level -= 1
        return self._place(key, text, elem, lanes, operands, level, depth)

    def _place(
        self,
        key: Any,
        text: str,
        elem: str,
        lanes: int,
        operands: Sequence[Value],
        level: int,
        lowest: int | None = None,
    ) -> Value:
        for scope in self._scopes[level if lowest is None else lowest : level + 1]:
            found = scope.memo.get(key)
            if found is not None:
                return found
        scope = self._scopes[level]
        name = self._name()
        scope.lines.append(f"  {name} = {text}")
        value = Value(name, elem, lanes, level)
        scope.memo[key] = value
        return value


def _lanes_of(kind: str) -> int:
    return int(kind[1:].split(" x ")[0]) if kind.startswith("<") else 0


_MANGLED: Final = {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}


def mangled_type(elem: str, lanes: int) -> str:
    """Return how an overloaded intrinsic's name spells a type."""
    short = _MANGLED.get(elem, elem)
    return f"v{lanes}{short}" if lanes else short


def mangled(value: Value) -> str:
    """Return how an overloaded intrinsic's name spells a value's type."""
    return mangled_type(value.elem, value.lanes)


def helper_name(name: str, elem: str, kinds: Sequence[tuple[str, int]]) -> str:
    """Return the function name of a helper for given types."""
    return f"{name}.{elem}.{mangled_type(*kinds[0])}"


def _aligned(address: Value, align: int) -> str:
    return f"{address.type} align {align} {address.text}"
