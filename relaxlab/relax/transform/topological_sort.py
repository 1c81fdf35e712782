"""Sort the bindings of dataflow blocks, depth first or breadth first.

Any order in which each binding comes after those it uses computes the same; the order decides
how long values live. From the inputs, a binding comes as soon as its last operand is there; from
the outputs, as late as its first user allows. Counterpart: ``tvm.relax.transform.TopologicalSort``.

Examples
--------
>>> TopologicalSort(order="breadth-first").direction
'from-inputs'
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from relaxlab.ir import IRModule, PassContext, PrimType, Var
from relaxlab.relax.analysis import used_vars
from relaxlab.relax.expr import (
    Binding,
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    Function,
    MatchCast,
    VarBinding,
)
from relaxlab.relax.expr_functor import ExprMutator
from relaxlab.relax.transform.pass_base import FunctionPass
from relaxlab.relax.type_variables import definable_tir_vars_in_type, tir_vars_in_type

__all__ = ["TopologicalSort"]

_ORDERS = ("depth-first", "breadth-first")
_DIRECTIONS = ("from-inputs", "from-outputs")


@dataclass(frozen=True)
class TopologicalSort(FunctionPass):
    """Sort bindings.

    Parameters
    ----------
    order
        ``"depth-first"`` or ``"breadth-first"``.
    direction
        ``"from-inputs"`` or ``"from-outputs"``.

    Raises
    ------
    ValueError
        If ``order`` or ``direction`` is another word.
    """

    order: str = "depth-first"
    direction: str = "from-inputs"

    def __post_init__(self) -> None:
        for name, value, known in (
            ("order", self.order, _ORDERS),
            ("direction", self.direction, _DIRECTIONS),
        ):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return the function with sorted blocks, itself if they were sorted so."""
        sorter = _Sorter(mod, func, self.order == _ORDERS[1], self.direction == _DIRECTIONS[1])
        result: Any = sorter.visit_expr(func)
        return result  # type: ignore[no-any-return]  # a function stays one


_Node = Var | None  # None stands for whoever uses the outputs
_Edges = dict[_Node, list[Var]]


class _Sorter(ExprMutator):
    def __init__(
        self, mod: IRModule, func: Function, breadth_first: bool, from_outputs: bool
    ) -> None:
        super().__init__(mod)
        self.func = func
        self.breadth_first = breadth_first
        self.from_outputs = from_outputs

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        order = self.order_of(block)
        if all(a is b for a, b in zip(order, block.bindings, strict=True)):
            return super().visit_dataflow_block_(block)
        return super().visit_dataflow_block_(DataflowBlock(order, span=block.span))

    def order_of(self, block: DataflowBlock) -> tuple[Binding, ...]:
        """Return the bindings of a block in order."""
        graph = _Graph(block, set(self.func.params))
        if self.from_outputs:
            roots: list[_Node] = [None]
            following = graph.needs
            following[None] = graph.outputs(used_vars(self.func.body.body))
        else:
            roots = [*graph.inputs(self.func.params)]
            following = graph.users
        before: dict[Var, set[_Node]] = {var: set() for var in graph.bindings}
        for node, nexts in following.items():
            for var in nexts:
                before[var].add(node)
        free: list[_Node] = [var for var in graph.bindings if not before[var]]
        if self.breadth_first:
            walk = _breadth_first([*roots, *free], following, before)
        else:
            if self.from_outputs:
                # backwards in every respect
                free.reverse()
                following = {node: nexts[::-1] for node, nexts in following.items()}
            walk = _depth_first([*roots, *free], following, before)
        order = [graph.bindings[var] for var in walk if var in graph.bindings]
        return tuple(reversed(order) if self.from_outputs else order)


class _Graph:
    """The bindings of a block: what each needs inside, and who uses each variable."""

    def __init__(self, block: DataflowBlock, params: set[Var]) -> None:
        self.bindings: dict[Var, Binding] = {}
        self.needs: _Edges = {}
        self.users: _Edges = {}
        sizes: dict[Var, Var] = {}  # who defines a symbolic size
        for binding in block.bindings:
            if not isinstance(binding, VarBinding | MatchCast):
                raise TypeError(f"unknown kind of binding: {type(binding).__name__}")
            var = binding.var
            mentioned = [*used_vars(binding.value), *tir_vars_in_type(var.ty)]
            used = dict.fromkeys(
                sizes.get(v, v)
                for v in mentioned
                # sizes known from outside are there from the start
                if not isinstance(v.ty, PrimType)
                or any(v in known for known in (sizes, self.bindings, params))
            )
            self.needs[var] = [v for v in used if v in self.bindings]
            for v in used:
                self.users.setdefault(v, []).append(var)
            self.bindings[var] = binding
            if isinstance(binding, MatchCast):
                for size in definable_tir_vars_in_type(binding.ty):
                    sizes.setdefault(size, var)

    def inputs(self, params: Iterable[Var]) -> list[Var]:
        """Return what is used and comes from outside: parameters first."""
        outside = [var for var in self.users if var is not None and var not in self.bindings]
        return list(dict.fromkeys([*(p for p in params if p in self.users), *outside]))

    def outputs(self, result: Iterable[Var]) -> list[Var]:
        """Return what is seen outside: what the function returns first."""
        visible = [var for var in self.bindings if not isinstance(var, DataflowVar)]
        return list(dict.fromkeys([*(v for v in result if v in self.bindings), *visible]))


def _breadth_first(
    roots: list[_Node], following: _Edges, before: dict[Var, set[_Node]]
) -> Iterator[_Node]:
    """Yield nodes, each once all before it were yielded, those reached first first."""
    queue, reached, done = deque(roots), set(roots), set[_Node]()
    while queue:
        node = queue.popleft()
        done.add(node)
        yield node
        for var in following.get(node, ()):
            if var not in reached and before[var] <= done:
                reached.add(var)
                queue.append(var)


def _depth_first(
    roots: list[_Node], following: _Edges, before: dict[Var, set[_Node]]
) -> Iterator[_Node]:
    """Yield nodes, each once all before it were yielded, going on from the last one yielded."""
    done: set[_Node] = set()
    for root in roots:
        if root in done:
            continue
        done.add(root)
        yield root
        stack = [iter(following.get(root, ()))]
        while stack:
            var = next(stack[-1], None)
            if var is None:
                stack.pop()
            elif var not in done and before[var] <= done:
                done.add(var)
                yield var
                stack.append(iter(following.get(var, ())))
