"""Say when tensors, storages and other objects are no longer needed.

Bindings are canonicalized first, so that an object has one name. Then each sequence gets, behind
the binding that mentions a variable last, a kill of that variable: tensors first, then storages,
then other objects, each in order of definition. The result of a sequence is never killed.

As in TVM, no kill follows the first If of a sequence (branches have their own): what lives until
then stays alive until the function returns. Counterpart: ``tvm.relax.transform.KillAfterLastUse``.

Examples
--------
>>> KillAfterLastUse().info.name
'KillAfterLastUse'
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from relaxlab.ir import (
    Call,
    Expr,
    FuncType,
    GenericConst,
    IRModule,
    Op,
    PassContext,
    PrimType,
    TupleType,
    Var,
    is_void,
    replace,
)
from relaxlab.relax.expr import (
    Binding,
    BindingBlock,
    Function,
    If,
    MatchCast,
    SeqExpr,
    ShapeType,
    TensorType,
    VarBinding,
)
from relaxlab.relax.expr_functor import ExprVisitor
from relaxlab.relax.transform.canonicalize_bindings import canonicalize_function
from relaxlab.relax.transform.pass_base import FunctionPass

__all__ = ["KillAfterLastUse"]

_ALLOCATES: Final = frozenset({"relax.memory.alloc_storage", "relax.vm.alloc_storage"})
_KILLS: Final = ("relax.memory.kill_tensor", "relax.memory.kill_storage", "relax.vm.kill_object")


class _Mentions(ExprVisitor):
    """Collects the variables that an expression mentions, branches included."""

    def __init__(self) -> None:
        self.found: set[Var] = set()

    def visit_var_(self, op: Var) -> None:
        self.found.add(op)


def _mentions(expr: Expr) -> set[Var]:
    visitor = _Mentions()
    visitor.visit_expr(expr)
    return visitor.found


def _op_name(value: Expr | None) -> str | None:
    return value.op.name if isinstance(value, Call) and isinstance(value.op, Op) else None


def _kill_for(binding: VarBinding | MatchCast) -> str | None:
    """Return the operator that kills what a binding makes; None if it needs no killing."""
    ty = binding.var.ty
    if isinstance(binding.value, GenericConst) or isinstance(ty, FuncType | ShapeType | PrimType):
        return None
    if is_void(ty) or _op_name(binding.value) == "relax.null_value":
        return None
    if isinstance(ty, TensorType):
        return _KILLS[0]
    return _KILLS[1] if _op_name(binding.value) in _ALLOCATES else _KILLS[2]


def _bindings(seq: SeqExpr) -> Iterator[VarBinding | MatchCast]:
    for block in seq.blocks:
        for binding in block.bindings:
            if isinstance(binding, VarBinding | MatchCast):
                yield binding


def _kills_by_binding(seq: SeqExpr) -> dict[Binding, list[Var]]:
    """Return what to kill behind each binding of a sequence, in order."""
    made: dict[Var, str] = {}
    last: dict[Var, Binding] = {}
    for binding in _bindings(seq):
        mentioned = _mentions(binding.value)
        for var in mentioned:
            if var in made:
                last[var] = binding
        if _op_name(binding.value) in _KILLS:
            for var in mentioned:  # killed by hand
                made.pop(var, None)
        kill = _kill_for(binding)
        if kill is not None:
            made[binding.var] = kill
    for var in _mentions(seq.body):
        last.pop(var, None)
    result: dict[Binding, list[Var]] = {}
    for kill in _KILLS:
        for var, kind in made.items():
            if kind == kill and var in last:
                result.setdefault(last[var], []).append(var)
    return result


def _kill(var: Var, operator: str, after: Binding) -> VarBinding:
    void = TupleType(())
    call = Call(Op.get(operator), (var,), ty=void, span=after.span)
    return VarBinding(Var("_", void), call, span=after.span)


def _kill_in_sequence(seq: SeqExpr) -> SeqExpr:
    kills = _kills_by_binding(seq)
    kinds = {binding.var: _kill_for(binding) for binding in _bindings(seq)}
    open_ended = False
    blocks: list[BindingBlock] = []
    for block in seq.blocks:
        bindings: list[Binding] = []
        for binding in block.bindings:
            new = _kill_inside(binding)
            open_ended = open_ended or _has_sequence(binding)
            bindings.append(new)
            if not open_ended:
                dead = kills.get(binding, ())
                bindings.extend(_kill(var, str(kinds[var]), binding) for var in dead)
        same = len(bindings) == len(block.bindings) and all(
            a is b for a, b in zip(bindings, block.bindings, strict=True)
        )
        blocks.append(block if same else replace(block, bindings=tuple(bindings)))
    if all(a is b for a, b in zip(blocks, seq.blocks, strict=True)):
        return seq
    return replace(seq, blocks=tuple(blocks))


def _has_sequence(binding: Binding) -> bool:
    return isinstance(binding, VarBinding) and isinstance(binding.value, If | Function)


def _kill_inside(binding: Binding) -> Binding:
    """Treat the sequences inside a binding: branches, and the body of a local function."""
    if not isinstance(binding, VarBinding):
        return binding
    value: Any = binding.value
    match value:
        case If():
            return replace(
                binding,
                value=replace(
                    value,
                    true_branch=_kill_in_sequence(value.true_branch),  # type: ignore[arg-type]  # normal form
                    false_branch=_kill_in_sequence(value.false_branch),  # type: ignore[arg-type]  # normal form
                ),
            )
        case Function():
            return replace(binding, value=_kill_in_function(value))
        case _:
            return binding


def _kill_in_function(func: Function) -> Function:
    body = _kill_in_sequence(func.body)
    return func if body is func.body else replace(func, body=body)


@dataclass(frozen=True)
class KillAfterLastUse(FunctionPass):
    """Insert kills behind last uses."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return the function with kills; itself when all are there."""
        return _kill_in_function(canonicalize_function(func, mod))
