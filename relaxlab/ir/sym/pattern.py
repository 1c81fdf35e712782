"""Rewrite rules written as text: ``rule("(x - y) + y", "x")``.

A table of such lines is the simplifier's knowledge, and can be read as algebra. A pattern is
Python syntax over variables: ``c1``, ``c2``, ... stand for integer literals, every other name
for any expression; a name met twice must stand for structurally equal expressions. ``//`` and
``%`` floor, ``div`` and ``mod`` truncate. Counterpart: the pattern matching inside
``tvm.sym``'s simplifiers.

Examples
--------
>>> from relaxlab.ir import Var
>>> x, y = Var("x", "int64"), Var("y", "int64")
>>> rule("(x - y) + y", "x").apply((x - y) + y, None) is x
True
"""

import ast
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from relaxlab.errors import InternalError
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Call, Expr, Var
from relaxlab.ir.node import structural_equal
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
    BinaryExpr,
    CompareExpr,
    Div,
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
from relaxlab.runtime.dtype import DataType

__all__ = ["Rule", "RuleTable", "rule", "same"]

Binding = dict[str, Expr]
Matcher = Callable[[Expr, Binding], bool]
Builder = Callable[[Binding, DataType], Expr]


def same(a: Expr, b: Expr) -> bool:
    """Say whether two scalar expressions are structurally equal, variables by identity."""
    if a is b:
        return True
    kind = type(a)
    if kind is not type(b) or kind is Var:
        return False
    if isinstance(a, IntImm):
        return isinstance(b, IntImm) and a.value == b.value and a.dtype is b.dtype
    if isinstance(a, BinaryExpr | CompareExpr):
        return isinstance(b, BinaryExpr | CompareExpr) and same(a.a, b.a) and same(a.b, b.b)
    if a.ty != b.ty:
        return False
    return structural_equal(a, b)


# ---------------------------------------------------------------- from text to closures

_BINARY_NODES: Final = {
    ast.Add: (Add, prim_ops.add),
    ast.Sub: (Sub, prim_ops.subtract),
    ast.Mult: (Mul, prim_ops.multiply),
    ast.FloorDiv: (FloorDiv, prim_ops.floordiv),
    ast.Mod: (FloorMod, prim_ops.floormod),
}
_COMPARE_NODES: Final = {
    ast.Eq: (EQ, prim_ops.equal),
    ast.NotEq: (NE, prim_ops.not_equal),
    ast.Lt: (LT, prim_ops.less),
    ast.LtE: (LE, prim_ops.less_equal),
    ast.Gt: (GT, prim_ops.greater),
    ast.GtE: (GE, prim_ops.greater_equal),
}
_CALL_NODES: Final = {
    "min": (Min, prim_ops.min),
    "max": (Max, prim_ops.max),
    "div": (Div, prim_ops.truncdiv),
    "mod": (Mod, prim_ops.truncmod),
}
_BOOL: Final = DataType("bool")


def _operands(node: ast.expr) -> tuple[type[Expr], Callable[..., Expr], list[ast.expr]] | None:
    """Return node class, operator and operands of a compound pattern; None for a leaf."""
    match node:
        case ast.BinOp(left=left, op=op, right=right):
            return (*_BINARY_NODES[type(op)], [left, right])
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return (*_COMPARE_NODES[type(op)], [left, right])
        case ast.BoolOp(op=ast.And(), values=[left, right]):
            return (And, prim_ops.logical_and, [left, right])
        case ast.BoolOp(op=ast.Or(), values=[left, right]):
            return (Or, prim_ops.logical_or, [left, right])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return (Not, prim_ops.logical_not, [operand])
        case ast.Call(func=ast.Name(id="select"), args=args):
            return (Select, prim_ops.select, args)
        case ast.Call(func=ast.Name(id=name), args=args):
            return (*_CALL_NODES[name], args)
        case _:
            return None


def _is_constant_name(name: str) -> bool:
    return name[0] == "c" and name[1:].isdigit()


def _matcher(node: ast.expr) -> Matcher:
    compound = _operands(node)
    if compound is not None:
        kind, _, operands = compound
        if len(operands) == 2:
            return _binary_matcher(kind, _matcher(operands[0]), _matcher(operands[1]))
        if len(operands) == 1:
            return _not_matcher(_matcher(operands[0]))
        return _select_matcher([_matcher(operand) for operand in operands])
    match node:
        case ast.Name(id=name):
            return _constant_matcher(name) if _is_constant_name(name) else _any_matcher(name)
        case ast.Constant(value=int(value)):
            return _literal_matcher(value)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))):
            return _literal_matcher(-value)
        case _:
            raise InternalError(f"not a pattern: {ast.unparse(node)}")


def _binary_matcher(kind: type[Any], left: Matcher, right: Matcher) -> Matcher:
    def match(expr: Any, binding: Binding) -> bool:
        # exact class: the node classes form no hierarchy
        return expr.__class__ is kind and left(expr.a, binding) and right(expr.b, binding)

    return match


def _not_matcher(operand: Matcher) -> Matcher:
    def match(expr: Expr, binding: Binding) -> bool:
        return isinstance(expr, Not) and operand(expr.a, binding)

    return match


def _select_matcher(operands: list[Matcher]) -> Matcher:
    condition, true_value, false_value = operands

    def match(expr: Expr, binding: Binding) -> bool:
        return (
            isinstance(expr, Select)
            and condition(expr.condition, binding)
            and true_value(expr.true_value, binding)
            and false_value(expr.false_value, binding)
        )

    return match


