"""The Relax language: what an R.function is made of.

::

    Expr     = ... (ir/expr.py, ir/prim.py)
             | DataflowVar(name, ty)            visible only in the DataflowBlock defining it
             | ShapeExpr(values)                (shape.py)
             | ExternFunc(global_symbol)        a function found by name at run time
             | If(cond, true_branch, false_branch)
             | SeqExpr(blocks, body)
             | Function(params, body, ret_ty, is_pure, attrs)
    Binding  = VarBinding(var, value) | MatchCast(var, value, ty)
    Block    = BindingBlock(bindings) | DataflowBlock(bindings)

In normal form (compiler.md, 1.7) everything but leaves and tuples of leaves is bound to a
variable. Counterpart: ``tvm.relax.expr``.

Examples
--------
>>> x = Var("x", TensorType([2], "float32"))
>>> SeqExpr((), x).body is x
True
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from relaxlab.errors import InternalError
from relaxlab.ir.attrs import DictAttrs
from relaxlab.ir.expr import (
    Call,
    Expr,
    GenericConst,
    GlobalVar,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
)
from relaxlab.ir.module import BaseFunc
from relaxlab.ir.node import DEFINES, IGNORED, Node
from relaxlab.ir.source import Span
from relaxlab.ir.type import PRINTERS, FuncType, Type
from relaxlab.relax.shape import SHAPE_TYPE, ShapeExpr
from relaxlab.relax.type import PACKED_FUNC, ShapeType, TensorType
from relaxlab.relax.type_relations import is_base_of
from relaxlab.relax.type_variables import definable_tir_vars_in_type, erase_to_well_defined

__all__ = [
    "Binding",
    "BindingBlock",
    "Call",
    "DataflowBlock",
    "DataflowVar",
    "Expr",
    "ExternFunc",
    "Function",
    "GenericConst",
    "GlobalVar",
    "If",
    "MatchCast",
    "SeqExpr",
    "ShapeExpr",
    "ShapeType",
    "StringImm",
    "TensorType",
    "Tuple",
    "TupleGetItem",
    "Var",
    "VarBinding",
]

SHAPE_TYPE.register("ShapeType", ShapeType)


@dataclass(frozen=True, eq=False, slots=True, repr=False, init=False)
class DataflowVar(Var):
    """A variable that only the DataflowBlock defining it can see."""


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class ExternFunc(BaseFunc):
    """A function found by name when the program is loaded.

    Its type is opaque and impure; the result comes from the call's ``ty_args``.
    """

    global_symbol: str
    attrs: DictAttrs = field(default_factory=DictAttrs)

    def __post_init__(self) -> None:
        if self.ty is None:
            object.__setattr__(self, "ty", PACKED_FUNC)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Binding(Node):
    """Base of bindings."""

    span: Span | None = field(metadata=IGNORED, default=None, kw_only=True)

    def __repr__(self) -> str:
        printer = PRINTERS.find("repr")
        return printer(self) if printer else f"<{type(self).__name__}>"


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class VarBinding(Binding):
    """``var = value``."""

    var: Var = field(metadata=DEFINES)
    value: Expr

    def structural_fields(self) -> tuple[object, ...]:
        """What equality looks at: the value first, since it cannot see the variable."""
        if isinstance(self.value, Function):
            return (_Defined(self.var), self.value)  # a local function may call itself
        return (self.value, _Defined(self.var))


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class MatchCast(Binding):
    """``var = R.match_cast(value, ty)``; ``ty`` may define symbolic variables."""

    var: Var = field(metadata=DEFINES)
    value: Expr
    ty: Type = field(metadata=DEFINES)

    def structural_fields(self) -> tuple[object, ...]:
        """What equality looks at: the value first, then what it DEFINES."""
        return (self.value, _Defined(self.ty), _Defined(self.var))


@dataclass(frozen=True, eq=False, slots=True)
class _Defined(Node):
    """A node in defining position, for ``structural_fields``."""

    node: Node = field(metadata=DEFINES)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class BindingBlock(Node):
    """Bindings in order."""

    bindings: tuple[Binding, ...] = ()
    span: Span | None = field(metadata=IGNORED, default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bindings", tuple(self.bindings))

    def __repr__(self) -> str:
        printer = PRINTERS.find("repr")
        return printer(self) if printer else f"<{type(self).__name__}>"


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class DataflowBlock(BindingBlock):
    """Bindings without control flow or effects; plain ``Var``s are its outputs."""


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class SeqExpr(Expr):
    """Blocks of bindings and a result that may use them."""

    blocks: tuple[BindingBlock, ...]
    body: Expr

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", tuple(self.blocks))


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class If(Expr):
    """A choice; both branches are :class:`SeqExpr` in normal form."""

    cond: Expr
    true_branch: Expr
    false_branch: Expr


@dataclass(frozen=True, eq=False, slots=True, repr=False, init=False)
class Function(BaseFunc):
    """A Relax function.

    Parameters
    ----------
    params
        Variables with types; bare symbolic dimensions in those types are defined here.
    body
        A :class:`SeqExpr` (anything else is wrapped into one).
    ret_ty
        Declared result type; None takes the body's. The body's is taken too when it is known
        and says more. Either way a shape that callers cannot express is dropped.
    is_pure
        Whether calling it has no visible effect.
    attrs
        ``global_symbol`` (absent: private), ``Primitive``, ``num_input``, ...

    Raises
    ------
    InternalError
        If neither ``ret_ty`` nor the body's type is known.
    TypeError
        If a parameter has no type.
    """

    params: tuple[Var, ...] = field(metadata=DEFINES)
    body: SeqExpr
    ret_ty: Type
    is_pure: bool
    attrs: DictAttrs

    def __init__(
        self,
        params: Sequence[Var],
        body: Expr,
        ret_ty: Type | None = None,
        is_pure: bool = True,
        attrs: DictAttrs | dict[str, Any] | None = None,
        span: Span | None = None,
        ty: Type | None = None,
    ) -> None:
        if not isinstance(body, SeqExpr):
            body = SeqExpr((), body, ty=body.ty)
        params = tuple(params)
        if body.ty is not None and (ret_ty is None or is_base_of(ret_ty, body.ty)):
            visible = (v for p in params for v in definable_tir_vars_in_type(p.ty))
            ret_ty = erase_to_well_defined(body.ty, {v: v for v in visible})
        if ret_ty is None:
            raise InternalError(
                "Function must be constructed with either an explicit type for the return type, "
                "or a normalized body with type."
            )
        if not isinstance(attrs, DictAttrs):
            attrs = DictAttrs(attrs or {})
        missing = [p.name for p in params if p.ty is None]
        if missing:
            raise TypeError(f"parameters need a type: {', '.join(missing)}")
        signature = tuple(p.ty for p in params if p.ty is not None)
        for name, value in {
            "params": params,
            "body": body,
            "ret_ty": ret_ty,
            "is_pure": is_pure,
            "attrs": attrs,
            "span": span,
            # never carried over: it always follows from the fields above
            "ty": FuncType(signature, ret_ty, is_pure),
        }.items():
            object.__setattr__(self, name, value)

    def __call__(self, *args: Expr) -> Call:
        """Build a call of this function value."""
        return Call(self, args)
