"""Multiply once by several weights side by side, and split the result.

Matmuls of one left operand (query, key and value projections, gate and up projections) become one
matmul by the joined right operands. Where each is followed by a bias, and by one activation, these
are joined too. Counterpart: ``tvm.relax.transform.CombineParallelMatmul``.

A right operand that depends on another product of the group keeps its matmul (TVM fails there).

Examples
--------
>>> CombineParallelMatmul().info.name
'CombineParallelMatmul'
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from relaxlab.ir import Call, Expr, IntImm, IRModule, Op, PassContext, TupleGetItem, Var
from relaxlab.relax import op
from relaxlab.relax.analysis import remove_all_unused, used_vars
from relaxlab.relax.expr import (
    Binding,
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    Function,
    MatchCast,
    TensorType,
    VarBinding,
)
from relaxlab.relax.expr_functor import ExprMutator
from relaxlab.relax.transform.operand_rewriter import shape_of
from relaxlab.relax.transform.pass_base import FunctionPass
from relaxlab.relax.type_relations import shapes_equal

__all__ = ["CombineParallelMatmul"]

_ACTIVATIONS = ("relax.nn.relu", "relax.nn.gelu", "relax.nn.gelu_tanh", "relax.nn.silu")
Check = Callable[[Expr, list[Expr], list[Expr], Mapping[Var, Expr]], bool]


@dataclass(frozen=True)
class CombineParallelMatmul(FunctionPass):
    """Join matmuls that share their left operand.

    Parameters
    ----------
    check
        Says, given the left operand, the right operands, the biases and the values of all
        variables, whether a group should be joined; None joins all.
    """

    check: Check | None = None

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return the function with matmuls joined, itself if there are none to join."""
        combiner = _Combiner(self.check)
        new: Any = combiner.visit_expr(func)
        return func if new is func else remove_all_unused(new)


@dataclass(slots=True)
class _Branch:
    """One matmul, and what follows it."""

    product: VarBinding
    right: Expr
    bias: Expr | None = None
    activation: str | None = None
    biased: Var | None = None
    activated: Var | None = None

    @property
    def columns(self) -> Expr:
        dims = shape_of(self.right)
        assert dims is not None
        return dims[-1]


@dataclass(slots=True)
class _Group:
    """Branches that are joined: their inputs, and the variables that they give."""

    left: Expr
    branches: list[_Branch]
    with_bias: bool
    activation: str | None
    results: dict[Var, int] = field(default_factory=dict)

    def inputs(self) -> list[Expr]:
        biases = [b.bias for b in self.branches if b.bias is not None] if self.with_bias else []
        return [self.left, *(b.right for b in self.branches), *biases]


class _Block:
    """The bindings of a block: what each needs, who uses each."""

    def __init__(self, block: BindingBlock) -> None:
        self.is_dataflow = isinstance(block, DataflowBlock)
        self.values: dict[Var, Expr] = {}
        self.bindings: dict[Var, Binding] = {}
        self.needs: dict[Var, list[Var]] = {}
        self.users: dict[Var, list[Var]] = {}
        for binding in block.bindings:
            if not isinstance(binding, VarBinding | MatchCast):
                raise TypeError(f"unknown kind of binding: {type(binding).__name__}")
            var = binding.var
            self.bindings[var] = binding
            if isinstance(binding, VarBinding):
                self.values[var] = binding.value
            self.needs[var] = [v for v in used_vars(binding.value) if v in self.needs]
            for used in self.needs[var]:
                self.users.setdefault(used, []).append(var)

    def only_user(self, var: Var) -> Var | None:
        """Return the one binding that uses a variable which nobody else can see."""
        users = self.users.get(var, [])
        return users[0] if len(users) == 1 and isinstance(var, DataflowVar) else None

    def call(self, var: Var | None, *names: str) -> Call | None:
        value = None if var is None else self.values.get(var)
        if isinstance(value, Call) and isinstance(value.op, Op) and value.op.name in names:
            return value
        return None

    def depends(self, start: Sequence[Expr], targets: set[Var]) -> bool:
        """Say whether a value depends on one of some variables."""
        seen: set[Var] = set()
        stack = [v for expr in start for v in used_vars(expr) if v in self.needs]
        while stack:
            var = stack.pop()
            if var in targets:
                return True
            if var not in seen:
                seen.add(var)
                stack.extend(self.needs[var])
        return False

    def come_late(self, group: _Group) -> bool:
        """Say whether an input of a group would have to move, in a block whose order matters."""
        if self.is_dataflow:
            return False
        order = {var: i for i, var in enumerate(self.bindings)}
        first = min(order[var] for var in group.results)
        inputs = (var for expr in group.inputs() for var in used_vars(expr))
        return any(order.get(var, -1) > first for var in inputs)


