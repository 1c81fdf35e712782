"""The words of ``T`` that are no scalar functions: types, loops, blocks, statements.

They stand in a module of their own, since ``T`` exports names that Python itself needs (``bool``,
``max``). Counterpart: part of ``tvm.script.tirx``.

Examples
--------
>>> WORDS["int64"](3).value, str(cast_node("int32", WORDS["int64"](3)).dtype)
(3, 'int32')
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Call, Expr, Var
from relaxlab.ir.prim import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Broadcast,
    Cast,
    Div,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    Ramp,
    Sub,
)
from relaxlab.ir.prim_intrinsics import call_intrin
from relaxlab.ir.target import Target
from relaxlab.ir.type import PointerType, PrimType, Type
from relaxlab.runtime.dtype import DataType
from relaxlab.script import kernel_parts as parts
from relaxlab.script.annotation import (
    Annotation,
    AnnotationFunction,
    BufferAnnotation,
    TupleAnnotation,
    TypeAnnotation,
    to_annotation,
)
from relaxlab.script.namespace import Namespace
from relaxlab.script.parser.attributes import attributes
from relaxlab.tirx.index_map import IndexMap
from relaxlab.tirx.stmt import ForKind, IterVarType

_INT32 = DataType("int32")
_HANDLE = PointerType(PrimType(DataType("void")))


# ---------------------------------------------------------------- dtypes and types


class DtypeConstructor:
    """``T.int64``: a type in an annotation, a literal or a conversion when given a value.

    Called without a value it makes a variable, which takes the name that it is assigned to.
    """

    def __init__(self, dtype: str) -> None:
        self.dtype = DataType(dtype)
        self.bare = TypeAnnotation(PrimType(self.dtype))
        self.__name__ = dtype

    def __call__(self, value: Any = None) -> Expr:
        """Return a literal of this dtype, an expression converted to it, or a new variable."""
        if value is None:
            return Var("", PrimType(self.dtype))
        if isinstance(value, str):
            value = float(value)
        if isinstance(value, Expr):
            return prim_ops.cast(self.dtype, value)
        return prim_ops.const(value, self.dtype)

    def __repr__(self) -> str:
        return f"T.{self.dtype}"


def _dtype_names() -> list[str]:
    elements = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
    elements += ["float16", "float32", "float64", "bfloat16"]
    elements += ["float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn"]
    elements += ["float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]
    elements += ["float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"]
    lanes = ("", "x2", "x4", "x8", "x16", "x32", "x64")
    return ["bool", *(element + suffix for element in elements for suffix in lanes)]


class _Handle:
    """``T.handle``, ``T.handle("float32", "global")``: a pointer."""

    bare = TypeAnnotation(_HANDLE)

    def __call__(self, dtype: Any = None, storage_scope: str = "global") -> Expr:
        """Return a new variable of that pointer type; ``.ty`` of it is the type."""
        if dtype is None:
            return Var("", _HANDLE)
        element = dtype.dtype if isinstance(dtype, DtypeConstructor) else DataType(dtype)
        return Var("", PointerType(PrimType(element), storage_scope))


def _buffer(
    shape: Any,
    dtype: Any = "float32",
    data: Any = None,
    strides: Any = (),
    elem_offset: Any = None,
    scope: str = "global",
    align: int = 64,
    offset_factor: int = 0,
    layout: Any = "default",
) -> BufferAnnotation:
    """Say what a parameter is, as in ``x: T.Buffer((n, 4), "float32")``."""
    if data is not None:
        raise TypeError("T.Buffer takes no data; use T.decl_buffer(shape, dtype, data=...)")
    annotation = _buffer_annotation(
        shape, dtype, strides, elem_offset, scope, align, offset_factor, layout
    )
    return replace(annotation, is_parameter=True)


def _buffer_annotation(
    shape: Any,
    dtype: Any,
    strides: Any,
    elem_offset: Any,
    scope: str,
    align: int,
    offset_factor: int,
    layout: Any,
) -> BufferAnnotation:
    if layout not in (None, "default"):
        raise ValueError(
            f'a tile layout is not supported; expected "default" or None, got {layout!r}'
        )
    if type(offset_factor) is not int or offset_factor < 0:
        raise ValueError(f"offset_factor is an integer from 0 on, got {offset_factor!r}")
    # 0 and None ask for the default, as in TVM
    return BufferAnnotation(
        shape,
        dtype,
        strides or (),
        elem_offset,
        scope or "global",
        align if align and align > 0 else 64,
        offset_factor,
        layout is not None,
    )


def _tuple(*fields: Any) -> Annotation:
    return TupleAnnotation(tuple(map(to_annotation, fields)))


# ---------------------------------------------------------------- scalars


def cast_node(dtype: Any, value: Any) -> Expr:
    """Return a conversion node, whatever the value is."""
    return Cast(_dtype(dtype), prim_ops.as_operand(value))


def select(condition: Any, true_value: Any, false_value: Any) -> Expr:
    """Return a choice whose both sides may be evaluated."""
    return prim_ops.select(condition, true_value, false_value)


def ramp_node(base: Any, stride: Any, lanes: int) -> Expr:
    """Return the vector ``base, base + stride, ...``."""
    first, step = prim_ops.match_dtypes(base, stride)
    return Ramp(first, step, int(lanes))


def broadcast_node(value: Any, lanes: int) -> Expr:
    """Return the vector of ``lanes`` equal values."""
    return Broadcast(prim_ops.as_operand(value), int(lanes))


def let_node(expr: Any, where: Mapping[Var, Any]) -> Expr:
    """Return ``expr`` with variables standing for values: ``T.Let(x + 1, where={x: y})``."""
    result = prim_ops.as_operand(expr)
    for var, value in where.items():
        result = Let(var, prim_ops.as_operand(value), result)
    return result


def div(a: Any, b: Any) -> Expr:
    """Make a quotient without computing it; integers truncate towards zero."""
    return _node(Div)(a, b)


def mod(a: Any, b: Any) -> Expr:
    """Make the remainder that goes with :func:`div`."""
    return _node(Mod)(a, b)


def _dtype(dtype: Any) -> DataType:
    return dtype.dtype if isinstance(dtype, DtypeConstructor) else DataType(dtype)


def reinterpret(dtype: Any, value: Any) -> Expr:
    """Return the value whose bits those of ``value`` are."""
    if isinstance(dtype, PointerType):
        return _intrin(dtype, "reinterpret", value)
    return prim_ops.reinterpret(_dtype(dtype), value)


def cast(value: Any, dtype: Any) -> Expr:
    """Convert a value; a literal is converted at once."""
    return prim_ops.cast(_dtype(dtype), prim_ops.as_operand(value))


def min_value(dtype: Any) -> Expr:
    """Return the smallest finite value of a dtype."""
    return prim_ops.min_value(_dtype(dtype))


def max_value(dtype: Any) -> Expr:
    """Return the largest finite value of a dtype."""
    return prim_ops.max_value(_dtype(dtype))


def infinity(dtype: Any) -> Expr:
    """Return the positive infinity of a dtype."""
    return prim_ops.infinity(_dtype(dtype))


def call_extern(dtype: Any, func_name: str, *args: Any) -> Call:
    """Call an external function that may do anything."""
    return prim_ops.call_extern(_dtype(dtype), func_name, *args)


def call_pure_extern(dtype: Any, func_name: str, *args: Any) -> Call:
    """Call an external function that only computes."""
    return prim_ops.call_pure_extern(_dtype(dtype), func_name, *args)


def call_cpacked(*args: Any) -> Call:
    """Call a packed function through its C symbol."""
    return _intrin("int32", "tvm_call_cpacked", *args)


def anylist_getitem(values: Any, index: Any) -> Call:
    """Return a handle of one value of a list, as compiled Relax functions use it."""
    return _intrin(_HANDLE, "anylist_getitem", values, index)


def anylist_resetitem(values: Any, index: Any) -> Call:
    """Set one value of a list to None."""
    return _intrin("int32", "anylist_resetitem", values, index)


def anylist_setitem_call_packed(values: Any, index: Any, func: Any, *args: Any) -> Call:
    """Call a packed function and put its result into a list."""
    return _intrin("int32", "anylist_setitem_call_packed", values, index, func, *args)


def anylist_setitem_call_cpacked(values: Any, index: Any, func: Any, *args: Any) -> Call:
    """Call a packed function through its C symbol and put its result into a list."""
    return _intrin("int32", "anylist_setitem_call_cpacked", values, index, func, *args)


def _intrin(ty: Any, name: str, *args: Any) -> Call:
    return call_intrin(ty, f"tirx.{name}", *map(prim_ops.as_operand, args))


def tvm_stack_alloca(kind: str, count: Any) -> Call:
    """Allocate values on the stack."""
    return _intrin(_HANDLE, "tvm_stack_alloca", kind, count)


def tvm_stack_make_shape(*args: Any) -> Call:
    """Make a shape on the stack."""
    return _intrin(_HANDLE, "tvm_stack_make_shape", *args)


def tvm_stack_make_array(
    data: Any, shape: Any, strides: Any, ndim: Any, arr_dtype: Any, elem_offset: Any
) -> Call:
    """Make a tensor descriptor on the stack."""
    return _intrin(
        _HANDLE, "tvm_stack_make_array", data, shape, strides, ndim, arr_dtype, elem_offset
    )


def tvm_struct_get(pointer: Any, index: Any, field_id: Any, dtype: Any) -> Call:
    """Read a field of a tensor descriptor; ``dtype`` is its type."""
    ty = dtype if isinstance(dtype, Type) else PrimType(_dtype(dtype))
    return _intrin(ty, "tvm_struct_get", pointer, index, field_id)


def tvm_struct_set(pointer: Any, index: Any, field_id: Any, value: Any) -> Call:
    """Write a field of a tensor descriptor."""
    return _intrin("int32", "tvm_struct_set", pointer, index, field_id, value)


def type_annotation(dtype: Any) -> Call:
    """Return a dtype as an argument."""
    return _intrin(_dtype(dtype), "type_annotation")


def tvm_access_ptr(ptype: Any, data: Any, offset: Any, extent: Any, rw_mask: Any) -> Call:
    """Return a pointer to a part of a buffer."""
    return _intrin(_HANDLE, "tvm_access_ptr", ptype, data, offset, extent, rw_mask)


def address_of(value: Any) -> Call:
    """Return the address of a buffer's element."""
    return _intrin(_HANDLE, "address_of", value)


