"""Move what can be replayed as a CUDA graph into functions of its own.

Does something only when the PassContext option ``relax.backend.use_cuda_graph`` is on. Storages
that are kept between runs are allocated once, by ``cuda_graph_alloc`` for all functions of the
module; each region (see ``cuda_graph_regions``) becomes a function ``<f>_cuda_graph_capture``, and
``<f>`` runs it through ``vm.builtin.cuda_graph.run_or_capture``.
Counterpart: ``tvm.relax.transform.RewriteCUDAGraph``.

Examples
--------
>>> from relaxlab.ir import IRModule
>>> mod = IRModule()
>>> RewriteCUDAGraph()(mod) is mod
True
"""

from dataclasses import dataclass
from typing import Any, Final

from relaxlab.ir import (
    Call,
    Expr,
    GlobalVar,
    IntImm,
    IRModule,
    ModulePass,
    Op,
    PassContext,
    StringImm,
    Tuple,
    TupleGetItem,
    Type,
    Var,
    merge_spans,
)
from relaxlab.ir.transform import config_option
from relaxlab.relax.expr import (
    Binding,
    BindingBlock,
    ExternFunc,
    Function,
    If,
    SeqExpr,
    ShapeExpr,
    VarBinding,
)
from relaxlab.relax.expr_functor import ExprMutator
from relaxlab.relax.transform.cuda_graph_regions import GraphPlan, Region, find_regions
from relaxlab.relax.type_variables import substitute
from relaxlab.runtime.dtype import DataType

__all__ = ["RewriteCUDAGraph"]

#: Whether programs are built for capture and replay.
USE_CUDA_GRAPH: Final = config_option("relax.backend.use_cuda_graph", bool)
_FORCE_PURE: Final = {"relax.force_pure": True}


class _Mover(ExprMutator):
    """Copies the bindings of a region into a function with variables of its own."""

    def __init__(self, mod: IRModule, sizes: dict[Var, Expr]) -> None:
        super().__init__(mod)
        self.sizes = sizes

    def visit_ty(self, ty: Type) -> Type:
        return substitute(ty, self.sizes)

    def visit_prim_expr_(self, op: Expr) -> Expr:
        return substitute(op, self.sizes)

    def visit_var_(self, op: Var) -> Expr:
        return self.sizes[op] if op in self.sizes else super().visit_var_(op)

    def visit_var_def(self, var: Var) -> Var:
        assert var.ty is not None
        return Var(var.name, self.visit_ty(var.ty), var.span)


def _captured_function(mod: IRModule, region: Region) -> Function:
    """Return the function that runs a region: inputs (and a shape) to a tuple of outputs."""
    sizes: dict[Var, Expr] = {var: Var(var.name, var.ty) for var in region.sizes}
    mover = _Mover(mod, sizes)
    params = [mover.visit_var_def(var) for var in region.inputs]
    mover.var_remap.update(zip(region.inputs, params, strict=True))
    if sizes:
        shape = ShapeExpr(tuple(sizes.values()))
        params.append(Var("shape_expr", shape.ty))
    builder = mover.builder
    builder.begin_scope(params)
    builder.begin_block(is_dataflow=False)
    for binding in region.bindings:
        builder.span = binding.span
        mover.visit_binding(binding)
    place = builder.span = merge_spans(binding.span for binding in region.bindings)
    outputs = Tuple(tuple(mover.visit_expr(var) for var in region.outputs))
    result = builder.normalize_argument(builder.emit(outputs))
    block = builder.end_block()
    builder.end_scope()
    body = SeqExpr((block,), result, ty=outputs.ty, span=place)
    return Function(params, body, outputs.ty, True, _FORCE_PURE, place)


class _Rewriter(ExprMutator):
    """Replaces regions by calls, and storages by fields of the common allocation."""

    def __init__(self, mod: IRModule, allocator: GlobalVar | None, plans: dict[Any, Any]) -> None:
        super().__init__(mod)
        self.allocator = allocator
        self.plans = plans
        self.captures = 0
        self.name = ""
        self.plan = GraphPlan()
        #: Field of the common allocation that each storage of the function is.
        self.fields: dict[Var, int] = {}
        self.allocation: Var | None = None

    def rewrite(self, gvar: GlobalVar, func: Function) -> Function:
        self.plan, self.fields = self.plans[gvar]
        self.name, self.allocation = gvar.name_hint, None
        changed: Any = self.visit_expr(func)
        return changed  # type: ignore[no-any-return]  # a function stays one

    def visit_var_(self, op: Var) -> Expr:
        if op in self.fields and op not in self.var_remap:
            self.fetch_storage(op)
        return super().visit_var_(op)

    def fetch_storage(self, storage: Var) -> None:
        """Emit the variable of a kept storage."""
        if self.allocation is None:
            assert self.allocator is not None
            call = _builtin("get_cached_alloc", (self.allocator, _int(0)), _result(self.allocator))
            self.allocation = self.builder.emit(call)
        field = TupleGetItem(self.allocation, self.fields[storage])
        self.var_remap[storage] = self.builder.emit(field, storage.name)

    def visit_if_(self, op: If) -> Expr:
        cond = self.visit_expr(op.cond)
        branches = []
        for branch in (op.true_branch, op.false_branch):
            # what a branch fetches is not visible after it
            known, allocation = dict(self.var_remap), self.allocation
            branches.append(self.visit_with_new_scope(branch))
            self.var_remap, self.allocation = known, allocation
        return self.rebuild_if(op, cond, *branches)

    def visit_binding(self, binding: Binding) -> None:
        region = self.plan.region_of.get(binding) if isinstance(binding, VarBinding) else None
        if region is not None:
            if binding is region.bindings[0]:
                self.launch(region)
            return
        if isinstance(binding, VarBinding) and binding.var in self.fields:
            if binding.var not in self.var_remap:
                self.fetch_storage(binding.var)
            return
        super().visit_binding(binding)

    def launch(self, region: Region) -> None:
        """Emit the call that captures or replays a region, and its results."""
        func = _captured_function(self.builder.get(), region)
        around, self.builder.span = self.builder.span, func.span
        gvar = self.builder.add_func(func, f"{self.name}_cuda_graph_capture")
        args = [self.visit_expr(var) for var in region.inputs]
        index = _int(self.captures)
        self.captures += 1
        if region.sizes:
            shape = ShapeExpr(tuple(region.sizes))
            call_args: tuple[Expr, ...] = (gvar, Tuple((*args, shape)), index, shape)
        else:
            call_args = (gvar, Tuple(tuple(args)), index)
        # in the sizes of this function: the captured one has its own
        ty = Tuple(tuple(region.outputs)).ty
        assert ty is not None
        results = self.builder.emit(_builtin("run_or_capture", call_args, ty))
        for binding in region.bindings:
            if binding.var in region.outputs:
                field = TupleGetItem(results, region.outputs[binding.var])
                self.var_remap[binding.var] = self.builder.emit(field, binding.var.name)
        self.builder.span = around


