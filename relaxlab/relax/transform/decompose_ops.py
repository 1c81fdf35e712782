"""Write composite operators as simpler ones.

For inference: ``batch_norm`` becomes arithmetic with the moving statistics. For training: it uses
the statistics of the batch and updates the moving ones, and ``layer_norm`` becomes arithmetic too,
so that gradients can be taken. Both: ``tensor_to_shape`` becomes a call of the runtime and a
match_cast, which gives the sizes names.
Counterpart: ``tvm.relax.transform.DecomposeOpsForInference`` and ``...ForTraining``.

Examples
--------
>>> DecomposeOpsForInference("main").info.name
'ApplyDecomposeTomain'
"""

from dataclasses import dataclass
from typing import Any

from relaxlab.ir import (
    Call,
    Expr,
    IntImm,
    IRModule,
    Op,
    Pass,
    PassContext,
    PassInfo,
    Sequential,
    Tuple,
    TupleGetItem,
    Var,
)
from relaxlab.relax import op
from relaxlab.relax.expr import (
    ExternFunc,
    Function,
    MatchCast,
    ShapeExpr,
    ShapeType,
    TensorType,
)
from relaxlab.relax.expr_functor import ExprMutator
from relaxlab.relax.literals import const
from relaxlab.relax.transform.pass_base import FunctionPass
from relaxlab.runtime.dtype import DataType

__all__ = ["DecomposeOpsForInference", "DecomposeOpsForTraining"]

_INT64 = DataType("int64")


def _dtype(expr: Expr) -> DataType:
    assert isinstance(expr.ty, TensorType)
    assert expr.ty.dtype is not None
    return expr.ty.dtype


def _other_axes(data: Expr, axis: int) -> list[int]:
    assert isinstance(data.ty, TensorType)
    return [i for i in range(data.ty.ndim) if i != axis % data.ty.ndim]


def _shifted_and_scaled(data: Expr, gamma: Expr, beta: Expr, attrs: Any) -> Expr:
    if attrs.scale:
        data = op.multiply(data, gamma)
    return op.add(data, beta) if attrs.center else data


def _batch_norm(call: Call) -> Expr:
    """Return a batch_norm with the statistics it is given, as arithmetic."""
    data, gamma, beta, mean, variance = call.args
    attrs: Any = call.attrs
    axes = _other_axes(data, attrs.axis)
    centred = op.subtract(data, op.expand_dims(mean, axes))
    spread = op.add(op.expand_dims(variance, axes), const(attrs.epsilon, _dtype(data)))
    normal = op.divide(centred, op.sqrt(spread))
    gamma, beta = op.expand_dims(gamma, axes), op.expand_dims(beta, axes)
    return Tuple((_shifted_and_scaled(normal, gamma, beta, attrs), mean, variance))


def _layer_norm(call: Call) -> Expr:
    data, gamma, beta = call.args
    attrs: Any = call.attrs
    axes = list(attrs.axes)
    centred = op.subtract(data, op.mean(data, axes, keepdims=True))
    spread = op.add(op.variance(data, axes, keepdims=True), const(attrs.epsilon, _dtype(data)))
    return _shifted_and_scaled(op.divide(centred, op.sqrt(spread)), gamma, beta, attrs)


class _Decomposer(ExprMutator):
    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        match call:
            case Call(op=Op(name="relax.nn.batch_norm")) if isinstance(call.args[0].ty, TensorType):
                return self.builder.normalize(_batch_norm(call))
            case Call(op=Op(name="relax.tensor_to_shape"), args=(tensor,)):
                return self.named_sizes(call, tensor)
            case _:
                return call

    def named_sizes(self, call: Expr, tensor: Expr) -> Expr:
        """Return the shape that a tensor holds, with a variable for each size."""
        dims = tensor.ty.get_shape() if isinstance(tensor.ty, TensorType) else None
        if dims is None or not isinstance(dims[0], IntImm):
            return call  # how many sizes there are is not known
        count = dims[0].value
        packed = Call(
            Op.get("relax.call_pure_packed"),
            (ExternFunc("vm.builtin.tensor_to_shape"), tensor),
            ty_args=(ShapeType(ndim=count),),
        )
        held = self.builder.emit(packed)
        sizes = [Var("x", _INT64) for _ in range(count)]
        ty = ShapeType(sizes)
        self.builder.emit_normalized(MatchCast(Var("y", ty), held, ty, span=self.builder.span))
        return ShapeExpr(sizes)


