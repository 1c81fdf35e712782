"""Compute products in float16, everything that asks for precision in float32.

Each operator has a policy: matmul, convolutions and attention *always* take float16 (and add up in
another dtype); element-wise operators, data movement and pooling *follow* their arguments; all
others *never* take float16. Types of parameters and results stay as they are.
Counterpart: ``tvm.relax.transform.ToMixedPrecision`` (compiler.md, 6.21).

Examples
--------
>>> ToMixedPrecision(out_dtype="float32").info.name
'ToMixedPrecision'
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from relaxlab.ir import (
    Attrs,
    Call,
    Expr,
    GenericConst,
    IRModule,
    Op,
    PassContext,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Var,
    replace,
)
from relaxlab.relax import op as relax_op
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
from relaxlab.relax.transform.pass_base import FunctionPass
from relaxlab.relax.type import TensorType
from relaxlab.runtime.dtype import DataType

__all__ = ["ToMixedPrecision"]

_HALF: Final = DataType("float16")
_SINGLE: Final = DataType("float32")

_ALWAYS: Final = frozenset(
    f"relax.{name}"
    for name in [
        "matmul",
        "nn.attention",
        "nn.attention_bias",
        "nn.attention_var_len",
        "nn.conv1d",
        "nn.conv1d_transpose",
        "nn.conv2d",
        "nn.conv2d_transpose",
        "nn.conv3d",
        "nn.conv3d_transpose",
        "outer",
    ]
)
_FOLLOW: Final = frozenset(
    f"relax.{name}"
    for name in [
        "abs",
        "acos",
        "acosh",
        "add",
        "arange",
        "asin",
        "asinh",
        "astype",
        "atan",
        "atan2",
        "atanh",
        "bitwise_and",
        "bitwise_not",
        "bitwise_or",
        "bitwise_xor",
        "broadcast_to",
        "ceil",
        "concat",
        "cos",
        "cosh",
        "divide",
        "dynamic_strided_slice",
        "equal",
        "erf",
        "ewise_fma",
        "exp",
        "expand_dims",
        "eye",
        "flatten",
        "floor",
        "floor_divide",
        "floor_mod",
        "full",
        "full_like",
        "greater",
        "greater_equal",
        "hamming_window",
        "image.affine_grid",
        "image.grid_sample",
        "image.resize2d",
        "image.resize3d",
        "isfinite",
        "isinf",
        "isnan",
        "layout_transform",
        "left_shift",
        "less",
        "less_equal",
        "log",
        "log_add_exp",
        "logical_and",
        "logical_not",
        "logical_or",
        "logical_xor",
        "maximum",
        "meshgrid",
        "minimum",
        "mod",
        "multiply",
        "negative",
        "nn.adaptive_avg_pool1d",
        "nn.adaptive_avg_pool2d",
        "nn.adaptive_avg_pool3d",
        "nn.avg_pool1d",
        "nn.avg_pool2d",
        "nn.avg_pool3d",
        "nn.batch_flatten",
        "nn.dropout",
        "nn.gelu",
        "nn.gelu_tanh",
        "nn.group_norm",
        "nn.instance_norm",
        "nn.layer_norm",
        "nn.max_pool1d",
        "nn.max_pool2d",
        "nn.max_pool3d",
        "nn.relu",
        "nn.rms_norm",
        "nn.selu",
        "nn.silu",
        "not_equal",
        "ones",
        "permute_dims",
        "power",
        "reshape",
        "right_shift",
        "round",
        "rsqrt",
        "sigmoid",
        "sign",
        "sin",
        "sinh",
        "split",
        "sqrt",
        "square",
        "squeeze",
        "stack",
        "strided_slice",
        "subtract",
        "tan",
        "tanh",
        "trunc",
        "vision.roi_align",
        "vision.roi_pool",
        "zeros",
    ]
)


@dataclass(frozen=True, init=False)
class ToMixedPrecision(FunctionPass):
    """Compute in float16 where that is safe, in dataflow blocks.

    Parameters
    ----------
    out_dtype
        In which dtype products are added up: ``"float32"`` or ``"float16"``.
    fp16_input_names
        Parameters that are float16 from now on.
    """

    out_dtype: DataType
    fp16_input_names: tuple[str, ...]

    def __init__(
        self,
        out_dtype: DataType | str = "float32",
        fp16_input_names: Sequence[str] | None = None,
    ) -> None:
        object.__setattr__(self, "out_dtype", DataType(out_dtype))
        object.__setattr__(self, "fp16_input_names", tuple(fp16_input_names or ()))

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return the function in mixed precision, itself if it computes no products."""
        new: Any = _Mixer(mod, self, func).visit_expr(func)
        return new  # type: ignore[no-any-return]  # a function stays one


def _leaves(expr: Expr) -> Iterator[Expr]:
    if isinstance(expr, Tuple):
        for item in expr.fields:
            yield from _leaves(item)
    else:
        yield expr


def _holds(ty: Type | None, dtype: DataType) -> bool:
    """Whether a type is a tensor of a dtype, or a tuple with one."""
    if isinstance(ty, TupleType):
        return any(_holds(item, dtype) for item in ty.fields)
    return isinstance(ty, TensorType) and ty.dtype is dtype