def tvm_throw_last_error() -> Call:
    """Raise the error that the runtime holds."""
    return _intrin("int32", "tvm_throw_last_error")


def tvm_storage_sync(storage_scope: str, is_lead: Any = False, num_blocks: Any = -1) -> Call:
    """Wait for all threads that share some memory."""
    lead = IntImm(DataType("bool"), int(is_lead)) if isinstance(is_lead, bool) else is_lead
    return _intrin("int32", "tvm_storage_sync", storage_scope, lead, num_blocks)


def tvm_thread_invariant(condition: Any) -> Call:
    """Say that a condition is the same in all threads."""
    value = prim_ops.as_operand(condition)
    return _intrin(value.ty, "tvm_thread_invariant", value)


def _node(kind: Any) -> Callable[[Any, Any], Expr]:
    """Return what makes a node of two operands, which the operator might compute."""

    def make(a: Any, b: Any) -> Expr:
        operands = prim_ops.match_dtypes(prim_ops.as_operand(a), prim_ops.as_operand(b))
        if kind in (And, Or):
            _require_bool(kind.__name__, *operands)
        node: Expr = kind(*operands)
        return node

    make.__name__ = make.__qualname__ = f"T.{kind.__name__}"
    make.__doc__ = f"Make a {kind.__name__} of two scalars, without computing it."
    return make


