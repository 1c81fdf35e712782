"""Legalization of what a tensor says of itself: host functions that read its descriptor.

Counterpart: the ``FLegalize`` of the operators ``relax.inspect.*``.

Examples
--------
>>> stride_i().func_attrs["tirx.is_host_func"]
True
"""

from collections.abc import Callable

from relaxlab.ir import prim_ops
from relaxlab.ir.attrs import DictAttrs
from relaxlab.ir.expr import Call, Expr, Var
from relaxlab.ir.prim import TensorLoad
from relaxlab.ir.prim_intrinsics import call_intrin
from relaxlab.ir.type import PointerType, PrimType, Type
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.transform.legalize_ops.registration import register_legalize
from relaxlab.runtime.dtype import DataType
from relaxlab.tirx import (
    AllocBuffer,
    AssertStmt,
    Bind,
    BufferStore,
    DeclBuffer,
    IfThenElse,
    PrimFunc,
    Return,
    Stmt,
    decl_buffer,
    seq,
)
from relaxlab.topi.flat import loop

__all__ = ["byte_offset", "elem_offset", "field", "shape_i", "stride_i"]

_INT32, _INT64 = DataType("int32"), DataType("int64")
_INT64_POINTER = PointerType(PrimType(_INT64))
#: Numbers of the fields of a tensor's descriptor.
_SHAPE, _STRIDES, _NDIM, _CODE, _BITS, _LANES, _BYTE_OFFSET = 2, 3, 4, 5, 6, 7, 8


def _handle() -> Var:
    return Var("dlpack_handle", PointerType(PrimType(DataType("void"))))


def _get(handle: Var, number: int, ty: Type) -> Call:
    return call_intrin(ty, "tirx.tvm_struct_get", handle, prim_ops.const(0), prim_ops.const(number))


def _prim(dtype: str) -> PrimType:
    return PrimType(DataType(dtype))


def _host(params: tuple[Var, ...], result: PrimType, *statements: Stmt, blocks: bool) -> PrimFunc:
    attrs = {"tirx.is_host_func": True, "tirx.is_scheduled": True}
    if blocks:
        attrs["s_tir"] = True
    return PrimFunc(params, seq(statements), result, DictAttrs(attrs))


def field(number: int, dtype: str) -> PrimFunc:
    """Return a function that returns a field of a tensor's descriptor."""
    handle, value = _handle(), Var("value", DataType(dtype))
    read = Bind(value, _get(handle, number, _prim(dtype)))
    return _host((handle,), _prim(dtype), read, Return(value), blocks=False)


def byte_offset() -> PrimFunc:
    """Return a function that returns how many bytes lie before the first element."""
    handle, offset = _handle(), Var("byte_offset", DataType("uint64"))
    read = Bind(offset, _get(handle, _BYTE_OFFSET, _prim("uint64")))
    return _host((handle,), PrimType(_INT64), read, Return(offset), blocks=True)


def elem_offset() -> PrimFunc:
    """Return a function that returns how many elements lie before the first one."""
    handle, wide = _handle(), DataType("uint64")
    offset, bits = Var("byte_offset", wide), Var("scalar_bits", DataType("uint8"))
    lanes, width = Var("lanes", DataType("uint16")), Var("bytes_per_element", wide)
    result = Var("elem_offset", wide)
    total = prim_ops.cast(wide, bits) * prim_ops.cast(wide, lanes)
    eight = prim_ops.const(8, wide)
    rounded = prim_ops.floordiv(total + eight - prim_ops.const(1, wide), eight)
    return _host(
        (handle,),
        PrimType(_INT64),
        Bind(offset, _get(handle, _BYTE_OFFSET, PrimType(wide))),
        Bind(bits, _get(handle, _BITS, _prim("uint8"))),
        Bind(lanes, _get(handle, _LANES, _prim("uint16"))),
        Bind(width, rounded),
        Bind(result, prim_ops.floordiv(offset, width)),
        Return(result),
        blocks=True,
    )


