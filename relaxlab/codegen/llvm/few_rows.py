"""A few rows times a large matrix, at the speed at which the matrix comes from memory.

BLAS copies the right matrix into another order first; that pays for many rows, and costs three
times the product itself for two to sixteen, which is what a batch of sequences in decode is. Here
eight rows of the matrix are taken at a time: they are read from memory once, in one linear
stream, and stay in the cache while every row of the left matrix takes its part of them.
Counterpart: the batched GEMV kernels of MLC's schedules.

Examples
--------
>>> import numpy as np
>>> left, right = np.ones((3, 20), "float32"), np.full((20, 4096), 0.5, "float32")
>>> out = np.empty((3, 4096), "float32")
>>> multiply(left, right, out), float(out[2, 4095])
(True, 10.0)
"""

import ctypes
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from relaxlab.codegen.llvm.cache import default_store, digest
from relaxlab.codegen.llvm.host import Host
from relaxlab.codegen.llvm.indices import as_constant
from relaxlab.codegen.llvm.machine import machine
from relaxlab.codegen.llvm.matmul import Product
from relaxlab.runtime.dtype import DataType

__all__ = ["LEAST_FEW", "MOST_ROWS", "is_for_few_rows", "multiply", "program"]

#: Rows from which a matrix is worth taking eight rows at a time.
LEAST_FEW: Final = 2

#: Rows from which BLAS is better.
MOST_ROWS: Final = 16
#: Rows of the right matrix that are taken at a time.
_DEEP: Final = 8
#: Rows of the left matrix whose results are updated together.
_GROUP: Final = 4
#: Columns that are taken at a time: results and eight rows of the matrix fit a private cache.
_TILE: Final = 4096
#: Elements of the right matrix from which it is worth a call.
_LEAST: Final = 1 << 16

_FLOAT32: Final = np.dtype(np.float32)


def is_for_few_rows(product: Product, host: Host) -> bool:
    """Say whether `multiply` takes a product whose number of rows is not known yet."""
    columns = as_constant(product.columns)
    return (
        product.dtype is DataType("float32")
        and not product.batch
        and columns is not None
        and columns % host.lanes(32) == 0
        and as_constant(product.left.columns) == as_constant(product.right.columns) == 1
    )