def not_node(a: Any) -> Expr:
    """Make a Not of a scalar, without computing it."""
    operand = prim_ops.as_operand(a)
    _require_bool("Not", operand)
    return Not(operand)


def _require_bool(name: str, *operands: Expr) -> None:
    for operand in operands:
        if not operand.dtype.is_bool:
            raise TypeError(f"T.{name} takes booleans, got one of dtype {str(operand.dtype)!r}")


def assume(condition: Any) -> Call:
    """Promise a condition."""
    return _intrin("bool", "assume", condition)


def break_loop() -> Call:
    """Leave the innermost loop."""
    return _intrin("int32", "break_loop")


def continue_loop() -> Call:
    """Go on with the next iteration of the innermost loop."""
    return _intrin("int32", "continue_loop")


# ---------------------------------------------------------------- loops


def _loops(kind: ForKind) -> Callable[..., parts.Loops]:
    def loops(
        start: Any, stop: Any = None, *, annotations: Mapping[str, Any] | None = None
    ) -> parts.Loops:
        bounds = (0, start) if stop is None else (start, stop)
        return parts.Loops(kind, (bounds,), annotations=annotations or {})

    loops.__doc__ = f"Loop over a range, {kind.name.lower()}."
    return loops


serial = _loops(ForKind.SERIAL)
parallel = _loops(ForKind.PARALLEL)
vectorized = _loops(ForKind.VECTORIZED)
unroll = _loops(ForKind.UNROLLED)