class _ForTraining(ExprMutator):
    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        match call:
            case Call(op=Op(name="relax.nn.batch_norm")) if isinstance(call.args[0].ty, TensorType):
                return self.with_batch_statistics(call)
            case Call(op=Op(name="relax.nn.layer_norm")) if isinstance(call.args[0].ty, TensorType):
                return self.builder.normalize(_layer_norm(call))
            case _:
                return call

    def with_batch_statistics(self, call: Call) -> Expr:
        """Return a batch_norm that uses the statistics of its data and updates those given."""
        data, gamma, beta, moving_mean, moving_variance = call.args
        attrs: Any = call.attrs
        axes = _other_axes(data, attrs.axis)
        mean = self.builder.emit(op.mean(data, axes))
        variance = self.builder.emit(op.variance(data, axes))
        normal = self.builder.emit(
            Call(call.op, (data, gamma, beta, mean, variance), call.attrs, span=call.span)
        )

        def moved(old: Expr, new: Expr) -> Expr:
            kept, share = (const(f, _dtype(old)) for f in (1 - attrs.momentum, attrs.momentum))
            return op.add(op.multiply(kept, old), op.multiply(share, new))

        fields = (
            TupleGetItem(normal, 0),
            moved(moving_mean, mean),
            moved(moving_variance, variance),
        )
        return self.builder.normalize(Tuple(fields))


@dataclass(frozen=True)
class _DecomposeOps(FunctionPass):
    pass_name = "DecomposeOps"

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        result: Any = _Decomposer(mod).visit_expr(func)
        return result  # type: ignore[no-any-return]  # a function stays one


@dataclass(frozen=True)
class _MutateOpsForTraining(FunctionPass):
    pass_name = "MutateOpsForTraining"

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        result: Any = _ForTraining(mod).visit_expr(func)
        return result  # type: ignore[no-any-return]  # a function stays one


def _run_on(steps: Pass, mod: IRModule, func_name: str) -> IRModule:
    """Run passes on one function only."""
    gvar = mod.get_global_var(func_name)
    alone = steps(IRModule({gvar: mod.functions[gvar]}, mod.attrs, mod.global_infos))
    return mod.with_functions({gvar: alone.functions[gvar]})


@dataclass(frozen=True)
class _Decompose(Pass):
    """What both passes share: the function they are for."""

    func_name: str | None = None

    @property
    def info(self) -> PassInfo:
        """Name and level; the name says which function it is for."""
        if self.func_name is None:
            return self.steps().info
        return PassInfo(f"ApplyDecomposeTo{self.func_name}")

    def steps(self) -> Pass:
        """Return what is run."""
        raise TypeError(f"{type(self).__name__} needs `steps`")

    def run(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Decompose in every function, or in the one named."""
        steps = self.steps()
        return (
            steps.run(mod, ctx) if self.func_name is None else _run_on(steps, mod, self.func_name)
        )


@dataclass(frozen=True)
class DecomposeOpsForInference(_Decompose):
    """Write ``batch_norm`` and ``tensor_to_shape`` as simpler operators.

    Parameters
    ----------
    func_name
        The only function to change; None for all.
    """

    def steps(self) -> Pass:
        """Return what is run."""
        return _DecomposeOps()


@dataclass(frozen=True)
class DecomposeOpsForTraining(_Decompose):
    """Write ``batch_norm`` (with the batch's statistics) and ``layer_norm`` as simpler operators.

    Parameters
    ----------
    func_name
        The only function to change; None for all.
    """

    def steps(self) -> Pass:
        """Return what is run."""
        return Sequential(
            (_MutateOpsForTraining(), _DecomposeOps()), name="DecomposeOpsForTraining"
        )
