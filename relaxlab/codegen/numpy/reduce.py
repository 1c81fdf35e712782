"""Nests that fold: sums, products, extrema, positions of extrema, and matrix products.

A sum of products of two reads that do not move along the same axes is a matrix product and goes
to BLAS, on views where that is possible. Folds of other kinds become loops over the folded axes
with array statements inside. Counterpart: reductions in TVM's back ends.

Examples
--------
>>> sorted(_FOLDS.values())
['add', 'logical_and', 'logical_or', 'maximum', 'minimum', 'multiply']
"""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from relaxlab.codegen.numpy.nest import Nest, loads_of
from relaxlab.codegen.numpy.scalar_code import scalar_code
from relaxlab.codegen.numpy.space import Axis, Space, variables_of
from relaxlab.codegen.numpy.stores import (
    Target,
    copy_into,
    find_target,
    reads_only_itself,
    write_elementwise,
)
from relaxlab.codegen.numpy.vector import Value, VectorCode
from relaxlab.codegen.numpy.writer import BufferState, Unsupported, Writer
from relaxlab.ir.expr import Expr, Var
from relaxlab.ir.node import structural_equal
from relaxlab.ir.prim import (
    EQ,
    GT,
    LT,
    Add,
    And,
    FloatImm,
    IntImm,
    Max,
    Min,
    Mul,
    Or,
    Select,
    TensorLoad,
)
from relaxlab.runtime.dtype import DataType
from relaxlab.tirx.stmt import Bind, BufferStore

__all__ = ["write_folding_loop", "write_reduction"]

_FOLDS: Final[dict[type, str]] = {
    Add: "add",
    And: "logical_and",
    Max: "maximum",
    Min: "minimum",
    Mul: "multiply",
    Or: "logical_or",
}
_IDENTITY: Final = {"add": 0, "logical_and": 1, "logical_or": 0, "multiply": 1}


@dataclass(frozen=True, slots=True)
class _Fold:
    """``buffer[...] = fold(buffer[...], term)`` over the folded axes."""

    store: BufferStore
    kind: str
    term: Expr
    initial: Expr | None


def write_reduction(writer: Writer, nest: Nest, context: Space, defines: set[Var]) -> None:
    """Write a nest with folded axes; raises :class:`Unsupported` if it is no known fold.

    ``context`` is the space without axes; ``defines`` are the buffers that only this nest writes.
    """
    if not reads_only_itself(nest):
        raise Unsupported
    kept = [axis for axis in nest.axes if not axis.reduce]
    folded = [axis for axis in nest.axes if axis.reduce]
    if not folded:
        raise Unsupported
    writer_of_nest = _Reduction(writer, kept, folded, context, defines)
    arg = _read_arg(nest)
    if arg is not None and len(folded) == 1:
        writer_of_nest.write_arg(arg)
        return
    for fold in _read_folds(nest):
        writer_of_nest.write_fold(fold)


def write_folding_loop(writer: Writer, nest: Nest, context: Space) -> None:
    """Write any fold as Python loops over the folded axes around array statements.

    It is right for every fold, and in order, which matters for 16-bit floats.
    """
    kept = tuple(axis for axis in nest.axes if not axis.reduce)
    folded = [axis for axis in nest.axes if axis.reduce]
    if not kept or not folded or not reads_only_itself(nest):
        raise Unsupported
    if nest.init is not None:
        write_elementwise(writer, Nest(kept, None, nest.init), context, set())
    with ExitStack() as stack:
        for axis in folded:
            name = writer.scalars[axis.var] = writer.fresh(axis.var.name)
            low, high = scalar_code(writer, axis.low), scalar_code(writer, axis.high)
            bounds = high if low == "0" else f"{low}, {high}"
            stack.enter_context(writer.block(f"for {name} in range({bounds}):"))
        inner = Space((), context.sizes, (*context.loops, *folded))
        write_elementwise(writer, Nest(kept, None, nest.body), inner, set())


# ---------------------------------------------------------------- what is folded


