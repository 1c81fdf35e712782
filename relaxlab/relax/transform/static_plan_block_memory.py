"""Memory planning: tensors whose lives do not overlap share a storage.

Three steps per function. Every allocation gets a *token* that follows its value through variables,
tuples and views, and counts the kernel calls that use it; a value that escapes (the result, a call
that may keep it, another block) loses its token. Then the calls are replayed in order: an
allocation takes a storage from the pool (see ``storage_pool``), a last use puts it back. Last, the
planned allocations are rewritten. Counterpart: ``tvm.relax.transform.StaticPlanBlockMemory``,
which lets a branch of an If use the storages of the other branch, and tensors of different virtual
devices share one; this one does not.

Examples
--------
>>> StaticPlanBlockMemory().info.name
'StaticPlanBlockMemory'
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from relaxlab.ir import (
    Call,
    Expr,
    GenericConst,
    GlobalVar,
    IntImm,
    IRModule,
    ModulePass,
    Op,
    PassContext,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    prim_ops,
)
from relaxlab.relax.expr import (
    Binding,
    BindingBlock,
    ExternFunc,
    Function,
    If,
    MatchCast,
    SeqExpr,
    ShapeExpr,
    VarBinding,
)
from relaxlab.relax.expr_functor import ExprMutator, ExprVisitor
from relaxlab.relax.transform.storage_pool import Storage, StorageKey, StoragePool
from relaxlab.relax.transform.upper_bound import UpperBounds
from relaxlab.runtime.dtype import DataType
from relaxlab.tirx import PrimFunc

__all__ = ["MemoryPlan", "StaticPlanBlockMemory", "plan_memory"]

#: Operators and functions whose result shares the memory of their first argument.
_VIEWS: Final = frozenset(
    {"relax.reshape", "relax.memory.view", "relax.memory.ensure_zero_offset", "vm.builtin.reshape"}
)
_PLAN_OUTPUTS: Final = "relax.memory_plan_dynamic_func_output"


@dataclass(eq=False, slots=True)
class _Token:
    """The claim of one allocation on memory.

    ``planned`` turns false when the value escapes; ``uses`` counts arguments of kernel calls.
    """

    key: StorageKey
    size: Expr
    block: BindingBlock
    uses: int = 0
    planned: bool = True


#: The token of a value; a tuple of such for a tuple, None for memory that is not ours.
_Claim = Any


def _tokens(claim: _Claim) -> Iterator[_Token]:
    if isinstance(claim, tuple):
        for item in claim:
            yield from _tokens(item)
    elif claim is not None and claim.planned:
        yield claim


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What was decided for one function.

    Attributes
    ----------
    storages
        All storages, in order of creation, with their final sizes.
    assigned
        The storage of each planned allocation, by the variable it is bound to.
    """

    storages: tuple[Storage, ...]
    assigned: dict[Var, Storage]


def plan_memory(mod: IRModule, func: Function) -> MemoryPlan:
    """Decide which allocations of ``func`` share storages; nothing is rewritten.

    Parameters
    ----------
    mod
        The module, which tells kernels from Relax functions.
    func
        A function whose outputs are allocated by ``R.builtin.alloc_tensor`` (CallTIRRewrite).
    """
    bounds = UpperBounds(func)
    collector = _Collector(mod, bounds)
    collector.visit_expr(func)
    planner = _Planner(mod, collector.allocated, StoragePool(bounds.analyzer))
    planner.visit_expr(func)
    return MemoryPlan(tuple(planner.pool.storages), planner.assigned)


