"""Compute once what is computed twice.

Where a value was bound before, in the same scope or around it, the second binding becomes another
name for the first variable, and later uses are uses of the first. Calls with effects and
allocations are left alone. Counterpart: ``tvm.relax.transform.EliminateCommonSubexpr``.

Examples
--------
>>> EliminateCommonSubexpr(call_only=True).call_only
True
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from relaxlab.ir import Call, Expr, IRModule, Op, PassContext, Type, Var
from relaxlab.ir.node import structural_equal, structural_hash
from relaxlab.relax.analysis import contains_impure_call, free_vars
from relaxlab.relax.expr import (
    Binding,
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    Function,
    If,
    MatchCast,
    VarBinding,
)
from relaxlab.relax.expr_functor import ExprMutator
from relaxlab.relax.transform.pass_base import FunctionPass

__all__ = ["EliminateCommonSubexpr"]


@dataclass(frozen=True)
class EliminateCommonSubexpr(FunctionPass):
    """Bind equal values once.

    Parameters
    ----------
    call_only
        Whether only calls are considered.
    """

    opt_level: ClassVar[int] = 1

    call_only: bool = False

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return the function with repeated values removed, itself if there is none."""
        result: Any = _Eliminator(self.call_only).visit_expr(func)
        return result  # type: ignore[no-any-return]  # a function stays one


#: A value, the type of its variable, and whether a match_cast gave it.
_Known = tuple[Expr, Type | None, bool]


class _Eliminator(ExprMutator):
    def __init__(self, call_only: bool) -> None:
        super().__init__()
        self.call_only = call_only
        #: What is bound in the scopes at hand, by structural hash.
        self.known: list[dict[int, list[tuple[_Known, Var]]]] = [{}]

    def find(self, key: int, value: _Known) -> Var | None:
        """Return the variable that a value is bound to already."""
        for scope in reversed(self.known):
            for known, var in scope.get(key, ()):
                if known[1:] == value[1:] and structural_equal(known[0], value[0]):
                    return var
        return None

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        outer = dict(self.var_remap)
        self.known.append({})
        new = super().visit_dataflow_block_(block)
        inside = self.known.pop()
        # outputs keep their names outside, and what is bound to them is known
        self.var_remap = outer
        for key, entries in inside.items():
            visible = [entry for entry in entries if not isinstance(entry[1], DataflowVar)]
            self.known[-1].setdefault(key, []).extend(visible)
        return new

    def visit_if_(self, op: If) -> Expr:
        cond = self.visit_expr(op.cond)
        branches: list[Any] = []
        for branch in (op.true_branch, op.false_branch):
            self.known.append({})
            branches.append(self.visit_with_new_scope(branch))
            self.known.pop()
        return self.rebuild_if(op, cond, *branches)

    def visit_function_(self, op: Function) -> Expr:
        if len(self.known) == 1 and not self.known[0] and not self.var_remap:
            return super().visit_function_(op)
        # a local function runs at another time, perhaps never: what is around it is not for it
        inner: Expr = _Eliminator(self.call_only).visit_expr(op)
        return inner

    def visit_binding(self, binding: Binding) -> None:
        if not isinstance(binding, VarBinding | MatchCast):
            super().visit_binding(binding)
            return
        value = self.visit_expr(binding.value)
        if self.may_be_shared(value):
            # free variables count by identity, which the structural hash leaves out
            key = hash((structural_hash(value), *free_vars(value)))
            known: _Known = (value, binding.var.ty, isinstance(binding, MatchCast))
            first = self.find(key, known)
            if first is not None:
                self.var_remap[binding.var] = first
                self.builder.emit_normalized(VarBinding(binding.var, first, span=binding.span))
                return
            self.known[-1].setdefault(key, []).append((known, binding.var))
        if value is binding.value:
            self.builder.emit_normalized(binding)
        elif isinstance(binding, MatchCast):
            self.builder.emit_normalized(
                MatchCast(binding.var, value, binding.ty, span=binding.span)
            )
        else:
            self.builder.emit_normalized(VarBinding(binding.var, value, span=binding.span))

    def may_be_shared(self, value: Expr) -> bool:
        if self.call_only and not isinstance(value, Call):
            return False
        return not contains_impure_call(value) and not _allocates(value)


def _allocates(value: Expr) -> bool:
    """Say whether a call makes a buffer of its own, which must not be shared."""
    return (
        isinstance(value, Call)
        and isinstance(value.op, Op)
        and bool(value.op.get_attr("TAllocator", False))
    )