def _read_folds(nest: Nest) -> list[_Fold]:
    """Return the folds of the body, one per store, or raise Unsupported."""
    bound = {s.var: s.value for s in nest.body if isinstance(s, Bind)}
    initial = {}
    for statement in nest.init or ():
        if not isinstance(statement, BufferStore):
            raise Unsupported
        initial[statement.buffer] = statement.value
    folds = []
    for store in nest.stores:
        value: Any = (
            bound.get(store.value, store.value) if isinstance(store.value, Var) else store.value
        )
        kind = _FOLDS.get(type(value))
        if kind is None:
            raise Unsupported
        # the running value comes first; a sum or product may have it second
        if _is_running(value.a, store):
            term = value.b
        elif kind in ("add", "multiply") and _is_running(value.b, store):
            term = value.a
        else:
            raise Unsupported
        others = {s.buffer for s in nest.stores}
        if any(load.buffer in others for load in loads_of([term])):
            raise Unsupported
        if variables_of(term) & set(bound):
            raise Unsupported
        start = initial.get(store.buffer)
        if nest.init is not None and start is None:
            raise Unsupported
        folds.append(_Fold(store, kind, term, start))
    if not folds:
        raise Unsupported
    return folds


def _is_running(expr: Expr, store: BufferStore) -> bool:
    return (
        isinstance(expr, TensorLoad)
        and expr.buffer is store.buffer
        and structural_equal(expr.indices, store.indices)
    )


@dataclass(frozen=True, slots=True)
class _Arg:
    """Position and value of the largest or smallest element."""

    index_store: BufferStore
    value_store: BufferStore
    term: Expr
    initial_value: Expr
    larger: bool
    last: bool


def _read_arg(nest: Nest) -> _Arg | None:
    """Recognise the two-value fold that argmax and argmin are."""
    if len(nest.stores) != 2 or nest.init is None or len(nest.init) != 2:
        return None
    bound = {s.var: s.value for s in nest.body if isinstance(s, Bind)}
    index_store, value_store = nest.stores
    index_value = _resolved(index_store.value, bound)
    chosen = _resolved(value_store.value, bound)
    starts: dict[Var, Any] = {s.buffer: s.value for s in nest.init if isinstance(s, BufferStore)}
    start_index = starts.get(index_store.buffer)
    start_value = starts.get(value_store.buffer)
    if not isinstance(start_index, IntImm) or start_index.value != -1:
        return None
    if not isinstance(start_value, FloatImm | IntImm):
        return None
    match chosen:
        case Select(condition=GT() | LT() as better, true_value=kept, false_value=term):
            pass
        case _:
            return None
    if not _is_running(kept, value_store) or not structural_equal(better.b, term):
        return None
    if not _is_running(better.a, value_store):
        return None
    match index_value:
        case Select(
            condition=Or(a=first, b=And(a=EQ(a=ea, b=eb), b=GT() | LT() as tie)),
            true_value=old,
            false_value=Var() as position,
        ):
            pass
        case _:
            return None
    folded = [axis.var for axis in nest.axes if axis.reduce]
    matches = (
        type(first) is type(better)
        and structural_equal(first, better)
        and _is_running(ea, value_store)
        and structural_equal(eb, term)
        and _is_running(old, index_store)
        and _is_running(tie.a, index_store)
        and tie.b is position
        and folded == [position]
        and not any(
            load.buffer in (index_store.buffer, value_store.buffer) for load in loads_of([term])
        )
    )
    if not matches:
        return None
    return _Arg(
        index_store, value_store, term, start_value, isinstance(better, GT), isinstance(tie, GT)
    )


def _resolved(value: Any, bound: dict[Var, Expr]) -> Any:
    return bound.get(value, value) if isinstance(value, Var) else value


# ---------------------------------------------------------------- how it is written


