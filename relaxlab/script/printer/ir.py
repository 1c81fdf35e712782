"""What both languages share, as TVMScript: types and scalar expressions.

A scalar comes with its precedence, and whoever embeds the text adds parentheses where Python
needs them. One difference from TVM is deliberate: a comparison inside a comparison is
parenthesized (``(a == b) == c``), since Python reads the bare form as a chain.

In a signature a compound dimension over symbolic variables is a string (``"n * 2"``): the
variables are TypeVars there, and Python has no arithmetic on those.

``TYPES`` and ``SCALARS`` say how each kind of node prints; each language adds its own kinds.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from relaxlab.errors import InternalError
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Call, Expr, GlobalVar, StringImm, Var
from relaxlab.ir.node import Node, children
from relaxlab.ir.op import Op
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
    FloatImm,
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
    Range,
    Select,
    Sub,
    TensorLoad,
    TensorRegion,
)
from relaxlab.ir.type import (
    AnyType,
    FuncType,
    PointerType,
    PrimType,
    StringType,
    TupleType,
    Type,
)
from relaxlab.runtime.dtype import DataType
from relaxlab.script.printer.literal import float_text, string_text
from relaxlab.script.printer.state import Printing

__all__ = [
    "ATOM",
    "SCALARS",
    "TYPES",
    "declaration",
    "dimensions",
    "element_text",
    "is_variable",
    "region_text",
    "scalar",
    "scalar_at",
    "symbolic_vars",
    "tuple_text",
    "type_text",
]

_INT64 = DataType("int64")

# ---------------------------------------------------------------- types


def type_text(p: Printing, ty: Type | None) -> str:
    """Return the text of a type; a missing one is ``None``."""
    if ty is None:
        return "None"
    handler = TYPES.get(type(ty))
    if handler is None:
        raise TypeError(f"no text for a type of kind {type(ty).__name__}")
    return handler(p, ty)


def tuple_text(items: Iterable[str]) -> str:
    """Return a parenthesized tuple; a single item gets its comma."""
    texts = list(items)
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def _prim(p: Printing, ty: PrimType) -> str:
    if ty.dtype.is_void:
        return "None"
    return f"{p.mark('T')}.{ty.dtype}"


def _pointer(p: Printing, ty: PointerType) -> str:
    element = ty.element_type
    dtype = element.dtype if isinstance(element, PrimType) else None
    handle = f"{p.mark('T')}.handle"
    if dtype is None or dtype.is_void:
        return handle
    return f'{handle}("{dtype}", "{ty.storage_scope or "global"}")'


def _tuple(p: Printing, ty: TupleType) -> str:
    if p.in_relax:
        name = f"{p.mark('R')}.Tuple"
        return f"{name}({', '.join(type_text(p, f) for f in ty.fields)})" if ty.fields else name
    if not ty.fields:
        return "None"
    return f"{p.mark('T')}.Tuple({', '.join(type_text(p, f) for f in ty.fields)})"


def _func(p: Printing, ty: FuncType) -> str:
    name = f"{p.mark('R')}.Callable"
    if ty.params is not None:
        params = tuple_text(type_text(p, param) for param in ty.params)
        return f"{name}({params}, {type_text(p, ty.ret)}, {ty.purity})"
    # opaque: only what differs from the default is said
    parts = []
    if not isinstance(ty.ret, AnyType):
        parts.append(f"ret={type_text(p, ty.ret)}")
    if ty.purity:
        parts.append("purity=True")
    return f"{name}({', '.join(parts)})" if parts else name


def _any(p: Printing, ty: AnyType) -> str:
    return f"{p.mark('R')}.Any"


def _string(p: Printing, ty: StringType) -> str:
    return f"{p.mark('I')}.StringType"


#: How each kind of type prints.
TYPES: dict[type[Type], Callable[[Printing, Any], str]] = {
    PrimType: _prim,
    PointerType: _pointer,
    TupleType: _tuple,
    FuncType: _func,
    AnyType: _any,
    StringType: _string,
}


# ---------------------------------------------------------------- dimensions, variables


def dimensions(p: Printing, dims: Iterable[Expr]) -> list[str]:
    """Return the texts of dimensions, quoted where a signature needs it."""
    if not p.in_signature:
        return [scalar(p, dim) for dim in dims]
    return [_signature_dimension(p, dim) for dim in dims]


def _signature_dimension(p: Printing, dim: Expr) -> str:
    frame = p.functions[-1]
    quoted = False
    for var in _variables(dim):
        if any(var in function.type_vars for function in p.functions):
            quoted = quoted or (var is not dim and not p.use_pep695)
            if p.names.find(var) is None:
                p.names.define(var, var.name)
        elif var in frame.params and var not in frame.shown:
            # a scalar parameter further to the right; in a kernel naming it once is enough
            quoted = quoted or p.in_relax or p.names.find(var) is None
            if p.names.find(var) is None:
                p.names.define(var, var.name)
        elif p.names.find(var) is None:
            quoted = True  # a variable of the body
    text = scalar(p, dim)
    return string_text(text) if quoted else text


def _variables(node: Node) -> Iterator[Var]:
    if isinstance(node, Var):
        yield node
    else:
        for child in children(node):
            yield from _variables(child)


def symbolic_vars(p: Printing, types: Iterable[Type | None], params: Iterable[Var]) -> list[Var]:
    """Return the int64 variables that types mention and nobody has named yet, in order."""
    known = set(params)
    found: dict[Var, None] = {}
    for ty in types:
        if ty is not None:
            for var in _variables(ty):
                if (
                    isinstance(var.ty, PrimType)
                    and var.ty.dtype is _INT64
                    and var not in known
                    and p.names.find(var) is None
                ):
                    found[var] = None
    return list(found)


def declaration(p: Printing, var: Var) -> tuple[bool, str]:
    """Return where a variable that nobody defined is declared, and the text behind its name."""
    ty = var.ty
    if ty is None:
        return (False, "")
    if isinstance(ty, PrimType):
        return (True, f" = {p.mark('T')}.{ty.dtype}()")
    text = type_text(p, ty)
    if not text.startswith("T."):
        return (False, f": {text}")
    # a buffer or a pointer: the constructor that stands in annotations makes one, too
    return (True, f" = {text}" if text.endswith(")") else f" = {text}()")


# ---------------------------------------------------------------- scalars

# Python's precedences, lowest first.
_OR, _AND, _NOT, _COMPARE, _BIT_OR, _BIT_XOR, _BIT_AND, _SHIFT, _SUM, _PRODUCT, _UNARY = range(11)
#: The precedence of what never needs parentheses.
ATOM = 20

_BINARY: dict[type[Expr], tuple[str, int]] = {
    Add: ("+", _SUM),
    Sub: ("-", _SUM),
    Mul: ("*", _PRODUCT),
    FloorDiv: ("//", _PRODUCT),
    FloorMod: ("%", _PRODUCT),
    EQ: ("==", _COMPARE),
    NE: ("!=", _COMPARE),
    LT: ("<", _COMPARE),
    LE: ("<=", _COMPARE),
    GT: (">", _COMPARE),
    GE: (">=", _COMPARE),
    And: ("and", _AND),
    Or: ("or", _OR),
}
_LITERALS = (IntImm, FloatImm)
#: What the operators of the text do.
_OPERATORS: dict[type[Expr], Callable[[Any, Any], Expr]] = {
    Add: prim_ops.add,
    Sub: prim_ops.subtract,
    Mul: prim_ops.multiply,
    Div: prim_ops.divide,
    FloorDiv: prim_ops.floordiv,
    FloorMod: prim_ops.floormod,
    EQ: prim_ops.equal,
    NE: prim_ops.not_equal,
    LT: prim_ops.less,
    LE: prim_ops.less_equal,
    GT: prim_ops.greater,
    GE: prim_ops.greater_equal,
    And: prim_ops.logical_and,
    Or: prim_ops.logical_or,
}
_BIT_OPERATORS: dict[str, tuple[str, int]] = {
    "tirx.bitwise_and": ("&", _BIT_AND),
    "tirx.bitwise_or": ("|", _BIT_OR),
    "tirx.bitwise_xor": ("^", _BIT_XOR),
    "tirx.shift_left": ("<<", _SHIFT),
    "tirx.shift_right": (">>", _SHIFT),
}
#: Operators whose result type stands in the text: before the arguments, or after them.
_TYPE_FIRST = frozenset(
    f"tirx.{name}"
    for name in (
        "call_extern",
        "call_llvm_intrin",
        "call_llvm_pure_intrin",
        "call_pure_extern",
        "reinterpret",
        "type_annotation",
    )
)
_TYPE_LAST = frozenset({"tirx.tvm_struct_get"})
#: Operators whose name in the text is not their own.
_SHORT_NAMES = {
    "tirx.tvm_call_cpacked": "call_cpacked",
    "tirx.tvm_call_packed": "call_packed",
}


def scalar(p: Printing, expr: Expr) -> str:
    """Return the text of a scalar expression."""
    return scalar_at(p, expr)[0]


def scalar_at(p: Printing, expr: Expr) -> tuple[str, int]:
    """Return the text of a scalar expression and its precedence."""
    handler = SCALARS.get(type(expr))
    if handler is None:
        raise TypeError(f"no text for a scalar expression of kind {type(expr).__name__}")
    return handler(p, expr)


def _is_folded(p: Printing, expr: Any) -> bool:
    """Say whether an operator would compute something else when it reads the text again."""
    if p.in_relax or not (isinstance(expr.a, _LITERALS) or isinstance(expr.b, _LITERALS)):
        return False
    kind = type(expr)
    try:
        made: Any = _OPERATORS[kind](expr.a, expr.b)
    except (ArithmeticError, TypeError, ValueError, InternalError):
        return True  # what the operator refuses, a node may hold: a division by zero
    return type(made) is not kind or made.a is not expr.a or made.b is not expr.b


def _binary_operator(p: Printing, expr: Expr) -> tuple[str, int, Expr, Expr] | None:
    """Return symbol, precedence and operands if the expression prints as ``a op b``."""
    node: Any = expr
    found = _BINARY.get(type(expr))
    if isinstance(expr, Div) and expr.dtype.is_float:
        found = ("/", _PRODUCT)
    if found is not None and not _is_folded(p, node):
        return (*found, node.a, node.b)
    if isinstance(expr, Call) and isinstance(expr.op, Op) and len(expr.args) == 2:
        found = _BIT_OPERATORS.get(expr.op.name)
        if found is not None:
            return (*found, *expr.args)
    return None


def _binary(p: Printing, expr: Expr) -> tuple[str, int]:
    # The left spine is walked in a loop: a + b + c + ... may be longer than Python's stack.
    spine = []
    if not isinstance(expr, Call) and _is_folded(p, expr):
        return _named(type(expr).__name__)(p, expr)
    while (operation := _binary_operator(p, expr)) is not None:
        symbol, precedence, expr, right = operation
        spine.append((symbol, precedence, right))
    text, got = scalar_at(p, expr)
    for symbol, precedence, right in reversed(spine):
        other, other_got = scalar_at(p, right)
        if got < precedence or got == precedence == _COMPARE:
            text = f"({text})"
        if other_got <= precedence:
            other = f"({other})"
        text, got = f"{text} {symbol} {other}", precedence
    return text, got


def _div(p: Printing, expr: Div) -> tuple[str, int]:
    if expr.dtype.is_float:
        return _binary(p, expr)
    return _named("Div")(p, expr)


def _named(name: str) -> Callable[[Printing, Any], tuple[str, int]]:
    """Print a node of two operands as a call: ``T.max(a, b)``."""

    def handler(p: Printing, expr: Any) -> tuple[str, int]:
        return f"{p.mark('T')}.{name}({scalar(p, expr.a)}, {scalar(p, expr.b)})", ATOM

    return handler


def _not(p: Printing, expr: Not) -> tuple[str, int]:
    text, got = scalar_at(p, expr.a)
    return (f"not ({text})" if got < _NOT else f"not {text}"), _NOT


def _int_imm(p: Printing, expr: IntImm) -> tuple[str, int]:
    if expr.dtype.is_bool:
        value = str(bool(expr.value))
        return (value if p.in_relax else f"{p.mark('T')}.bool({value})"), ATOM
    if expr.dtype is p.bare or p.in_relax:
        return str(expr.value), ATOM
    return f"{p.mark('T')}.{expr.dtype}({expr.value})", ATOM


def _float_imm(p: Printing, expr: FloatImm) -> tuple[str, int]:
    return f"{p.mark('T')}.{expr.dtype}({float_text(expr.value)})", ATOM


def _string_imm(p: Printing, expr: StringImm) -> tuple[str, int]:
    return string_text(expr.value), ATOM


def _var(p: Printing, expr: Var) -> tuple[str, int]:
    return p.variable(expr, declaration), ATOM


def _global_var(p: Printing, expr: GlobalVar) -> tuple[str, int]:
    inside = p.module is not None
    return (f"{p.module_name}.{expr.name_hint}" if inside else expr.name_hint), ATOM


def _cast(p: Printing, expr: Cast) -> tuple[str, int]:
    return f'{p.mark("T")}.Cast("{expr.dtype}", {scalar(p, expr.value)})', ATOM


def _select(p: Printing, expr: Select) -> tuple[str, int]:
    parts = (scalar(p, e) for e in (expr.condition, expr.true_value, expr.false_value))
    return f"{p.mark('T')}.Select({', '.join(parts)})", ATOM


def _let(p: Printing, expr: Let) -> tuple[str, int]:
    t = p.mark("T")
    # the variable may have a name outside as well: ``T.Let(n, where={n: n + 1})``
    name = p.names.find(expr.var)
    if name is None and p.functions and isinstance(expr.var.ty, PrimType):
        name = p.names.define(expr.var, expr.var.name)
        p.ahead.append(f"{name} = {t}.{expr.var.ty.dtype}()")
    value = scalar(p, expr.value)
    with p.names.scope():
        name = name or p.names.define(expr.var, expr.var.name)
        return f"{t}.Let({scalar(p, expr.body)}, where={{{name}: {value}}})", ATOM


def _ramp(p: Printing, expr: Ramp) -> tuple[str, int]:
    base, stride = scalar(p, expr.base), scalar(p, expr.stride)
    return f"{p.mark('T')}.Ramp({base}, {stride}, {expr.lanes})", ATOM


def _broadcast(p: Printing, expr: Broadcast) -> tuple[str, int]:
    return f"{p.mark('T')}.Broadcast({scalar(p, expr.value)}, {expr.lanes})", ATOM


def _tensor_load(p: Printing, expr: TensorLoad) -> tuple[str, int]:
    return element_text(p, expr.buffer, expr.indices), ATOM


def is_variable(buffer: Node) -> bool:
    """Say whether a buffer prints as a variable of its kernel."""
    return isinstance(buffer, Var) and bool(getattr(buffer.ty, "is_scalar", False))


def element_text(p: Printing, buffer: Expr, indices: tuple[Expr, ...]) -> str:
    """Return an element of a buffer; a variable is its only one."""
    name = scalar(p, buffer)
    return name if is_variable(buffer) else f"{name}[{index_text(p, indices)}]"


def index_text(p: Printing, indices: tuple[Expr, ...]) -> str:
    """Return what stands between the brackets of an access; ``()`` for none."""
    return ", ".join(_index(p, index) for index in indices) if indices else "()"


def _index(p: Printing, index: Expr) -> str:
    # a vector of consecutive elements at a literal place is a slice
    if isinstance(index, Ramp) and isinstance(index.base, IntImm) and _is_one(index.stride):
        end = IntImm(index.base.dtype, index.base.value + index.lanes)
        return f"{scalar(p, index.base)}:{scalar(p, end)}"
    return scalar(p, index)


def _is_one(expr: Expr) -> bool:
    return isinstance(expr, IntImm) and expr.value == 1


def _range(p: Printing, rng: Range) -> str:
    if _is_one(rng.extent):
        return scalar(p, rng.min)
    return f"{scalar(p, rng.min)}:{scalar(p, prim_ops.add(rng.min, rng.extent))}"


def region_text(p: Printing, region: TensorRegion) -> str:
    """Return a box of a buffer: ``A[i, 0:n]``."""
    box = ", ".join(_range(p, rng) for rng in region.region) if region.region else "()"
    return f"{scalar(p, region.buffer)}[{box}]"


def _call(p: Printing, expr: Call) -> tuple[str, int]:
    if not isinstance(expr.op, Op):
        arguments = ", ".join(scalar(p, arg) for arg in expr.args)
        return f"{scalar(p, expr.op)}({arguments})", ATOM
    name = expr.op.name
    if name in _BIT_OPERATORS and len(expr.args) == 2:
        return _binary(p, expr)
    if name == "tirx.bitwise_not":
        text, got = scalar_at(p, expr.args[0])
        return (f"~({text})" if got < _UNARY else f"~{text}"), _UNARY
    if name == "tirx.buffer_data":
        return f"{scalar(p, expr.args[0])}.data", ATOM
    parts = [scalar(p, arg) for arg in expr.args]
    if name in _TYPE_FIRST:
        parts.insert(0, _result_type(p, expr))
    elif name in _TYPE_LAST:
        parts.append(_result_type(p, expr))
    short = _SHORT_NAMES.get(name) or name.partition(".")[2]
    return f"{p.mark('T')}.{short}({', '.join(parts)})", ATOM


def _result_type(p: Printing, expr: Call) -> str:
    if isinstance(expr.ty, PrimType):
        return f'"{expr.ty.dtype}"'
    text = type_text(p, expr.ty)
    # an annotation is no value: a pointer type is reached through a variable of that type
    return f"{text if text.endswith(')') else text + '()'}.ty"


#: How each kind of scalar expression prints.
SCALARS: dict[type[Expr], Callable[[Printing, Any], tuple[str, int]]] = {
    **dict.fromkeys(_BINARY, _binary),
    Div: _div,
    Mod: _named("truncmod"),
    Min: _named("min"),
    Max: _named("max"),
    Not: _not,
    IntImm: _int_imm,
    FloatImm: _float_imm,
    StringImm: _string_imm,
    Var: _var,
    GlobalVar: _global_var,
    Cast: _cast,
    Select: _select,
    Let: _let,
    Ramp: _ramp,
    Broadcast: _broadcast,
    TensorLoad: _tensor_load,
    Call: _call,
}