def thread_binding(
    start: Any,
    stop: Any = None,
    thread: str = "",
    *,
    annotations: Mapping[str, Any] | None = None,
) -> parts.Loops:
    """Loop whose iterations are threads: ``T.thread_binding(32, thread="threadIdx.x")``."""
    if isinstance(stop, str):
        stop, thread = None, stop
    if not thread:
        raise TypeError('T.thread_binding needs a thread, such as thread="threadIdx.x"')
    bounds = (0, start) if stop is None else (start, stop)
    return parts.Loops(ForKind.THREAD_BINDING, (bounds,), thread, annotations or {})


def grid(*extents: Any) -> parts.Loops:
    """Nested serial loops from 0."""
    return parts.Loops(ForKind.SERIAL, tuple((0, extent) for extent in extents))


# ---------------------------------------------------------------- blocks


def sblock(name: str = "") -> parts.Sblock:
    """Begin a block: ``with T.sblock("name"):``."""
    return parts.Sblock(name)


def init() -> parts.Init:
    """Begin the part of a reducing block that runs the first time."""
    return parts.Init()


def where(predicate: Any) -> parts.Where:
    """Skip the block where this is false."""
    return parts.Where(prim_ops.as_operand(predicate))


def reads(*regions: Any) -> parts.Reads:
    """State what the block reads."""
    return parts.Reads(_regions(regions))


def writes(*regions: Any) -> parts.Writes:
    """State what the block writes."""
    return parts.Writes(_regions(regions))