class _Reduction:
    def __init__(
        self,
        writer: Writer,
        kept: list[Axis],
        folded: list[Axis],
        context: Space,
        defines: set[Var],
    ) -> None:
        self.writer = writer
        self.kept = kept
        self.folded = folded
        self.defines = defines
        self.space = Space([*kept, *folded], context.sizes, context.loops)
        self.full = tuple(range(len(kept)))

    def _target(self, store: BufferStore) -> tuple[BufferState, Target]:
        """Return where a fold goes, making room for it where nothing is yet."""
        state = self.writer.state(store.buffer)
        target = find_target(self.writer, VectorCode(self.writer, self.space), store)
        return state, target

    def _place(self, state: BufferState, store: BufferStore, target: Target, result: str) -> None:
        """Write the statement that puts a result, an array of the kept axes, into its place."""
        if state.holds == "nothing":
            if store.buffer in self.defines and target.whole and self.full:
                self.writer.line(f"{state.code} = {result}")
                state.holds = "array"
                return
            raise Unsupported
        copy_into(self.writer, target, Value(result, self.full, state.dtype), self.full)

    def _out(self, state: BufferState, target: Target) -> str | None:
        """Return an array that a reduction may write into, if the place is one."""
        if state.holds == "array" and self.full and "[" not in target.code:
            return target.code
        return None

    def write_fold(self, fold: _Fold) -> None:
        dtype = fold.term.dtype
        state, target = self._target(fold.store)
        if state.dtype is not dtype:
            raise Unsupported
        if fold.kind.startswith("logical") and fold.initial is None:
            raise Unsupported
        if fold.kind == "add" and self._write_product(fold, state, target):
            return
        code = VectorCode(self.writer, self.space)
        code.expect(fold.term)
        values = self._spread(code.emit(fold.term))
        initial = self._initial(fold)
        if initial is None:
            # goes on from what is there
            total = self.writer.fresh("t")
            self.writer.line(f"{total} = {self._reduce(fold, values, None, None)}")
            self._combine(fold, state, target, total)
            return
        out = self._out(state, target)
        call = self._reduce(fold, values, initial, out)
        if out is not None:
            self.writer.line(call)
        else:
            self._place(state, fold.store, target, call)

    def _initial(self, fold: _Fold) -> IntImm | FloatImm | None:
        if fold.initial is None:
            return None
        if not isinstance(fold.initial, IntImm | FloatImm):
            raise Unsupported
        return fold.initial

    def _combine(self, fold: _Fold, state: BufferState, target: Target, total: str) -> None:
        if state.holds != "array" or not self.full:
            raise Unsupported
        if fold.kind in ("maximum", "minimum") and fold.term.dtype.is_float:
            raise Unsupported
        self.writer.line(f"{_assigned(target.code)} = np.{fold.kind}({target.code}, {total})")

    def _spread(self, value: Value) -> Value:
        """Return a value that has all folded axes, and every kept axis or none in front."""
        rank = self.space.rank
        folded = tuple(range(len(self.kept), rank))
        if set(folded) <= set(value.axes) and (
            not self.kept or self.full == value.axes[: len(self.full)]
        ):
            return value
        shape = ", ".join(scalar_code(self.writer, self.space.extent(p)) for p in range(rank))
        comma = "," if rank == 1 else ""
        text = f"np.broadcast_to({value.code}, ({shape}{comma}))"
        return Value(text, tuple(range(rank)), value.dtype)

    def _axis_text(self) -> str:
        count = len(self.folded)
        if count == 1:
            return "-1"
        if count == self.space.rank:
            return "None"
        return repr(tuple(range(-count, 0)))

    def _reduce(self, fold: _Fold, values: Value, initial: Any, out: str | None) -> str:
        dtype = values.dtype
        start = None if initial is None else initial.value
        into = "" if out is None else f", out={out}"
        if fold.kind in ("maximum", "minimum"):
            first = self.writer.literal(start, dtype) if start is not None else "None"
            if dtype.is_float:
                larger = fold.kind == "maximum"
                function = self.writer.use("extremum_reduce")
                if start is None:
                    raise Unsupported
                return f"{function}({values.code}, {len(self.folded)}, {first}, {larger}{into})"
            suffix = f", initial={first}" if start is not None else ""
            return f"np.{fold.kind}.reduce({values.code}, {self._axis_text()}{into}{suffix})"
        if _is_narrow(dtype):
            function = self.writer.use("ordered_reduce")
            first = self.writer.literal(_IDENTITY[fold.kind] if start is None else start, dtype)
            return f"{function}(np.{fold.kind}, {values.code}, {len(self.folded)}, {first}{into})"
        suffix = ""
        if start is not None and start != _IDENTITY[fold.kind]:
            suffix = f", initial={self.writer.literal(start, dtype)}"
        plain = dtype.is_float or fold.kind.startswith("logical")
        kind = "" if plain else f", dtype={self.writer.dtype(dtype)}"
        return f"np.{fold.kind}.reduce({values.code}, {self._axis_text()}{kind}{into}{suffix})"

    def write_arg(self, arg: _Arg) -> None:
        index_state, index_target = self._target(arg.index_store)
        value_state, value_target = self._target(arg.value_store)
        code = VectorCode(self.writer, self.space)
        code.expect(arg.term)
        values = self._spread(code.emit(arg.term))
        initial: Any = arg.initial_value
        position, best = self.writer.fresh("index"), self.writer.fresh("best")
        function = self.writer.use("arg_reduce")
        first = self.writer.literal(initial.value, values.dtype)
        kind = self.writer.dtype(index_state.dtype)
        self.writer.line(
            f"{position}, {best} = {function}({values.code}, {first}, {arg.larger}, "
            f"{arg.last}, {kind})"
        )
        self._place(index_state, arg.index_store, index_target, position)
        self._place(value_state, arg.value_store, value_target, best)

    # ------------------------------------------------------------ matrix products

    def _write_product(self, fold: _Fold, state: BufferState, target: Target) -> bool:
        """Write a sum of products as a matrix product; False if it is none."""
        term, dtype = fold.term, fold.term.dtype
        if not isinstance(term, Mul):
            return False
        left, right = self.space.axes_of(term.a), self.space.axes_of(term.b)
        folded = set(range(len(self.kept), self.space.rank))
        if not folded <= set(left) or not folded <= set(right) or not set(left) ^ set(right):
            return False
        if _is_narrow(dtype):
            raise Unsupported
        initial = self._initial(fold)
        if initial is not None and initial.value != 0:
            return False
        code = VectorCode(self.writer, self.space)
        code.expect(term)
        a, b = code.emit(term.a), code.emit(term.b)
        if set(range(self.space.rank)) - {*a.axes, *b.axes} or not folded <= {*a.axes} & {*b.axes}:
            raise Unsupported
        _Product(self, code, a, b).write(fold, state, target, accumulate=initial is None)
        return True


