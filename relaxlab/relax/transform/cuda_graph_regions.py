"""Which parts of a function can be captured as a CUDA graph.

A value is *static* when its memory is the same in every run: a weight, a constant, a tensor in a
storage of constant size that is kept between runs, and what kernels compute from such. A *region*
is a run of bindings with static arguments that begins with a kernel launch; it can be recorded once
and replayed. Counterpart: the analysis of TVM's ``RewriteCUDAGraph``; unlike there a region ends at
an If, which may run other kernels in between.

Examples
--------
>>> Region().inputs
{}
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from relaxlab.ir import (
    Call,
    Expr,
    GenericConst,
    GlobalVar,
    IntImm,
    IRModule,
    Op,
    PrimType,
    StringImm,
    Tuple,
    TupleGetItem,
    Type,
    Var,
)
from relaxlab.ir.prim_functor import free_vars
from relaxlab.relax.expr import (
    ExternFunc,
    Function,
    If,
    MatchCast,
    SeqExpr,
    ShapeExpr,
    VarBinding,
)
from relaxlab.relax.expr_functor import ExprVisitor
from relaxlab.relax.type_variables import tir_vars_in_type
from relaxlab.tirx import PrimFunc

__all__ = ["GraphPlan", "Region", "find_regions"]

#: Operators that launch nothing and only give static memory another form.
_FORMS: Final = frozenset({"relax.memory.alloc_tensor", "relax.reshape", "relax.memory.view"})
_CAPTURE: Final = "relax.rewrite_cuda_graph.capture_symbolic_vars"


@dataclass(eq=False, slots=True)
class Region:
    """Bindings to capture together.

    Attributes
    ----------
    bindings
        In order; the first launches a kernel.
    inputs
        Variables from outside, in order of first use.
    outputs
        Variables used outside, in order of first use there, with their number.
    sizes
        Symbolic variables, in order of first use.
    """

    bindings: list[VarBinding] = field(default_factory=list)
    inputs: dict[Var, None] = field(default_factory=dict)
    outputs: dict[Var, int] = field(default_factory=dict)
    sizes: dict[Var, None] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class GraphPlan:
    """What can be captured of one function.

    Attributes
    ----------
    storages
        Bindings of the storages to keep between runs, in order.
    regions
        Regions in order.
    region_of
        The region of each binding that is in one.
    """

    storages: list[VarBinding] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)
    region_of: dict[VarBinding, Region] = field(default_factory=dict)


def find_regions(mod: IRModule, func: Function) -> GraphPlan:
    """Find what can be captured of ``func``, whose memory is planned."""
    finder = _Finder(mod, func)
    finder.sequence(func.body)
    plan = finder.plan
    for region in plan.regions:
        _fill_inputs(region)
    _OutputCollector(plan).visit_expr(func)
    return plan


class _Finder:
    def __init__(self, mod: IRModule, func: Function) -> None:
        self.mod = mod
        self.plan = GraphPlan()
        self.static: set[Var] = set()
        self.sizes: set[Var] = set()
        inputs = func.func_attrs.get("num_input")
        weights = func.params[int(inputs) :] if inputs is not None else ()
        for weight in weights:
            self.static.add(weight)
            self.sizes.update(tir_vars_in_type(weight.ty))
        named = set(func.func_attrs.get(_CAPTURE, ()))
        signature = (var for param in func.params for var in tir_vars_in_type(param.ty))
        self.sizes.update(var for var in signature if var.name in named)
        self.leaving = _result_variables(func)

    def sequence(self, seq: Expr) -> None:
        """Find the regions of a sequence; those of branches are their own."""
        assert isinstance(seq, SeqExpr)
        region: Region | None = None
        for block in seq.blocks:
            for binding in block.bindings:
                if isinstance(binding, VarBinding) and self.is_kept_storage(binding):
                    self.plan.storages.append(binding)
                    self.static.add(binding.var)
                    continue
                if not isinstance(binding, VarBinding) or not self.is_static(binding.value):
                    region = None
                    if isinstance(binding, VarBinding) and isinstance(binding.value, If):
                        self.sequence(binding.value.true_branch)
                        self.sequence(binding.value.false_branch)
                    continue
                self.static.add(binding.var)
                if region is None and self.is_launch(binding.value):
                    region = Region()
                    self.plan.regions.append(region)
                if region is not None:
                    region.bindings.append(binding)
                    self.plan.region_of[binding] = region

    def is_kept_storage(self, binding: VarBinding) -> bool:
        """Say whether a storage is of constant size and holds nothing that is returned."""
        call = binding.value
        return (
            _op_name(call) == "relax.memory.alloc_storage"
            and isinstance(call, Call)
            and isinstance(call.args[0], ShapeExpr)
            and all(isinstance(dim, IntImm) for dim in call.args[0].values)
            and binding.var not in self.leaving
        )

    def is_static(self, value: Expr) -> bool:
        match value:
            case GenericConst() | StringImm() | IntImm() | ExternFunc() | GlobalVar():
                return True
            case Var():
                known = self.sizes if isinstance(value.ty, PrimType) else self.static
                return value in known
            case ShapeExpr(values=dims):
                return all(var in self.sizes for dim in dims for var in free_vars(dim))
            case Tuple(fields=fields):
                return all(map(self.is_static, fields))
            case TupleGetItem(tuple_value=tup):
                return self.is_static(tup)
            case Call(args=args):
                return self.may_be_captured(value) and all(map(self.is_static, args))
            case _:
                return isinstance(value.ty, PrimType) and all(
                    var in self.sizes for var in free_vars(value)
                )

    def may_be_captured(self, call: Call) -> bool:
        return self.is_launch(call) or _op_name(call) in _FORMS

    def is_launch(self, value: Expr) -> bool:
        """Say whether an expression is a call of a kernel."""
        if not isinstance(value, Call):
            return False
        match value.op:
            case GlobalVar() as gvar:
                return isinstance(self.mod.functions.get(gvar), PrimFunc)
            case ExternFunc(global_symbol=name):
                return not name.startswith("vm.builtin.")
            case _:
                return False


def _op_name(value: Expr) -> str | None:
    return value.op.name if isinstance(value, Call) and isinstance(value.op, Op) else None


def _variables(expr: Expr) -> Iterator[Var]:
    """Yield the variables that a value in normal form mentions, in order."""
    match expr:
        case Var():
            yield expr
        case Call(op=op, args=args):
            for part in (op, *args):
                yield from _variables(part)
        case Tuple(fields=fields):
            for part in fields:
                yield from _variables(part)
        case TupleGetItem(tuple_value=tup):
            yield from _variables(tup)
        case ShapeExpr(values=dims):
            for dim in dims:
                yield from free_vars(dim)
        case _:
            if isinstance(expr.ty, PrimType):
                yield from free_vars(expr)


def _result_variables(func: Function) -> set[Var]:
    """Return what the result's memory comes from: its variables, their tensors and storages."""
    values: dict[Var, Expr] = {}

    def collect(seq: Expr) -> None:
        assert isinstance(seq, SeqExpr)
        for block in seq.blocks:
            for binding in block.bindings:
                if isinstance(binding, VarBinding | MatchCast):
                    values[binding.var] = binding.value
                    if isinstance(binding.value, If):
                        collect(binding.value.true_branch)
                        collect(binding.value.false_branch)

    collect(func.body)
    found: set[Var] = set()
    stack: list[Expr] = [func.body.body]
    while stack:
        match stack.pop():
            case Var() as var if var not in found:
                found.add(var)
                if var in values:
                    stack.append(values[var])
            case Tuple(fields=fields):
                stack.extend(fields)
            case TupleGetItem(tuple_value=tup):
                stack.append(tup)
            case If(true_branch=SeqExpr(body=a), false_branch=SeqExpr(body=b)):
                stack.extend((a, b))
            case Call(args=args) as call if _op_name(call) in _FORMS:
                stack.append(args[0])
            case _:
                pass
    return found


def _fill_inputs(region: Region) -> None:
    inside = {binding.var for binding in region.bindings}

    def mention_type(ty: Type | None) -> None:
        for size in tir_vars_in_type(ty):
            region.sizes.setdefault(size)

    for binding in region.bindings:
        for var in _variables(binding.value):
            if isinstance(var.ty, PrimType):
                region.sizes.setdefault(var)
            elif var not in inside:
                region.inputs.setdefault(var)
                mention_type(var.ty)
        mention_type(binding.var.ty)


class _OutputCollector(ExprVisitor):
    """Numbers what is used outside of the region that computes it."""

    def __init__(self, plan: GraphPlan) -> None:
        self.plan = plan
        self.origin = {binding.var: region for binding, region in plan.region_of.items()}
        self.region: Region | None = None

    def visit_var_binding_(self, binding: VarBinding) -> None:
        outer, self.region = self.region, self.plan.region_of.get(binding)
        super().visit_var_binding_(binding)
        self.region = outer

    def visit_var_(self, op: Var) -> None:
        origin = self.origin.get(op)
        if origin is not None and origin is not self.region:
            origin.outputs.setdefault(op, len(origin.outputs))
