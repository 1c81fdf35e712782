"""The expressions both languages share.

::

    Expr = Var(name, ty)                       a variable of any type; identity is the object
         | GlobalVar(name_hint)                a function of the module
         | Op(name)                            an operator (op.py)
         | Call(op, args, attrs, ty_args)
         | Tuple(fields) | TupleGetItem(tuple_value, index)
         | StringImm(value) | GenericConst(value, ty)
         | PrimExpr                            scalar expressions (prim.py)

Every expression has a type ``ty`` (None until it is inferred) and a ``span``. An expression is
equal to itself only; see :func:`relaxlab.ir.structural_equal`. Counterpart: ``tvm.ir.expr``.

Examples
--------
>>> x = Var("x", PrimType("int64"))
>>> x.name, str(x.ty.dtype)
('x', 'int64')
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

from relaxlab.ir.attrs import Attrs
from relaxlab.ir.node import IGNORED, Node
from relaxlab.ir.source import Span
from relaxlab.ir.type import PRINTERS, AnyType, PrimType, TupleType, Type
from relaxlab.registry import Registry
from relaxlab.runtime.dtype import DataType

__all__ = [
    "Call",
    "EXPR_OPERATORS",
    "Expr",
    "GenericConst",
    "GlobalVar",
    "StringImm",
    "Tuple",
    "TupleGetItem",
    "Var",
    "with_ty",
]

E = TypeVar("E", bound="Expr")

#: What ``a + b`` and its like mean, by ``"<family>.<operator>"``. The family is ``prim`` for
#: scalars and ``relax`` for everything else; each language fills in its own.
EXPR_OPERATORS: Registry[Callable[..., Any]] = Registry("expression operator", TypeError)


def _operate(name: str, *operands: Any) -> Any:
    family = "relax"
    for operand in operands:
        if isinstance(operand, Expr):
            family = "prim" if isinstance(operand.ty, PrimType) else "relax"
            if family == "relax":
                break
    return EXPR_OPERATORS.get(f"{family}.{name}")(*operands)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Expr(Node):
    """Base of all expressions.

    Python's operators build expressions; ``==`` does not, it asks for identity.
    """

    ty: Type | None = field(metadata=IGNORED, default=None, kw_only=True)
    span: Span | None = field(metadata=IGNORED, default=None, kw_only=True)

    def __repr__(self) -> str:
        printer = PRINTERS.find("repr")
        return printer(self) if printer else f"<{type(self).__name__}>"

    @property
    def dtype(self) -> DataType:
        """The data type of a scalar expression.

        Raises
        ------
        AttributeError
            If the expression is no scalar.
        """
        if isinstance(self.ty, PrimType):
            return self.ty.dtype
        raise AttributeError(f"a {type(self).__name__} of type {self.ty!r} has no dtype")

    def __add__(self, other: Any) -> Any:
        return _operate("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return _operate("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return _operate("subtract", self, other)

    def __rsub__(self, other: Any) -> Any:
        return _operate("subtract", other, self)

    def __mul__(self, other: Any) -> Any:
        return _operate("multiply", self, other)

    def __rmul__(self, other: Any) -> Any:
        return _operate("multiply", other, self)

    def __truediv__(self, other: Any) -> Any:
        return _operate("divide", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _operate("divide", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return _operate("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _operate("floor_divide", other, self)

    def __mod__(self, other: Any) -> Any:
        return _operate("mod", self, other)

    def __rmod__(self, other: Any) -> Any:
        return _operate("mod", other, self)

    def __pow__(self, other: Any) -> Any:
        return _operate("power", self, other)

    def __neg__(self) -> Any:
        return _operate("negative", self)

    def __lt__(self, other: Any) -> Any:
        return _operate("less", self, other)

    def __le__(self, other: Any) -> Any:
        return _operate("less_equal", self, other)

    def __gt__(self, other: Any) -> Any:
        return _operate("greater", self, other)

    def __ge__(self, other: Any) -> Any:
        return _operate("greater_equal", self, other)

    def __lshift__(self, other: Any) -> Any:
        return _operate("shift_left", self, other)

    def __rshift__(self, other: Any) -> Any:
        return _operate("shift_right", self, other)

    def __and__(self, other: Any) -> Any:
        return _operate("bitwise_and", self, other)

    def __or__(self, other: Any) -> Any:
        return _operate("bitwise_or", self, other)

    def __xor__(self, other: Any) -> Any:
        return _operate("bitwise_xor", self, other)

    def __invert__(self) -> Any:
        return _operate("bitwise_not", self)

    def __bool__(self) -> bool:
        # a comparison builds an expression: testing it as a truth value is always a mistake
        raise TypeError(
            "an expression has no truth value at build time; compare objects with `is`, or use "
            "If / T.if_then_else to choose at run time"
        )


def with_ty(expr: E, ty: Type) -> E:
    """Return ``expr`` with its type set; the same object if it already is that type object."""
    return expr if expr.ty is ty else replace(expr, ty=ty)


@dataclass(frozen=True, eq=False, slots=True, repr=False, init=False)
class Var(Expr):
    """A variable. Two variables of one name are two variables.

    Parameters
    ----------
    name
        A hint; the printer makes names unique.
    ty
        Its type, positional as in TVM; a dtype string means a scalar of it.
    """

    is_variable: ClassVar[bool] = True
    is_typed_variable: ClassVar[bool] = True

    name: str = field(metadata=IGNORED)

    def __init__(
        self, name: str, ty: Type | DataType | str | None = None, span: Span | None = None
    ) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(
            self, "ty", PrimType(DataType(ty)) if isinstance(ty, str | DataType) else ty
        )
        object.__setattr__(self, "span", span)

    @property
    def name_hint(self) -> str:
        """The name hint, under TVM's older name."""
        return self.name

    def __getitem__(self, index: Any) -> Any:
        return _operate("getitem", self, index)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class GlobalVar(Expr):
    """A reference to a function of the module.

    Its type is that of the function it names. A module sets it when a function is added, since a
    function that calls itself needs the reference first: the one field of a node that is filled
    in later.
    """

    is_variable: ClassVar[bool] = True
    is_typed_variable: ClassVar[bool] = False

    name_hint: str = field(metadata=IGNORED)

    def set_ty(self, ty: Type) -> None:
        """Record the type of the function that this variable names."""
        object.__setattr__(self, "ty", ty)

    def __call__(self, *args: Expr) -> "Call":
        """Build a call of the function."""
        return Call(self, args)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Call(Expr):
    """A call of an operator, a global function, an external function or a function value."""

    op: Expr
    args: tuple[Expr, ...] = ()
    attrs: Attrs | None = None
    ty_args: tuple[Type, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "args", tuple(self.args))
        object.__setattr__(self, "ty_args", tuple(self.ty_args))


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Tuple(Expr):
    """A tuple of expressions; its type follows when all fields have one."""

    fields: tuple[Expr, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(self.fields))
        # always derived, never carried over from a node with other fields
        types = tuple(f.ty for f in self.fields if f.ty is not None)
        complete = len(types) == len(self.fields)
        object.__setattr__(self, "ty", TupleType(types) if complete else None)

    def __getitem__(self, index: int) -> Expr:
        return self.fields[index]

    def __len__(self) -> int:
        return len(self.fields)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class TupleGetItem(Expr):
    """One field of a tuple.

    Raises
    ------
    IndexError
        If the tuple's type is known and has no such field, or the index is negative.
    """

    tuple_value: Expr
    index: int

    def __post_init__(self) -> None:
        ty = self.tuple_value.ty
        if self.index < 0:
            raise IndexError(f"tuple index {self.index} is negative")
        if isinstance(ty, TupleType):
            if self.index >= len(ty.fields):
                raise IndexError(
                    f"tuple index {self.index} is out of range for a tuple of "
                    f"{len(ty.fields)} fields"
                )
            if self.ty is None:
                object.__setattr__(self, "ty", ty.fields[self.index])


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class StringImm(Expr):
    """A string."""

    value: str

    def __post_init__(self) -> None:
        if self.ty is None:
            object.__setattr__(self, "ty", AnyType())


@dataclass(frozen=True, eq=False, slots=True, repr=False, init=False)
class GenericConst(Expr):
    """A constant held by value: a runtime tensor, or a data type.

    ``ty`` is positional as in TVM; who builds one gives it (``relax.const`` does).
    """

    value: Any

    def __init__(self, value: Any, ty: Type | None = None, span: Span | None = None) -> None:
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "ty", ty)
        object.__setattr__(self, "span", span)

    @property
    def data(self) -> Any:
        """The value, under TVM's older name."""
        return self.value
