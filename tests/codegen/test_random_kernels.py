"""Random small kernels: the generated text and the interpreter agree, whatever the kernel."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from relaxlab.codegen import generate_numpy
from relaxlab.ir import DictAttrs, Expr, IntImm, Select, TensorLoad, Var, prim_ops
from relaxlab.ir.prim import Let, Range
from relaxlab.ir.prim_ops import const
from relaxlab.tirx import (
    BufferStore,
    IterVar,
    IterVarType,
    PrimFunc,
    SBlock,
    SBlockRealize,
    Stmt,
    decl_buffer,
    seq,
)
from tests.codegen.compare import assert_same
from tests.tirx.kernels import literal, loops

TRUE = IntImm("bool", 1)


@dataclass
class Kernel:
    """A kernel while it is drawn: its buffers by name."""

    draw: Any
    inputs: list[Var] = field(default_factory=list)
    locals: list[Var] = field(default_factory=list)
    indices: list[Var] = field(default_factory=list)

    def new_input(self, shape: tuple[int, ...], dtype: str = "float32") -> Var:
        """Declare a parameter."""
        name = f"{'i' if dtype == 'int64' else 'x'}{len(self.inputs)}"
        buffer = decl_buffer([literal(d) for d in shape], dtype, name)
        self.inputs.append(buffer)
        return buffer


def draw_index(kernel: Kernel, axes: list[tuple[Var, int]]) -> tuple[Expr, int]:
    """Return an index, and an extent that it stays below."""
    draw = kernel.draw
    var, extent = draw(st.sampled_from(axes))
    kind = draw(st.integers(0, 8))
    if kind <= 3:
        return var, extent
    if kind == 4:
        offset = draw(st.integers(1, 2))
        return var + offset, extent + offset
    if kind == 5:
        return prim_ops.subtract(extent - 1, var), extent
    if kind == 6:
        step = draw(st.integers(2, 3))
        return (
            (var // step, (extent - 1) // step + 1) if draw(st.booleans()) else (var % step, step)
        )
    if kind == 7:
        other, more = draw(st.sampled_from(axes))
        return var * 2 + other, extent * 2 + more
    # an index that comes from data
    rows = kernel.new_input((extent,), "int64")
    kernel.indices.append(rows)
    return TensorLoad(rows, (var,)), 3


def draw_load(kernel: Kernel, axes: list[tuple[Var, int]]) -> Expr:
    """Return a read of a new input."""
    parts = [draw_index(kernel, axes) for _ in range(kernel.draw(st.integers(1, 3)))]
    buffer = kernel.new_input(tuple(extent for _, extent in parts))
    return TensorLoad(buffer, tuple(index for index, _ in parts))


def draw_guarded(kernel: Kernel, axes: list[tuple[Var, int]]) -> Expr:
    """Return a read that is in bounds only where its guard holds."""
    draw = kernel.draw
    var, extent = draw(st.sampled_from(axes))
    shift = draw(st.integers(1, 2))
    buffer = kernel.new_input((max(extent - shift, 1),))
    inside = prim_ops.logical_and(var >= shift, var < max(extent - shift, 1) + shift)
    read = TensorLoad(buffer, (var - shift,))
    choose = draw(st.sampled_from([prim_ops.if_then_else, Select]))
    chosen: Expr = choose(inside, read, const(draw(st.sampled_from([0.0, 1.5]))))
    return chosen


def draw_value(kernel: Kernel, axes: list[tuple[Var, int]], depth: int) -> Expr:
    """Return a float32 expression over the axes."""
    draw = kernel.draw
    kind = draw(st.integers(0, 11)) if depth else draw(st.integers(0, 3))
    if kind <= 1:
        if kernel.locals and draw(st.booleans()):
            local = draw(st.sampled_from(kernel.locals))
            return read_local(local, axes)
        return draw_load(kernel, axes)
    if kind == 2:
        return const(draw(st.sampled_from([0.5, -2.0, 3.0])))
    if kind == 3:
        return draw_guarded(kernel, axes)
    a = draw_value(kernel, axes, depth - 1)
    if kind == 4:
        unary = draw(
            st.sampled_from([prim_ops.tanh, prim_ops.floor, prim_ops.abs, prim_ops.sigmoid])
        )
        return unary(a)
    if kind == 5:
        var, _ = draw(st.sampled_from(axes))
        return a * prim_ops.cast("float32", var)
    if kind == 11:
        held = Var("held", "float32")
        more = draw_value(kernel, axes, depth - 1)
        return Let(held, a, prim_ops.tanh(held) * more + prim_ops.abs(held))
    b = draw_value(kernel, axes, depth - 1)
    if kind == 6:
        return prim_ops.select(a < b, a, b * 0.5)
    if kind == 7:
        return prim_ops.cast("float32", prim_ops.cast("int32", a)) + b
    operators = [prim_ops.add, prim_ops.subtract, prim_ops.multiply, prim_ops.max, prim_ops.min]
    return draw(st.sampled_from(operators))(a, b)


def read_local(local: Var, axes: list[tuple[Var, int]]) -> Expr:
    """Read an intermediate result at an index that is in bounds."""
    shape = [dim.value for dim in local.ty.shape]  # type: ignore[union-attr]
    indices: list[Expr] = []
    for extent in shape:
        fitting = [var for var, size in axes if size <= extent]
        indices.append(fitting[0] if fitting else literal(0))
    return TensorLoad(local, tuple(indices))


def block(name: str, spatial: list[int], reduced: list[int], make: Any) -> Stmt:
    """Return loops around a block; ``make`` is given its variables and returns (init, body)."""
    extents = [*spatial, *reduced]
    variables = [Var(f"v{k}", "int64") for k in range(len(extents))]
    kinds = [IterVarType.DATA_PAR] * len(spatial) + [IterVarType.COMM_REDUCE] * len(reduced)
    iter_vars = tuple(
        IterVar(Range(literal(0), literal(e)), v, k)
        for v, e, k in zip(variables, extents, kinds, strict=True)
    )
    init, body = make(variables)
    return loops(
        extents,
        lambda *values: SBlockRealize(values, TRUE, SBlock(iter_vars, (), (), name, body, init)),
    )


def draw_nest(kernel: Kernel, output: Var, shape: list[int]) -> Stmt:
    """Return a nest that writes a buffer: element by element, or as a fold."""
    draw = kernel.draw
    fold = draw(st.sampled_from(["", "", "add", "max", "min", "multiply", "product"]))
    reduced = [] if not fold else draw(st.lists(st.integers(1, 4), min_size=1, max_size=2))
    order = draw(st.permutations(range(len(shape))))

    def make(variables: list[Var]) -> tuple[Stmt | None, Stmt]:
        axes = list(zip(variables, [*(shape[k] for k in order), *reduced], strict=True))
        place = tuple(variables[order.index(k)] for k in range(len(shape)))
        if not fold:
            return None, BufferStore(output, draw_value(kernel, axes, 3), place)
        running = TensorLoad(output, place)
        if fold == "product":
            term = draw_load(kernel, axes) * draw_load(kernel, axes)
            return BufferStore(output, const(0.0), place), BufferStore(
                output, running + term, place
            )
        term = draw_value(kernel, axes, 2)
        start = {"add": 0.0, "multiply": 1.0, "max": -1e30, "min": 1e30}[fold]
        folded = getattr(prim_ops, fold)(running, term)
        return BufferStore(output, const(start), place), BufferStore(output, folded, place)

    return block("b", [shape[k] for k in order], reduced, make)


@st.composite
def kernels(draw: Any) -> tuple[PrimFunc, list[Any]]:
    """Return a kernel of one to three nests, and arguments for it."""
    kernel = Kernel(draw)
    statements = []
    count = draw(st.integers(1, 3))
    for step in range(count):
        shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
        last = step == count - 1
        output = decl_buffer([literal(d) for d in shape], "float32", "out" if last else f"t{step}")
        statements.append(draw_nest(kernel, output, shape))
        if last:
            parameter = output
        else:
            kernel.locals.append(output)
    root = SBlock((), (), (), "root", seq(statements), alloc_buffers=tuple(kernel.locals))
    attrs = DictAttrs({"tirx.noalias": draw(st.booleans())})
    func = PrimFunc((*kernel.inputs, parameter), SBlockRealize((), TRUE, root), attrs=attrs)
    random = np.random.default_rng(draw(st.integers(0, 5)))
    arguments = []
    for buffer in func.params:
        dims = [dim.value for dim in buffer.ty.shape]  # type: ignore[union-attr]
        if buffer in kernel.indices:
            arguments.append(random.integers(0, 3, dims))
        else:
            arguments.append(random.integers(-8, 9, dims).astype("float32") / 4)
    return func, arguments


@given(kernels())
def test_text_and_interpreter_agree(case: tuple[PrimFunc, list[Any]]) -> None:
    func, arguments = case
    assert_same(func, generate_numpy(func, "kernel"), arguments)
