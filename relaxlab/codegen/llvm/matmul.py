"""Matrix products: recognised in a loop nest, left to BLAS when they are large.

A nest is a product when it adds up products of two reads, and every loop is one of rows (in A
and C), columns (in B and C), inner (in A and B) or batch (in all three). The matrices are views
with strides, so that a transposed operand needs no copy. Counterpart: TVM's dispatch to
``cblas``.

Examples
--------
>>> from relaxlab import te, topi
>>> from relaxlab.codegen.llvm.lower import lower
>>> a, b = (te.placeholder((512, 512), "float32", n) for n in "ab")
>>> f = te.create_prim_func([a, b, topi.matmul(a, b)])
>>> product = read_product(lower(f).body[0], Indices())
>>> len(product.batch), product.left.buffer.name
(0, 'a')
"""

from dataclasses import dataclass
from typing import Any, Final

from relaxlab.codegen.llvm.indices import Indices, Poly, added, as_constant, multiplied
from relaxlab.codegen.llvm.lower import Reduce
from relaxlab.codegen.llvm.nests import accumulations, flat_offset, read_nest
from relaxlab.ir.expr import Expr, Var
from relaxlab.ir.prim import FloatImm, Mul, TensorLoad
from relaxlab.runtime.dtype import DataType
from relaxlab.tirx.buffer import buffer_type
from relaxlab.tirx.stmt import BufferStore, Stmt

__all__ = ["LARGE", "LEAST_ROWS", "Matrix", "Product", "is_product", "read_product"]

#: Multiplications per matrix from which BLAS is called, and the fewest rows and columns.
LARGE: Final = 96 * 96 * 96
LEAST_ROWS: Final = 6


@dataclass(frozen=True, slots=True)
class Matrix:
    """A buffer seen as a stack of matrices.

    Attributes
    ----------
    buffer
        Where it lies.
    offset
        First element.
    batch, rows, columns
        Strides, in elements.
    """

    buffer: Var
    offset: Poly
    batch: tuple[Poly, ...]
    rows: Poly
    columns: Poly


@dataclass(frozen=True, slots=True)
class Product:
    """``out[b, i, j] = sum over k of left[b, i, k] * right[b, k, j]``.

    Attributes
    ----------
    left, right, out
        The matrices.
    batch
        Extents of the batch loops.
    rows, inner, columns
        Extents of i, k and j.
    dtype
        Of all three.
    """

    left: Matrix
    right: Matrix
    out: Matrix
    batch: tuple[Poly, ...]
    rows: Poly
    inner: Poly
    columns: Poly
    dtype: DataType

    def is_large(self) -> bool | None:
        """Say whether BLAS is worth its call; None if only the arguments can tell."""
        sizes = [as_constant(p) for p in (self.rows, self.inner, self.columns)]
        rows, inner, columns = sizes
        if any(s is not None and s < LEAST_ROWS for s in (rows, columns)):
            return False
        if rows is None or inner is None or columns is None:
            return None
        return rows * inner * columns >= LARGE


def is_product(stmt: Stmt) -> bool:
    """Say whether a statement is a matrix product that BLAS may be called for."""
    product = read_product(stmt, Indices())
    return product is not None and product.is_large() is not False


def read_product(stmt: Stmt, indices: Indices) -> Product | None:
    """Return a statement as a matrix product that BLAS can do, or None."""
    nest = read_nest(stmt)
    if nest is None or not isinstance(nest.inner, Reduce) or len(nest.inner.loops) != 1:
        return None
    store, term = _sum_of_products(nest.inner)
    if store is None or not isinstance(term, Mul):
        return None
    reads = (term.a, term.b)
    dtype = buffer_type(store.buffer).dtype
    if dtype not in (DataType("float32"), DataType("float64")):
        return None
    if not all(isinstance(r, TensorLoad) and r.dtype is dtype for r in reads):
        return None
    touched: tuple[Any, ...] = (*reads, store)
    offsets = [flat_offset(indices, access.buffer, access.indices) for access in touched]
    head = nest.inner.loops[0]
    loops = [(f.loop_var, f.min, f.extent) for f in nest.loops]
    loops.append((head.var, head.min, head.extent))
    steps: list[list[Poly]] = [[], [], []]
    for position, offset in enumerate(offsets):
        for var, low, _ in loops:
            parts = indices.coefficient(offset, var)
            if parts is None or as_constant(indices.of(low)) != 0:
                return None
            if any(indices.depends(parts[0], other) for other, _, _ in loops):
                return None
            steps[position].append(parts[0])
            offset = parts[1]
        offsets[position] = offset
        if indices.reads(offset):
            return None
    extents = [indices.of(extent) for _, _, extent in loops]
    return _arranged([access.buffer for access in touched], offsets, steps, extents, dtype)


