"""Compute at compile time what depends on nothing but constants.

A kernel call whose arguments are constants is run and its result takes its place; inside dataflow
blocks an operator call is legalized first, to see whether it becomes such a kernel call. What is
unused afterwards is dropped. Counterpart: ``tvm.relax.transform.FoldConstant``
(compiler.md, 6.4).

Examples
--------
>>> FoldConstant().info.name
'FoldConstant'
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from relaxlab.codegen import build, default_target
from relaxlab.errors import InternalError
from relaxlab.ir import (
    Call,
    Expr,
    GenericConst,
    GlobalVar,
    IntImm,
    IRModule,
    Op,
    PassContext,
    Tuple,
    TupleType,
    Type,
    Var,
)
from relaxlab.relax.analysis import remove_all_unused
from relaxlab.relax.expr import DataflowVar, Function, ShapeExpr, TensorType
from relaxlab.relax.expr_functor import ExprMutator
from relaxlab.relax.literals import const
from relaxlab.relax.transform.pass_base import FunctionPass
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.tensor import Tensor, empty
from relaxlab.tirx import PrimFunc

__all__ = ["FoldConstant"]

#: Results that need no tensor (ones, arange, ...) are kept as calls from this size on: a kernel
#: is smaller than what it makes.
_MOST_ELEMENTS = 1024

_INT64 = DataType("int64")


@dataclass(frozen=True)
class FoldConstant(FunctionPass):
    """Replace calls by the constants they give."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return the function with constants folded, itself if there was nothing to fold."""
        folded: Any = _Folder(mod).visit_expr(func)
        return remove_all_unused(folded)


class _Folder(ExprMutator):
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self._mod = mod
        self._compiled: dict[PrimFunc, Callable[..., Any] | None] = {}

    def visit_var_(self, op: Var) -> Expr:
        bound = self.builder.lookup_binding(op)
        return bound if isinstance(bound, GenericConst) else super().visit_var_(op)

    def visit_dataflow_var_(self, op: DataflowVar) -> Expr:
        return self.visit_var_(op)

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if not isinstance(call, Call) or not isinstance(call.op, Op) or not _is_worth_it(call):
            return call
        if call.op.name == "relax.call_tir":
            folded = self.fold_kernel_call(call)
            return call if folded is None else folded
        return self.fold_operator(self.with_shapes(call))

    def with_shapes(self, call: Call) -> Call:
        """Put the shapes that variables hold in their places."""
        args = tuple(self.shape_of(arg) for arg in call.args)
        if all(a is b for a, b in zip(args, call.args, strict=True)):
            return call
        inlined = self.builder.normalize(
            Call(call.op, args, call.attrs, call.ty_args, span=call.span)
        )
        assert isinstance(inlined, Call)
        return inlined

    def shape_of(self, arg: Expr) -> Expr:
        bound = self.builder.lookup_binding(arg) if isinstance(arg, Var) else None
        return bound if isinstance(bound, ShapeExpr) else arg

    def fold_operator(self, call: Call) -> Expr:
        """Fold a call of an operator in a dataflow block."""
        if not self.builder.current_block_is_dataflow() or not isinstance(call.op, Op):
            return call
        if call.op.name == "relax.tensor_to_shape":
            return _shape_held_by(call, call.args[0])
        if call.op.name == "relax.shape_to_tensor":
            return _tensor_of(call, call.args[0])
        legalize = call.op.get_attr("FLegalize")
        if legalize is None:
            return call
        # what the legalization emits is of no use: a kernel call that needs it cannot be folded
        self.builder.begin_block(is_dataflow=True)
        kernel_call = self.builder.normalize(legalize(self.builder, call))
        self.builder.end_block()
        if not isinstance(kernel_call, Call) or kernel_call.op is not Op.get("relax.call_tir"):
            return call
        folded = self.fold_kernel_call(kernel_call)
        return call if folded is None else folded

    def fold_kernel_call(self, call: Call) -> Expr | None:
        """Return what a ``call_tir`` gives; None if that cannot be told now."""
        callee, args = call.args[0], call.args[1]
        if not isinstance(callee, GlobalVar) or not isinstance(args, Tuple) or len(call.args) > 2:
            return None
        tensors = [tensor for tensor in map(_tensor_in, args.fields) if tensor is not None]
        ty = call.ty_args[0]
        parts = ty.fields if isinstance(ty, TupleType) else (ty,)
        outputs = [_allocate(part) for part in parts]
        made = [output for output in outputs if output is not None]
        if len(tensors) != len(args.fields) or len(made) != len(parts):
            return None
        func = self._mod.functions.get(callee)
        if func is None:
            func = self.builder.get()[callee]  # just legalized, so only the builder knows it
        kernel = self.compiled(func)
        if kernel is None:
            return None
        kernel(*tensors, *made)
        values = tuple(const(output) for output in made)
        return Tuple(values) if isinstance(ty, TupleType) else values[0]

    def compiled(self, func: object) -> Callable[..., Any] | None:
        """Return a kernel ready to run; None if no code can be generated for it."""
        if not isinstance(func, PrimFunc):
            return None
        if func not in self._compiled:
            try:
                self._compiled[func] = build(func, default_target()).get_function("main")
            except InternalError:
                # for another device, perhaps: it stays a call
                self._compiled[func] = None
        return self._compiled[func]


def _tensor_in(expr: Expr) -> Tensor | None:
    """Return the tensor that a constant holds."""
    value = expr.value if isinstance(expr, GenericConst) else None
    return value if isinstance(value, Tensor) else None


def _extents(ty: Type | None) -> list[int] | None:
    """Return the extents of a tensor type whose shape is known to the last dimension."""
    if not isinstance(ty, TensorType) or not isinstance(ty.shape, ShapeExpr):
        return None
    sizes = [dim.value for dim in ty.shape.values if isinstance(dim, IntImm)]
    return sizes if len(sizes) == len(ty.shape.values) else None


def _allocate(ty: Type) -> Tensor | None:
    sizes = _extents(ty)
    if sizes is None or not isinstance(ty, TensorType) or ty.dtype is None or ty.vdevice:
        return None
    return empty(sizes, ty.dtype)


def _is_worth_it(call: Call) -> bool:
    """Say whether a call's result may stand in the program: not if it is large and made of air."""
    opened: list[Sequence[Expr]] = [
        arg.fields if isinstance(arg, Tuple) else (arg,) for arg in call.args
    ]
    if any(isinstance(item.ty, TensorType) for items in opened for item in items):
        return True
    sizes = _extents(call.ty)
    if sizes is None:
        return True
    count = 1
    for size in sizes:
        count *= size
    return count <= _MOST_ELEMENTS


def _shape_held_by(call: Call, arg: Expr) -> Expr:
    """Return the shape that a constant tensor holds, ``call`` if it is no constant."""
    tensor = _tensor_in(arg)
    return call if tensor is None else ShapeExpr(tuple(int(size) for size in tensor.numpy()))


def _tensor_of(call: Call, arg: Expr) -> Expr:
    """Return a shape as a tensor, ``call`` if not all of it is known."""
    if not isinstance(arg, ShapeExpr):
        return call
    sizes = [dim.value for dim in arg.values if isinstance(dim, IntImm)]
    return const(sizes, _INT64) if len(sizes) == len(arg.values) else call