def multiply(left: NDArray[Any], right: NDArray[Any], out: NDArray[Any]) -> bool:
    """Write ``left @ right`` to ``out`` if this is the way to do it.

    Parameters
    ----------
    left, right, out
        ``(m, k)``, ``(k, n)`` and ``(m, n)``, apart from each other in memory.

    Returns
    -------
    bool
        False if nothing was done: other types, other orders, or sizes that BLAS is better at.
    """
    if not left.dtype == right.dtype == out.dtype == _FLOAT32 or right.ndim != 2:
        return False
    (rows, inner), columns = left.shape, right.shape[1]
    lanes = machine().host.lanes(32)
    if not LEAST_FEW <= rows <= MOST_ROWS or right.size < _LEAST or columns % lanes or not inner:
        return False
    steps = []
    for matrix in (out, left, right):
        down, along = matrix.strides
        if along != 4 or down % 4 or down < 0:
            return False
        steps.append(down // 4)
    addresses = (matrix.__array_interface__["data"][0] for matrix in (out, left, right))
    _function()(*addresses, rows, inner, columns, *steps)
    return True


@cache
def _function() -> Any:
    compiler, store = machine(), default_store()
    text = program(compiler.host.lanes(32))
    key = digest(text, compiler.host.cpu, compiler.host.features, compiler.version)
    code = store.get("code", key)
    if code is None:
        code = compiler.compile(text)
        store.put("code", key, code)
    linked = compiler.link(code, ("few_rows",))
    kinds = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 6
    function = ctypes.CFUNCTYPE(None, *kinds)(linked.addresses["few_rows"])
    function.linked = linked  # type: ignore[attr-defined] # the code lives as long as the function
    return function


def program(lanes: int) -> str:
    """Return the product as LLVM IR, for vectors of so many floats."""
    blocks = [
        line
        for deep in (_DEEP, 1)
        for rows in range(1, _GROUP + 1)
        for line in _block(rows, deep, lanes)
    ]
    return "\n".join([*_driver(), *blocks, *_declarations(lanes)]) + "\n"


def _declarations(lanes: int) -> Iterator[str]:
    vector = f"<{lanes} x float>"
    yield f"declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})"
    yield "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"
    yield "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"


def _block(rows: int, deep: int, lanes: int) -> Iterator[str]:
    """Yield the function that adds ``deep`` products to ``rows`` rows of results."""
    vector = f"<{lanes} x float>"
    yield (
        f"define internal void @block{rows}.{deep}(ptr %out, ptr %left, ptr %right, "
        "i64 %columns, i64 %out_step, i64 %left_step, i64 %right_step, ptr %next) noinline {"
    )
    yield "entry:"
    for r in range(rows):
        yield f" %lo{r} = mul i64 %left_step, {r}"
        yield f" %oo{r} = mul i64 %out_step, {r}"
        yield f" %o{r} = getelementptr float, ptr %out, i64 %oo{r}"
        for k in range(deep):
            yield f" %li{r}.{k} = add i64 %lo{r}, {k}"
            yield f" %lp{r}.{k} = getelementptr float, ptr %left, i64 %li{r}.{k}"
            yield f" %ls{r}.{k} = load float, ptr %lp{r}.{k}, align 4"
            yield f" %lv{r}.{k} = insertelement {vector} poison, float %ls{r}.{k}, i32 0"
            yield (
                f" %x{r}.{k} = shufflevector {vector} %lv{r}.{k}, {vector} poison, "
                f"<{lanes} x i32> zeroinitializer"
            )
    for k in range(deep):
        yield f" %ro{k} = mul i64 %right_step, {k}"
        yield f" %r{k} = getelementptr float, ptr %right, i64 %ro{k}"
    yield " %fetch = icmp ne ptr %next, null"
    yield " br label %loop"
    yield "loop:"
    yield " %j = phi i64 [0, %entry], [%j2, %more]"
    yield " %at = phi i64 [0, %entry], [%at2, %more]"  # where in its row the stream is
    yield " %line = phi ptr [%next, %entry], [%line2, %more]"
    for k in range(deep):
        yield f" %wp{k} = getelementptr float, ptr %r{k}, i64 %j"
        yield f" %w{k} = load {vector}, ptr %wp{k}, align 4"
    for r in range(rows):
        yield f" %op{r} = getelementptr float, ptr %o{r}, i64 %j"
        yield f" %a{r}.0 = load {vector}, ptr %op{r}, align 4"
        for k in range(deep):
            yield (
                f" %a{r}.{k + 1} = call {vector} @llvm.fma.v{lanes}f32({vector} %w{k}, "
                f"{vector} %x{r}.{k}, {vector} %a{r}.{k})"
            )
        yield f" store {vector} %a{r}.{deep}, ptr %op{r}, align 4"
    yield " br i1 %fetch, label %ahead, label %more"
    yield "ahead:"
    for k in range(deep):
        yield f" %pi{k} = add i64 %at, {k * lanes}"
        yield f" %pp{k} = getelementptr float, ptr %line, i64 %pi{k}"
        yield f" call void @llvm.prefetch.p0(ptr %pp{k}, i32 0, i32 2, i32 1)"
    yield " br label %more"
    yield "more:"
    yield f" %at1 = add i64 %at, {deep * lanes}"
    yield " %turn = icmp sge i64 %at1, %columns"
    yield " %back = sub i64 %at1, %columns"
    yield " %at2 = select i1 %turn, i64 %back, i64 %at1"
    yield " %down = getelementptr float, ptr %line, i64 %right_step"
    yield " %line2 = select i1 %turn, ptr %down, ptr %line"
    yield f" %j2 = add i64 %j, {lanes}"
    yield " %again = icmp slt i64 %j2, %columns"
    yield " br i1 %again, label %loop, label %done"
    yield "done:"
    yield " ret void"
    yield "}"


def _driver() -> Iterator[str]:
    """Yield the function that goes through tiles of columns, then down the right matrix."""
    yield (
        "define void @few_rows(ptr %out, ptr %left, ptr %right, i64 %rows, i64 %inner, "
        "i64 %columns, i64 %out_step, i64 %left_step, i64 %right_step) {"
    )
    yield "entry:"
    yield " br label %tile"
    yield "tile:"
    yield " %c = phi i64 [0, %entry], [%c2, %tile_done]"
    yield " %left_columns = sub i64 %columns, %c"
    yield f" %short = icmp slt i64 %left_columns, {_TILE}"
    yield f" %width = select i1 %short, i64 %left_columns, i64 {_TILE}"
    yield " %bytes = mul i64 %width, 4"
    yield " %oc = getelementptr float, ptr %out, i64 %c"
    yield " %rc = getelementptr float, ptr %right, i64 %c"
    yield " br label %clear"
    yield "clear:"
    yield " %z = phi i64 [0, %tile], [%z2, %clear]"
    yield " %zo = mul i64 %z, %out_step"
    yield " %zp = getelementptr float, ptr %oc, i64 %zo"
    yield " call void @llvm.memset.p0.i64(ptr %zp, i8 0, i64 %bytes, i1 false)"
    yield " %z2 = add i64 %z, 1"
    yield " %zm = icmp slt i64 %z2, %rows"
    yield " br i1 %zm, label %clear, label %deep"
    yield "deep:"
    yield " %k = phi i64 [0, %clear], [%k2, %deep_done]"
    yield " %rest = sub i64 %inner, %k"
    yield f" %whole = icmp sge i64 %rest, {_DEEP}"
    yield f" %taken = select i1 %whole, i64 {_DEEP}, i64 1"
    yield " %ro = mul i64 %k, %right_step"
    yield " %rp = getelementptr float, ptr %rc, i64 %ro"
    yield f" %after = icmp sge i64 %rest, {2 * _DEEP}"
    yield f" %no = mul i64 %right_step, {_DEEP}"
    yield " %np0 = getelementptr float, ptr %rp, i64 %no"
    yield " %np = select i1 %after, ptr %np0, ptr null"
    yield " br label %group"
    yield "group:"
    yield " %g = phi i64 [0, %deep], [%g2, %group_done]"
    yield " %first = icmp eq i64 %g, 0"
    yield " %ahead = select i1 %first, ptr %np, ptr null"
    yield " %lefts = sub i64 %rows, %g"
    yield f" %full = icmp sge i64 %lefts, {_GROUP}"
    yield f" %count = select i1 %full, i64 {_GROUP}, i64 %lefts"
    yield " %go = mul i64 %g, %out_step"
    yield " %gp = getelementptr float, ptr %oc, i64 %go"
    yield " %gl0 = mul i64 %g, %left_step"
    yield " %gl = add i64 %gl0, %k"
    yield " %glp = getelementptr float, ptr %left, i64 %gl"
    yield f" %many = mul i64 %taken, {_GROUP + 1}"
    yield " %which = add i64 %many, %count"
    cases = [(deep, rows) for deep in (_DEEP, 1) for rows in range(1, _GROUP + 1)]
    table = " ".join(
        f"i64 {deep * (_GROUP + 1) + rows}, label %call{rows}.{deep}" for deep, rows in cases
    )
    yield f" switch i64 %which, label %group_done [{table}]"
    for deep, rows in cases:
        yield f"call{rows}.{deep}:"
        yield (
            f" call void @block{rows}.{deep}(ptr %gp, ptr %glp, ptr %rp, i64 %width, "
            "i64 %out_step, i64 %left_step, i64 %right_step, ptr %ahead)"
        )
        yield " br label %group_done"
    yield "group_done:"
    yield " %g2 = add i64 %g, %count"
    yield " %gm = icmp slt i64 %g2, %rows"
    yield " br i1 %gm, label %group, label %deep_done"
    yield "deep_done:"
    yield " %k2 = add i64 %k, %taken"
    yield " %km = icmp slt i64 %k2, %inner"
    yield " br i1 %km, label %deep, label %tile_done"
    yield "tile_done:"
    yield f" %c2 = add i64 %c, {_TILE}"
    yield " %cm = icmp slt i64 %c2, %columns"
    yield " br i1 %cm, label %tile, label %end"
    yield "end:"
    yield " ret void"
    yield "}"