def _regions(regions: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(regions) == 1 and isinstance(regions[0], list | tuple):
        return tuple(regions[0])
    return regions


def sblock_attr(attrs: Mapping[str, Any]) -> parts.BlockAttr:
    """Annotate the block."""
    return parts.BlockAttr(attrs)


def sblock_alloc_buffer(
    shape: Any,
    dtype: Any = "float32",
    data: Any = None,
    strides: Any = (),
    elem_offset: Any = None,
    scope: str = "global",
    align: int = -1,
    offset_factor: int = 0,
    layout: Any = "default",
) -> parts.BlockAlloc:
    """Make a buffer that the enclosing block owns."""
    del data
    return parts.BlockAlloc(
        _buffer_annotation(shape, dtype, strides, elem_offset, scope, align, offset_factor, layout)
    )


def _axis(kind: IterVarType) -> Callable[[Any, Any], parts.Axes]:
    def axis_of_kind(dom: Any, value: Any) -> parts.Axes:
        return parts.Axes(((kind, dom, value),))

    return axis_of_kind


def _remap(kinds: str, bindings: Any) -> parts.Axes:
    known = {"S": IterVarType.DATA_PAR, "R": IterVarType.COMM_REDUCE}
    if len(kinds) != len(bindings):
        raise ValueError(f"T.axis.remap got {len(kinds)} kinds for {len(bindings)} loops")
    unknown = set(kinds) - set(known)
    if unknown:
        raise ValueError(f"T.axis.remap knows the kinds S and R, got {kinds!r}")
    axes = ((known[kind], None, value) for kind, value in zip(kinds, bindings, strict=True))
    return parts.Axes(tuple(axes), remap=True)


axis = Namespace(
    "T.axis",
    {
        "S": _axis(IterVarType.DATA_PAR),
        "R": _axis(IterVarType.COMM_REDUCE),
        "spatial": _axis(IterVarType.DATA_PAR),
        "reduce": _axis(IterVarType.COMM_REDUCE),
        "scan": _axis(IterVarType.ORDERED),
        "opaque": _axis(IterVarType.OPAQUE),
        "remap": _remap,
    },
)


# ---------------------------------------------------------------- other statements


def func_attr(attrs: Mapping[str, Any]) -> parts.FuncAttr:
    """Set attributes of the function."""
    return parts.FuncAttr(attrs)


def match_buffer(
    param: Any,
    shape: Any = None,
    dtype: Any = "float32",
    data: Any = None,
    strides: Any = (),
    elem_offset: Any = None,
    scope: str = "global",
    align: int = -1,
    offset_factor: int = 0,
    layout: Any = "default",
) -> parts.MatchBuffer:
    """Say what a pointer parameter points to, or name a region of a buffer."""
    del data
    return parts.MatchBuffer(
        param,
        _buffer_annotation(shape, dtype, strides, elem_offset, scope, align, offset_factor, layout),
    )


def alloc_buffer(
    shape: Any,
    dtype: Any = "float32",
    scope: str = "global",
    *,
    strides: Any = (),
    elem_offset: Any = None,
    align: int = -1,
    offset_factor: int = 0,
    annotations: Mapping[str, Any] | None = None,
    layout: Any = "default",
) -> parts.Alloc:
    """Make a buffer that lives to the end of the statements around it."""
    buffer = _buffer_annotation(
        shape, dtype, strides, elem_offset, scope, align, offset_factor, layout
    )
    return parts.Alloc(buffer, annotations or {})


def alloc_local(shape: Any, dtype: Any = "float32", **options: Any) -> parts.Alloc:
    """Make a buffer in local memory."""
    return alloc_buffer(shape, dtype, "local", **options)


def alloc_scalar(dtype: Any, scope: str = "local") -> parts.Scalar:
    """Make a variable: ``x = T.alloc_scalar("int32")``, then ``x = x + 1``."""
    element = dtype.dtype if isinstance(dtype, DtypeConstructor) else DataType(dtype)
    return parts.Scalar(element, scope)


def local_scalar(dtype: Any) -> parts.Scalar:
    """Make a variable in local memory."""
    return alloc_scalar(dtype, "local")


def shared_scalar(dtype: Any) -> parts.Scalar:
    """Make a variable in shared memory."""
    return alloc_scalar(dtype, "shared")


def alloc_shared(shape: Any, dtype: Any = "float32", **options: Any) -> parts.Alloc:
    """Make a buffer in shared memory."""
    return alloc_buffer(shape, dtype, "shared", **options)


def decl_buffer(
    shape: Any,
    dtype: Any = "float32",
    data: Any = None,
    strides: Any = (),
    elem_offset: Any = None,
    scope: str = "global",
    align: int = -1,
    offset_factor: int = 0,
    layout: Any = "default",
) -> parts.Decl:
    """Make a buffer over memory that exists already; without ``data`` it is allocated."""
    buffer = _buffer_annotation(
        shape, dtype, strides, elem_offset, scope, align, offset_factor, layout
    )
    return parts.Decl(buffer, data)


def attr(node: Any, attr_key: str | None = None, value: Any = None) -> parts.Attr:
    """Note something about a region: ``T.attr({"key": value})`` or ``T.attr(node, key, value)``."""
    if isinstance(node, Mapping):
        pairs = tuple((IntImm(_INT32, 0), str(key), item) for key, item in node.items())
        return parts.Attr(pairs)
    if attr_key is None:
        raise TypeError("T.attr needs a dictionary, or a node, a key and a value")
    return parts.Attr(((node, attr_key, value),))


def launch_thread(thread: Any, extent: Any) -> parts.LaunchThread:
    """Begin a region that runs on threads."""
    return parts.LaunchThread(thread, extent)


def evaluate(value: Any) -> parts.Eval:
    """Evaluate an expression for its effect."""
    return parts.Eval(value)


def buffer_store(buffer: Var, value: Any, indices: Any) -> parts.Store:
    """Write an element: ``buffer[indices] = value``."""
    return parts.Store(buffer, value, tuple(indices))


# ---------------------------------------------------------------- functions


def target(value: str | dict[str, Any]) -> Target:
    """``T.target({"kind": "llvm"})``: what code is generated for."""
    return Target(attributes(value) if isinstance(value, Mapping) else value)


def index_map(mapping: Callable[..., Any]) -> IndexMap:
    """``T.index_map(lambda i, j: (j, i))``: where the element at an index goes."""
    return IndexMap.from_func(mapping)


#: Nodes whose operators compute what they can: ``T.Add(1, 2)`` does not.
_NODES = (Add, Sub, Mul, FloorDiv, FloorMod, Max, Min, EQ, NE, LT, LE, GT, GE, And, Or)

#: Every word of ``T`` that is no scalar function of :mod:`relaxlab.tirx`, by name.
WORDS: dict[str, Any] = {
    **{name: DtypeConstructor(name) for name in _dtype_names()},
    **{kind.__name__: _node(kind) for kind in _NODES},
    "Broadcast": broadcast_node,
    "Buffer": _buffer,
    "Cast": cast_node,
    "Div": div,
    "Let": let_node,
    "Mod": mod,
    "Not": not_node,
    "Ramp": ramp_node,
    "Select": select,
    "Tuple": AnnotationFunction(_tuple, TupleAnnotation()),
    "address_of": address_of,
    "alloc_buffer": alloc_buffer,
    "alloc_local": alloc_local,
    "alloc_scalar": alloc_scalar,
    "alloc_shared": alloc_shared,
    "anylist_getitem": anylist_getitem,
    "anylist_resetitem": anylist_resetitem,
    "anylist_setitem_call_cpacked": anylist_setitem_call_cpacked,
    "anylist_setitem_call_packed": anylist_setitem_call_packed,
    "assume": assume,
    "attr": attr,
    "axis": axis,
    "break_loop": break_loop,
    "broadcast": broadcast_node,
    "buffer_store": buffer_store,
    "call_cpacked": call_cpacked,
    "call_extern": call_extern,
    "call_pure_extern": call_pure_extern,
    "cast": cast,
    "continue_loop": continue_loop,
    "decl_buffer": decl_buffer,
    "evaluate": evaluate,
    "func_attr": func_attr,
    "grid": grid,
    "handle": _Handle(),
    "index_map": index_map,
    "infinity": infinity,
    "init": init,
    "launch_thread": launch_thread,
    "let": parts.Let(),
    "local_scalar": local_scalar,
    "match_buffer": match_buffer,
    "max_value": max_value,
    "min_value": min_value,
    "parallel": parallel,
    "reads": reads,
    "reinterpret": reinterpret,
    "sblock": sblock,
    "sblock_alloc_buffer": sblock_alloc_buffer,
    "sblock_attr": sblock_attr,
    "serial": serial,
    "shared_scalar": shared_scalar,
    "target": target,
    "thread_binding": thread_binding,
    "tvm_access_ptr": tvm_access_ptr,
    "tvm_stack_alloca": tvm_stack_alloca,
    "tvm_stack_make_array": tvm_stack_make_array,
    "tvm_stack_make_shape": tvm_stack_make_shape,
    "tvm_storage_sync": tvm_storage_sync,
    "tvm_struct_get": tvm_struct_get,
    "tvm_struct_set": tvm_struct_set,
    "tvm_thread_invariant": tvm_thread_invariant,
    "tvm_throw_last_error": tvm_throw_last_error,
    "type_annotation": type_annotation,
    "unroll": unroll,
    "vectorized": vectorized,
    "where": where,
    "writes": writes,
}
