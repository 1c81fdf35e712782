"""Group kernel calls that may run as one.

Inside a dataflow block, kernel calls that may run in one loop nest (``graph_partitioner.py`` says
which) move into a private function with the attribute ``Primitive``, and one call of it stands in
their place. FuseTIR then makes one kernel of each such function. Groups alike share a function.
Counterpart: ``tvm.relax.transform.FuseOps`` (compiler.md, 6.5).

Examples
--------
>>> FuseOps(fuse_opt_level=0).info.name
'FuseOps'
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from relaxlab.ir import (
    Call,
    Expr,
    GlobalVar,
    IRModule,
    ModulePass,
    Op,
    PassContext,
    Tuple,
    TupleGetItem,
    Var,
    merge_spans,
)
from relaxlab.ir.transform import config_option
from relaxlab.relax.analysis.graph_partitioner import ForwardGraph, partition
from relaxlab.relax.analysis.op_pattern import OpPatternKind
from relaxlab.relax.analysis.variables import used_vars
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
from relaxlab.relax.transform.fused_function import FusedFunction
from relaxlab.tirx import PrimFunc

__all__ = ["FuseOps", "in_order", "reads_between"]

_LOGGER = logging.getLogger(__name__)
_MAX_DEPTH = config_option("relax.FuseOps.max_depth", int)
_KERNEL_CALLS = ("relax.call_tir", "relax.call_tir_inplace")
_OPAQUE = OpPatternKind.OPAQUE


@dataclass(frozen=True)
class FuseOps(ModulePass):
    """Move kernel calls that may run as one into functions of their own.

    Parameters
    ----------
    fuse_opt_level
        0 groups nothing; -1 takes the level of the pass context.

    Notes
    -----
    The option ``relax.FuseOps.max_depth`` of the pass context limits the size of a group (256).
    Kernels must know their kind: AnnotateTIROpPattern comes before.
    """

    fuse_opt_level: int = -1

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return the module with groups as functions, ``mod`` itself if there is no group."""
        level = ctx.opt_level if self.fuse_opt_level == -1 else self.fuse_opt_level
        max_depth = int(ctx.config.get(_MAX_DEPTH, 256)) if level > 0 else 1
        fuser = _Fuser(mod, max_depth)
        # by name, as TVM does: bytecode lists functions in the order in which they were touched
        functions = [(g, f) for g, f in mod.functions_items() if _may_be_fused(f)]
        changed = False
        for gvar, func in functions:
            new = fuser.fuse(func)
            changed = changed or new is not func
            fuser.builder.update_func(gvar, new)
        result = fuser.builder.get()
        return result if changed or list(result.functions) != list(mod.functions) else mod


def _may_be_fused(func: Expr) -> bool:
    if not isinstance(func, Function):
        return False
    return not func.attrs.get("Primitive") and "Codegen" not in func.attrs


