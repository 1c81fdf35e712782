"""Give external kernels the scratch memory that they ask for.

Counterpart: ``tvm.relax.transform.AllocateWorkspace``.

Examples
--------
>>> AllocateWorkspace().info.name
'AllocateWorkspace'
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relaxlab.ir import (
    Call,
    DictAttrs,
    Expr,
    GlobalVar,
    IntImm,
    IRModule,
    ModulePass,
    Op,
    PassContext,
    StringImm,
    Var,
)
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.expr import Function, SeqExpr, ShapeExpr, VarBinding
from relaxlab.relax.expr_functor import ExprMutator
from relaxlab.relax.literals import dtype_const
from relaxlab.relax.transform.dead_code_elimination import DeadCodeElimination
from relaxlab.relax.type import TensorType
from relaxlab.runtime.dtype import DataType

__all__ = ["AllocateWorkspace"]

_SIZE = "WorkspaceSize"
_INT64 = DataType("int64")


def _without_size(func: Function) -> DictAttrs:
    return DictAttrs({key: value for key, value in func.attrs.items() if key != _SIZE})


class _External(ExprMutator):
    """Adds a workspace parameter to an external function, and to the composites in it."""

    def __init__(self, mod: IRModule, size: int) -> None:
        super().__init__(mod)
        self.size = size
        self.workspace = self.parameter()
        self.inner: set[Var] = set()

    def parameter(self) -> Var:
        shape = ShapeExpr((IntImm(_INT64, self.size),))
        return Var("workspace", TensorType(shape, DataType("uint8")))

    def visit_var_binding_(self, binding: VarBinding) -> None:
        func = binding.value
        if not isinstance(func, Function) or _SIZE not in func.attrs:
            super().visit_var_binding_(binding)
            return
        params = (*func.params, self.parameter())
        new = Function(
            params, func.body, func.ret_ty, func.is_pure, _without_size(func), span=func.span
        )
        var = self.builder.emit(new, binding.var.name)
        self.var_remap[binding.var] = var
        self.inner.add(binding.var)

    def visit_call_(self, op: Call) -> Expr:
        if not isinstance(op.op, Var) or op.op not in self.inner:
            return super().visit_call_(op)
        args = (*self.visit_each(op.args), self.workspace)
        return self.builder.normalize(
            Call(self.visit_expr(op.op), args, op.attrs, op.ty_args, span=op.span)
        )

    def rebuilt(self, func: Function) -> Function:
        params = (*func.params, self.workspace)
        body: Any = self.visit_with_new_scope(func.body, params)
        return Function(
            params, body, func.ret_ty, func.is_pure, _without_size(func), span=func.span
        )


class _Caller(ExprMutator):
    """Allocates one workspace for all external functions that a function calls."""

    def __init__(self, mod: IRModule, renamed: Mapping[GlobalVar, GlobalVar], size: int) -> None:
        super().__init__(mod)
        self.renamed = renamed
        self.size = size
        self.name = ""
        self.workspace: Var | None = None

    def visit_call_(self, op: Call) -> Expr:
        new = self.renamed.get(op.op) if isinstance(op.op, GlobalVar) else None
        if new is None:
            return super().visit_call_(op)
        args = self.visit_each(op.args)
        if self.workspace is None:
            size = ShapeExpr((IntImm(_INT64, self.size),))
            zero = IntImm(_INT64, 0)
            allocation = Call(
                Op.get("relax.builtin.alloc_tensor"),
                (size, dtype_const("uint8"), zero, StringImm("global")),
            )
            self.workspace = self.builder.emit(allocation, f"workspace_{self.name}")
        return self.builder.normalize(
            Call(new, (*args, self.workspace), op.attrs, op.ty_args, span=op.span)
        )

    def visit_seq_expr_(self, op: SeqExpr) -> Expr:
        outer, result = self.workspace, super().visit_seq_expr_(op)
        self.workspace = outer  # what a branch allocates is unknown behind it
        return result

    def visit_binding_block(self, block: Any) -> Any:
        new = super().visit_binding_block(block)
        self.workspace = None  # a dataflow block keeps its variables for itself
        return new

    def rebuilt(self, gvar: GlobalVar, func: Function) -> Function:
        self.name, self.workspace = gvar.name_hint, None
        new: Any = self.visit_expr(func)
        return new  # type: ignore[no-any-return]  # a function stays one


@dataclass(frozen=True)
class AllocateWorkspace(ModulePass):
    """Turn the attribute ``WorkspaceSize`` of external functions into a parameter.

    The largest size of all is allocated by the callers, as ``uint8``.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return the module with workspaces, ``mod`` itself if nothing asks for one."""
        sizes = {
            gvar: int(func.attrs[_SIZE])
            for gvar, func in mod.functions.items()
            if isinstance(func, Function) and "Codegen" in func.attrs and _SIZE in func.attrs
        }
        if not sizes:
            return mod
        size = max(sizes.values())
        builder = BlockBuilder(mod)
        renamed = {}
        for gvar in sizes:
            func = mod.functions[gvar]
            assert isinstance(func, Function)
            new = _External(mod, size).rebuilt(func)
            renamed[gvar] = builder.add_func(new, gvar.name_hint)
            if "global_symbol" in new.attrs:
                name = renamed[gvar].name_hint
                builder.update_func(renamed[gvar], new.with_attr("global_symbol", name))
        result = builder.get().clone()
        caller = _Caller(result, renamed, size)
        for gvar, func in mod.functions.items():
            if gvar in sizes:
                result.remove(gvar)
            elif isinstance(func, Function):
                new = caller.rebuilt(gvar, func)
                if new is not func:
                    result.update_func(gvar, new)
        return DeadCodeElimination()(result)