def _checked_axis(handle: Var, axis: Var, ndim: Var) -> list[Stmt]:
    kind = "RuntimeError"
    negative = ("Specified axis may not be negative",)
    beyond = ("Specified axis may not be larger than the tensor's dimensionality",)
    zero = prim_ops.const(0, _INT64)
    return [
        AssertStmt(prim_ops.less_equal(zero, axis), kind, negative),
        Bind(ndim, _get(handle, _NDIM, PrimType(_INT32))),
        AssertStmt(prim_ops.less(axis, prim_ops.cast(_INT64, ndim)), kind, beyond),
    ]


def shape_i() -> PrimFunc:
    """Return a function that returns a tensor's extent along an axis."""
    handle, axis = _handle(), Var("axis", _INT64)
    ndim, extent = Var("ndim", _INT32), Var("extent", _INT64)
    shape = decl_buffer((ndim,), _INT64, "shape", has_layout=False)
    return _host(
        (handle, axis),
        PrimType(_INT64),
        *_checked_axis(handle, axis, ndim),
        DeclBuffer(shape, _get(handle, _SHAPE, _INT64_POINTER)),
        Bind(extent, TensorLoad(shape, (axis,))),
        Return(extent),
        blocks=False,
    )


def stride_i() -> PrimFunc:
    """Return a function that returns a tensor's stride along an axis, in elements.

    A tensor without strides is dense: the stride is the product of the extents behind the axis.
    """
    handle, axis = _handle(), Var("axis", _INT64)
    ndim, stride_ptr = Var("ndim", _INT32), Var("stride_ptr", _INT64_POINTER)
    return _host(
        (handle, axis),
        PrimType(_INT64),
        *_checked_axis(handle, axis, ndim),
        Bind(stride_ptr, _get(handle, _STRIDES, _INT64_POINTER)),
        IfThenElse(
            call_intrin(_prim("bool"), "tirx.isnullptr", stride_ptr),
            _dense_stride(handle, axis, ndim),
            _own_stride(axis, ndim, stride_ptr),
        ),
        blocks=True,
    )


def _dense_stride(handle: Var, axis: Var, ndim: Var) -> Stmt:
    shape_ptr = Var("shape_ptr", _INT64_POINTER)
    shape, product = decl_buffer((ndim,), _INT64, "shape"), decl_buffer((), _INT64, "product")
    dim_offset, dim = Var("dim_offset", _INT64), Var("dim", _INT64)
    one, so_far = prim_ops.const(1, _INT64), TensorLoad(product, ())
    multiply = BufferStore(product, so_far * TensorLoad(shape, (dim,)), ())
    behind = prim_ops.cast(_INT64, ndim) - axis - one
    body = seq([Bind(dim, dim_offset + (axis + one)), multiply])
    return seq(
        [
            Bind(shape_ptr, _get(handle, _SHAPE, _INT64_POINTER)),
            DeclBuffer(shape, shape_ptr),
            AllocBuffer(product),
            BufferStore(product, one, ()),
            loop(dim_offset, behind, body),
            Return(TensorLoad(product, ())),
        ]
    )


def _own_stride(axis: Var, ndim: Var, pointer: Var) -> Stmt:
    strides, stride = decl_buffer((ndim,), _INT64, "strides"), Var("stride", _INT64)
    return seq(
        [
            DeclBuffer(strides, pointer),
            Bind(stride, TensorLoad(strides, (axis,))),
            Return(stride),
        ]
    )


def _register(name: str, kernel: Callable[[], PrimFunc]) -> None:
    @register_legalize(f"inspect.{name}")
    def legalize(bb: BlockBuilder, call: Call) -> Expr:
        return Call(bb.add_func(kernel(), f"_get_{name}"), call.args)


_register("tensor_ndim", lambda: field(_NDIM, "int32"))
_register("tensor_dtype_code", lambda: field(_CODE, "uint8"))
_register("tensor_dtype_bits", lambda: field(_BITS, "uint8"))
_register("tensor_dtype_lanes", lambda: field(_LANES, "uint16"))
_register("tensor_byte_offset", byte_offset)
_register("tensor_elem_offset", elem_offset)
_register("tensor_shape_i", shape_i)
_register("tensor_stride_i", stride_i)