class _Fuser(ExprMutator):
    def __init__(self, mod: IRModule, max_depth: int) -> None:
        super().__init__(mod)
        self.mod = mod
        self.max_depth = max_depth
        self.own_blocks: set[BindingBlock] = set()
        self.weights: set[Expr] = set()

    def fuse(self, func: Expr) -> Function:
        """Return a function with the groups of its own blocks (not of branches) replaced."""
        assert isinstance(func, Function)
        self.own_blocks = set(func.body.blocks)
        count = func.attrs.get("num_input")
        self.weights = set() if count is None else set(func.params[int(count) :])
        new = self.visit_expr(func)
        assert isinstance(new, Function)
        return new

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        if block not in self.own_blocks:
            return super().visit_dataflow_block_(block)
        groups = self.groups_of(block)
        if len(groups) == len(block.bindings):
            return super().visit_dataflow_block_(block)
        reads = reads_between(groups)
        used = {i for found in reads for i in found}
        self.builder.begin_block(is_dataflow=True)
        for i in in_order(reads):
            if len(groups[i]) == 1:
                self.visit_binding(groups[i][0])
            elif i in used or not isinstance(_var_of(groups[i][-1]), DataflowVar):
                self.emit_group(groups[i])
            else:
                _LOGGER.warning(
                    "There are dead codes in the current IRModule, please run the "
                    "DeadCodeElimination Pass before FuseOps"
                )
        return self.builder.end_block()

    def groups_of(self, block: DataflowBlock) -> list[list[Binding]]:
        """Return the bindings of a block by group, in the order of the groups' first ones."""
        graph, places = ForwardGraph(), dict[Var, int]()
        for binding in block.bindings:
            kind, reads = self.describe(binding)
            var = _var_of(binding)
            places[var] = reader = graph.add(kind, not isinstance(var, DataflowVar))
            for read in reads:
                if isinstance(read, Var) and read in places and read is not var:
                    graph.connect(places[read], reader, kind)
        groups: dict[int, list[Binding]] = {}
        for binding, leader in zip(block.bindings, partition(graph, self.max_depth), strict=True):
            groups.setdefault(leader, []).append(binding)
        return list(groups.values())

    def describe(self, binding: Binding) -> tuple[OpPatternKind, Sequence[Expr]]:
        """Return of what kind a binding is, and what it reads as that kind."""
        value: Expr | None = binding.value if isinstance(binding, VarBinding | MatchCast) else None
        if isinstance(binding, VarBinding):
            match value:
                case Call(op=Op(name=name), args=(GlobalVar() as callee, Tuple() as args)) if (
                    name in _KERNEL_CALLS
                ):
                    return self.kind_of(callee), list(_leaves(args))
                case Call(args=args):
                    return _OPAQUE, [leaf for arg in args for leaf in _leaves(arg)]
                case TupleGetItem(tuple_value=source):
                    return _OPAQUE if source in self.weights else OpPatternKind.INJECTIVE, [source]
                case _:
                    pass
        return _OPAQUE, [] if value is None else used_vars(value)

    def kind_of(self, callee: GlobalVar) -> OpPatternKind:
        kernel = self.mod.functions.get(callee)
        noted = kernel.attrs.get("op_pattern") if isinstance(kernel, PrimFunc) else None
        return _OPAQUE if noted is None else OpPatternKind(int(noted))

    def emit_group(self, group: Sequence[Binding]) -> None:
        """Emit one call in place of several bindings."""
        last = _var_of(group[-1])
        around, self.builder.span = self.builder.span, merge_spans(b.span for b in group)
        fused = FusedFunction([b for b in group if isinstance(b, VarBinding)])
        gvar = self.builder.add_func(fused.function(), fused.name)
        call = Call(gvar, tuple(self.visit_expr(arg) for arg in fused.arguments()))
        is_output = not isinstance(last, DataflowVar)
        self.var_remap[last] = (
            self.builder.emit_output(call) if is_output else self.builder.emit(call)
        )
        self.builder.span = around


def _var_of(binding: Binding) -> Var:
    if not isinstance(binding, VarBinding | MatchCast):
        raise TypeError(f"unknown kind of binding: {type(binding).__name__}")
    return binding.var


def _leaves(expr: Expr) -> Iterator[Expr]:
    if isinstance(expr, Tuple):
        for item in expr.fields:
            yield from _leaves(item)
    else:
        yield expr


def reads_between(groups: Sequence[Sequence[Binding]]) -> list[list[int]]:
    """Return, for each group, the other groups that it reads, in order of reading."""
    home = {_var_of(binding): i for i, group in enumerate(groups) for binding in group}
    reads: list[list[int]] = []
    for i, group in enumerate(groups):
        found = dict.fromkeys(
            home[var]
            for binding in group
            if isinstance(binding, VarBinding | MatchCast)
            for var in used_vars(binding.value)
            if var in home and home[var] != i
        )
        reads.append(list(found))
    return reads


def in_order(reads: Sequence[Sequence[int]]) -> list[int]:
    """Sort groups so that each comes after those it reads, else as they come."""
    result: list[int] = []
    seen = [False] * len(reads)
    stack = [(i, False) for i in reversed(range(len(reads)))]
    while stack:
        i, opened = stack.pop()
        if opened:
            result.append(i)
        elif not seen[i]:
            seen[i] = True
            stack.append((i, True))
            stack.extend((j, False) for j in reversed(reads[i]) if not seen[j])
    return result
