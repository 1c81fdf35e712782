"""The named functions a scalar expression may call, and what a call of each may do.

A call of ``exp`` is ``Call(Op("tirx.exp"), (x,))``. Declaring every such operator in one table
lets the printer, the interpreter and the code generators refuse a name that nobody defined.
Counterpart: the ``tirx.*`` operators of ``tvm.ir.Op``.

Examples
--------
>>> from relaxlab.ir import FloatImm
>>> call_intrin("float32", "tirx.exp", FloatImm("float32", 1.0)).op.name
'tirx.exp'
"""

from enum import IntEnum

from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.op import Op, register_op
from relaxlab.ir.type import PrimType, Type
from relaxlab.runtime.dtype import DataType

__all__ = [
    "BINARY_MATH",
    "CallEffectKind",
    "INTEGER_BITS",
    "UNARY_MATH",
    "call_intrin",
    "effect_of",
]


class CallEffectKind(IntEnum):
    """What a call may do besides giving a value; the numbers are TVM's."""

    EXPR_ANNOTATION = 0
    PURE = 1
    READ_STATE = 2
    UPDATE_STATE = 3
    SPECIAL_CALL_ARG = 4
    EMBED_INFO = 5
    CONTROL_JUMP = 6


#: One operand, a result of the operand's type.
UNARY_MATH = (
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "ceil",
    "cos",
    "cosh",
    "erf",
    "exp",
    "exp10",
    "exp2",
    "fabs",
    "floor",
    "log",
    "log10",
    "log1p",
    "log2",
    "nearbyint",
    "round",
    "rsqrt",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
)
#: Two operands, a result of the first operand's type.
BINARY_MATH = ("atan2", "copysign", "fmod", "hypot", "ldexp", "nextafter", "pow")
#: Integer operations that have names rather than node classes.
INTEGER_BITS = (
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "shift_left",
    "shift_right",
)

_PURE_OTHERS = {
    "address_of": ("buffer",),
    "call_llvm_pure_intrin": (),
    "call_pure_extern": (),
    "clz": ("x",),
    "if_then_else": ("cond", "true_value", "false_value"),
    "isfinite": ("x",),
    "isinf": ("x",),
    "isnan": ("x",),
    "isnullptr": ("x",),
    "likely": ("cond",),
    "popcount": ("x",),
    "reinterpret": ("x",),
    "buffer_data": ("buffer",),
    "ptr_byte_offset": ("ptr", "offset", "type"),
    "tvm_thread_invariant": ("cond",),
    "type_annotation": (),
}
_OPAQUE = {
    "anylist_resetitem": (),
    "anylist_setitem_call_cpacked": (),
    "anylist_setitem_call_packed": (),
    "assume": ("cond",),
    "call_extern": (),
    "call_llvm_intrin": (),
    "tvm_access_ptr": ("type", "data", "offset", "extent", "mask"),
    "tvm_call_cpacked": (),
    "tvm_call_packed": (),
    "tvm_stack_alloca": ("type", "count"),
    "tvm_storage_sync": ("scope", "is_lead", "num_blocks"),
    "tvm_stack_make_array": ("data", "shape", "strides", "ndim", "dtype", "offset"),
    "tvm_stack_make_shape": (),
    "tvm_struct_set": ("handle", "index", "field", "value"),
    "tvm_throw_last_error": (),
    "tvm_tuple": (),
    "undef": (),
}


def _declare() -> None:
    def add(name: str, arguments: tuple[str, ...], effect: CallEffectKind) -> None:
        count = len(arguments) or -1
        register_op(f"tirx.{name}", arguments=arguments, num_inputs=count, TCallEffectKind=effect)

    for name in UNARY_MATH:
        add(name, ("x",), CallEffectKind.PURE)
    for name in BINARY_MATH:
        add(name, ("x", "y"), CallEffectKind.PURE)
    for name in INTEGER_BITS:
        operands = ("a",) if name == "bitwise_not" else ("a", "b")
        add(name, operands, CallEffectKind.PURE)
    for name, arguments in _PURE_OTHERS.items():
        add(name, arguments, CallEffectKind.PURE)
    for name, arguments in _OPAQUE.items():
        add(name, arguments, CallEffectKind.UPDATE_STATE)
    add("anylist_getitem", (), CallEffectKind.READ_STATE)
    add("tvm_struct_get", ("handle", "index", "field"), CallEffectKind.READ_STATE)
    add("break_loop", (), CallEffectKind.CONTROL_JUMP)
    add("continue_loop", (), CallEffectKind.CONTROL_JUMP)


_declare()


def call_intrin(ty: Type | DataType | str, name: str, *args: Expr) -> Call:
    """Build a call of a declared operator.

    Parameters
    ----------
    ty
        Result type, or the dtype of a scalar result.
    name
        Full operator name, such as ``"tirx.exp"``.
    *args
        Operands, used as they are.

    Raises
    ------
    AttributeError
        If no operator has the name.
    """
    result = ty if isinstance(ty, Type) else PrimType(DataType(ty))
    return Call(Op.get(name), args, ty=result)


def effect_of(call: Call) -> CallEffectKind:
    """Return what the call may do; an operator that does not say may do anything."""
    if isinstance(call.op, Op):
        kind: CallEffectKind = call.op.get_attr("TCallEffectKind", CallEffectKind.UPDATE_STATE)
        return kind
    return CallEffectKind.UPDATE_STATE