def _sum_of_products(reduce: Reduce) -> tuple[BufferStore | None, Expr | None]:
    found = accumulations(reduce)
    if found is None or len(found) != 1 or found[0].combine != "Add":
        return None, None
    start: Any = reduce.init
    if not isinstance(start, BufferStore) or start.buffer is not found[0].store.buffer:
        return None, None
    if not (isinstance(start.value, FloatImm) and start.value.value == 0):
        return None, None
    return found[0].store, found[0].term


def _arranged(
    buffers: list[Var],
    offsets: list[Poly],
    steps: list[list[Poly]],
    extents: list[Poly],
    dtype: DataType,
) -> Product | None:
    """Tell rows, columns and batch loops apart; merge neighbouring ones of a kind."""
    a, b, c = steps
    if not a[-1] or not b[-1] or c[-1]:
        return None
    kinds: list[str] = []
    for left, right, out in zip(a[:-1], b[:-1], c[:-1], strict=True):
        if not out or not (left or right):
            return None
        kinds.append("batch" if left and right else "rows" if left else "columns")
    order = [k for k in range(len(kinds)) if kinds[k] == "rows"]
    columns = [k for k in range(len(kinds)) if kinds[k] == "columns"]
    row_steps = _merged(order, (a, c), extents)
    column_steps = _merged(columns, (b, c), extents)
    if row_steps is None or column_steps is None:
        return None
    rows, (row_a, row_c) = row_steps
    wide, (column_b, column_c) = column_steps
    batch = [k for k in range(len(kinds)) if kinds[k] == "batch"]
    inner = extents[-1]
    product = Product(
        Matrix(buffers[0], offsets[0], tuple(a[k] for k in batch), row_a, a[-1]),
        Matrix(buffers[1], offsets[1], tuple(b[k] for k in batch), b[-1], column_b),
        Matrix(buffers[2], offsets[2], tuple(c[k] for k in batch), row_c, column_c),
        tuple(extents[k] for k in batch),
        rows,
        inner,
        wide,
        dtype,
    )
    if as_constant(product.out.columns) != 1 and as_constant(product.out.rows) == 1:
        # out is transposed: so is the whole product
        product = _transposed(product)
    usable = as_constant(product.out.columns) == 1 and all(
        as_constant(m.rows) == 1 or as_constant(m.columns) == 1
        for m in (product.left, product.right)
    )
    return product if usable else None


def _transposed(p: Product) -> Product:
    def flip(m: Matrix) -> Matrix:
        return Matrix(m.buffer, m.offset, m.batch, m.columns, m.rows)

    return Product(
        flip(p.right), flip(p.left), flip(p.out), p.batch, p.columns, p.inner, p.rows, p.dtype
    )


def _merged(
    loops: list[int], steps: tuple[list[Poly], list[Poly]], extents: list[Poly]
) -> tuple[Poly, tuple[Poly, Poly]] | None:
    """Return extent and steps of several loops as one, or None if they do not follow closely."""
    if not loops:
        return {(): 1}, ({}, {})
    last = loops[-1]
    extent = extents[last]
    for outer in reversed(loops[:-1]):
        for of in steps:
            if added(of[outer], multiplied(of[last], extent), -1):
                return None
        extent = multiplied(extent, extents[outer])
    return extent, (steps[0][last], steps[1][last])
