"""Let element-wise operators write over an argument that nobody needs afterwards.

Counterpart: ``tvm.relax.transform.DataflowUseInplaceCalls``.

Examples
--------
>>> DataflowUseInplaceCalls().info.name
'DataflowUseInplaceCalls'
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from relaxlab.ir import (
    Attrs,
    Call,
    Expr,
    GlobalVar,
    IRModule,
    ModulePass,
    Op,
    PassContext,
    Tuple,
    Var,
)
from relaxlab.ir.prim_functor import substitute
from relaxlab.relax.analysis.variables import used_vars
from relaxlab.relax.block_builder import BlockBuilder
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
from relaxlab.relax.type import TensorType
from relaxlab.tirx import PrimFunc

__all__ = ["DataflowUseInplaceCalls"]

_OPERATORS: Final = frozenset(
    f"relax.{name}" for name in ("add", "divide", "multiply", "nn.relu", "nn.silu", "subtract")
)
#: Operators whose result may be the memory of an argument.
_VIEWS: Final = frozenset(
    f"relax.{name}"
    for name in (
        "expand_dims",
        "flatten",
        "memory.ensure_zero_offset",
        "memory.view",
        "nn.batch_flatten",
        "reshape",
        "squeeze",
    )
)


def _name(value: Expr) -> str:
    return value.op.name if isinstance(value, Call) and isinstance(value.op, Op) else ""


def _may_share(value: Expr) -> bool:
    """Whether a value may be the memory of what it reads."""
    name = _name(value)
    return name in _VIEWS or not name or not name.startswith("relax.")


class _Lives:
    """Which variables of a block own memory that nobody reads after a binding."""

    def __init__(self, block: DataflowBlock) -> None:
        self.last: dict[Var, int] = {}
        self.owners: set[Var] = set()
        self.shared: set[Var] = set()
        for index, binding in enumerate(block.bindings):
            assert isinstance(binding, VarBinding | MatchCast)
            reads = used_vars(binding.value)
            for var in reads:
                self.last[var] = index
            if isinstance(binding, MatchCast) or _may_share(binding.value):
                self.shared.update(reads)
            elif isinstance(binding.var, DataflowVar):
                self.owners.add(binding.var)

    def dies_at(self, var: Expr, index: int) -> bool:
        if not isinstance(var, Var) or var not in self.owners or var in self.shared:
            return False
        return self.last.get(var) == index


class _Rewriter(ExprMutator):
    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        lives = _Lives(block)
        chosen = [self.dying(binding, lives, i) for i, binding in enumerate(block.bindings)]
        if all(over is None for over in chosen):
            return super().visit_dataflow_block_(block)
        self.builder.begin_block(is_dataflow=True)
        for binding, over in zip(block.bindings, chosen, strict=True):
            value = binding.value if isinstance(binding, VarBinding) else None
            call = None
            if over is not None and isinstance(value, Call):
                call = self.kernel_call(value, over)
            if call is None or not isinstance(binding, VarBinding):
                self.visit_binding(binding)
            else:
                self.reemit_binding(binding, self.builder.normalize(call))
        return self.builder.end_block()

    def dying(self, binding: Binding, lives: _Lives, index: int) -> Expr | None:
        """Return the argument over which the result of a binding can be written."""
        value = binding.value if isinstance(binding, VarBinding) else None
        if not isinstance(value, Call) or _name(value) not in _OPERATORS:
            return None
        ty = value.ty
        if not isinstance(ty, TensorType) or ty.get_shape() is None:
            return None
        for arg in value.args:
            if arg.ty != ty or not lives.dies_at(arg, index):
                continue
            if sum(other is arg for other in value.args) == 1:
                return arg
        return None

    def kernel_call(self, call: Call, over: Expr) -> Call | None:
        """Return the call of a kernel that writes its result over an argument."""
        assert isinstance(call.op, Op)
        legalize = call.op.get_attr("FLegalize")
        apart = BlockBuilder()
        apart.begin_block(is_dataflow=True)
        made = legalize(apart, call)
        nothing_else = not apart.end_block().bindings
        match made:
            case Call(op=Op(name="relax.call_tir"), args=(GlobalVar() as gvar, Tuple() as args)):
                kernel = apart.get()[gvar]
            case _:
                return None
        if not nothing_else or not isinstance(kernel, PrimFunc) or over not in args.fields:
            return None
        place = [arg is over for arg in args.fields].index(True)
        name = f"{gvar.name_hint}_inplace"
        new = self.builder.add_func(_writes_over(kernel, place), name)
        given = Tuple(tuple(self.visit_expr(arg) for arg in args.fields))
        attrs = Attrs({"inplace_indices": (place,)})
        assert call.ty is not None
        return Call(Op.get("relax.call_tir_inplace"), (new, given), attrs, (call.ty,))


def _writes_over(kernel: PrimFunc, place: int) -> PrimFunc:
    """Return a kernel whose last parameter is the one at ``place``."""
    *params, output = kernel.params
    body = substitute(kernel.body, {output: params[place]})
    return PrimFunc(tuple(params), body, kernel.ret_type, kernel.attrs)


@dataclass(frozen=True)
class DataflowUseInplaceCalls(ModulePass):
    """Use kernels that write over an argument, in dataflow blocks.

    Taken are add, subtract, multiply, divide, relu and silu of an argument that was made in the
    block, has the very type of the result, is read there for the last time, and whose memory
    nothing else may share.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return the module with in-place kernels, ``mod`` itself if there is none."""
        rewriter = _Rewriter(mod)
        changed: Sequence[Any] = []
        for gvar, func in mod.functions_items():
            if isinstance(func, Function):
                new: Any = rewriter.visit_expr(func)
                if new is not func:
                    rewriter.builder.update_func(gvar, new)
                    changed = [*changed, gvar]
        return rewriter.builder.get() if changed else mod
