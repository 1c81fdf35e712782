"""Types as they are written in a program, before the symbolic variables in them are known.

``R.Tensor(("n", "n * 2"), "float32")`` may stand in a signature whose other parameters define
``n``. So ``R.Tensor`` and its like give an annotation; the parser collects the variables of all
annotations of a signature first and makes types afterwards. Counterpart: TVM's type proxies.

Examples
--------
>>> list(TensorAnnotation(("n", 4), "float32").symbols())
['n']
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, ParamSpec, Protocol, TypeVar

from relaxlab.ir.expr import Expr, Var
from relaxlab.ir.global_info import VDevice
from relaxlab.ir.prim import IntImm
from relaxlab.ir.type import AnyType, FuncType, PrimType, TupleType, Type
from relaxlab.relax.type import PACKED_FUNC, ShapeType, TensorType
from relaxlab.runtime.dtype import DataType
from relaxlab.tirx.buffer import BufferType

__all__ = [
    "Annotation",
    "AnnotationFunction",
    "BufferAnnotation",
    "CallableAnnotation",
    "Context",
    "ShapeAnnotation",
    "TensorAnnotation",
    "TupleAnnotation",
    "TypeAnnotation",
    "to_annotation",
    "to_type",
]

P = ParamSpec("P")
_INT32: Final = DataType("int32")


class Context(Protocol):
    """What the parser knows when it makes types."""

    #: Whether the types are those of a kernel of the block dialect.
    is_s_tir: bool

    def symbol(self, name: str) -> Expr:
        """Return the variable of that name; it is an error if none is defined."""

    def symbolic(self, text: str) -> Any:
        """Return the value of an expression over symbolic variables."""

    def vdevice(self, name: str) -> VDevice:
        """Return the module's device called ``kind:index:scope``."""


class Annotation:
    """A type in the making."""

    def symbols(self) -> Iterator[str]:
        """Names of the symbolic variables that stand alone as a dimension."""
        return iter(())

    def make(self, context: Context) -> Type:
        """Return the type."""
        raise TypeError(f"{type(self).__name__} makes no type")


class AnnotationFunction(Generic[P]):
    """What makes an annotation when it is called, and stands for one when it is not.

    Examples
    --------
    >>> tensor = AnnotationFunction(TensorAnnotation, TensorAnnotation())
    >>> to_annotation(tensor).ndim, tensor((4,), "int8").dtype
    (-1, 'int8')
    """

    def __init__(self, function: Callable[P, Annotation], bare: Annotation) -> None:
        self._function = function
        self.bare = bare
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", "annotation")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Annotation:
        """Return the annotation with these details."""
        return self._function(*args, **kwargs)


@dataclass(frozen=True, slots=True)
class TypeAnnotation(Annotation):
    """A type that is known already."""

    ty: Type

    def make(self, context: Context) -> Type:
        """Return the type."""
        return self.ty


def _dim_symbols(dims: Any) -> Iterator[str]:
    for dim in dims if isinstance(dims, list | tuple) else ():
        if isinstance(dim, TypeVar):
            yield dim.__name__
        elif isinstance(dim, str) and dim.strip().isidentifier():
            yield dim.strip()


def _dim(dim: Any, context: Context) -> Any:
    if isinstance(dim, TypeVar):
        return context.symbol(dim.__name__)
    if isinstance(dim, str):
        text = dim.strip()
        return context.symbol(text) if text.isidentifier() else context.symbolic(text)
    return dim


def _dims(dims: Any, context: Context) -> Any:
    if isinstance(dims, list | tuple):
        return tuple(_dim(dim, context) for dim in dims)
    return dims


@dataclass(frozen=True, slots=True)
class TensorAnnotation(Annotation):
    """``R.Tensor(shape, dtype, vdevice, ndim=...)``."""

    shape: Any = None
    dtype: Any = None
    vdevice: Any = None
    ndim: int = -1

    def symbols(self) -> Iterator[str]:
        """Names that stand alone as a dimension."""
        return _dim_symbols(self.shape)

    def make(self, context: Context) -> Type:
        """Return the type."""
        device = self.vdevice
        if isinstance(device, str):
            device = context.vdevice(device)
        if device is not None and not isinstance(device, VDevice):
            raise TypeError(f"vdevice= is a device of the module or its name, got {device!r}")
        if self.shape is not None and self.ndim != -1:
            raise ValueError("Cannot both specify shape and ndim")
        return TensorType(_dims(self.shape, context), self.dtype, device, self.ndim)


