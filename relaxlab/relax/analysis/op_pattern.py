"""How the elements that a kernel writes depend on those that it reads.

Fusion asks one question of a kernel: may its loops run inside those of its neighbour? The answer
is a kind, from "element by element" to "no idea", found by comparing the indices of loads and
stores block by block. Counterpart: ``AnalyzeOpPatternKind`` behind
``tvm.relax.transform.AnnotateTIROpPattern`` (compiler.md, 6.3).

Examples
--------
>>> from relaxlab.te import compute, create_prim_func, placeholder
>>> x = placeholder((2, 3), name="x")
>>> analyze_op_pattern(create_prim_func([x, compute((3, 2), lambda i, j: x[j, i])])).name
'INJECTIVE'
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Any

from relaxlab.ir import Add, Cast, Expr, IntImm, Mul, TensorLoad, Var
from relaxlab.ir.node import Node, children, structural_equal
from relaxlab.ir.prim_functor import free_vars
from relaxlab.tirx import BufferStore, PrimFunc
from relaxlab.tirx.buffer import buffer_type
from relaxlab.tirx.stmt import IterVarType, SBlock

__all__ = ["OpPatternKind", "analyze_op_pattern"]


class OpPatternKind(IntEnum):
    """Kinds of kernels, the more restrictive for fusion the larger; the numbers are TVM's."""

    ELEM_WISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    COMM_REDUCE = 3
    OUT_ELEM_WISE_FUSABLE = 4
    TUPLE = 7
    OPAQUE = 8


def analyze_op_pattern(func: PrimFunc) -> OpPatternKind:
    """Return the kind of a kernel.

    Parameters
    ----------
    func
        A kernel; without blocks it counts as element-wise, as in TVM.
    """
    analyzer = _Analyzer(func)
    analyzer.visit(func.body)
    return analyzer.kind


class _Analyzer:
    """Goes through the blocks in order; what a block is found to be depends on those before."""

    def __init__(self, func: PrimFunc) -> None:
        self.params = frozenset(func.params)
        self.kind = OpPatternKind.ELEM_WISE
        self.loads: list[TensorLoad] = []
        self.store: BufferStore | None = None

    def visit(self, node: Node) -> None:
        match node:
            case SBlock():
                self.visit_block(node)
            case BufferStore():
                if self.store is not None and not structural_equal(
                    self.store.indices, node.indices
                ):
                    # one block, two places written
                    self.kind = OpPatternKind.OPAQUE
                    return
                self.store = node
                self.visit_children(node)
            case TensorLoad():
                self.loads.append(node)
                self.visit_children(node)
            case _:
                self.visit_children(node)

    def visit_children(self, node: Node) -> None:
        for child in children(node):
            if not isinstance(child, Var):
                self.visit(child)

    def accesses(self, body: Node) -> tuple[BufferStore | None, list[TensorLoad]]:
        """Visit a block's body; return what it stores, and what it loads."""
        self.loads, self.store = [], None
        self.visit(body)
        return self.store, self.loads

    def visit_block(self, block: SBlock) -> None:
        if block.name_hint == "root":
            self.visit(block.body)
            return
        store, loads = self.accesses(block.body)
        if store is None:
            self.kind = OpPatternKind.OPAQUE
            return
        pattern = _index_pattern(store, loads)
        if pattern is not OpPatternKind.OPAQUE:
            writes_output = any(region.buffer in self.params for region in block.writes)
            if writes_output and self.kind is OpPatternKind.COMM_REDUCE:
                # a reduction and then element by element, as in softmax
                self.kind = OpPatternKind.OUT_ELEM_WISE_FUSABLE
            else:
                self.kind = max(self.kind, pattern)
            return
        reduced = [v.var for v in block.iter_vars if v.iter_type is IterVarType.COMM_REDUCE]
        if not reduced:
            self.kind = OpPatternKind.OPAQUE
        elif _is_multiply_add(block.body) or not all(_only_reduces(reduced, x) for x in loads):
            self.kind = max(self.kind, OpPatternKind.OUT_ELEM_WISE_FUSABLE)
        else:
            self.kind = max(self.kind, OpPatternKind.COMM_REDUCE)


def _index_pattern(store: BufferStore, loads: Iterable[TensorLoad]) -> OpPatternKind:
    """Return how the indices of the loads come from those of the store; opaque if they do not."""
    pattern = OpPatternKind.ELEM_WISE
    elem_wise = False
    for load in loads:
        if structural_equal(store.indices, load.indices):
            elem_wise = True
        elif _is_broadcast(store, load):
            pattern = max(pattern, OpPatternKind.BROADCAST)
        elif _is_injective(store, load):
            pattern = OpPatternKind.INJECTIVE
        else:
            return OpPatternKind.OPAQUE
    if elem_wise and pattern is OpPatternKind.BROADCAST:
        return OpPatternKind.ELEM_WISE  # adding a bias
    return pattern


def _is_broadcast(store: BufferStore, load: TensorLoad) -> bool:
    """Say whether the load's indices are some of the store's, in order (constant zeros aside)."""
    position = 0
    for index, size in zip(load.indices, buffer_type(load.buffer).shape, strict=True):
        if _is_literal(size, 1) and _is_literal(index, 0):
            continue
        while position < len(store.indices) and store.indices[position] is not index:
            position += 1
        if position == len(store.indices):
            return False
    return True


def _is_literal(expr: Expr, value: int) -> bool:
    return isinstance(expr, IntImm) and expr.value == value


def _is_injective(store: BufferStore, load: TensorLoad) -> bool:
    """Say whether the store's indices are plain variables, and the load's use no others."""
    variables = set(store.indices)
    return all(isinstance(index, Var) for index in store.indices) and all(
        var in variables for index in load.indices for var in free_vars(index)
    )


def _is_multiply_add(body: Node) -> bool:
    """Say whether a block is ``C += A * B`` where A and B are each used for several elements."""
    if not isinstance(body, BufferStore):
        return False
    total = _without_casts(body.value)
    if not isinstance(total, Add):
        return False
    before, product = _without_casts(total.a), _without_casts(total.b)
    if not isinstance(before, TensorLoad) or not isinstance(product, Mul):
        return False
    same_place = len(before.indices) == len(body.indices) and all(
        a is b for a, b in zip(before.indices, body.indices, strict=True)
    )
    factors = (_without_casts(product.a), _without_casts(product.b))
    return before.buffer is body.buffer and same_place and all(_is_reused(body, x) for x in factors)


def _is_reused(store: BufferStore, factor: Expr) -> bool:
    if not isinstance(factor, TensorLoad):
        return False
    if not all(isinstance(index, Var) for index in store.indices):
        return False
    used = {var for index in factor.indices for var in free_vars(index)}
    return any(index not in used for index in store.indices)


def _without_casts(expr: Any) -> Any:
    while isinstance(expr, Cast):
        expr = expr.value
    return expr


def _only_reduces(reduced: list[Var], load: TensorLoad) -> bool:
    """Say whether no index mixes a reduction variable with anything else, as pooling does."""
    return all(
        isinstance(index, Var) or not any(var in reduced for var in free_vars(index))
        for index in load.indices
    )
