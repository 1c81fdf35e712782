"""How large a symbolic dimension can get, by what a function's attributes promise.

``tir_var_upper_bound`` and ``tir_var_lower_bound`` map names of the signature's symbolic variables
to numbers, ``tir_non_negative_var`` lists names. A bounded dimension gives planned memory a
constant size. Counterpart: part of TVM's ``StaticPlanBlockMemory``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.expr import Function, ShapeExpr, TensorType
>>> n = Var("n", "int64")
>>> x = Var("x", TensorType([n]))
>>> f = Function((x,), x, attrs={"tir_var_upper_bound": {"n": 7}})
>>> UpperBounds(f).of(n + 1).value
8
"""

from collections.abc import Mapping
from typing import Any

from relaxlab.ir import Add, Expr, FloorDiv, IntImm, Max, Min, Mul, Range, Sub, Var, prim_ops
from relaxlab.ir.sym import Analyzer, ConstIntBound
from relaxlab.relax.expr import Function
from relaxlab.relax.type_variables import tir_vars_in_type
from relaxlab.runtime.dtype import DataType

__all__ = ["UpperBounds"]


class UpperBounds:
    """The bounds one function declares.

    Attributes
    ----------
    analyzer
        Knows the bounds, and that symbolic dimensions are not negative.

    Raises
    ------
    ValueError
        If a bound contradicts another.
    """

    def __init__(self, func: Function) -> None:
        self.analyzer = Analyzer()
        self._upper: dict[Var, IntImm] = {}
        upper = _numbers(func, "tir_var_upper_bound")
        lower = _numbers(func, "tir_var_lower_bound")
        listed = func.func_attrs.get("tir_non_negative_var", ())
        for var in tir_vars_in_type(func.ty):
            most, least = upper.get(var.name), lower.get(var.name, 0)
            if most is not None:
                if most < least:
                    raise ValueError(
                        f"tir_var_upper_bound of {var.name!r} is {most}, below its "
                        f"lower bound {least}"
                    )
                self._upper[var] = _int64(most)
                self.analyzer.bind(var, Range(_int64(least), _int64(most - least + 1)))
            elif least > 0 or var.name in lower or var.name in listed:
                self.analyzer.mark_global_non_neg_value(var)

    def of(self, dim: Expr) -> Expr:
        """Return the largest value of a dimension, the dimension itself when it is not bounded."""
        if isinstance(dim, IntImm) or not self._upper:
            return dim
        most = self.analyzer.const_int_bound(dim).max_value
        if most < ConstIntBound.POS_INF:
            return _int64(most)
        found = self._maximum(dim)
        return dim if found is None else found

    def _maximum(self, expr: Expr) -> Expr | None:
        """Return an upper end in terms of the unbounded variables; None when there is none."""
        match expr:
            case IntImm():
                return expr
            case Var():
                return self._upper.get(expr, expr)
            case Add(a=a, b=b):
                return self._combine(prim_ops.add, a, b)
            case Max(a=a, b=b):
                return self._combine(prim_ops.max, a, b)
            case Min(a=a, b=b):
                return self._combine(prim_ops.min, a, b)
            case Mul(a=a, b=b) if self._non_negative(a) and self._non_negative(b):
                return self._combine(prim_ops.multiply, a, b)
            case Sub(a=a, b=IntImm() as b):
                return self._combine(prim_ops.subtract, a, b)
            case FloorDiv(a=a, b=IntImm(value=divisor) as b) if divisor > 0:
                return self._combine(prim_ops.floordiv, a, b)
            case _:
                return None

    def _combine(self, operator: Any, a: Expr, b: Expr) -> Expr | None:
        left, right = self._maximum(a), self._maximum(b)
        if left is None or right is None:
            return None
        result: Expr = operator(left, right)
        return result

    def _non_negative(self, expr: Expr) -> bool:
        return self.analyzer.can_prove_greater_equal(expr, 0)


def _numbers(func: Function, key: str) -> Mapping[str, int]:
    values = func.func_attrs.get(key, {})
    if not isinstance(values, Mapping):
        raise TypeError(f"function attribute {key!r} must be a map of names to numbers")
    return {name: int(value) for name, value in values.items()}


def _int64(value: int) -> IntImm:
    return IntImm(DataType("int64"), value)
