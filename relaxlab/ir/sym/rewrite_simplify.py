"""Simplification by rules: inside out, and at each node the first rule of its table that fits.

The rules are in ``rules_arith`` and ``rules_order``; this file walks, keeps the conditions that
hold in a branch, and answers the questions that rules ask. Counterpart: ``rewrite_simplify`` of
``tvm.sym.Analyzer``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.ir.sym import Analyzer
>>> x, y = Var("x", "int64"), Var("y", "int64")
>>> Analyzer().rewrite_simplify((x + y) - y) is x
True
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Final, Protocol

from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Call, Expr, StringImm, Var
from relaxlab.ir.node import map_children
from relaxlab.ir.op import Op
from relaxlab.ir.prim import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Cast,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    Select,
    Sub,
)
from relaxlab.ir.sym import rules_arith, rules_order
from relaxlab.ir.sym.const_int_bound import ConstIntBound
from relaxlab.ir.sym.modular_set import ModularSet
from relaxlab.ir.sym.pattern import RuleTable, same
from relaxlab.ir.type import PrimType
from relaxlab.runtime.dtype import DataType

__all__ = ["Knowledge", "RewriteSimplifier", "is_index"]

#: A folding operator; None where the operands must be left alone.
Fold = Callable[[Any, Any], Expr | None]

_BOOL: Final = DataType("bool")
_TRUE: Final = IntImm(_BOOL, 1)
_FALSE: Final = IntImm(_BOOL, 0)


#: How often a result may be simplified again within one simplification.
_MAX_DEPTH: Final = 5


class Knowledge(Protocol):
    """What a simplifier asks of the analyzer it belongs to."""

    def const_int_bound(self, expr: Expr) -> ConstIntBound:
        """Bounds of an expression."""

    def modular_set(self, expr: Expr) -> ModularSet:
        """Residues of an expression."""

    def can_prove_equal(self, lhs: Expr, rhs: Expr) -> bool:
        """Whether two expressions are equal for sure."""

    def constraint_scope(
        self, condition: Expr, *, literally: bool = False
    ) -> AbstractContextManager[None]:
        """Assume a condition inside ``with``."""


def is_index(expr: Expr) -> bool:
    """Say whether the dtype is one whose arithmetic is simplified: int32 or int64."""
    ty = expr.ty
    return isinstance(ty, PrimType) and ty.dtype.is_int and ty.dtype.bits in (32, 64)


def _is_op(expr: Expr, name: str) -> bool:
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name == name


class RewriteSimplifier:
    """Applies the rules.

    Parameters
    ----------
    knowledge
        Who answers questions about bounds: the analyzer.
    """

    #: How often to go over an expression: what a rule makes is looked at once more.
    passes: ClassVar[int] = 2

    def __init__(self, knowledge: Knowledge) -> None:
        self.knowledge = knowledge
        self.literal_constraints: list[Expr] = []
        self._methods = {kind: getattr(type(self), name) for kind, name in _HANDLERS.items()}
        self._depth = 0

    def __call__(self, expr: Expr) -> Expr:
        """Return ``expr`` simplified; the same object if there is nothing to do."""
        result: Expr = expr
        for _ in range(self.passes):
            before, result = result, self.visit(result)
            if result is before:
                break
        return result

    def visit(self, expr: Any) -> Any:
        """Simplify one node, children first."""
        handler = self._methods.get(type(expr))
        return self.visit_children(expr) if handler is None else handler(self, expr)

    def visit_children(self, expr: Any) -> Any:
        """Rebuild a node from its simplified children."""
        return map_children(expr, self._visit_child)

    def _visit_child(self, node: Any) -> Any:
        return self.visit(node) if isinstance(node, Expr) else self.visit_children(node)

    # ------------------------------------------------------------ questions of rules

    def at_least(self, expr: Expr, lower: int) -> bool:
        """Whether ``expr >= lower`` for sure."""
        return self.knowledge.const_int_bound(expr).min_value >= lower

    def below(self, expr: Expr, upper: int) -> bool:
        """Whether ``expr < upper`` for sure."""
        return self.knowledge.const_int_bound(expr).max_value < upper

    def equal_differences(self, x: Expr, y: Expr, s: Expr, t: Expr) -> bool:
        """Whether ``x - y == s - t`` for sure."""
        return self.knowledge.can_prove_equal(prim_ops.subtract(x, y), prim_ops.subtract(s, t))

    def either_zero(self, x: Expr, y: Expr, z: Expr) -> bool:
        """Whether ``x - z`` or ``y - z`` is 0 for sure."""
        return same(x, z) or same(y, z)

    def compare(self, a: Expr, b: Expr) -> str | None:
        """Return ``"<"``, ``"<="``, ``">"``, ``">="``, ``"=="``, ``"!="`` or None if unknown."""
        difference = self.visit(prim_ops.subtract(a, b))
        if isinstance(difference, IntImm):
            value = difference.value
            return "==" if value == 0 else ">" if value > 0 else "<"
        bound = self.knowledge.const_int_bound(difference)
        if bound.min_value > 0:
            return ">"
        if bound.max_value < 0:
            return "<"
        if bound.min_value >= 0:
            return ">="
        if bound.max_value <= 0:
            return "<="
        residue = self.knowledge.modular_set(difference)
        if residue.coeff and residue.base % residue.coeff:
            return "!="
        return None

    # ------------------------------------------------------------ rules

    def apply(self, table: RuleTable, expr: Any, operands: tuple[Expr, ...]) -> Any:
        """Return the result of the first rule that fits, else ``expr`` itself."""
        for rule in table.candidates(operands):
            result = rule.apply(expr, self)
            if result is not None:
                return self._once_more(result) if rule.again else result
        return expr

    def _once_more(self, result: Expr) -> Any:
        """Simplify a result again; two rules may undo each other, so not for ever."""
        if self._depth >= _MAX_DEPTH:
            return result
        self._depth += 1
        try:
            return self.visit(result)
        finally:
            self._depth -= 1

    def rebuild(self, expr: Any, operator: Fold) -> Any:
        """Simplify both operands and fold; the same object if nothing changed."""
        a, b = self.visit(expr.a), self.visit(expr.b)
        if isinstance(a, IntImm | FloatImm) or isinstance(b, IntImm | FloatImm):
            folded = operator(a, b)
            same_kind = type(folded) is type(expr)
            if folded is not None and (not same_kind or folded is a or folded is b):
                return folded
        return expr if a is expr.a and b is expr.b else type(expr)(a, b)

    def _arith(self, expr: Any, operator: Fold, table: RuleTable) -> Any:
        ret = self.rebuild(expr, operator)
        if type(ret) is not type(expr) or not is_index(ret):
            return ret
        return self.apply(table, ret, (ret.a, ret.b))

    def visit_add(self, expr: Any) -> Any:
        """Simplify a sum."""
        return self._arith(expr, prim_ops.add, rules_arith.ADD)

    def visit_sub(self, expr: Any) -> Any:
        """Simplify a difference."""
        return self._arith(expr, prim_ops.subtract, rules_arith.SUB)

    def visit_mul(self, expr: Any) -> Any:
        """Simplify a product."""
        return self._arith(expr, prim_ops.multiply, rules_arith.MUL)

    def visit_div(self, expr: Any) -> Any:
        """Simplify a quotient that truncates."""
        return self._arith(expr, _keep_division(prim_ops.div), rules_arith.DIV)

    def visit_mod(self, expr: Any) -> Any:
        """Simplify a remainder with the sign of the dividend."""
        return self._arith(expr, _keep_division(prim_ops.truncmod), rules_arith.MOD)

    def _quotient_by_bounds(self, ret: Any) -> Any:
        """Take the sure part out of ``(x*c1 + y) // c2``.

        It is ``x*(c1 // c2) + y // c2 + r`` where the residue ``r`` is
        ``(x*(c1 % c2) + y % c2) // c2``; when bounds make ``r`` one number, nothing else is left.
        """
        divisor, zero = ret.b, prim_ops.const(0, ret.dtype)
        if not isinstance(divisor, IntImm) or divisor.value <= 0:
            return ret
        for x, c1, rest in _scaled_terms(ret.a):
            low = prim_ops.floormod(rest, divisor)
            residue = prim_ops.floordiv(
                prim_ops.add(prim_ops.multiply(x, c1 % divisor.value), low), divisor
            )
            bound = self.knowledge.const_int_bound(residue)
            fits = self.at_least(rest, 0) and self.below(rest, divisor.value)
            high = zero if fits else prim_ops.floordiv(rest, divisor)
            if bound.is_const:
                whole = prim_ops.multiply(x, c1 // divisor.value)
                return self.visit(prim_ops.add(whole, prim_ops.add(high, bound.min_value)))
            if 0 < c1 < divisor.value and divisor.value % c1 == 0 and self.below(low, c1):
                return self.visit(prim_ops.add(prim_ops.floordiv(x, divisor.value // c1), high))
        return ret

    def visit_floor_div(self, expr: Any) -> Any:
        """Simplify a floor quotient; bounds may tell that it is one number."""
        ret = self.rebuild(expr, _keep_division(prim_ops.floordiv))
        if not isinstance(ret, FloorDiv) or not is_index(ret):
            return ret
        bound = self.knowledge.const_int_bound(ret)
        if bound.is_const:
            return prim_ops.const(bound.min_value, ret.dtype)
        taken = self._quotient_by_bounds(ret)
        if taken is not ret:
            return taken
        return self.apply(rules_arith.FLOOR_DIV, ret, (ret.a, ret.b))

    def visit_floor_mod(self, expr: Any) -> Any:
        """Simplify a floor remainder; bounds or residues may tell what it is."""
        ret = self.rebuild(expr, _keep_division(prim_ops.floormod))
        if not isinstance(ret, FloorMod) or not is_index(ret):
            return ret
        if isinstance(ret.b, IntImm) and ret.b.value > 0:
            divisor = ret.b.value
            if self.at_least(ret.a, 0) and self.below(ret.a, divisor):
                return ret.a
            residue = self.knowledge.modular_set(ret.a)
            if residue.coeff % divisor == 0:
                return prim_ops.const(residue.base % divisor, ret.dtype)
        return self.apply(rules_arith.FLOOR_MOD, ret, (ret.a, ret.b))

    def _extremum(self, expr: Any, operator: Fold, table: RuleTable) -> Any:
        ret = self.rebuild(expr, operator)
        if not isinstance(ret, Min | Max):
            return ret
        if same(ret.a, ret.b):
            return ret.a
        if not is_index(ret):
            return ret
        a = self.knowledge.const_int_bound(ret.a)
        b = self.knowledge.const_int_bound(ret.b)
        if isinstance(ret, Min):
            if a.max_value <= b.min_value:
                return ret.a
            if b.max_value <= a.min_value:
                return ret.b
        else:
            if a.min_value >= b.max_value:
                return ret.a
            if b.min_value >= a.max_value:
                return ret.b
        return self.apply(table, ret, (ret.a, ret.b))

    def visit_min(self, expr: Any) -> Any:
        """Simplify a minimum."""
        return self._extremum(expr, prim_ops.min, rules_order.MIN)

    def visit_max(self, expr: Any) -> Any:
        """Simplify a maximum."""
        return self._extremum(expr, prim_ops.max, rules_order.MAX)

    # ------------------------------------------------------------ comparison

    def visit_eq(self, expr: Any) -> Any:
        """Simplify ``a == b``."""
        ret = self.rebuild(expr, prim_ops.equal)
        if not isinstance(ret, EQ):
            return ret
        if not is_index(ret.a):
            return self._known(ret)
        order = self.compare(ret.a, ret.b)
        if order == "==":
            return _TRUE
        if order in ("<", ">", "!="):
            return _FALSE
        return self._known(self.apply(rules_order.EQ, ret, (ret.a, ret.b)))

    def visit_ne(self, expr: Any) -> Any:
        """Simplify ``a != b``: the negation of ``a == b``, or ``<`` where order is known."""
        ret = self._negate(self.visit_eq(EQ(expr.a, expr.b)))
        if isinstance(ret, NE) and is_index(ret.a):
            order = self.compare(ret.a, ret.b)
            if order == ">=":
                return self._known(LT(ret.b, ret.a))
            if order == "<=":
                return self._known(LT(ret.a, ret.b))
        return ret

    def visit_lt(self, expr: Any) -> Any:
        """Simplify ``a < b``."""
        ret = self.rebuild(expr, prim_ops.less)
        if not isinstance(ret, LT):
            return ret
        if not is_index(ret.a):
            return self._known(ret)
        order = self.compare(ret.a, ret.b)
        if order == "<":
            return _TRUE
        if order in ("==", ">", ">="):
            return _FALSE
        return self._known(self.apply(rules_order.LT, ret, (ret.a, ret.b)))

    def visit_le(self, expr: Any) -> Any:
        """Simplify ``a <= b``: the negation of ``b < a``."""
        return self._at_most(LT(expr.b, expr.a))

    def visit_gt(self, expr: Any) -> Any:
        """Simplify ``a > b``: ``b < a``."""
        return self.visit_lt(LT(expr.b, expr.a))

    def visit_ge(self, expr: Any) -> Any:
        """Simplify ``a >= b``: the negation of ``a < b``."""
        return self._at_most(LT(expr.a, expr.b))

    def _at_most(self, opposite: LT) -> Any:
        """Simplify the negation of ``a < b``; where order is known it may be ``==``."""
        ret = self._negate(RewriteSimplifier.visit_lt(self, opposite))
        if isinstance(ret, LE) and is_index(ret.a) and self.compare(ret.a, ret.b) == ">=":
            return self.apply(rules_order.EQ, EQ(ret.a, ret.b), (ret.a, ret.b))
        return ret

    def _known(self, condition: Any) -> Any:
        """Replace a condition that is assumed, or whose negation is, by a truth value."""
        for known in self.literal_constraints:
            if same(known, condition):
                return _TRUE
            if same(known, self._negate(condition)):
                return _FALSE
        return condition

    def _negate(self, condition: Any) -> Any:
        if isinstance(condition, IntImm):
            return _FALSE if condition.value else _TRUE
        negation = Not(condition)
        return self.apply(rules_order.NOT, negation, (condition,))

    def visit_not(self, expr: Any) -> Any:
        """Simplify ``not a``."""
        a = self.visit(expr.a)
        ret = expr if a is expr.a else Not(a)
        if isinstance(a, IntImm):
            return self._negate(a)
        return self._known(self.apply(rules_order.NOT, ret, (ret.a,)))

    def visit_and(self, expr: Any) -> Any:
        """Simplify ``a and b``; each side may assume the other."""
        a = self.visit(expr.a)
        b = self.visit(expr.b)
        folded = prim_ops.logical_and(a, b)
        if not isinstance(folded, And):
            return folded
        ret = expr if a is expr.a and b is expr.b else And(a, b)
        return self.apply(rules_order.AND, ret, (ret.a, ret.b))

    def visit_or(self, expr: Any) -> Any:
        """Simplify ``a or b``."""
        a = self.visit(expr.a)
        b = self.visit(expr.b)
        folded = prim_ops.logical_or(a, b)
        if not isinstance(folded, Or):
            return folded
        ret = expr if a is expr.a and b is expr.b else Or(a, b)
        return self.apply(rules_order.OR, ret, (ret.a, ret.b))

    # ------------------------------------------------------------ choice and the rest

    def visit_select(self, expr: Any) -> Any:
        """Simplify a choice; each side may assume the condition, or its negation."""
        condition = self.visit(expr.condition)
        with self.knowledge.constraint_scope(condition):
            true_value = self.visit(expr.true_value)
        with self.knowledge.constraint_scope(self._negate(condition)):
            false_value = self.visit(expr.false_value)
        if isinstance(condition, IntImm):
            return true_value if condition.value else false_value
        if (
            condition is expr.condition
            and true_value is expr.true_value
            and false_value is expr.false_value
        ):
            ret = expr
        else:
            ret = Select(condition, true_value, false_value)
        return self.apply(rules_order.SELECT, ret, (ret.condition, ret.true_value, ret.false_value))

    def visit_call(self, expr: Any) -> Any:
        """Simplify the arguments; a choice is treated like :class:`Select`."""
        if _is_op(expr, "tirx.if_then_else"):
            condition = self.visit(expr.args[0])
            if isinstance(condition, IntImm):
                return self.visit(expr.args[1] if condition.value else expr.args[2])
            with self.knowledge.constraint_scope(condition):
                true_value = self.visit(expr.args[1])
            # unlike a Select, TVM bounds nothing by the negated condition here
            with self.knowledge.constraint_scope(self._negate(condition), literally=True):
                false_value = self.visit(expr.args[2])
            args = (condition, true_value, false_value)
            if all(x is y for x, y in zip(args, expr.args, strict=True)):
                return expr
            return Call(expr.op, args, expr.attrs, expr.ty_args, ty=expr.ty)
        if _is_op(expr, "tirx.likely"):
            inner = self.visit(expr.args[0])
            return inner if isinstance(inner, IntImm) else self.visit_children(expr)
        return self.visit_children(expr)

    def visit_cast(self, expr: Any) -> Any:
        """Simplify the operand; a literal is converted at once."""
        value = self.visit(expr.value)
        if isinstance(value, IntImm | FloatImm):
            return prim_ops.cast(expr.dtype, value)
        if value.dtype is expr.dtype:
            return value
        return expr if value is expr.value else Cast(expr.dtype, value)

    def visit_leaf(self, expr: Any) -> Any:
        """Return a leaf as it is."""
        return expr


def _scaled_terms(expr: Expr) -> list[tuple[Expr, int, Expr]]:
    """Return the ways to read ``expr`` as ``x*c + rest``."""
    zero = prim_ops.const(0, expr.dtype)
    match expr:
        case Mul(a=x, b=IntImm(value=scale)):
            return [(x, scale, zero)]
        case Add(a=a, b=b):
            ways = []
            if isinstance(a, Mul) and isinstance(a.b, IntImm):
                ways.append((a.a, a.b.value, b))
            if isinstance(b, Mul) and isinstance(b.b, IntImm):
                ways.append((b.a, b.b.value, a))
            return ways
        case _:
            return []


def _keep_division(operator: Callable[[Any, Any], Expr]) -> Fold:
    """Fold, but leave a division by a literal 0 for run time to report."""

    def fold(a: Any, b: Any) -> Expr | None:
        if isinstance(b, IntImm | FloatImm) and b.value == 0:
            return None
        return operator(a, b)

    return fold


#: Which method simplifies which node; looked up on the class, so that a subclass may replace one.
_HANDLERS: Final[dict[type, str]] = {
    Add: "visit_add",
    Sub: "visit_sub",
    Mul: "visit_mul",
    Div: "visit_div",
    Mod: "visit_mod",
    FloorDiv: "visit_floor_div",
    FloorMod: "visit_floor_mod",
    Min: "visit_min",
    Max: "visit_max",
    EQ: "visit_eq",
    NE: "visit_ne",
    LT: "visit_lt",
    LE: "visit_le",
    GT: "visit_gt",
    GE: "visit_ge",
    And: "visit_and",
    Or: "visit_or",
    Not: "visit_not",
    Select: "visit_select",
    Call: "visit_call",
    Cast: "visit_cast",
    IntImm: "visit_leaf",
    FloatImm: "visit_leaf",
    StringImm: "visit_leaf",
    Var: "visit_leaf",
}