class _Mixer(ExprMutator):
    def __init__(self, mod: IRModule, options: ToMixedPrecision, func: Function) -> None:
        super().__init__(mod)
        self.options = options
        self.func = func
        #: Values of the block at hand as float16.
        self.halves: dict[Expr, Expr] = {}
        self.inputs = {
            param: Var(param.name, replace(param.ty, dtype=_HALF))
            for param in func.params
            if param.name in options.fp16_input_names and isinstance(param.ty, TensorType)
        }

    def visit_function_(self, op: Function) -> Expr:
        if op is not self.func or not self.inputs:
            return super().visit_function_(op)
        params = tuple(self.inputs.get(param, param) for param in op.params)
        self.var_remap.update(self.inputs)
        body: Any = self.visit_with_new_scope(op.body, params)
        return Function(params, body, op.ret_ty, op.is_pure, op.attrs, span=op.span)

    # ---- casts --------------------------------------------------------------------------------

    def cast(self, expr: Expr, dtype: DataType) -> Expr:
        """Return a tensor as another float dtype; tuples field by field."""
        if isinstance(expr, Tuple):
            return Tuple(tuple(self.cast(item, dtype) for item in expr.fields))
        other = _SINGLE if dtype is _HALF else _HALF
        if not isinstance(expr.ty, TensorType) or expr.ty.dtype is not other:
            return expr
        if dtype is not _HALF:
            return self.builder.emit(relax_op.astype(expr, dtype))  # each time, as TVM does
        if expr not in self.halves:
            self.halves[expr] = self.builder.emit(relax_op.astype(expr, dtype))
        return self.halves[expr]

    # ---- blocks -------------------------------------------------------------------------------

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        if not any(_policy(_value(b)) == "always" for b in block.bindings):
            return super().visit_dataflow_block_(block)
        self.halves = {}
        self.builder.begin_block(is_dataflow=True)
        own = {_variable(binding) for binding in block.bindings}
        kept: set[Var] = set()
        wanted: dict[Var, None] = {}
        for binding in block.bindings:
            value = _value(binding)
            group = wanted if _policy(value) == "always" else kept
            for var in used_vars(value):
                if var not in own:
                    group.add(var) if isinstance(group, set) else group.setdefault(var)
        for var in sorted((v for v in wanted if v not in kept), key=self._place):
            self.cast(self.visit_expr(var), _HALF)
        for binding in block.bindings:
            self.mix(binding)
        self.halves = {}
        return self.builder.end_block()

    def _place(self, var: Var) -> int:
        return self.func.params.index(var) if var in self.func.params else len(self.func.params)

    def mix(self, binding: Binding) -> None:
        value = _value(binding)
        if isinstance(binding, MatchCast):
            self.visit_binding(replace(binding, value=self.cast(self.visit_expr(value), _SINGLE)))
            return
        assert isinstance(binding, VarBinding)
        var = binding.var
        match _policy(value):
            case "always":
                assert isinstance(value, Call)
                self.bind(var, self.product(value))
            case "follow":
                assert isinstance(value, Call)
                self.bind(var, self.follower(value))
            case "field":
                assert isinstance(value, TupleGetItem)
                self.bind(var, TupleGetItem(self.visit_expr(value.tuple_value), value.index))
            case _:
                if isinstance(value, Call):
                    args = tuple(self.cast(self.visit_expr(arg), _SINGLE) for arg in value.args)
                    self.bind(var, replace(value, args=args, ty=None))
                else:
                    self.bind(var, self.cast(self.visit_expr(value), _SINGLE))

    def product(self, call: Call) -> Expr:
        args = tuple(self.cast(self.visit_expr(arg), _HALF) for arg in call.args)
        attrs = call.attrs
        if attrs is not None and "out_dtype" in attrs:
            attrs = Attrs({**attrs, "out_dtype": self.options.out_dtype})
        return replace(call, args=args, attrs=attrs, ty=None)

    def follower(self, call: Call) -> Expr:
        args = tuple(self.visit_expr(arg) for arg in call.args)
        leaves = [leaf for arg in args for leaf in _leaves(arg)]
        floats = [leaf for leaf in leaves if not isinstance(leaf, GenericConst)]
        narrow = any(_holds(leaf.ty, _HALF) for leaf in floats)
        wide = any(_holds(leaf.ty, _SINGLE) for leaf in floats)
        dtype = _HALF if narrow and not wide else _SINGLE
        same = tuple(self.cast(arg, dtype) for arg in args)
        return replace(call, args=same, ty=None)

    def bind(self, var: Var, value: Expr) -> None:
        """Bind a value; results keep their dtype, products inside are stored as float16."""
        value = self.builder.normalize(value)
        is_output = not isinstance(var, DataflowVar)
        ty = value.ty
        if is_output:
            if isinstance(ty, TensorType) and _holds(var.ty, _SINGLE) and ty.dtype is _HALF:
                value = relax_op.astype(self.builder.emit(value), _SINGLE)
            self.var_remap[var] = self.builder.emit_output(value, var.name)
            return
        is_product = isinstance(value, Call) and _policy(value) == "always"
        if is_product and isinstance(ty, TensorType) and ty.dtype is _SINGLE:
            value = relax_op.astype(self.builder.emit(value), _HALF)
        self.var_remap[var] = self.builder.emit(value, var.name)


def _policy(value: Expr) -> str:
    match value:
        case Call(op=Op(name=name)) if name in _ALWAYS:
            return "always"
        case Call(op=Op(name=name)) if name in _FOLLOW:
            return "follow"
        case TupleGetItem():
            return "field"
        case _:
            return "never"


def _value(binding: Binding) -> Expr:
    assert isinstance(binding, VarBinding | MatchCast)
    return binding.value


def _variable(binding: Binding) -> Var:
    assert isinstance(binding, VarBinding | MatchCast)
    return binding.var