@dataclass(frozen=True, slots=True)
class ShapeAnnotation(Annotation):
    """``R.Shape([...])`` or ``R.Shape(ndim=...)``."""

    values: Any = None
    ndim: int = -1

    def symbols(self) -> Iterator[str]:
        """Names that stand alone as a dimension."""
        return _dim_symbols(self.values)

    def make(self, context: Context) -> Type:
        """Return the type."""
        if self.values is not None and self.ndim != -1:
            raise ValueError("Cannot both specify values and ndim")
        return ShapeType(_dims(self.values, context), self.ndim)


@dataclass(frozen=True, slots=True)
class TupleAnnotation(Annotation):
    """``R.Tuple(field, ...)``."""

    fields: tuple[Annotation, ...] = ()

    def symbols(self) -> Iterator[str]:
        """Names that stand alone as a dimension in a field."""
        for field in self.fields:
            yield from field.symbols()

    def make(self, context: Context) -> Type:
        """Return the type."""
        return TupleType(tuple(field.make(context) for field in self.fields))


@dataclass(frozen=True, slots=True)
class CallableAnnotation(Annotation):
    """``R.Callable((param, ...), ret, purity)``; without parameters an opaque function."""

    params: tuple[Annotation, ...] | None = None
    ret: Annotation | None = None
    purity: bool | None = None
    derive_func: Callable[..., Any] | str | None = None

    def symbols(self) -> Iterator[str]:
        """Names that stand alone as a dimension in a parameter or in the result."""
        for each in (*(self.params or ()), *((self.ret,) if self.ret else ())):
            yield from each.symbols()

    def make(self, context: Context) -> Type:
        """Return the type."""
        ret = self.ret.make(context) if self.ret is not None else None
        if self.params is None:
            if (ret is None or isinstance(ret, AnyType)) and not self.purity:
                return PACKED_FUNC  # both print as ``R.Callable``
            return FuncType(None, ret or AnyType(), bool(self.purity))
        params = tuple(param.make(context) for param in self.params)
        if ret is None:
            raise ValueError("R.Callable with parameters needs the type of its result")
        return FuncType(params, ret, True if self.purity is None else self.purity)


@dataclass(frozen=True, slots=True)
class BufferAnnotation(Annotation):
    """``T.Buffer(shape, dtype, ...)``."""

    shape: Any
    dtype: Any = "float32"
    strides: Any = ()
    elem_offset: Any = None
    scope: str = "global"
    align: int = 64
    offset_factor: int = 0
    has_layout: bool = True
    is_parameter: bool = False

    def symbols(self) -> Iterator[str]:
        """Names that stand alone as a dimension, a stride or the offset."""
        yield from _dim_symbols(self.shape)
        yield from _dim_symbols(self.strides)
        yield from _dim_symbols((self.elem_offset,))

    def make(self, context: Context) -> BufferType:
        """Return the type."""
        shape = self.shape if isinstance(self.shape, list | tuple) else (self.shape,)
        offset = _dim(self.elem_offset, context)
        dims = tuple(_int32(_dim(dim, context)) for dim in shape)
        if offset is None and self.offset_factor and self.is_parameter:
            # somewhere, but at a multiple of the factor
            offset = Var("elem_offset", dims[0].ty if dims else PrimType(_INT32))
        return BufferType(
            dims,
            DataType(_dtype_name(self.dtype)),
            tuple(_int32(_dim(stride, context)) for stride in self.strides or ()),
            None if offset is None else _int32(offset),
            self.scope,
            self.align,
            self.offset_factor or 1,
            self.has_layout or context.is_s_tir,
        )


def _int32(value: Any) -> Expr:
    if isinstance(value, bool) or not isinstance(value, int | Expr):
        raise TypeError(f"data must be int or Expr, but got {value!r}")
    return IntImm(_INT32, value) if isinstance(value, int) else value


def _dtype_name(dtype: Any) -> Any:
    return dtype.dtype if hasattr(dtype, "dtype") else dtype


def to_annotation(value: Any) -> Annotation:
    """Return what was written as an annotation.

    Raises
    ------
    TypeError
        If it is no type.
    """
    match value:
        case Annotation():
            return value
        case Type():
            return TypeAnnotation(value)
        case None:
            return TypeAnnotation(TupleType())
        case tuple() | list():
            return TupleAnnotation(tuple(to_annotation(item) for item in value))
        case _:
            pass
    bare = getattr(value, "bare", None)
    if isinstance(bare, Annotation):  # ``R.Tensor`` without brackets, ``T.int64``
        return bare
    if isinstance(value, Var) and not value.name and value.ty is not None:  # ``T.handle("int8")``
        return TypeAnnotation(value.ty)
    raise TypeError(f'expected a type such as R.Tensor((n, 4), "float32"), got {value!r}')


def to_type(value: Any, context: Context) -> Type:
    """Return what was written as a type."""
    return to_annotation(value).make(context)
