"""Random kernels of every dtype: typed expressions, symbolic shapes, folds, guards, gathers.

Where two orders of rounding may differ, a kernel is drawn so that they differ by little: nothing
that jumps (a comparison, a conversion to integers, floor) is fed with rounded values, and sums
have terms of modest size.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from relaxlab.ir import DictAttrs, Expr, FloatImm, IntImm, Select, TensorLoad, Var, prim_ops
from relaxlab.ir.prim import (
    EQ,
    LE,
    LT,
    NE,
    Add,
    And,
    Cast,
    Div,
    FloorDiv,
    FloorMod,
    Let,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    Range,
    Sub,
)
from relaxlab.ir.prim_intrinsics import call_intrin
from relaxlab.runtime.dtype import DataType
from relaxlab.tirx import (
    BufferStore,
    For,
    ForKind,
    IfThenElse,
    IterVar,
    IterVarType,
    PrimFunc,
    SBlock,
    SBlockRealize,
    Stmt,
    decl_buffer,
    seq,
)
from relaxlab.tirx.signature import evaluate_size

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
DTYPES = ("bool", *INTEGERS, *FLOATS)
#: Functions that are exact or correctly rounded: both sides must agree to the last bit.
EXACT = ("floor", "ceil", "trunc", "round", "fabs", "sqrt")
JUMPS = EXACT[:4]
ROUNDED = ("exp", "tanh", "sigmoid", "erf", "sin", "cos", "log", "exp2", "atan")
TRUE = IntImm("bool", 1)
SPECIAL = (0.0, -0.0, 1.0, -1.5, 0.25, 3.75, -7.0, 100.5, 300.0, -129.0, 70000.0, 3e9, -5e18)
ODD = (float("nan"), float("inf"), float("-inf"), 1e-42, 1e20, 65504.0)


def int64(value: int) -> IntImm:
    return IntImm("int64", value)


@dataclass
class Draft:
    """A kernel while it is drawn."""

    draw: Any
    size: Var = field(default_factory=lambda: Var("n", "int64"))
    n: int = 1
    inputs: list[Var] = field(default_factory=list)
    rows: dict[Var, int] = field(default_factory=dict)
    locals: list[Var] = field(default_factory=list)
    #: Whether results must agree to the last bit, whether there are sums, and what is not exact
    #: or not small of what was written.
    exact: bool = True
    sums: bool = False
    rough: set[Var] = field(default_factory=set)
    large: set[Var] = field(default_factory=set)
    #: What nobody wrote, since the loops of its fold do not run.
    unwritten: set[Var] = field(default_factory=set)
    #: Of the expression that is being drawn: it must be exact, its terms small; large ones came.
    strict: bool = False
    small: bool = False
    came_large: bool = False

    @contextmanager
    def strictly(self, strict: bool = True) -> Iterator[None]:
        """Draw what must be exact."""
        before, self.strict = self.strict, self.strict or strict
        yield
        self.strict = before

    def extents(self) -> tuple[Expr, int]:
        """Return a dimension and what it is."""
        kind = self.draw(st.integers(0, 9))
        if kind < 4:
            value = self.draw(st.sampled_from((1, 2, 3, 5, 8, 17, 20, 35)))
            return int64(value), value
        if kind < 8:
            return self.size, self.n
        return (self.size + 1, self.n + 1) if kind == 8 else (self.size * 2, self.n * 2)

    def input(self, shape: list[Expr], dtype: str) -> Var:
        """Add a parameter."""
        buffer = decl_buffer(shape, dtype, f"x{len(self.inputs)}")
        self.inputs.append(buffer)
        return buffer


Axes = list[tuple[Var, Expr, int]]


def literal(draft: Draft, dtype: str) -> Expr:
    draw = draft.draw
    if dtype == "bool":
        return IntImm("bool", draw(st.integers(0, 1)))
    if dtype in FLOATS:
        return FloatImm(dtype, draw(st.sampled_from((*SPECIAL[:8], *ODD[:3]))))
    low = 0 if dtype.startswith("u") else -9
    return IntImm(dtype, draw(st.integers(low, 9)))


def load(draft: Draft, axes: Axes, dtype: str) -> Expr:
    """Return a read of an input, or of what an earlier nest wrote."""
    draw = draft.draw
    refused = (draft.rough if draft.strict else set()) | (draft.large if draft.small else set())
    refused = refused | draft.unwritten
    written = [
        b
        for b in draft.locals
        if str(b.ty.dtype) == dtype and b not in refused  # type: ignore[union-attr]
    ]
    if written and draw(st.booleans()):
        chosen = draw(st.sampled_from(written))
        draft.exact = draft.exact and chosen not in draft.rough
        draft.came_large = draft.came_large or chosen in draft.large
        return read_back(draft, chosen, axes)
    count = draw(st.integers(0, 3))
    shape: list[Expr] = []
    indices: list[Expr] = []
    for _ in range(count):
        var, extent, _ = draw(st.sampled_from(axes))
        kind = draw(st.integers(0, 7))
        if kind < 5:
            index, dim = var, extent
        elif kind == 5:
            index, dim = prim_ops.subtract(extent - 1, var), extent
        elif kind == 6:
            index, dim = var * 2 + 1, extent * 2
        else:
            # where to read comes from data, now and then from bad data
            rows = draft.input([extent], draw(st.sampled_from(("int64", "int32"))))
            limit = draw(st.integers(1, 5))
            draft.rows[rows] = limit
            index, dim = prim_ops.cast("int64", TensorLoad(rows, (var,))), int64(limit)
        indices.append(index)
        shape.append(dim)
    return TensorLoad(draft.input(shape, dtype), tuple(indices))


def read_back(draft: Draft, buffer: Var, axes: Axes) -> Expr:
    indices: list[Expr] = []
    for dim in buffer.ty.shape:  # type: ignore[union-attr]
        same = [v for v, extent, _ in axes if extent is dim]
        indices.append(draft.draw(st.sampled_from(same)) if same else int64(0))
    return TensorLoad(buffer, tuple(indices))


def condition(draft: Draft, axes: Axes, depth: int) -> Expr:
    draw = draft.draw
    kind = draw(st.integers(0, 5)) if depth else 0
    if kind == 0:
        var, _, size = draw(st.sampled_from(axes))
        return LT(var, int64(draw(st.integers(0, max(size, 1)))))
    if kind == 1:
        return Not(condition(draft, axes, depth - 1))
    if kind == 2:
        both = condition(draft, axes, depth - 1), condition(draft, axes, depth - 1)
        return draw(st.sampled_from((And, Or)))(*both)
    dtype = draw(st.sampled_from(DTYPES[1:]))
    with draft.strictly():
        pair = expression(draft, axes, dtype, depth - 1), expression(draft, axes, dtype, depth - 1)
    return draw(st.sampled_from((LT, LE, EQ, NE)))(*pair)


def expression(draft: Draft, axes: Axes, dtype: str, depth: int) -> Expr:
    """Return an expression of a dtype over the axes."""
    draw = draft.draw
    kind = draw(st.integers(0, 12)) if depth else draw(st.integers(0, 3))
    if kind <= 2:
        return load(draft, axes, dtype)
    if kind == 3:
        return literal(draft, dtype)
    if dtype == "bool":
        return condition(draft, axes, depth)
    if kind == 4:
        source = draw(st.sampled_from(FLOATS if draft.small else DTYPES))
        draft.came_large = draft.came_large or source in INTEGERS
        with draft.strictly(dtype not in FLOATS):
            return Cast(dtype, expression(draft, axes, source, depth - 1))
    if kind == 5:
        return Cast(dtype, draw(st.sampled_from(axes))[0])
    if kind == 6 and dtype in FLOATS:
        name = draw(st.sampled_from(EXACT if draft.strict else (*EXACT, *ROUNDED)))
        draft.exact = draft.exact and name in EXACT
        with draft.strictly(name in JUMPS):
            return call_intrin(dtype, f"tirx.{name}", expression(draft, axes, dtype, depth - 1))
    if kind == 9 and dtype in FLOATS:
        divide = draw(st.sampled_from((Div, Mod)))
        with draft.strictly(divide is Mod):
            return divide(
                expression(draft, axes, dtype, depth - 1), expression(draft, axes, dtype, depth - 1)
            )
    a = expression(draft, axes, dtype, depth - 1)
    if kind == 6:
        bits = DataType(dtype).bits
        shift = IntImm(dtype, draw(st.integers(0, bits - 1)))
        return call_intrin(dtype, draw(st.sampled_from(SHIFTS)), a, shift)
    b = expression(draft, axes, dtype, depth - 1)
    if kind == 7:
        choose = draw(st.sampled_from((Select, prim_ops.if_then_else)))
        chosen: Expr = choose(condition(draft, axes, depth - 1), a, b)
        return chosen
    if kind == 8 and dtype in INTEGERS:
        divide = draw(st.sampled_from((FloorDiv, FloorMod, Div, Mod)))
        # sometimes by something that may be zero
        return divide(a, b if draw(st.booleans()) else Max(b, IntImm(dtype, 1)))
    if kind == 9 and dtype in INTEGERS:
        name = draw(st.sampled_from(("bitwise_and", "bitwise_or", "bitwise_xor")))
        return call_intrin(dtype, f"tirx.{name}", a, b)
    combine = draw(st.sampled_from((Add, Sub, Mul, Max, Min)))
    if kind == 12:
        held = Var("held", dtype)
        return Let(held, a, Max(combine(held, b), held))
    return combine(a, b)


SHIFTS = ("tirx.shift_left", "tirx.shift_right")


#: Iterations of a nest: the interpreter does some 50 000 in a second. Two dimensions have fewer.
MOST = 20_000


def nest(draft: Draft, output: Var, dims: list[tuple[Expr, int]]) -> Stmt:
    """Return loops that fill a buffer: element by element, or as a fold."""
    draw = draft.draw
    dtype = str(output.ty.dtype)  # type: ignore[union-attr]
    fold = draw(st.sampled_from(("", "", "", "add", "mul", "max", "min", "pair")))
    if dtype == "bool":
        fold = ""
    reduced = [draft.extents() for _ in range(draw(st.integers(1, 2)))] if fold else []
    while prod(size for _, size in (*dims, *reduced)) > MOST:
        largest = max(range(len(reduced)), key=lambda k: reduced[k][1])
        reduced[largest] = int64(3), 3
    if any(size == 0 for _, size in reduced):
        draft.unwritten.add(output)
    order = draw(st.permutations(range(len(dims))))
    extents = [*(dims[k] for k in order), *reduced]
    variables = [Var(f"v{k}", "int64") for k in range(len(extents))]
    axes = [(v, e, s) for v, (e, s) in zip(variables, extents, strict=True)]
    place = tuple(variables[order.index(k)] for k in range(len(dims)))
    init: Stmt | None = None
    exact_before, draft.exact, draft.came_large = draft.exact, True, False
    sums = dtype in FLOATS and fold in ("add", "pair")
    draft.sums = draft.sums or sums
    draft.small = sums
    if not fold:
        body: Stmt = BufferStore(output, expression(draft, axes, dtype, 3), place)
        if draw(st.integers(0, 5)) == 0:
            other = BufferStore(output, literal(draft, dtype), place)
            body = IfThenElse(condition(draft, axes, 1), body, other)
    else:
        running = TensorLoad(output, place)
        draft.exact = draft.exact and not sums
        if fold == "pair":
            term: Expr = Mul(load(draft, axes, dtype), load(draft, axes, dtype))
        else:
            term = expression(draft, axes, dtype, 2)
        combine = {"add": Add, "pair": Add, "mul": Mul, "max": Max, "min": Min}[fold]
        init = BufferStore(output, literal(draft, dtype), place)
        body = BufferStore(output, combine(running, term), place)
    if not draft.exact:
        draft.rough.add(output)
    if draft.came_large:
        draft.large.add(output)
    draft.exact = draft.exact and exact_before
    draft.small = False
    kinds = [IterVarType.DATA_PAR] * len(dims) + [IterVarType.COMM_REDUCE] * len(reduced)
    iter_vars = tuple(
        IterVar(Range(int64(0), e), v, k) for (v, e, _), k in zip(axes, kinds, strict=True)
    )
    loops = [Var(f"i{k}", "int64") for k in range(len(extents))]
    block = SBlock(iter_vars, (), (), "b", body, init)
    stmt: Stmt = SBlockRealize(tuple(loops), TRUE, block)
    for var, (extent, _) in reversed(list(zip(loops, extents, strict=True))):
        stmt = For(var, int64(0), extent, ForKind.SERIAL, stmt)
    return stmt


def data(random: np.random.Generator, shape: list[int], dtype: str, modest: bool) -> NDArray[Any]:
    kind = DataType(dtype).numpy()
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    if dtype in FLOATS:
        values = random.choice(SPECIAL[:8], shape)
        if not modest and random.integers(0, 3) == 0:
            values = np.where(random.integers(0, 6, shape) == 0, random.choice(ODD, shape), values)
            values = np.where(
                random.integers(0, 6, shape) == 0, random.choice(SPECIAL, shape), values
            )
        with np.errstate(all="ignore"):
            return np.asarray(values).astype(kind)
    limits = np.iinfo(kind)
    if not modest and random.integers(0, 3) == 0:
        return random.integers(limits.min, limits.max, shape, dtype=kind, endpoint=True)
    return random.integers(max(limits.min, -4), 9, shape).astype(kind)


@st.composite
def typed_kernels(draw: Any) -> tuple[PrimFunc, list[Any], bool]:
    """Return a kernel, arguments for it, and whether results must agree to the last bit."""
    draft = Draft(draw, n=draw(st.sampled_from((0, 1, 2, 4, 7, 16, 19))))
    statements: list[Stmt] = []
    count = draw(st.integers(1, 3))
    # the parameter that the size is read off
    anchor = draft.input([draft.size], "int8")
    output = anchor
    for step in range(count):
        dims = [draft.extents() for _ in range(draw(st.integers(1, 2)))]
        dtype = draw(st.sampled_from(DTYPES))
        name = "out" if step == count - 1 else f"t{step}"
        output = decl_buffer([e for e, _ in dims], dtype, name)
        statements.append(nest(draft, output, dims))
        if step < count - 1:
            draft.locals.append(output)
    root = SBlock((), (), (), "root", seq(statements), alloc_buffers=tuple(draft.locals))
    func = PrimFunc(
        (*draft.inputs, output),
        SBlockRealize((), TRUE, root),
        attrs=DictAttrs({"tirx.noalias": True}),
    )
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    arguments: list[Any] = []
    for buffer in func.params:
        shape = [evaluate_size(d, {draft.size: draft.n}, "test") for d in buffer.ty.shape]  # type: ignore[union-attr]
        dtype = str(buffer.ty.dtype)  # type: ignore[union-attr]
        if buffer in draft.rows:
            high = draft.rows[buffer] + int(random.integers(0, 8) == 0)
            arguments.append(random.integers(0, high, shape).astype(dtype))
        else:
            arguments.append(data(random, shape, dtype, draft.sums))
    return func, arguments, draft.exact
