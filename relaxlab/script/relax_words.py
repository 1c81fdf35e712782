"""The words of ``R`` that are no operators: types, literals, statement forms.

They stand in a module of their own, since ``R`` exports names that Python itself needs (``str``,
``tuple``, ``max``). Counterpart: part of ``tvm.script.relax``.

Examples
--------
>>> str(const(2, "float32")), str(shape([2, 3]))
('R.const(2.0, "float32")', 'R.shape([2, 3])')
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from relaxlab.ir.attrs import Attrs
from relaxlab.ir.expr import Call, Expr, GenericConst, StringImm, Tuple, TupleGetItem
from relaxlab.ir.type import AnyType, PrimType
from relaxlab.relax import literals, op
from relaxlab.relax.expr import ExternFunc, ShapeExpr
from relaxlab.runtime.device import Device, cpu, cuda
from relaxlab.runtime.dtype import DataType
from relaxlab.script import relax_parts as parts
from relaxlab.script.annotation import (
    Annotation,
    AnnotationFunction,
    CallableAnnotation,
    ShapeAnnotation,
    TensorAnnotation,
    TupleAnnotation,
    TypeAnnotation,
    to_annotation,
)

# ---------------------------------------------------------------- types


def _tensor(
    shape: Any = None, dtype: Any = None, vdevice: Any = None, ndim: int = -1
) -> Annotation:
    if isinstance(shape, str):  # R.Tensor("float32", ndim=2)
        if dtype is not None:
            raise TypeError(f"R.Tensor got two dtypes: {shape!r} and {dtype!r}")
        shape, dtype = None, shape
    return TensorAnnotation(shape, dtype, vdevice, ndim)


def _shape_type(values: Any = None, ndim: int = -1) -> Annotation:
    return ShapeAnnotation(values, ndim)


def _tuple_type(*fields: Any) -> Annotation:
    if len(fields) == 1 and isinstance(fields[0], list | tuple):
        fields = tuple(fields[0])
    return TupleAnnotation(tuple(map(to_annotation, fields)))


def _callable_type(
    params: Any = None,
    ret: Any = None,
    purity: bool | None = None,
    derive_func: Any = None,
) -> Annotation:
    if params is not None and not isinstance(params, list | tuple):
        params = (params,)
    return CallableAnnotation(
        None if params is None else tuple(map(to_annotation, params)),
        None if ret is None else to_annotation(ret),
        purity,
        derive_func,
    )


def _prim_type(dtype: Any) -> Annotation:
    return TypeAnnotation(PrimType(getattr(dtype, "dtype", dtype)))


def _any_type() -> Annotation:
    return TypeAnnotation(AnyType())


# ---------------------------------------------------------------- literals


def const(value: Any, dtype: Any = None) -> GenericConst:
    """Return a tensor constant; ``"inf"``, ``"-inf"`` and ``"nan"`` are numbers here."""
    return literals.const(float(value) if isinstance(value, str) else value, dtype)


def shape(values: Sequence[Any]) -> ShapeExpr:
    """Return a shape as a value."""
    return ShapeExpr(tuple(values))


def string(value: Any) -> StringImm:
    """Return a string as a value."""
    if isinstance(value, StringImm):
        return value
    if not isinstance(value, str):
        raise TypeError(f"R.str needs a string, got {type(value).__name__}")
    return StringImm(value)


def dtype(value: Any) -> GenericConst:
    """Return a data type as a value."""
    return literals.dtype_const(getattr(value, "dtype", value))


def tuple_value(*fields: Any) -> Tuple:
    """Return a tuple as a value."""
    return Tuple(tuple(map(literals.convert_to_expr, fields)))


def device(device_type: Any, index: int = 0) -> Device:
    """Return a device; its type is a name, or a number as in printed programs."""
    if isinstance(device_type, int):
        return Device.from_dlpack(device_type, index)
    return Device(device_type, index)


# ---------------------------------------------------------------- statement forms


def func_attr(attrs: Mapping[Any, Any]) -> parts.FuncAttr:
    """Set attributes of the function."""
    return parts.FuncAttr(attrs)


def dataflow() -> parts.Dataflow:
    """Begin a dataflow block: ``with R.dataflow():``."""
    return parts.Dataflow()


def output(*values: Any) -> parts.Output:
    """End a dataflow block: what is visible after it."""
    return parts.Output(values)


def match_cast(value: Any, ty: Any) -> parts.Cast:
    """Give a value a type that is checked when the program runs."""
    return parts.Cast(value, ty)


def emit(value: Any) -> Any:
    """Return the value; a statement of its own needs no word for it."""
    return value


# ---------------------------------------------------------------- calls with more to say


def call_tir(gvar: Any, args: Any, out_ty: Any, tir_vars: Any = None) -> Call:
    """Call a kernel; ``tir_vars`` is a shape whose values are passed after the tensors."""
    return _with_tir_vars(op.call_tir(gvar, args, out_ty), tir_vars)


def call_tir_inplace(
    gvar: Any, args: Any, inplace_indices: Any, out_ty: Any, tir_vars: Any = None
) -> Call:
    """Call a kernel whose outputs overwrite inputs."""
    return _with_tir_vars(op.call_tir_inplace(gvar, args, inplace_indices, out_ty), tir_vars)


def call_tir_with_grad(
    gvar: Any,
    args: Any,
    out_ty: Any,
    te_grad_name: str,
    te_grad_kwargs: Mapping[str, Any] | None = None,
    tir_vars: Any = None,
) -> Call:
    """Call a kernel with the name of the te function that computes its gradient."""
    call = op.call_tir_with_grad(gvar, args, out_ty, te_grad_name, te_grad_kwargs)
    return _with_tir_vars(call, tir_vars)


def _with_tir_vars(call: Call, tir_vars: Any) -> Call:
    if tir_vars is None:
        return call
    values = tir_vars if isinstance(tir_vars, Expr) else shape(tir_vars)
    return replace(call, args=(*call.args, values))


def call_packed(func: Any, *args: Any, ty_args: Any = None, **attrs: Any) -> Call:
    """Call a function found by name; ``ty_args`` is the type of its result."""
    call = op.call_packed(func, *args, ty_args=ty_args)
    return replace(call, attrs=Attrs(attrs)) if attrs else call


def assert_op(condition: Any, *format_args: Any, format: Any = "") -> Call:
    """Stop the running program unless a boolean scalar is true."""
    values = format_args
    if len(values) == 1 and isinstance(values[0], list | tuple):
        values = tuple(values[0])
    return op.assert_op(condition, list(values), format)


#: Every word of ``R`` that is no operator, by name.
WORDS: dict[str, Any] = {
    "Any": AnnotationFunction(_any_type, TypeAnnotation(AnyType())),
    "Callable": AnnotationFunction(_callable_type, CallableAnnotation()),
    "ExternFunc": ExternFunc,
    "Object": AnnotationFunction(_any_type, TypeAnnotation(AnyType())),
    "Prim": AnnotationFunction(_prim_type, TypeAnnotation(PrimType(DataType("int64")))),
    "Shape": AnnotationFunction(_shape_type, ShapeAnnotation()),
    "ShapeExpr": ShapeExpr,
    "Tensor": AnnotationFunction(_tensor, TensorAnnotation()),
    "Tuple": AnnotationFunction(_tuple_type, TupleAnnotation()),
    "TupleGetItem": TupleGetItem,
    "assert_op": assert_op,
    "call_packed": call_packed,
    "call_tir": call_tir,
    "call_tir_inplace": call_tir_inplace,
    "call_tir_with_grad": call_tir_with_grad,
    "const": const,
    "cpu": cpu,
    "cuda": cuda,
    "dataflow": dataflow,
    "device": device,
    "dtype": dtype,
    "emit": emit,
    "func_attr": func_attr,
    "match_cast": match_cast,
    "output": output,
    "prim_value": literals.prim_value,
    "shape": shape,
    "str": string,
    "tuple": tuple_value,
}
