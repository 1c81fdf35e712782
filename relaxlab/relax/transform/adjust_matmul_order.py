"""Multiply three matrices in the cheaper order.

``(a @ b) @ c`` and ``a @ (b @ c)`` are the same matrix at different costs. Two factors that depend
on weights only are multiplied first, so that it can be done once; else the order that provably
takes fewer multiplications is taken. A product that is transposed before it is used counts too.
Counterpart: ``tvm.relax.transform.AdjustMatmulOrder``.

Examples
--------
>>> AdjustMatmulOrder().info.opt_level
1
"""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, ClassVar

from relaxlab.ir import Call, Expr, GenericConst, IntImm, IRModule, PassContext, Range, prim_ops
from relaxlab.ir.prim_functor import free_vars
from relaxlab.relax import op
from relaxlab.relax.analysis import computable_at_compile_time
from relaxlab.relax.expr import Function, TensorType
from relaxlab.relax.transform.operand_rewriter import OperandRewriter, shape_of
from relaxlab.relax.transform.pass_base import FunctionPass
from relaxlab.relax.type_variables import tir_vars_in_type
from relaxlab.runtime.dtype import DataType

__all__ = ["AdjustMatmulOrder"]

_ONE: Any = IntImm(DataType("int64"), 1)


@dataclass(frozen=True)
class AdjustMatmulOrder(FunctionPass):
    """Reorder products of three matrices.

    Notes
    -----
    The function's attributes ``tir_var_upper_bound`` and ``tir_var_lower_bound`` say how large
    symbolic sizes may be.
    """

    opt_level: ClassVar[int] = 1

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return the function rewritten, itself if every order is good."""
        return _Rewriter(func).rewrite_function(func)


class _Rewriter(OperandRewriter):
    def __init__(self, func: Function) -> None:
        super().__init__()
        self.weights = set(computable_at_compile_time(func))
        upper: Any = func.attrs.get("tir_var_upper_bound", {})
        lower: Any = func.attrs.get("tir_var_lower_bound", {})
        for size in dict.fromkeys(v for p in func.params for v in tir_vars_in_type(p.ty)):
            least = int(lower.get(size.name, 0))
            if size.name in upper:
                extent = int(upper[size.name]) + 1 - least
                zero = prim_ops.const(least, size.dtype)
                self.builder.analyzer.bind(size, Range(zero, prim_ops.const(extent, size.dtype)))

    def rewrite(self, call: Call, name: str) -> Expr:
        if name != "relax.matmul" or not _is_plain(call):
            return call
        left, right = call.args
        first = self.factors(left)
        if first is not None:
            return self.ordered(call, first[0], first[1], right, left_first=True)
        second = self.factors(right)
        if second is not None:
            return self.ordered(call, left, second[0], second[1], left_first=False)
        return call

    def factors(self, expr: Expr) -> tuple[Expr, Expr] | None:
        """Return the factors of an operand that is a product, or a product transposed."""
        product = self.defined_as(expr, "relax.matmul")
        if product is not None and _is_plain(product):
            return product.args[0], product.args[1]
        turned = self.defined_as(expr, "relax.permute_dims")
        product = None if turned is None else self.defined_as(turned.args[0], "relax.matmul")
        if turned is None or product is None or not _is_plain(product):
            return None
        axes: Any = turned.attrs.axes if turned.attrs is not None else None
        if any(_rank(factor) != 2 for factor in product.args) or axes not in (None, (1, 0)):
            return None
        # the transposed product is that of the transposed factors, in reverse
        back, front = product.args
        return op.permute_dims(front), op.permute_dims(back)

    def ordered(self, call: Call, a: Expr, b: Expr, c: Expr, *, left_first: bool) -> Expr:
        """Return ``a @ b @ c`` in the better order, ``call`` if it is that."""
        choice = self.weights_first(a, b, c)
        if choice is None:
            choice = self.cheaper(a, b, c)
        # a transposed product is taken apart in any case, as in TVM
        turned = isinstance(a if left_first else b, Call)
        if choice is None or (choice is left_first and not turned):
            return call
        return op.matmul(op.matmul(a, b), c) if choice else op.matmul(a, op.matmul(b, c))

    def weights_first(self, a: Expr, b: Expr, c: Expr) -> bool | None:
        """Say which two factors depend on weights only: the left ones, the right ones, neither."""
        if not self.is_weight(b) or self.is_weight(a) is self.is_weight(c):
            return None
        return self.is_weight(a)

    def is_weight(self, expr: Expr) -> bool:
        if isinstance(expr, Call):  # a factor that is transposed
            expr = expr.args[0]
        return isinstance(expr, GenericConst) or expr in self.weights

    def cheaper(self, a: Expr, b: Expr, c: Expr) -> bool | None:
        """Say whether multiplying the left ones first is provably cheaper, or dearer."""
        if all(map(self.is_weight, (a, b, c))):
            return None  # done once, in any order
        shapes = [_dims(expr) for expr in (a, b, c)]
        first, middle, last = shapes
        if not first or not middle or not last:
            return None
        # a vector is a row on the left and a column on the right
        rows = first[-2] if len(first) > 1 else _ONE
        inner = first[-1]
        outer = last[-2] if len(last) > 1 else last[-1]
        columns = last[-1] if len(last) > 1 else _ONE
        left = rows * inner * outer + rows * outer * columns
        right = inner * outer * columns + rows * inner * columns
        if self.is_positive(right - left):
            return True
        return False if self.is_positive(left - right) else None

    def is_positive(self, difference: Expr) -> bool:
        """Say whether a difference of costs is more than 0, sizes being at least 1."""
        analyzer = self.builder.analyzer
        with ExitStack() as stack:
            for size in free_vars(difference):
                stack.enter_context(analyzer.constraint_scope(prim_ops.greater_equal(size, _ONE)))
            return analyzer.const_int_bound(analyzer.simplify(difference)).min_value > 0


def _is_plain(call: Call) -> bool:
    """Say whether a product has the dtype of its factors, so that the order does not matter."""
    out_dtype = call.attrs.out_dtype if call.attrs is not None else None
    if not out_dtype:
        return True
    types = {arg.ty.dtype for arg in call.args if isinstance(arg.ty, TensorType)}
    return types == {DataType(out_dtype)}


def _rank(expr: Expr) -> int:
    return expr.ty.ndim if isinstance(expr.ty, TensorType) else -1


def _dims(expr: Expr) -> tuple[Expr, ...] | None:
    if isinstance(expr, Call):  # a factor that is transposed
        dims = shape_of(expr.args[0])
        return None if dims is None else tuple(reversed(dims))
    return shape_of(expr)