def _assigned(code: str) -> str:
    return code if code.endswith("]") else f"{code}[...]"


def _is_narrow(dtype: DataType) -> bool:
    """Whether the order of a sum decides its value: floats of 16 bits and less."""
    return dtype.is_float and dtype.bits <= 16


class _Product:
    """A matrix product of two values of a reduction's space.

    Axes fall into four groups: in both and kept (batch), only left (rows), only right (columns),
    in both and folded (inner).
    """

    def __init__(self, reduction: _Reduction, code: VectorCode, left: Value, right: Value) -> None:
        self.reduction = reduction
        self.code = code
        self.writer = reduction.writer
        self.space = reduction.space
        self.left, self.right = left, right
        kept = set(reduction.full)
        both = set(left.axes) & set(right.axes)
        self.batch = sorted(both & kept)
        self.rows = sorted(set(left.axes) - both)
        self.columns = sorted(set(right.axes) - both)
        self.inner = sorted(both - kept)

    def write(self, fold: _Fold, state: BufferState, target: Target, accumulate: bool) -> None:
        left = self._matrix(self.left, self.rows, self.inner)
        right = self._matrix(self.right, self.inner, self.columns)
        result_order = [*self.batch, *self.rows, *self.columns]
        in_order = result_order == list(self.reduction.full)
        simple = len(self.rows) == 1 and len(self.columns) == 1
        out = self.reduction._out(state, target)
        if out is not None and not accumulate and simple:
            if not in_order:
                moves = ", ".join(map(str, result_order))
                out = f"{out}.transpose({moves})"
            self.writer.line(f"np.matmul({left}, {right}, out={out})")
            return
        if out is not None and not accumulate and in_order and not self.batch:
            # several axes side by side are one axis of a matrix, where memory allows it
            shape = f"{self._count(self.rows)}, {self._count(self.columns)}"
            flags = f"{out}.flags.c_contiguous"
            with self.writer.block(f"if {flags}:"):
                self.writer.line(f"np.matmul({left}, {right}, out={out}.reshape({shape}))")
            with self.writer.block("else:"):
                self.writer.line(f"{out}[...] = {self._shaped(f'np.matmul({left}, {right})')}")
            return
        text = f"np.matmul({left}, {right})"
        if not simple:
            text = self._shaped(text)
        if not in_order:
            moves = ", ".join(str(result_order.index(p)) for p in self.reduction.full)
            text = f"{text}.transpose({moves})"
        if accumulate:
            self.reduction._combine(fold, state, target, text)
            return
        self.reduction._place(state, fold.store, target, text)

    def _count(self, places: list[int]) -> str:
        sizes = [scalar_code(self.writer, self.space.extent(place)) for place in places]
        return " * ".join(f"({s})" if " " in s else s for s in sizes) or "1"

    def _shaped(self, text: str) -> str:
        order = [*self.batch, *self.rows, *self.columns]
        sizes = [scalar_code(self.writer, self.space.extent(place)) for place in order]
        return f"{text}.reshape({', '.join(sizes)})"

    def _matrix(self, value: Value, first: list[int], second: list[int]) -> str:
        """Return the text of a value as matrices: batch axes, then two."""
        text = self.code.compact(value, [*self.batch, *first, *second])
        if len(first) == 1 and len(second) == 1:
            return text
        batch = [scalar_code(self.writer, self.space.extent(place)) for place in self.batch]
        sizes = [*batch, self._count(first), self._count(second)]
        return f"{text}.reshape({', '.join(sizes)})"
