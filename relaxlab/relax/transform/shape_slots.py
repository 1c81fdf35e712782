"""Which sizes a function needs at run time, and where they lie on the shape heap.

Every distinct int64 expression in types and shapes of a function gets a slot, in order of
appearance; a compound expression is followed by its variables. A scalar variable used as a value
gets one only if the function's result depends on that use. Counterpart: the slot collection of
TVM's ``VMShapeLower``.

Examples
--------
>>> from relaxlab.ir import Var
>>> slots, n = SlotTable(), Var("n", "int64")
>>> slots.add(n * 2)
>>> [slots.find(n * 2), slots.find(n), slots.find(n + 1)]
[0, 1, None]
"""

from relaxlab.errors import InternalError
from relaxlab.ir import (
    Call,
    Expr,
    IntImm,
    PrimType,
    Tuple,
    TupleType,
    Type,
    Var,
    structural_equal,
    structural_hash,
)
from relaxlab.ir.prim_functor import free_vars
from relaxlab.relax.expr import (
    Function,
    If,
    MatchCast,
    SeqExpr,
    ShapeExpr,
    ShapeType,
    TensorType,
    VarBinding,
)
from relaxlab.relax.expr_functor import ExprVisitor
from relaxlab.runtime.dtype import DataType

__all__ = ["SlotTable", "collect_slots", "is_size"]

_INT64 = DataType("int64")


def is_size(expr: Expr) -> bool:
    """Say whether an expression is an int64 scalar that is not a literal."""
    return (
        isinstance(expr.ty, PrimType) and expr.ty.dtype is _INT64 and not isinstance(expr, IntImm)
    )


class SlotTable:
    """Slots by expression; structurally equal expressions share one.

    Attributes
    ----------
    exprs
        The expression of each slot.
    """

    def __init__(self) -> None:
        self.exprs: list[Expr] = []
        self._variables: dict[Var, int] = {}
        self._compound: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return len(self.exprs)

    def find(self, expr: Expr) -> int | None:
        """Return the slot of an expression, or None."""
        if isinstance(expr, Var):
            return self._variables.get(expr)
        for slot in self._compound.get(structural_hash(expr), ()):
            if structural_equal(self.exprs[slot], expr):
                return slot
        return None

    def slot(self, expr: Expr) -> int:
        """Return the slot of an expression; InternalError if it has none."""
        found = self.find(expr)
        if found is None:
            raise InternalError(f"the size {expr!r} has no slot on the shape heap")
        return found

    def add(self, expr: Expr) -> None:
        """Give an expression a slot, and its variables slots behind it; literals need none."""
        if not is_size(expr) or self.find(expr) is not None:
            return
        if isinstance(expr, Var):
            self._variables[expr] = len(self.exprs)
            self.exprs.append(expr)
            return
        self._compound.setdefault(structural_hash(expr), []).append(len(self.exprs))
        self.exprs.append(expr)
        for var in free_vars(expr):
            self.add(var)


def collect_slots(func: Function) -> SlotTable:
    """Return the slots that a function needs.

    Raises
    ------
    InternalError
        If it contains a local function.
    """
    collector = _Collector(_needed_variables(func))
    collector.visit_expr(func)
    return collector.slots


class _Dependencies(ExprVisitor):
    """Collects what every variable depends on, branches included."""

    def __init__(self) -> None:
        self.values: dict[Var, Expr] = {}

    def visit_var_binding_(self, binding: VarBinding) -> None:
        self.values[binding.var] = binding.value
        super().visit_var_binding_(binding)

    def visit_match_cast_(self, binding: MatchCast) -> None:
        self.values[binding.var] = binding.value
        super().visit_match_cast_(binding)


def _needed_variables(func: Function) -> set[Var]:
    """Return the variables that the result of a function depends on."""
    dependencies = _Dependencies()
    dependencies.visit_expr(func)
    needed: set[Var] = set()
    stack: list[Expr] = [func.body.body]
    while stack:
        match stack.pop():
            case Var() as var if var not in needed:
                needed.add(var)
                if var in dependencies.values:
                    stack.append(dependencies.values[var])
            case Call(op=op, args=args):
                stack.extend((op, *args))
            case Tuple(fields=fields):
                stack.extend(fields)
            case If(cond=cond, true_branch=true_branch, false_branch=false_branch):
                stack.extend((cond, true_branch, false_branch))
            case SeqExpr(body=body):
                stack.append(body)
            case other:
                value = getattr(other, "tuple_value", None)
                if value is not None:
                    stack.append(value)
    return needed


class _Collector(ExprVisitor):
    def __init__(self, needed: set[Var]) -> None:
        self.slots = SlotTable()
        self.needed = needed
        #: Whether the result depends on what is being visited.
        self.matters = True

    def visit_ty(self, ty: Type | None) -> None:
        """Add the sizes written out in a type; those of a function type are its own."""
        match ty:
            case TensorType(shape=ShapeExpr(values=dims)):
                self.add_all(dims)
            case ShapeType(values=dims) if dims is not None:
                self.add_all(dims)
            case TupleType(fields=fields):
                for item in fields:
                    self.visit_ty(item)
            case _:
                pass

    def add_all(self, dims: tuple[Expr, ...]) -> None:
        for dim in dims:
            self.slots.add(dim)

    def visit_function_(self, op: Function) -> None:
        for param in op.params:
            self.visit_ty(param.ty)
        self.visit_expr(op.body)
        self.visit_ty(op.ret_ty)

    def visit_var_binding_(self, binding: VarBinding) -> None:
        if isinstance(binding.value, Function):
            raise InternalError(
                "VMShapeLower do not work for local functions, make sure  to run it after "
                f"LambdaLift; {binding.var.name!r} is one"
            )
        self.visit_ty(binding.var.ty)
        outer = self.matters
        self.matters = outer and binding.var in self.needed
        self.visit_expr(binding.value)
        self.matters = outer

    def visit_match_cast_(self, binding: MatchCast) -> None:
        self.visit_ty(binding.ty)

    def visit_var_(self, op: Var) -> None:
        if self.matters:
            self.slots.add(op)

    def visit_prim_expr_(self, op: Expr) -> None:
        if not isinstance(op, IntImm):
            raise InternalError(
                f"VMShapeLower met the scalar expression {op!r} as a value; run ComputePrimValue "
                "first"
            )

    def visit_shape_expr_(self, op: ShapeExpr) -> None:
        self.add_all(op.values)
