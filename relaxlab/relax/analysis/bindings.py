"""Facts about bindings: what uses what, what is bound to what, what nobody uses.

Counterpart: ``udchain``, ``get_var2val``, ``name_to_binding``, ``remove_all_unused`` and
``computable_at_compile_time`` of ``tvm.relax.analysis``.

Examples
--------
>>> from relaxlab.relax import op
>>> from relaxlab.relax.block_builder import BlockBuilder
>>> from relaxlab.relax.expr import TensorType, Var
>>> x, bb = Var("x", TensorType([4])), BlockBuilder()
>>> with bb.function("f", [x]):
...     unused, used = bb.emit(op.exp(x)), bb.emit(op.tanh(x))
...     f = bb.emit_func_output(used)
>>> [b.var.name for b in remove_all_unused(bb.get()["f"]).body.blocks[0].bindings]
['gv1']
"""

from relaxlab.ir.expr import Expr, Var
from relaxlab.ir.node import replace
from relaxlab.relax.analysis.purity import contains_impure_call
from relaxlab.relax.analysis.variables import free_vars, used_vars
from relaxlab.relax.expr import (
    Binding,
    BindingBlock,
    DataflowBlock,
    Function,
    If,
    MatchCast,
    SeqExpr,
    VarBinding,
)
from relaxlab.relax.expr_functor import ExprVisitor
from relaxlab.relax.type_variables import definable_tir_vars_in_type, tir_vars_in_type

__all__ = [
    "computable_at_compile_time",
    "get_var2val",
    "name_to_binding",
    "remove_all_unused",
    "udchain",
]


def udchain(dfb: DataflowBlock) -> dict[Var, list[Var]]:
    """Return, for each variable of a dataflow block, the variables whose bindings use it."""
    users: dict[Var, dict[Var, None]] = {}
    for binding in dfb.bindings:
        if isinstance(binding, VarBinding | MatchCast):
            for var in used_vars(binding.value):
                users.setdefault(var, {}).setdefault(binding.var)
            users.setdefault(binding.var, {})
    return {var: list(found) for var, found in users.items()}


class _Values(ExprVisitor):
    def __init__(self) -> None:
        self.values: dict[Var, Expr] = {}
        self.bindings: dict[str, list[Binding]] = {}

    def visit_var_binding_(self, binding: VarBinding) -> None:
        self.values[binding.var] = binding.value
        self.bindings.setdefault(binding.var.name, []).append(binding)
        super().visit_var_binding_(binding)

    def visit_match_cast_(self, binding: MatchCast) -> None:
        self.bindings.setdefault(binding.var.name, []).append(binding)
        super().visit_match_cast_(binding)


def get_var2val(func: Function) -> dict[Var, Expr]:
    """Return what each variable of a function is bound to; match_casts are left out."""
    found = _Values()
    found.visit_expr(func)
    return found.values


def name_to_binding(func: Function) -> dict[str, list[Binding]]:
    """Return the bindings of a function by the name of their variable."""
    found = _Values()
    found.visit_expr(func)
    return found.bindings


def computable_at_compile_time(func: Function) -> list[Var]:
    """Return the variables that depend on nothing but weights.

    The parameters from the function's attribute ``num_input`` on are weights. Without the
    attribute there are none.
    """
    num_input = func.func_attrs.get("num_input")
    if num_input is None:
        return []
    known: dict[Var, None] = {}
    for param in func.params[int(num_input) :]:
        known.setdefault(param)
        for var in definable_tir_vars_in_type(param.ty):
            known.setdefault(var)
    result = dict.fromkeys(func.params[int(num_input) :])
    for block in func.body.blocks:
        for binding in block.bindings:
            if not isinstance(binding, VarBinding | MatchCast):
                continue
            if all(var in known for var in free_vars(binding.value)) and not contains_impure_call(
                binding.value
            ):
                known.setdefault(binding.var)
                result.setdefault(binding.var)
    return list(result)


def remove_all_unused(func: Function) -> Function:
    """Drop the bindings whose variables nobody uses and whose values have no effect.

    A match_cast stays, used or not: it is a check that may fail. The same function comes back when
    everything is used.
    """
    body = _Sweeper().sequence(func.body, set(tir_vars_in_type(func.ret_ty)))
    return func if body is func.body else replace(func, body=body)


class _Sweeper:
    """Walks backwards, so that one pass finds chains of unused bindings."""

    def sequence(self, seq: SeqExpr, needed: set[Var]) -> SeqExpr:
        """Return ``seq`` without what is not needed; ``needed`` gains what it needs."""
        needed.update(used_vars(seq.body))
        blocks: list[BindingBlock] = []
        for block in reversed(seq.blocks):
            kept = self.block(block, needed)
            if kept.bindings:
                blocks.append(kept)
        blocks.reverse()
        same = len(blocks) == len(seq.blocks) and all(
            a is b for a, b in zip(blocks, seq.blocks, strict=True)
        )
        return seq if same else replace(seq, blocks=tuple(blocks))

    def block(self, block: BindingBlock, needed: set[Var]) -> BindingBlock:
        kept: list[Binding] = []
        for binding in reversed(block.bindings):
            if not isinstance(binding, VarBinding | MatchCast):
                raise TypeError(f"unknown kind of binding: {type(binding).__name__}")
            if self.is_needed(binding, needed):
                kept.append(self.binding(binding, needed))
        kept.reverse()
        same = len(kept) == len(block.bindings) and all(
            a is b for a, b in zip(kept, block.bindings, strict=True)
        )
        return block if same else type(block)(tuple(kept), span=block.span)

    def is_needed(self, binding: VarBinding | MatchCast, needed: set[Var]) -> bool:
        if binding.var in needed or isinstance(binding, MatchCast):
            return True
        return contains_impure_call(binding.value)

    def binding(self, binding: VarBinding | MatchCast, needed: set[Var]) -> Binding:
        needed.update(tir_vars_in_type(binding.var.ty))
        if isinstance(binding, MatchCast):
            needed.update(used_vars(binding.value))
            return binding
        value = binding.value
        match value:
            case If():
                true_branch = self.branch(value.true_branch, needed)
                false_branch = self.branch(value.false_branch, needed)
                needed.update(used_vars(value.cond))
                new: Expr = replace(value, true_branch=true_branch, false_branch=false_branch)
            case Function():
                new = remove_all_unused(value)
                needed.update(free_vars(new))
            case _:
                needed.update(used_vars(value))
                return binding
        return replace(binding, value=new)

    def branch(self, branch: Expr, needed: set[Var]) -> Expr:
        if isinstance(branch, SeqExpr):
            return self.sequence(branch, needed)
        needed.update(used_vars(branch))
        return branch
