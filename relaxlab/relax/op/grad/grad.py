"""Gradients of operators that are no composition of others, and marks for the pass that makes them.

Counterpart: ``tvm.relax.op.grad``.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax.type import TensorType
>>> no_grad(Var("x", TensorType([2]))).op.name
'relax.grad.no_grad'
"""

from collections.abc import Callable

from relaxlab.ir.expr import Call, Expr, Var
from relaxlab.ir.type import Type
from relaxlab.relax.op.declare import InferenceContext, call_op, declare
from relaxlab.relax.op.inference import op_name, tensor_argument, type_of
from relaxlab.relax.op.layouts import Numbers
from relaxlab.relax.op.nn.loss import checked_reduction
from relaxlab.relax.op.nn.pooling import POOL_ATTRIBUTES, pool_attributes

__all__ = [
    "avg_pool2d_backward",
    "end_checkpoint",
    "max_pool2d_backward",
    "nll_loss_backward",
    "no_grad",
    "start_checkpoint",
    "take_backward",
]


# --- marks --------------------------------------------------------------------------------------


def _same_type(call: Call, ctx: InferenceContext) -> Type:
    return type_of(call.args[0])


def _type_of_variable(call: Call, ctx: InferenceContext) -> Type:
    if not isinstance(call.args[0], Var):
        raise TypeError(
            f"The argument of {op_name(call)} should be a Var, but got {call.args[0]}; bind it "
            "first"
        )
    return type_of(call.args[0])


_NO_GRAD = declare("grad.no_grad", ("x",), _same_type)
_START = declare("grad.start_checkpoint", ("x",), _type_of_variable)
_END = declare("grad.end_checkpoint", ("x",), _type_of_variable)


def no_grad(input: Expr) -> Call:
    """The input, to which no gradient flows."""
    return call_op(_NO_GRAD, input)


def start_checkpoint(input: Expr) -> Call:
    """The input; what is computed from here on is not kept for the gradient, but made again."""
    return call_op(_START, input)


def end_checkpoint(input: Expr) -> Call:
    """The input; up to here values are made again."""
    return call_op(_END, input)


# --- gradients ----------------------------------------------------------------------------------


def _second_type(call: Call, ctx: InferenceContext) -> Type:
    return tensor_argument(call, 1)


_NLL_LOSS = declare(
    "grad.nll_loss_backward",
    ("output_grad", "predictions", "targets", "weights"),
    _second_type,
    attributes=("reduction", "ignore_index"),
    optional=1,
)


def nll_loss_backward(
    output_grad: Expr,
    predictions: Expr,
    targets: Expr,
    weights: Expr | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> Call:
    """Gradient of ``nn.nll_loss`` towards its predictions."""
    args = [output_grad, predictions, targets, *(() if weights is None else (weights,))]
    return call_op(
        _NLL_LOSS, *args, reduction=checked_reduction(reduction), ignore_index=int(ignore_index)
    )


def _pool_backward(kind: str) -> Callable[..., Call]:
    name = f"{kind}_pool2d_backward"
    op = declare(f"grad.{name}", ("output_grad", "data"), _second_type, attributes=POOL_ATTRIBUTES)

    def build(
        output_grad: Expr,
        data: Expr,
        pool_size: Numbers = 1,
        strides: Numbers = 1,
        padding: Numbers = 0,
        dilation: Numbers = 1,
        ceil_mode: bool = False,
        count_include_pad: bool = False,
        layout: str = "NCHW",
        out_layout: str | None = None,
    ) -> Call:
        attrs = pool_attributes(
            2,
            pool_size,
            strides,
            padding,
            dilation,
            ceil_mode,
            count_include_pad,
            layout,
            out_layout,
        )
        return call_op(op, output_grad, data, **attrs)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"""Gradient of ``nn.{kind}_pool2d`` towards its data."""
    return build


max_pool2d_backward, avg_pool2d_backward = _pool_backward("max"), _pool_backward("avg")

_TAKE = declare(
    "grad.take_backward", ("output_grad", "x", "indices"), _second_type, attributes=("axis", "mode")
)


def take_backward(output_grad: Expr, x: Expr, indices: Expr, axis: int | None = None) -> Call:
    """Gradient of ``take`` towards its data."""
    return call_op(_TAKE, output_grad, x, indices, axis=axis, mode="")
