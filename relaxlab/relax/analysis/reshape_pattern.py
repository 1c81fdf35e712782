"""Whether a kernel only gives a tensor another shape.

Such a kernel copies each element to the place with the same row-major number, so a view can stand
for the copy. The proof is digit by digit: the indices that are read must be the digits, in the
mixed radix of the input's shape, of the number that is written. Counterpart:
``tvm.relax.analysis.has_reshape_pattern``.

Examples
--------
>>> from relaxlab.te import compute, create_prim_func, placeholder
>>> x = placeholder((2, 3), name="x")
>>> flat = create_prim_func([x, compute((6,), lambda i: x[i // 3, i % 3])])
>>> swapped = create_prim_func([x, compute((3, 2), lambda i, j: x[j, i])])
>>> has_reshape_pattern(flat), has_reshape_pattern(swapped)
(True, False)
"""

from typing import Any

from relaxlab.ir import Expr, FloorDiv, FloorMod, IntImm, Mul, TensorLoad, Var, prim_ops
from relaxlab.ir.node import structural_equal
from relaxlab.ir.prim_functor import free_vars, post_order_map, post_order_visit
from relaxlab.ir.sym import Analyzer
from relaxlab.runtime.dtype import DataType
from relaxlab.tirx import BufferStore, PrimFunc
from relaxlab.tirx.buffer import buffer_type
from relaxlab.tirx.stmt import For, IterVarType, SBlock, SBlockRealize

__all__ = ["has_reshape_pattern"]

_INT64 = DataType("int64")


def has_reshape_pattern(func: PrimFunc) -> bool:
    """Say whether a kernel copies its first parameter to its last element by element, in order.

    Parameters
    ----------
    func
        A kernel of the block dialect. The two tensors need not have equally many elements;
        who replaces a call by a view checks that.
    """
    block = _only_block(func)
    if block is None or not isinstance(block.body, BufferStore):
        return False
    store, load = block.body, block.body.value
    if not isinstance(load, TensorLoad):
        return False
    if len(func.params) < 2:
        return False
    source, target = func.params[0], func.params[-1]
    if load.buffer is not source or store.buffer is not target:
        return False
    return _Prover(block).same_numbers(load, store)


def _only_block(func: PrimFunc) -> SBlock | None:
    """Return the block of a kernel that is loops around one spatial block."""
    if not isinstance(func.body, SBlockRealize) or func.body.block.alloc_buffers:
        return None
    statement: Any = func.body.block.body
    loops: list[Var] = []
    while isinstance(statement, For):
        loops.append(statement.loop_var)
        statement = statement.body
    if not loops or not isinstance(statement, SBlockRealize):
        return None
    block = statement.block
    spatial = all(item.iter_type is IterVarType.DATA_PAR for item in block.iter_vars)
    values = statement.iter_values
    each_once = len(values) == len(loops) and set(values) == set(loops)
    return block if spatial and each_once and block.init is None else None


class _Prover:
    """Compares row-major numbers under the ranges of a block's variables."""

    def __init__(self, block: SBlock) -> None:
        self.analyzer = Analyzer()
        self.extents: dict[Expr, Expr] = {}
        for item in block.iter_vars:
            self.analyzer.bind(item.var, item.dom)
            self.extents[item.var] = item.dom.extent
            for size in free_vars(item.dom.extent):
                self.analyzer.mark_global_non_neg_value(size)

    def same_numbers(self, load: TensorLoad, store: BufferStore) -> bool:
        read = buffer_type(load.buffer).shape
        written = _number(store.indices, buffer_type(store.buffer).shape)
        if self.analyzer.can_prove_equal(_number(load.indices, read), written):
            return True
        digit = last = written
        # peel off digits, the fastest first
        for index, size in reversed(list(zip(load.indices, read, strict=True))):
            if isinstance(size, IntImm) and size.value == 1:
                continue  # the only index there is
            digit = self.reduced(prim_ops.floormod(written, size))
            if not self.analyzer.can_prove_equal(self.reduced(index), digit):
                return False
            last, written = written, self.analyzer.simplify(prim_ops.floordiv(written, size))
        # nothing is left, so no element was wrapped around to the front
        return self.analyzer.can_prove_equal(digit, self.reduced(last))

    def reduced(self, expr: Expr) -> Expr:
        """Simplify, dropping remainders that change nothing and quotients that are nothing."""

        def drop(node: Any) -> Any:
            if not isinstance(node, FloorMod | FloorDiv) or not self.fits(node.a, node.b):
                return node
            return node.a if isinstance(node, FloorMod) else IntImm(_INT64, 0)

        return self.analyzer.simplify(post_order_map(self.analyzer.simplify(expr), drop))

    def fits(self, value: Expr, size: Expr) -> bool:
        """Say whether ``value < size``; indices are not negative."""
        total = size
        while isinstance(value, FloorDiv):
            total = prim_ops.multiply(total, value.b)
            value = value.a
        if total is not size and value in self.extents:
            # a product of sizes is split as it is written, outer size first (as in TVM)
            factors = [f for f in _factors(self.extents[value]) if not isinstance(f, IntImm)]
            split = len(factors) > 1 and not isinstance(size, IntImm)
            if split and not structural_equal(factors[0], size):
                return False
        return self.largest_is(value, total)

    def largest_is(self, value: Expr, size: Expr) -> bool:
        """Say whether the largest value of a sum of loop variables is ``size - 1``."""
        largest = {
            var: prim_ops.subtract(self.extents[var], 1)
            for var in free_vars(value)
            if var in self.extents
        }
        if _has_division(value):
            return False
        most = post_order_map(value, lambda node: largest.get(node, node))
        return self.analyzer.can_prove_equal(prim_ops.add(most, 1), size)


def _has_division(expr: Expr) -> bool:
    found: list[Any] = []
    post_order_visit(expr, found.append)
    return any(isinstance(node, FloorDiv | FloorMod) for node in found)


def _factors(expr: Expr) -> list[Expr]:
    return [*_factors(expr.a), *_factors(expr.b)] if isinstance(expr, Mul) else [expr]


def _number(indices: tuple[Expr, ...], shape: tuple[Expr, ...]) -> Expr:
    """Return the row-major number of an element."""
    number: Expr = IntImm(_INT64, 0)
    for index, size in zip(indices, shape, strict=True):
        number = prim_ops.add(prim_ops.multiply(number, size), index)
    return number
