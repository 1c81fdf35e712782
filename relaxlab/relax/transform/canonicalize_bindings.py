"""Remove bindings that only give another name to what has one.

Two passes. *Symbolic variables*: a match_cast that gives a new symbolic variable a size known
already (``x: (n,)`` cast to ``(m,)``) replaces the variable from there on. *Relax bindings*:
``y = x`` and match_casts to the value's own type vanish and uses of ``y`` become uses of ``x``
(inside a dataflow block an output keeps its name and ``x`` takes it over); fields of known tuples
and constants are used directly; a dataflow output that nobody outside needs becomes a dataflow
variable. Counterpart: ``tvm.relax.transform.CanonicalizeBindings``; unlike it, a cast to a variable
that has a value already (a check) teaches nothing and stays, and so does another name of a value
that is killed under the first one.

Examples
--------
>>> CanonicalizeBindings().info.name
'CanonicalizeBindings'
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from relaxlab.ir import (
    Call,
    Expr,
    GenericConst,
    IRModule,
    Op,
    Pass,
    PassContext,
    PrimType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Var,
    prim_ops,
)
from relaxlab.ir.prim_functor import free_vars
from relaxlab.relax.expr import (
    Binding,
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    Function,
    If,
    MatchCast,
    SeqExpr,
    ShapeExpr,
    ShapeType,
    TensorType,
    VarBinding,
)
from relaxlab.relax.expr_functor import ExprMutator, ExprVisitor
from relaxlab.relax.transform.pass_base import FunctionPass
from relaxlab.relax.type_variables import (
    definable_tir_vars_in_type,
    substitute,
    tir_vars_in_type,
)

__all__ = [
    "CanonicalizeBindings",
    "CanonicalizeRelaxBindings",
    "CanonicalizeTIRVariables",
    "canonicalize_function",
]

_KILLS: Final = frozenset(
    {"relax.memory.kill_tensor", "relax.memory.kill_storage", "relax.vm.kill_object"}
)


# --- symbolic variables -------------------------------------------------------------------------


class _ValueVariables(ExprVisitor):
    """Finds symbolic variables that are used as values, which need their definition.

    ``needed`` tells whether there is a match_cast or an If at all.
    """

    def __init__(self) -> None:
        self.found: set[Var] = set()
        self.needed = False

    def visit_var_(self, op: Var) -> None:
        if isinstance(op.ty, PrimType):
            self.found.add(op)

    def visit_prim_expr_(self, op: Expr) -> None:
        self.found.update(free_vars(op))

    def visit_shape_expr_(self, op: ShapeExpr) -> None:
        """Leave out dimensions: they can be replaced."""

    def visit_match_cast_(self, binding: MatchCast) -> None:
        self.needed = True
        super().visit_match_cast_(binding)

    def visit_if_(self, op: If) -> None:
        self.needed = True
        super().visit_if_(op)


class _SymbolicCanonicalizer(ExprMutator):
    def __init__(self, mod: IRModule | None, value_variables: set[Var]) -> None:
        super().__init__(mod)
        self.value_variables = value_variables
        #: What is known of symbolic variables.
        self.known: dict[Var, Expr] = {}
        #: The variable whose cast said so.
        self.source: dict[Var, Var] = {}
        #: Symbolic variables that have a value here; casting to one is a check, not a definition.
        self.defined: set[Var] = set()

    def visit_ty(self, ty: Type) -> Type:
        return substitute(ty, self.known)

    def visit_shape_expr_(self, op: ShapeExpr) -> Expr:
        return substitute(op, self.known)

    def visit_function_(self, op: Function) -> Expr:
        outside = set(self.defined)
        for param in op.params:
            self.defined.update(definable_tir_vars_in_type(param.ty))
        result = super().visit_function_(op)
        self.defined = outside
        return result

    def visit_match_cast_(self, binding: MatchCast) -> None:
        value = self.visit_expr(binding.value)
        if value.ty is not None:
            self.learn(binding.ty, value.ty, binding.var)
        self.defined.update(definable_tir_vars_in_type(binding.ty))
        if self.value_variables.isdisjoint(tir_vars_in_type(binding.ty)):
            super().visit_match_cast_(binding)
        elif value is binding.value:
            self.builder.emit_normalized(binding)
        else:
            self.builder.emit_normalized(
                MatchCast(binding.var, value, binding.ty, span=binding.span)
            )

    def learn(self, cast: Type, known: Type, var: Var) -> None:
        """Note what a cast of a value of type ``known`` says of the variables of ``cast``."""
        match cast, known:
            case TensorType(shape=ShapeExpr() as dims), TensorType(shape=ShapeExpr() as values):
                self.learn_dims(dims.values, values.values, var)
            case ShapeType(values=a), ShapeType(values=b) if a is not None and b is not None:
                self.learn_dims(a, b, var)
            case TupleType(fields=a), TupleType(fields=b) if len(a) == len(b):
                for item, other in zip(a, b, strict=True):
                    self.learn(item, other, var)
            case _:
                pass

    def learn_dims(self, cast: tuple[Expr, ...], known: tuple[Expr, ...], var: Var) -> None:
        if len(cast) != len(known):
            return
        for dim, value in zip(cast, known, strict=True):
            if not isinstance(dim, Var) or dim is value:
                continue
            before = self.known.get(dim)
            if before is None:
                if dim not in self.defined and dim not in free_vars(value):
                    self.known[dim] = value
                    self.source[dim] = var
            elif self.builder.analyzer.can_prove(prim_ops.not_equal(before, value)):
                raise ValueError(
                    "MatchCast statements must be consistent.  However, the definition of Relax "
                    f"variable {self.source[dim].name} implies that TIR variable {dim.name} is "
                    f"{before}, while the later definition of Relax variable {var.name} "
                    f"instead implies that TIR variable {dim.name} is {value}"
                )

    def visit_if_(self, op: If) -> Expr:
        """Visit the branches; the type of an If that has bindings is written down in each.

        What a branch learns is not known after it.
        """
        known, defined = dict(self.known), set(self.defined)
        cond = self.visit_expr(op.cond)
        branches: list[Any] = []
        for branch in (op.true_branch, op.false_branch):
            branches.append(self.visit_with_new_scope(branch))
            self.known, self.defined = dict(known), set(defined)
        if op.ty is not None and any(branch.blocks for branch in branches):
            names = ("then_branch_with_dyn", "else_branch_with_dyn")
            branches = [
                _with_type(branch, op.ty, name)
                for branch, name in zip(branches, names, strict=True)
            ]
        true_branch, false_branch = branches
        if cond is op.cond and true_branch is op.true_branch and false_branch is op.false_branch:
            return op
        return If(cond, true_branch, false_branch, ty=op.ty, span=op.span)


def _with_type(branch: SeqExpr, ty: Type, name: str) -> SeqExpr:
    """Cast the result of a branch to the type of its If, where it says more than that."""
    if branch.body.ty == ty:
        return branch
    var = Var(name, ty)
    *before, last = branch.blocks or (BindingBlock(),)
    place = last.bindings[-1].span if last.bindings else branch.body.span
    cast = MatchCast(var, branch.body, ty, span=place)
    if isinstance(last, DataflowBlock):
        blocks = (*branch.blocks, BindingBlock((cast,)))
    else:
        blocks = (*before, BindingBlock((*last.bindings, cast), span=last.span))
    return SeqExpr(blocks, var, ty=ty, span=branch.span)


# --- relax bindings -----------------------------------------------------------------------------


class _Plan(ExprVisitor):
    """What each variable of a function comes down to.

    Attributes
    ----------
    alias
        A variable that is another one, to that other one (follow until it ends).
    constants
        Variables bound to a constant.
    tuples
        Variables bound to a tuple, to its fields.
    renamed
        Variable of a dataflow block to what it is called in the result: the output that took its
        place, or a dataflow variable where it was an output in vain.
    """

    def __init__(self) -> None:
        self.alias: dict[Var, Var] = {}
        self.constants: dict[Var, GenericConst] = {}
        self.tuples: dict[Var, tuple[Expr, ...]] = {}
        self.renamed: dict[Var, Var] = {}
        #: Variables that the program kills: what else was called so lives on under its own name.
        self.killed: set[Var] = set()
        self._fields: dict[Var, tuple[Var, int]] = {}
        self._bound: set[Var] = set()

    def root(self, var: Var) -> Var:
        """Return the variable that ``var`` is another name of, perhaps itself."""
        while var in self.alias:
            var = self.alias[var]
        return var

    def field(self, get: TupleGetItem) -> Expr | None:
        """Return the field of a tuple that is known."""
        if isinstance(get.tuple_value, Tuple):
            return get.tuple_value.fields[get.index]
        if not isinstance(get.tuple_value, Var):
            return None
        fields = self.tuples.get(self.root(get.tuple_value))
        if fields is None or fields[get.index] in self.killed:
            return None
        return fields[get.index]

    def visit_binding_block(self, block: BindingBlock) -> None:
        local = block if isinstance(block, DataflowBlock) else None
        for binding in block.bindings:
            if isinstance(binding, VarBinding):
                self.visit_expr(binding.value)
            if isinstance(binding, VarBinding | MatchCast):
                self._bound.add(binding.var)
                self.consider(binding, local)

    def consider(self, binding: VarBinding | MatchCast, block: DataflowBlock | None) -> None:
        value: Expr | None = binding.value
        if binding.var in self.killed or value in self.killed:
            return
        if isinstance(binding, MatchCast):
            if not isinstance(value, Var) or value.ty is None or value.ty != binding.ty:
                return
        elif isinstance(value, TupleGetItem):
            known = self.field(value)
            if known is None and isinstance(value.tuple_value, Var):
                self._fields[binding.var] = (self.root(value.tuple_value), value.index)
            if isinstance(known, Tuple):
                self.tuples[binding.var] = self.roots(known)
            value = known
        elif isinstance(value, GenericConst):
            self.constants[binding.var] = value
        elif isinstance(value, Tuple):
            self.tuples[binding.var] = self.roots(value)
            value = self.whole(self.tuples[binding.var])
        if isinstance(value, Var):
            self.name_twice(binding.var, self.root(value), block)

    def roots(self, value: Tuple) -> tuple[Expr, ...]:
        """Return the fields of a tuple under their first names."""
        return tuple(self.root(f) if isinstance(f, Var) else f for f in value.fields)

    def whole(self, fields: tuple[Expr, ...]) -> Var | None:
        """Return the parameter whose fields these are, all and in order."""
        origin: Var | None = None
        for position, item in enumerate(fields):
            found = self._fields.get(item) if isinstance(item, Var) else None
            if found is None or found[1] != position:
                return None
            if origin is not None and found[0] is not origin:
                return None
            origin = found[0]
        if origin is None or origin in self._bound or not isinstance(origin.ty, TupleType):
            return None
        return origin if len(origin.ty.fields) == len(fields) else None

    def name_twice(self, var: Var, value: Var, block: DataflowBlock | None) -> None:
        """Note that ``var`` is ``value``; an output of a dataflow block keeps its name."""
        final = self.renamed.get(value, value)
        outer = self.renamed.get(var, var)
        if (
            block is not None
            and not isinstance(outer, DataflowVar)
            and isinstance(final, DataflowVar)
        ):
            self.renamed[value] = outer
        self.alias[var] = value


class _Outside(ExprVisitor):
    """Finds outputs of dataflow blocks that nobody outside their block uses, and what is killed."""

    def __init__(self) -> None:
        self.home: dict[Var, DataflowBlock] = {}
        self.block: BindingBlock | None = None
        self.escaped: set[Var] = set()
        self.killed: set[Var] = set()

    def visit_call_(self, op: Call) -> None:
        if isinstance(op.op, Op) and op.op.name in _KILLS and isinstance(op.args[0], Var):
            self.killed.add(op.args[0])
        super().visit_call_(op)

    def visit_var_(self, op: Var) -> None:
        if self.home.get(op) is not self.block:
            self.escaped.add(op)

    def visit_prim_expr_(self, op: Expr) -> None:
        self.escaped.update(free_vars(op))

    def visit_dataflow_block_(self, block: DataflowBlock) -> None:
        outer, self.block = self.block, block
        super().visit_dataflow_block_(block)
        self.block = outer

    def visit_var_def(self, var: Var) -> None:
        if isinstance(self.block, DataflowBlock) and not isinstance(var, DataflowVar):
            self.home[var] = self.block
        for mentioned in tir_vars_in_type(var.ty):
            self.escaped.add(mentioned)

    def unused(self) -> list[Var]:
        return [var for var in self.home if var not in self.escaped]


class _BindingCanonicalizer(ExprMutator):
    def __init__(self, mod: IRModule | None, plan: _Plan) -> None:
        super().__init__(mod)
        self.plan = plan
        #: Scalar variables that are others, for shapes and types.
        self.scalars = {var: plan.root(var) for var in plan.alias if isinstance(var.ty, PrimType)}

    def visit_ty(self, ty: Type) -> Type:
        return substitute(ty, self.scalars)

    def visit_var_(self, op: Var) -> Expr:
        root = self.plan.root(op)
        constant = self.plan.constants.get(root)
        return constant if constant is not None else self.var_remap.get(root, root)

    def visit_prim_expr_(self, op: Expr) -> Expr:
        return substitute(op, self.scalars)

    def visit_tuple_getitem_(self, op: TupleGetItem) -> Expr:
        known = self.plan.field(op)
        if known is None or isinstance(known, Tuple):
            return super().visit_tuple_getitem_(op)
        result: Expr = self.visit_expr(known)
        return result

    def visit_var_def(self, var: Var) -> Var:
        new = self.plan.renamed.get(var, var)
        if new is not var:
            self.var_remap[var] = new
        return super().visit_var_def(new)

    def visit_binding(self, binding: Binding) -> None:
        if isinstance(binding, VarBinding | MatchCast) and binding.var in self.plan.alias:
            return
        super().visit_binding(binding)


def _canonicalize_symbolic(func: Function, mod: IRModule | None) -> Function:
    variables = _ValueVariables()
    variables.visit_expr(func)
    if not variables.needed:
        return func
    result: Any = _SymbolicCanonicalizer(mod, variables.found).visit_expr(func)
    return result  # type: ignore[no-any-return]  # a function stays one


def _canonicalize_relax(func: Function, mod: IRModule | None) -> Function:
    outside, plan = _Outside(), _Plan()
    outside.visit_expr(func)
    plan.killed = outside.killed
    for var in outside.unused():
        plan.renamed[var] = DataflowVar(var.name, var.ty, var.span)
    plan.visit_expr(func)
    if not (plan.alias or plan.constants or plan.tuples or plan.renamed):
        return func
    result: Any = _BindingCanonicalizer(mod, plan).visit_expr(func)
    return result  # type: ignore[no-any-return]  # a function stays one


def canonicalize_function(func: Function, mod: IRModule | None = None) -> Function:
    """Do both parts on one function."""
    return _canonicalize_relax(_canonicalize_symbolic(func, mod), mod)


@dataclass(frozen=True)
class CanonicalizeTIRVariables(FunctionPass):
    """The part about symbolic variables."""

    opt_level: ClassVar[int] = 1

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return the function with known symbolic variables replaced."""
        return _canonicalize_symbolic(func, mod)


@dataclass(frozen=True)
class CanonicalizeRelaxBindings(FunctionPass):
    """The part about bindings."""

    opt_level: ClassVar[int] = 1

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return the function without bindings that only rename."""
        return _canonicalize_relax(func, mod)


@dataclass(frozen=True)
class CanonicalizeBindings(Pass):
    """Both parts, one after the other; instruments see them as passes."""

    def run(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Run those of the two parts that the context's level allows."""
        for part in (CanonicalizeTIRVariables(), CanonicalizeRelaxBindings()):
            if ctx.pass_enabled(part.info):
                mod = part(mod)
        return mod