def _builtin(name: str, args: tuple[Expr, ...], ty: Type) -> Call:
    callee = ExternFunc(f"vm.builtin.cuda_graph.{name}")
    return Call(Op.get("relax.call_builtin_with_ctx"), (callee, Tuple(args)), None, (ty,))


def _result(gvar: GlobalVar) -> Type:
    ty: Any = gvar.ty
    return ty.ret  # type: ignore[no-any-return]  # a function type


def _int(value: int) -> IntImm:
    return IntImm(DataType("int64"), value)


def _size(binding: VarBinding) -> int:
    call: Any = binding.value
    return int(call.args[0].values[0].value)


def _scope(binding: VarBinding) -> str:
    call: Any = binding.value
    assert isinstance(call.args[2], StringImm)
    return call.args[2].value


def _share_storages(
    plans: dict[GlobalVar, GraphPlan],
) -> tuple[list[VarBinding], dict[GlobalVar, dict[Var, int]]]:
    """Let the functions use the same storages: the largest of each serves all.

    Returns the storages to allocate, and for each function which of them stands for its own.
    """
    shared: dict[str, list[VarBinding]] = {}
    ranks: dict[GlobalVar, dict[Var, tuple[str, int]]] = {}
    for gvar, plan in plans.items():
        ranks[gvar] = {}
        by_scope: dict[str, list[VarBinding]] = {}
        for binding in plan.storages:
            by_scope.setdefault(_scope(binding), []).append(binding)
        for scope, bindings in by_scope.items():
            common = shared.setdefault(scope, [])
            for rank, binding in enumerate(sorted(bindings, key=_size, reverse=True)):
                ranks[gvar][binding.var] = (scope, rank)
                if rank == len(common):
                    common.append(binding)
                elif _size(binding) > _size(common[rank]):
                    common[rank] = binding
    start: dict[str, int] = {}
    every: list[VarBinding] = []
    for scope, bindings in shared.items():
        start[scope] = len(every)
        every.extend(bindings)
    return every, {
        gvar: {var: start[scope] + rank for var, (scope, rank) in found.items()}
        for gvar, found in ranks.items()
    }


def _allocator(storages: list[VarBinding]) -> Function:
    """Return the function that allocates all kept storages."""
    own = [VarBinding(Var(b.var.name, b.var.ty), b.value, span=b.span) for b in storages]
    place = merge_spans(binding.span for binding in storages)
    result = Tuple(tuple(binding.var for binding in own))
    var = Var("gv", result.ty)
    block = BindingBlock((*own, VarBinding(var, result, span=place)))
    body = SeqExpr((block,), var, ty=result.ty, span=place)
    return Function((), body, result.ty, True, _FORCE_PURE, place)


@dataclass(frozen=True)
class RewriteCUDAGraph(ModulePass):
    """Capture static parts of functions, when the context asks for it."""

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return the module with captured regions, ``mod`` itself when there is none."""
        if not ctx.config.get(USE_CUDA_GRAPH, False):
            return mod
        plans = {
            gvar: find_regions(mod, func)
            for gvar, func in mod.functions.items()
            if isinstance(func, Function)
        }
        plans = {gvar: plan for gvar, plan in plans.items() if plan.storages or plan.regions}
        if not plans:
            return mod
        storages, fields = _share_storages(plans)
        rewriter = _Rewriter(mod, None, {g: (plan, fields[g]) for g, plan in plans.items()})
        if storages:
            rewriter.allocator = rewriter.builder.add_func(_allocator(storages), "cuda_graph_alloc")
        for gvar in plans:
            rewriter.builder.update_func(gvar, rewriter.rewrite(gvar, mod.functions[gvar]))  # type: ignore[arg-type]  # plans are of Relax functions
        return rewriter.builder.get()