class _Combiner(ExprMutator):
    def __init__(self, check: Check | None) -> None:
        super().__init__()
        self.check = check

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        return self.combined(block) or super().visit_dataflow_block_(block)

    def visit_binding_block_(self, block: BindingBlock) -> BindingBlock:
        return self.combined(block) or super().visit_binding_block_(block)

    def combined(self, block: BindingBlock) -> BindingBlock | None:
        """Return a block with its groups joined; None if there are none."""
        facts = _Block(block)
        groups = self.groups_of(facts)
        if not groups:
            return None
        self.builder.begin_block(isinstance(block, DataflowBlock))
        _Emitter(self, facts, groups).emit_all()
        return self.builder.end_block()

    # --- finding groups -------------------------------------------------------------------------

    def groups_of(self, facts: _Block) -> list[_Group]:
        by_left: dict[Expr, list[_Branch]] = {}
        for var in facts.values:
            branch = self.branch(facts, var)
            if branch is not None:
                assert isinstance(branch.product.value, Call)
                by_left.setdefault(branch.product.value.args[0], []).append(branch)
        groups: list[_Group] = []
        for left, branches in by_left.items():
            while branches:
                alike = [b for b in branches if self.fit(branches[0], b)]
                branches = [b for b in branches if not any(b is a for a in alike)]
                group = self.group(facts, left, alike)
                if group is not None:
                    groups.append(group)
        return groups

    def branch(self, facts: _Block, var: Var) -> _Branch | None:
        product = facts.call(var, "relax.matmul")
        binding = facts.bindings[var]
        if product is None or not isinstance(binding, VarBinding):
            return None
        dims, ty = shape_of(product.args[1]), product.ty
        if dims is None or len(dims) < 2 or shape_of(product.args[0]) is None:
            return None
        if not isinstance(ty, TensorType) or ty.dtype is None:
            return None
        branch = _Branch(binding, product.args[1])
        end, user = var, facts.only_user(var)
        added = facts.call(user, "relax.add")
        if added is not None and user is not None and added.args[0] is var:
            branch.bias, branch.biased, end = added.args[1], user, user
            user = facts.only_user(end)
        act = facts.call(user, *_ACTIVATIONS)
        if act is not None and isinstance(act.op, Op):
            branch.activation, branch.activated = act.op.name, user
        return branch

    def fit(self, first: _Branch, other: _Branch) -> bool:
        """Say whether two matmuls can be joined: alike but for the number of columns."""
        mine, theirs = shape_of(first.right), shape_of(other.right)
        assert mine is not None
        assert theirs is not None
        same_type = _dtype(first.right) == _dtype(other.right) and _dtype(
            first.product.value
        ) == _dtype(other.product.value)
        return same_type and shapes_equal(mine[:-1], theirs[:-1], self.builder.analyzer)

    def group(self, facts: _Block, left: Expr, alike: list[_Branch]) -> _Group | None:
        """Return the group that some matmuls form; None if fewer than two can be joined."""
        chosen: list[_Branch] = []
        dynamic: list[_Branch] = []
        products = {branch.product.var for branch in alike}
        for branch in alike:
            if any(branch.right is other.right for other in (*chosen, *dynamic)):
                continue
            if facts.depends([branch.right], products):
                continue
            (chosen if isinstance(branch.columns, IntImm) else dynamic).append(branch)
        # the split needs numbers; only what is left over may be of any size
        chosen += dynamic[:1]
        if len(chosen) < 2:
            return None
        group = _Group(left, chosen, self.have_bias(facts, chosen, products), None)
        acts = {branch.activation for branch in chosen}
        if len(acts) == 1 and (group.with_bias or all(b.bias is None for b in chosen)):
            (group.activation,) = acts
        for index, branch in enumerate(chosen):
            result = branch.product.var
            if group.with_bias and branch.biased is not None:
                result = branch.biased
            if group.activation is not None and branch.activated is not None:
                result = branch.activated
            group.results[result] = index
        biases = [b.bias for b in chosen if b.bias is not None] if group.with_bias else []
        rights = [branch.right for branch in chosen]
        if self.check is not None and not self.check(left, rights, biases, facts.values):
            return None
        if facts.depends(group.inputs(), set(group.results)) or facts.come_late(group):
            return None
        # from here on each result needs the inputs of all
        everything = [v for x in group.inputs() for v in used_vars(x) if v in facts.needs]
        for result in group.results:
            facts.needs[result] = everything
        return group

    def have_bias(self, facts: _Block, branches: list[_Branch], products: set[Var]) -> bool:
        """Say whether each matmul is followed by a bias, and these can be joined."""
        first = branches[0].bias
        lead = None if first is None else shape_of(first)
        if lead is None:
            return False
        for branch in branches:
            dims = None if branch.bias is None else shape_of(branch.bias)
            if branch.bias is None or dims is None or facts.depends([branch.bias], products):
                return False
            analyzer = self.builder.analyzer
            if not shapes_equal(dims, (*lead[:-1], branch.columns), analyzer):
                return False
        return True


