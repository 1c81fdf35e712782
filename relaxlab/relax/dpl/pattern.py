"""The patterns, one class for each kind of thing that can be asked of an expression.

A variable stands for the value that it is bound to, where the bindings are known. One pattern
object stands for one expression: used twice, it asks for the same one twice.
Counterpart: ``tvm.relax.dpl.pattern``.

Examples
--------
>>> from relaxlab import relax
>>> x = relax.Var("x", relax.TensorType([4], "float32"))
>>> any_tensor = wildcard()
>>> is_op("relax.add")(any_tensor, any_tensor).match(relax.op.add(x, x))
True
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import permutations
from typing import Any, ClassVar

from relaxlab.ir import (
    Call,
    Expr,
    GenericConst,
    GlobalVar,
    Op,
    PrimType,
    Tuple,
    TupleGetItem,
    Type,
    Var,
    structural_equal,
)
from relaxlab.ir.sym import Analyzer
from relaxlab.relax.expr import DataflowVar, ExternFunc, Function, ShapeExpr
from relaxlab.relax.type import TensorType
from relaxlab.relax.type_relations import BaseCheckResult, shapes_equal, type_base_check
from relaxlab.runtime.dtype import DataType

__all__ = [
    "AndPattern",
    "AttrPattern",
    "CallPattern",
    "ConstantPattern",
    "DFPattern",
    "DataTypePattern",
    "DataflowVarPattern",
    "ExprPattern",
    "ExternFuncPattern",
    "GlobalVarPattern",
    "Matcher",
    "NotPattern",
    "OrPattern",
    "PrimArrPattern",
    "ShapePattern",
    "TupleGetItemPattern",
    "TuplePattern",
    "TypePattern",
    "UnorderedTuplePattern",
    "VarPattern",
    "WildcardPattern",
    "has_attr",
    "has_dtype",
    "is_call_dps_packed",
    "is_call_packed",
    "is_call_tir",
    "is_const",
    "is_dfv",
    "is_expr",
    "is_gv",
    "is_op",
    "is_shape",
    "is_tuple",
    "is_tuple_get_item",
    "is_var",
    "make_fused_bias_activation_pattern",
    "wildcard",
]

#: Values of variables, where they are known.
Bindings = Mapping[Var, Expr]


class Matcher:
    """Compares expressions with patterns, and remembers what each pattern stands for.

    Parameters
    ----------
    values
        Values of variables.
    """

    def __init__(self, values: Bindings) -> None:
        self.values = values
        self.matched: dict[DFPattern, Expr] = {}
        self.analyzer = Analyzer()

    def value_of(self, expr: Expr) -> Expr:
        """Return what a variable is bound to, however many variables are in between."""
        seen = set()
        while isinstance(expr, Var) and expr in self.values and expr not in seen:
            seen.add(expr)
            expr = self.values[expr]
        return expr

    def match(self, pattern: "DFPattern", expr: Expr) -> bool:
        """Say whether an expression is what a pattern asks for; a failure leaves no traces."""
        known = self.matched.get(pattern)
        if known is not None:
            return known is expr or known is self.value_of(expr)
        before = dict(self.matched)
        found = pattern.found(self, expr)
        if found is None:
            self.matched = before
            return False
        self.matched[pattern] = found
        return True

    def match_each(self, patterns: Sequence["DFPattern"], exprs: Sequence[Expr]) -> bool:
        """Say whether expressions are what patterns ask for, one by one."""
        if len(patterns) != len(exprs):
            return False
        return all(self.match(p, e) for p, e in zip(patterns, exprs, strict=True))


class DFPattern:
    """What can be asked of an expression; combine patterns with ``|``, ``&`` and ``~``."""

    def found(self, matcher: Matcher, expr: Expr) -> Expr | None:
        """Return the expression that this pattern stands for in ``expr``, or None."""
        raise TypeError(f"{type(self).__name__} matches nothing")

    def match(self, expr: Expr, var2val: Bindings | None = None) -> bool:
        """Say whether ``expr`` matches; ``var2val`` has the values of variables."""
        return Matcher(var2val or {}).match(self, expr)

    def extract_matched_expr(
        self, expr: Expr, var2val: Bindings | None = None
    ) -> dict["DFPattern", Expr] | None:
        """Return what each part of the pattern stands for, None if ``expr`` does not match."""
        matcher = Matcher(var2val or {})
        return matcher.matched if matcher.match(self, expr) else None

    def __call__(self, *args: "DFPattern", varg_default_wildcard: bool = False) -> "CallPattern":
        """Return the pattern of a call of this one."""
        return CallPattern(self, tuple(args), varg_default_wildcard)

    def __or__(self, other: "DFPattern") -> "OrPattern":
        return OrPattern(self, other)

    def __and__(self, other: "DFPattern") -> "AndPattern":
        return AndPattern(self, other)

    def __invert__(self) -> "NotPattern":
        return NotPattern(self)

    def has_attr(self, attrs: Mapping[str, Any]) -> "AttrPattern":
        """Ask for attributes, too."""
        return AttrPattern(self, dict(attrs))

    def has_dtype(self, dtype: DataType | str) -> "DataTypePattern":
        """Ask for a dtype, too."""
        return DataTypePattern(self, DataType(dtype))

    def has_shape(self, shape: Sequence[Expr | int]) -> "ShapePattern":
        """Ask for a shape, too."""
        return ShapePattern(self, ShapeExpr(tuple(shape)))

    def has_ty(self, ty: Type) -> "TypePattern":
        """Ask for a type (or one that says more), too."""
        return TypePattern(self, ty)

    def dup(self) -> "DFPattern":
        """Return a pattern alike that stands for another expression."""
        copied: dict[DFPattern, DFPattern] = {}

        def copy(part: Any) -> Any:
            if isinstance(part, tuple):
                return tuple(map(copy, part))
            if not isinstance(part, DFPattern):
                return part
            if part not in copied:
                every: Any = part  # all patterns are data classes, but for their base
                parts = {each.name: copy(getattr(part, each.name)) for each in fields(every)}
                copied[part] = type(part)(**parts)
            return copied[part]

        duplicate: DFPattern = copy(self)
        return duplicate


@dataclass(frozen=True, eq=False)
class WildcardPattern(DFPattern):
    """Matches any expression."""

    def found(self, matcher: Matcher, expr: Expr) -> Expr | None:
        """Return what is meant, see :meth:`DFPattern.found`."""
        return expr


@dataclass(frozen=True, eq=False)
class VarPattern(DFPattern):
    """A variable, of that name if there is one."""

    name: str = ""
    kind: ClassVar[type[Var]] = Var

    def found(self, matcher: Matcher, expr: Expr) -> Expr | None:
        """Return what is meant, see :meth:`DFPattern.found`."""
        named = isinstance(expr, self.kind) and self.name in ("", expr.name)
        return expr if named else None


@dataclass(frozen=True, eq=False)
class DataflowVarPattern(VarPattern):
    """A variable of a dataflow block."""

    kind: ClassVar[type[Var]] = DataflowVar


@dataclass(frozen=True, eq=False)
class GlobalVarPattern(DFPattern):
    """A function of the module."""

    name: str = ""

    def found(self, matcher: Matcher, expr: Expr) -> Expr | None:
        """Return what is meant, see :meth:`DFPattern.found`."""
        named = isinstance(expr, GlobalVar) and self.name in ("", expr.name_hint)
        return expr if named else None


@dataclass(frozen=True, eq=False)
class ExternFuncPattern(DFPattern):
    """A function found by name at run time."""

    global_symbol: str

    def found(self, matcher: Matcher, expr: Expr) -> Expr | None:
        """Return what is meant, see :meth:`DFPattern.found`."""
        named = isinstance(expr, ExternFunc) and expr.global_symbol == self.global_symbol
        return expr if named else None


@dataclass(frozen=True, eq=False)
class ConstantPattern(DFPattern):
    """A constant tensor."""

    def found(self, matcher: Matcher, expr: Expr) -> Expr | None:
        """Return what is meant, see :meth:`DFPattern.found`."""
        value = matcher.value_of(expr)
        return value if isinstance(value, GenericConst) else None


@dataclass(frozen=True, eq=False)
class ExprPattern(DFPattern):
    """Exactly this expression."""

    expr: Expr

    def found(self, matcher: Matcher, expr: Expr) -> Expr | None:
        """Return what is meant, see :meth:`DFPattern.found`."""
        value = matcher.value_of(expr)
        return value if value is self.expr or structural_equal(value, self.expr) else None


@dataclass(frozen=True, eq=False)
class CallPattern(DFPattern):
    """A call; without arguments of any, with ``varg_default_wildcard`` of more."""

    op: DFPattern
    args: tuple[DFPattern, ...] = ()
    varg_default_wildcard: bool = False

    def found(self, matcher: Matcher, expr: Expr) -> Expr | None:
        """Return what is meant, see :meth:`DFPattern.found`."""
        value = matcher.value_of(expr)
        if not isinstance(value, Call) or not matcher.match(self.op, value.op):
            return None
        given = value.args
        if self.varg_default_wildcard:
            given = given[: len(self.args)]
        return value if matcher.match_each(self.args, given) else None


@dataclass(frozen=True, eq=False)
class TuplePattern(DFPattern):
    """A tuple of such fields."""

    fields: tuple[DFPattern, ...]

    def found(self, matcher: Matcher, expr: Expr) -> Expr | None:
        """Return what is meant, see :meth:`DFPattern.found`."""
        value = matcher.value_of(expr)
        if not isinstance(value, Tuple):
            return None
        return value if matcher.match_each(self.fields, value.fields) else None


@dataclass(frozen=True, eq=False)
class UnorderedTuplePattern(DFPattern):
    """A tuple of such fields in any order."""

    fields: tuple[DFPattern, ...]

    def found(self, matcher: Matcher, expr: Expr) -> Expr | None:
        """Return what is meant, see :meth:`DFPattern.found`."""
        value = matcher.value_of(expr)
        if not isinstance(value, Tuple) or len(value.fields) != len(self.fields):
            return None
        for order in permutations(value.fields):
            before = dict(matcher.matched)
            if matcher.match_each(self.fields, order):
                return value
            matcher.matched = before
        return None


@dataclass(frozen=True, eq=False)
class TupleGetItemPattern(DFPattern):
    """A field of such a tuple, of any index if there is none."""

    tuple_value: DFPattern
    index: int | None = None

    def found(self, matcher: Matcher, expr: Expr) -> Expr | None:
        """Return what is meant, see :meth:`DFPattern.found`."""
        value = matcher.value_of(expr)
        if not isinstance(value, TupleGetItem) or self.index not in (None, value.index):
            return None
        return value if matcher.match(self.tuple_value, value.tuple_value) else None


@dataclass(frozen=True, eq=False)
class OrPattern(DFPattern):
    """One of two."""

    left: DFPattern
    right: DFPattern

    def found(self, matcher: Matcher, expr: Expr) -> Expr | None:
        """Return what is meant, see :meth:`DFPattern.found`."""
        for option in (self.left, self.right):
            if matcher.match(option, expr):
                return matcher.matched[option]
        return None


@dataclass(frozen=True, eq=False)
class AndPattern(DFPattern):
    """Both of two."""

    left: DFPattern
    right: DFPattern

    def found(self, matcher: Matcher, expr: Expr) -> Expr | None:
        """Return what is meant, see :meth:`DFPattern.found`."""
        both = matcher.match(self.left, expr) and matcher.match(self.right, expr)
        return matcher.matched[self.left] if both else None


@dataclass(frozen=True, eq=False)
class NotPattern(DFPattern):
    """Anything but that."""

    reject: DFPattern

    def found(self, matcher: Matcher, expr: Expr) -> Expr | None:
        """Return what is meant, see :meth:`DFPattern.found`."""
        before = dict(matcher.matched)
        matched = matcher.match(self.reject, expr)
        matcher.matched = before
        return None if matched else expr


@dataclass(frozen=True, eq=False)
class AttrPattern(DFPattern):
    """A call, an operator or a function with attributes of these values."""

    pattern: DFPattern
    attrs: Mapping[str, Any]

    def found(self, matcher: Matcher, expr: Expr) -> Expr | None:
        """Return what is meant, see :meth:`DFPattern.found`."""
        if not matcher.match(self.pattern, expr):
            return None
        value = matcher.value_of(expr)
        missing = object()
        for key, wanted in self.attrs.items():
            match value:
                case Op():
                    given = value.get_attr(key)
                case Call() | Function() if value.attrs is not None:
                    given = value.attrs.get(key, missing)
                case _:
                    return None
            if isinstance(given, tuple) and isinstance(wanted, list):
                wanted = tuple(wanted)
            if given is missing or not (given == wanted or str(given) == str(wanted)):
                return None
        return matcher.matched[self.pattern]


@dataclass(frozen=True, eq=False)
class DataTypePattern(DFPattern):
    """A tensor or scalar of a dtype."""

    pattern: DFPattern
    dtype: DataType

    def found(self, matcher: Matcher, expr: Expr) -> Expr | None:
        """Return what is meant, see :meth:`DFPattern.found`."""
        typed = isinstance(expr.ty, TensorType | PrimType) and expr.ty.dtype is self.dtype
        return expr if typed and matcher.match(self.pattern, expr) else None


@dataclass(frozen=True, eq=False)
class ShapePattern(DFPattern):
    """A tensor of a shape that is provably this one."""

    pattern: DFPattern
    shape: ShapeExpr

    def found(self, matcher: Matcher, expr: Expr) -> Expr | None:
        """Return what is meant, see :meth:`DFPattern.found`."""
        dims = expr.ty.get_shape() if isinstance(expr.ty, TensorType) else None
        if dims is None or not shapes_equal(dims, self.shape.values, matcher.analyzer):
            return None
        return expr if matcher.match(self.pattern, expr) else None


@dataclass(frozen=True, eq=False)
class TypePattern(DFPattern):
    """An expression of a type, or of one that says more."""

    pattern: DFPattern
    ty: Type

    def found(self, matcher: Matcher, expr: Expr) -> Expr | None:
        """Return what is meant, see :meth:`DFPattern.found`."""
        if expr.ty is None:
            return None
        check = type_base_check(self.ty, expr.ty, matcher.analyzer)
        fits = check is BaseCheckResult.PASS
        return expr if fits and matcher.match(self.pattern, expr) else None


@dataclass(frozen=True, eq=False)
class PrimArrPattern(DFPattern):
    """A shape as a value."""

    fields: tuple[Expr, ...]

    def found(self, matcher: Matcher, expr: Expr) -> Expr | None:
        """Return what is meant, see :meth:`DFPattern.found`."""
        value = matcher.value_of(expr)
        if not isinstance(value, ShapeExpr):
            return None
        return value if shapes_equal(value.values, self.fields, matcher.analyzer) else None


# ---------------------------------------------------------------- under TVM's names


def wildcard() -> WildcardPattern:
    """Return the pattern of anything."""
    return WildcardPattern()


def is_var(name: str = "") -> VarPattern:
    """Return the pattern of a variable."""
    return VarPattern(name)


def is_dfv(name: str = "") -> DataflowVarPattern:
    """Return the pattern of a variable of a dataflow block."""
    return DataflowVarPattern(name)


def is_gv(name: str = "") -> GlobalVarPattern:
    """Return the pattern of a function of the module."""
    return GlobalVarPattern(name)


def is_const() -> ConstantPattern:
    """Return the pattern of a constant."""
    return ConstantPattern()


def is_expr(expr: Expr) -> ExprPattern:
    """Return the pattern of an expression."""
    return ExprPattern(expr)


def is_op(op_name: str) -> ExprPattern:
    """Return the pattern of an operator; call it for the pattern of a call of it."""
    return ExprPattern(Op.get(op_name))


def is_tuple(
    fields: Sequence[DFPattern], unordered: bool = False
) -> TuplePattern | UnorderedTuplePattern:
    """Return the pattern of a tuple."""
    kind = UnorderedTuplePattern if unordered else TuplePattern
    return kind(tuple(fields))


def is_tuple_get_item(tuple_value: DFPattern, index: int | None = None) -> TupleGetItemPattern:
    """Return the pattern of a field of a tuple."""
    return TupleGetItemPattern(tuple_value, index)


def is_shape(shape: Sequence[Expr | int]) -> PrimArrPattern:
    """Return the pattern of a shape as a value."""
    return PrimArrPattern(ShapeExpr(tuple(shape)).values)


def has_attr(attrs: Mapping[str, Any], pattern: DFPattern | None = None) -> AttrPattern:
    """Return the pattern of something with attributes."""
    return (pattern or wildcard()).has_attr(attrs)


def has_dtype(dtype: DataType | str, pattern: DFPattern | None = None) -> DataTypePattern:
    """Return the pattern of something of a dtype."""
    return (pattern or wildcard()).has_dtype(dtype)


def _arguments(args: Sequence[DFPattern] | TuplePattern | None) -> DFPattern:
    if args is None:
        return wildcard()
    return args if isinstance(args, TuplePattern) else TuplePattern(tuple(args))


def is_call_tir(
    func_name: str, args: Sequence[DFPattern] | TuplePattern | None = None
) -> CallPattern:
    """Return the pattern of a call of a kernel."""
    return is_op("relax.call_tir")(
        GlobalVarPattern(func_name), _arguments(args), varg_default_wildcard=True
    )


def is_call_dps_packed(
    func_name: str, args: Sequence[DFPattern] | TuplePattern | None = None
) -> CallPattern:
    """Return the pattern of a call of a function that writes its outputs."""
    return is_op("relax.call_dps_packed")(
        ExternFuncPattern(func_name), _arguments(args), varg_default_wildcard=True
    )


def is_call_packed(func_name: str, args: Sequence[DFPattern] | None = None) -> CallPattern:
    """Return the pattern of a call of a function found by name."""
    pattern = ExternFuncPattern(func_name)
    if args is None:
        return pattern(varg_default_wildcard=True)
    return pattern(*args)


def make_fused_bias_activation_pattern(
    op_name: str,
    with_bias: bool = False,
    activation: str | None = None,
    allow_reshape: bool = False,
) -> DFPattern:
    """Return the pattern of an operator, its bias if wanted, and an activation if one is named."""
    result: DFPattern = is_op(op_name)(wildcard(), wildcard())
    if with_bias:
        bias: DFPattern = wildcard()
        if allow_reshape:
            reshaped = is_op("relax.reshape")(bias, wildcard(), varg_default_wildcard=True)
            result = is_op("relax.add")(result, bias | reshaped)
        else:
            result = is_op("relax.add")(result, bias)
    return result if activation is None else is_op(activation)(result)