def _any_matcher(name: str) -> Matcher:
    def match(expr: Expr, binding: Binding) -> bool:
        known = binding.get(name)
        if known is None:
            binding[name] = expr
            return True
        return same(known, expr)

    return match


def _constant_matcher(name: str) -> Matcher:
    def match(expr: Expr, binding: Binding) -> bool:
        if not isinstance(expr, IntImm):
            return False
        known = binding.get(name)
        if known is None:
            binding[name] = expr
            return True
        return isinstance(known, IntImm) and known.value == expr.value

    return match


def _literal_matcher(value: int) -> Matcher:
    def match(expr: Expr, binding: Binding) -> bool:
        return isinstance(expr, IntImm) and expr.value == value

    return match


def _builder(node: ast.expr) -> Builder:
    compound = _operands(node)
    if compound is not None:
        _, operator, operands = compound
        builders = [_builder(operand) for operand in operands]
        return lambda binding, dtype: operator(*[b(binding, dtype) for b in builders])
    match node:
        case ast.Name(id=name):
            return lambda binding, dtype: binding[name]
        case ast.Constant(value=bool(value)):
            return lambda binding, dtype: IntImm(_BOOL, int(value))
        case ast.Constant(value=int(value)):
            return lambda binding, dtype: prim_ops.const(value, dtype)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            negated = _builder(operand)
            return lambda binding, dtype: prim_ops.negative(negated(binding, dtype))
        case _:
            raise InternalError(f"not a result: {ast.unparse(node)}")


# ---------------------------------------------------------------- rules


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of a table.

    Attributes
    ----------
    text
        Pattern and result, for people.
    heads
        Node classes that the operands of the pattern's root must have; None for any.
    again
        Whether the result is simplified once more.
    """

    text: str
    root: type[Expr]
    heads: tuple[type[Expr] | None, ...]
    matches: Matcher
    build: Builder
    condition: Callable[..., bool] | None
    condition_names: tuple[str, ...]
    again: bool

    def apply(self, expr: Expr, prover: Any) -> Expr | None:
        """Return the result for ``expr``, or None where the rule does not apply."""
        binding: Binding = {}
        if not self.matches(expr, binding):
            return None
        if self.condition is not None:
            values = [
                prover if name == "prove" else _condition_value(name, binding[name])
                for name in self.condition_names
            ]
            if not self.condition(*values):
                return None
        return self.build(binding, _operand_dtype(expr))


def _condition_value(name: str, expr: Any) -> Any:
    return expr.value if _is_constant_name(name) else expr


def _operand_dtype(expr: Any) -> DataType:
    """Return the dtype that integer literals of a result have."""
    if isinstance(expr, CompareExpr):
        return expr.a.dtype
    dtype: DataType = expr.dtype
    return dtype


def rule(
    patterns: str, result: str, when: Callable[..., bool] | None = None, again: bool = False
) -> Rule:
    """Make one rule; see :func:`rules` for one line with several patterns."""
    (made,) = rules(patterns, result, when, again)
    return made


def rules(
    patterns: str, result: str, when: Callable[..., bool] | None = None, again: bool = False
) -> list[Rule]:
    """Make one rule per pattern.

    Parameters
    ----------
    patterns
        Patterns separated by ``|`` that share one result.
    result
        What each becomes.
    when
        A condition; its parameter names are pattern variables (a literal comes as an int, the
        rest as expressions) and ``prove``, the simplifier that answers questions.
    again
        Whether to simplify the result once more, because it may match further rules.
    """
    build = _builder(_parse(result))
    names = tuple(inspect.signature(when).parameters) if when is not None else ()
    made = []
    for text in patterns.split("|"):
        node = _parse(text)
        compound = _operands(node)
        if compound is None:
            raise InternalError(f"a pattern needs an operator at its root: {text}")
        kind, _, operands = compound
        heads = tuple(_head(operand) for operand in operands)
        made.append(
            Rule(
                f"{text.strip()} => {result}",
                kind,
                heads,
                _matcher(node),
                build,
                when,
                names,
                again,
            )
        )
    return made


def _parse(text: str) -> ast.expr:
    return ast.parse(text.strip(), mode="eval").body


def _head(node: ast.expr) -> type[Expr] | None:
    compound = _operands(node)
    if compound is not None:
        return compound[0]
    match node:
        case ast.Name(id=name) if not _is_constant_name(name):
            return None
        case _:
            return IntImm


class RuleTable:
    """Rules for one kind of node, tried in order."""

    def __init__(self, lines: Iterable[list[Rule]]) -> None:
        self.rules = tuple(made for line in lines for made in line)
        self._by_heads: dict[tuple[type, ...], tuple[Rule, ...]] = {}

    def candidates(self, operands: tuple[Expr, ...]) -> tuple[Rule, ...]:
        """Return the rules whose pattern can match operands of these classes, in order."""
        kinds = tuple(type(operand) for operand in operands)
        found = self._by_heads.get(kinds)
        if found is None:
            found = tuple(
                r
                for r in self.rules
                if all(h is None or h is k for h, k in zip(r.heads, kinds, strict=True))
            )
            self._by_heads[kinds] = found
        return found


def is_op(expr: Expr, name: str) -> bool:
    """Say whether ``expr`` is a call of the operator ``name``."""
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name == name