def _dtype(expr: Expr) -> object:
    return expr.ty.dtype if isinstance(expr.ty, TensorType) else None


class _Emitter:
    """Emits the bindings of a block, each group where its first result stood."""

    def __init__(self, combiner: _Combiner, facts: _Block, groups: list[_Group]) -> None:
        self.combiner = combiner
        self.facts = facts
        self.home = {var: group for group in groups for var in group.results}
        self.dropped = {
            var
            for group in groups
            for branch in group.branches
            for var in (branch.product.var, branch.biased if group.with_bias else None)
            if var is not None and var not in group.results
        }
        self.done: set[Var] = set()
        self.parts: dict[int, Var] = {}

    def emit_all(self) -> None:
        for var in self.facts.bindings:
            self.emit(var)

    def emit(self, start: Var) -> None:
        """Emit a binding, after those that it needs."""
        stack = [(start, False)]
        while stack:
            var, opened = stack.pop()
            if var in self.done or var in self.dropped:
                continue
            if not opened:
                stack.append((var, True))
                stack.extend((v, False) for v in reversed(self.facts.needs[var]))
                continue
            self.done.add(var)
            group = self.home.get(var)
            if group is None:
                self.combiner.visit_binding(self.facts.bindings[var])
                continue
            field_ = TupleGetItem(self.split_of(group), group.results[var])
            binding = self.facts.bindings[var]
            assert isinstance(binding, VarBinding)
            self.combiner.reemit_binding(binding, field_)

    def split_of(self, group: _Group) -> Var:
        """Return the variable that holds all results of a group."""
        if id(group) not in self.parts:
            self.parts[id(group)] = self.combiner.builder.emit(self.joined(group))
        return self.parts[id(group)]

    def joined(self, group: _Group) -> Expr:
        visit = self.combiner.visit_expr
        product = group.branches[0].product.value
        assert isinstance(product.ty, TensorType)
        rights = [visit(branch.right) for branch in group.branches]
        axis = len(shape_of(rights[0]) or ()) - 1
        value: Expr = op.matmul(visit(group.left), op.concat(rights, axis), str(product.ty.dtype))
        if group.with_bias:
            biases = [visit(branch.bias) for branch in group.branches if branch.bias is not None]
            value = op.add(value, op.concat(biases, len(shape_of(biases[0]) or ()) - 1))
        if group.activation is not None:
            value = Call(Op.get(group.activation), (value,))
        sections: list[int] = []
        for branch in group.branches[:-1]:
            assert isinstance(branch.columns, IntImm)
            sections.append((sections[-1] if sections else 0) + branch.columns.value)
        return op.split(value, sections, product.ty.ndim - 1)
