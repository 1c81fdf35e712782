"""Nests that fold: sums, products, extrema, positions of extrema, and matrix products.

A sum of products of two reads that do not move along the same axes is a matrix product and goes
to BLAS, on views where that is possible. Folds of other kinds become loops over the folded axes
with array statements inside. A fold of no elements is its identity here; the interpreter, which
initializes at the first element, never gets that far and leaves the output alone.
Counterpart: reductions in TVM's back ends.

Examples
--------
>>> from relaxlab.runtime.dtype import DataType
>>> _is_narrow(DataType("float16")), _is_narrow(DataType("float32"))
(True, False)
"""

from contextlib import ExitStack
from typing import Any, Final

from relaxlab.codegen.numpy.folds import Arg, Fold, read_arg, read_folds
from relaxlab.codegen.numpy.nest import Nest
from relaxlab.codegen.numpy.product import Product
from relaxlab.codegen.numpy.scalar_code import scalar_code
from relaxlab.codegen.numpy.space import Axis, Space
from relaxlab.codegen.numpy.stores import (
    Target,
    copy_into,
    find_target,
    reads_only_itself,
    write_elementwise,
)
from relaxlab.codegen.numpy.value import Value
from relaxlab.codegen.numpy.vector import VectorCode
from relaxlab.codegen.numpy.writer import BufferState, Unsupported, Writer
from relaxlab.ir.expr import Var
from relaxlab.ir.prim import FloatImm, IntImm, Mul
from relaxlab.runtime.dtype import DataType
from relaxlab.tirx.stmt import BufferStore

__all__ = ["write_folding_loop", "write_reduction"]

_IDENTITY: Final = {"add": 0, "logical_and": 1, "logical_or": 0, "multiply": 1}


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
    arg = read_arg(nest)
    if arg is not None and len(folded) == 1:
        writer_of_nest.write_arg(arg)
        return
    for fold in read_folds(nest):
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

    def write_fold(self, fold: Fold) -> None:
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

    def _initial(self, fold: Fold) -> IntImm | FloatImm | None:
        if fold.initial is None:
            return None
        if not isinstance(fold.initial, IntImm | FloatImm):
            raise Unsupported
        return fold.initial

    def _combine(self, fold: Fold, state: BufferState, target: Target, total: str) -> None:
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

    def _reduce(self, fold: Fold, values: Value, initial: Any, out: str | None) -> str:
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

    def write_arg(self, arg: Arg) -> None:
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

    def _write_product(self, fold: Fold, state: BufferState, target: Target) -> bool:
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
        product = Product(code, self.full, a, b)
        out = self._out(state, target)
        if out is not None and initial is not None and product.write_into(out):
            return True
        text = product.text()
        if initial is None:
            self._combine(fold, state, target, text)
        else:
            self._place(state, fold.store, target, text)
        return True


def _assigned(code: str) -> str:
    return code if code.endswith("]") else f"{code}[...]"


def _is_narrow(dtype: DataType) -> bool:
    """Whether the order of a sum decides its value: floats of 16 bits and less."""
    return dtype.is_float and dtype.bits <= 16