class _Walk(ExprVisitor):
    """Follows values to the allocations they come from."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.claims: dict[Var, _Claim] = {}
        self.block = BindingBlock()

    def claim(self, expr: Expr) -> _Claim:
        match expr:
            case Var():
                return self.claims.get(expr)
            case Tuple(fields=fields):
                return tuple(self.claim(item) for item in fields)
            case TupleGetItem(tuple_value=value, index=index):
                whole = self.claim(value)
                return whole[index] if isinstance(whole, tuple) else None
            case Call() if _callee_name(expr) in _VIEWS:
                return self.claim(expr.args[0])
            case _:
                return None

    def uses_memory(self, call: Call) -> bool:
        """Say whether a call only reads and writes the tensors it is given."""
        match call.op:
            case ExternFunc():
                return True
            case GlobalVar():
                return isinstance(self.mod.functions.get(call.op), PrimFunc)
            case Op(name=name):
                return name == "relax.vm.call_tir_dyn"
            case _:
                return False

    def visit_binding_block_(self, block: BindingBlock) -> None:
        outer, self.block = self.block, block
        super().visit_binding_block_(block)
        self.block = outer

    def visit_match_cast_(self, binding: MatchCast) -> None:
        super().visit_match_cast_(binding)
        self.claims[binding.var] = self.claim(binding.value)

    def visit_function_(self, op: Function) -> None:
        self.visit_expr(op.body)


class _Collector(_Walk):
    """First step: a token for every allocation, and what becomes of it."""

    def __init__(self, mod: IRModule, bounds: UpperBounds) -> None:
        super().__init__(mod)
        self.bounds = bounds
        self.allocated: dict[Var, _Token] = {}

    def visit_var_binding_(self, binding: VarBinding) -> None:
        size = _allocation_size(binding, self.bounds)
        if size is not None:
            token = _Token(_key(binding), size, self.block)
            self.allocated[binding.var] = self.claims[binding.var] = token
            return
        super().visit_var_binding_(binding)
        self.claims[binding.var] = self.claim(binding.value)

    def visit_call_(self, op: Call) -> None:
        if _callee_name(op) in _VIEWS:
            return
        inside = self.uses_memory(op)
        for arg in op.args:
            for token in _tokens(self.claim(arg)):
                if inside and token.block is self.block:
                    token.uses += 1
                else:
                    token.planned = False

    def visit_if_(self, op: If) -> None:
        self.discard(op.cond)
        super().visit_if_(op)

    def visit_seq_expr_(self, op: SeqExpr) -> None:
        for block in op.blocks:
            self.visit_binding_block(block)
        self.discard(op.body)

    def discard(self, expr: Expr) -> None:
        """Give up planning what ``expr`` refers to: it outlives what can be seen here."""
        for token in _tokens(self.claim(expr)):
            token.planned = False


class _Planner(_Walk):
    """Second step: replay allocations and last uses against the pool."""

    def __init__(self, mod: IRModule, allocated: dict[Var, _Token], pool: StoragePool) -> None:
        super().__init__(mod)
        self.allocated = allocated
        self.pool = pool
        self.assigned: dict[Var, Storage] = {}
        #: The storage that each token holds; several tokens hold one at different times.
        self.held: dict[_Token, Storage] = {}

    def visit_var_binding_(self, binding: VarBinding) -> None:
        token = self.allocated.get(binding.var)
        if token is not None:
            self.claims[binding.var] = token
            if token.planned:
                storage = self.pool.request(token.key, token.size, token.uses)
                if storage is None:
                    storage = self.pool.allocate(token.key, token.size, token.uses)
                self.held[token] = self.assigned[binding.var] = storage
            return
        super().visit_var_binding_(binding)
        self.claims[binding.var] = self.claim(binding.value)

    def visit_call_(self, op: Call) -> None:
        if _callee_name(op) in _VIEWS:
            return
        for arg in op.args:
            for token in _tokens(self.claim(arg)):
                storage = self.held[token]
                storage.pending -= 1
                if storage.pending == 0:
                    self.pool.release(storage)

    def visit_if_(self, op: If) -> None:
        for branch in (op.true_branch, op.false_branch):
            self.pool.enter_branch()
            self.visit_expr(branch)
            self.pool.leave_branch()


class _Rewriter(ExprMutator):
    """Last step: allocations out of the storages decided on."""

    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.plan = MemoryPlan((), {})
        self.plan_outputs = False
        self.bounds: UpperBounds | None = None
        self.storage_vars: dict[Storage, Var] = {}

    def rewrite(self, func: Function, plan: MemoryPlan) -> Function:
        self.plan = plan
        self.storage_vars.clear()
        self.plan_outputs = bool(func.func_attrs.get(_PLAN_OUTPUTS, False))
        self.bounds = UpperBounds(func) if self.plan_outputs else None
        changed: Function = self.visit_expr(func)
        return changed.without_attr(_PLAN_OUTPUTS)  # type: ignore[no-any-return]  # a Function

    def visit_var_binding_(self, binding: VarBinding) -> None:
        storage = self.plan.assigned.get(binding.var)
        if storage is not None:
            var = self.storage_vars.get(storage)
            if var is None:
                var = self.allocate_storage(binding.value, storage.size)
                self.storage_vars[storage] = var
            self.reemit_binding(binding, _tensor_in(var, binding.value))
            return
        if self.bounds is not None:
            size = _allocation_size(binding, self.bounds)
            if size is not None and not _is_static(binding.value):
                var = self.allocate_storage(binding.value, size)
                self.reemit_binding(binding, _tensor_in(var, binding.value))
                return
        super().visit_var_binding_(binding)

    def allocate_storage(self, allocation: Any, size: Expr) -> Var:
        _, dtype, device, scope = allocation.args
        call = Call(
            Op.get("relax.memory.alloc_storage"), (ShapeExpr((size,)), device, scope, dtype)
        )
        return self.builder.emit(call, "storage")


def _tensor_in(storage: Var, allocation: Any) -> Call:
    shape, dtype, device, _ = allocation.args
    offset = IntImm(DataType("int64"), 0)
    return Call(Op.get("relax.memory.alloc_tensor"), (storage, offset, shape, dtype, device))


def _is_static(allocation: Any) -> bool:
    return all(isinstance(dim, IntImm) for dim in allocation.args[0].values)


def _callee_name(call: Call) -> str | None:
    match call.op:
        case Op(name=name) | ExternFunc(global_symbol=name):
            return name
        case _:
            return None


def _key(binding: VarBinding) -> StorageKey:
    value = binding.value
    assert isinstance(value, Call)
    _, dtype, device, scope = value.args
    assert isinstance(dtype, GenericConst)
    assert isinstance(device, IntImm)
    assert isinstance(scope, StringImm)
    return StorageKey(device.value, scope.value, DataType(dtype.value))


def _allocation_size(binding: Binding, bounds: UpperBounds) -> Expr | None:
    """Return the bytes of the tensor that a binding allocates; None for any other binding."""
    if not isinstance(binding, VarBinding) or not isinstance(binding.value, Call):
        return None
    call = binding.value
    if _callee_name(call) != "relax.builtin.alloc_tensor" or not isinstance(
        call.args[0], ShapeExpr
    ):
        return None
    assert isinstance(call.args[1], GenericConst)
    dtype = DataType(call.args[1].value)
    constant = (dtype.bits * dtype.lanes + 7) // 8
    symbolic: Expr | None = None
    for dim in call.args[0].values:
        most = bounds.of(dim)
        if isinstance(most, IntImm):
            constant *= most.value
        else:
            symbolic = most if symbolic is None else prim_ops.multiply(symbolic, most)
    factor = IntImm(DataType("int64"), constant)
    return factor if symbolic is None else prim_ops.multiply(factor, symbolic)


@dataclass(frozen=True)
class StaticPlanBlockMemory(ModulePass):
    """Plan the memory of every Relax function; functions are independent of each other."""

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return the module with planned allocations, or ``mod`` when there is nothing to plan."""
        rewriter = _Rewriter(mod)
        return mod.with_functions(
            {
                gvar: rewriter.rewrite(func, plan_memory(mod, func))
                for gvar, func in mod.functions.items()
                if isinstance(func, Function)
            }
        )
