"""Scalar expressions as Python text: sizes, conditions, shape functions, loops that stay loops.

Integers are Python ints, floats NumPy scalars. Index arithmetic (without reads of integer
buffers) is not reduced to its width: an overflow there is an error, not a wrap.
Counterpart: scalar code of TVM's back ends.

Examples
--------
>>> from relaxlab.codegen.numpy.writer import Writer
>>> from relaxlab.ir import Var
>>> n, writer = Var("n", "int64"), Writer("f")
>>> writer.scalars[n] = "n"
>>> scalar_code(writer, (n + 1) // 2 * 4)
'(n + 1) // 2 * 4'
"""

from typing import Any, Final

from relaxlab.codegen.numpy.writer import Unsupported, Writer
from relaxlab.ir.expr import Call, Expr, Var
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
    Cast,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    Select,
    Sub,
    TensorLoad,
)
from relaxlab.ir.prim_functor import post_order_visit
from relaxlab.ir.sym import Analyzer
from relaxlab.ir.type import PrimType
from relaxlab.runtime.dtype import DataType
from relaxlab.tirx.scalar import is_known_call

__all__ = ["checked_indices", "scalar_code"]

# how tightly each kind of text binds
_TERNARY, _OR, _AND, _NOT, _COMPARE, _BITS, _SUM, _PRODUCT, _ATOM = range(9)
_INFIX: Final[dict[type, tuple[str, int]]] = {
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
_BITWISE: Final = {
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
    "shift_left": "<<",
    "shift_right": ">>",
}


def scalar_code(writer: Writer, expr: Expr) -> str:
    """Return Python text that computes a scalar expression.

    Raises
    ------
    Unsupported
        If it uses what has no scalar text: vectors, packed calls, unknown variables.
    """
    return _ScalarCode(writer).text(expr)[0]


def checked_indices(
    writer: Writer, buffer: Var, indices: tuple[Expr, ...], check: str
) -> list[str]:
    """Return the text of each index of a buffer, calling ``check`` where it may leave it."""
    return _ScalarCode(writer).checked_indices(buffer, indices, check)


def _has_load(expr: Expr) -> bool:
    found: list[Any] = []
    post_order_visit(expr, lambda n: found.append(n) if isinstance(n, TensorLoad) else None)
    return bool(found)


class _ScalarCode:
    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    def operand(self, expr: Expr, level: int) -> str:
        text, own = self.text(expr)
        return f"({text})" if own < level else text

    def text(self, expr: Any) -> tuple[str, int]:
        """Return the text and how tightly it binds."""
        if isinstance(expr.ty, PrimType) and expr.dtype.lanes != 1:
            raise Unsupported
        infix = _INFIX.get(type(expr))
        if infix is not None:
            return self._infix(expr, *infix)
        match expr:
            case IntImm(dtype=dtype, value=value):
                text = repr(bool(value)) if dtype.is_bool else repr(value)
                return text, _ATOM if value >= 0 else _SUM
            case FloatImm(dtype=dtype, value=value):
                return self._float(value, dtype), _ATOM
            case Var():
                name = self.writer.scalars.get(expr)
                if name is None:
                    raise Unsupported
                return name, _ATOM
            case Not(a=a):
                return f"not {self.operand(a, _NOT)}", _NOT
            case Min(a=a, b=b) | Max(a=a, b=b):
                return self._extremum(expr, a, b)
            case Div(a=a, b=b) | Mod(a=a, b=b):
                return self._truncated(expr, a, b)
            case Select(condition=c, true_value=a, false_value=b):
                return self._choice(c, a, b)
            case Cast(dtype=dtype, value=value):
                return self._cast(value, dtype)
            case TensorLoad():
                return self._load(expr)
            case Call():
                return self._call(expr)
            case _:
                raise Unsupported

    def _float(self, value: float, dtype: DataType) -> str:
        kind = dtype.numpy().type
        shown = f'float("{value}")' if repr(value) in ("inf", "-inf", "nan") else repr(value)
        return self.writer.constant(kind(value), f"np.dtype({str(dtype)!r}).type({shown})")

    def _infix(self, expr: Any, symbol: str, level: int) -> tuple[str, int]:
        # comparisons do not chain: both sides bind more tightly
        left = level + 1 if level == _COMPARE else level
        text = f"{self.operand(expr.a, left)} {symbol} {self.operand(expr.b, level + 1)}"
        if isinstance(expr, Add | Sub | Mul) and self._may_wrap(expr):
            return f"{self.writer.use('wrap')}({text}, {str(expr.dtype)!r})", _ATOM
        return text, level

    def _may_wrap(self, expr: Expr) -> bool:
        return not expr.dtype.is_float and expr.dtype.bits < 64 and _has_load(expr)

    def _extremum(self, expr: Expr, a: Expr, b: Expr) -> tuple[str, int]:
        larger = isinstance(expr, Max)
        if expr.dtype.is_float:
            x, y = self.operand(a, _ATOM), self.operand(b, _ATOM)
            return f"{self.writer.use('scalar_max' if larger else 'scalar_min')}({x}, {y})", _ATOM
        return f"{'max' if larger else 'min'}({self.text(a)[0]}, {self.text(b)[0]})", _ATOM

    def _truncated(self, expr: Expr, a: Expr, b: Expr) -> tuple[str, int]:
        x, y = self.text(a)[0], self.text(b)[0]
        if expr.dtype.is_float:
            return f"np.{'divide' if isinstance(expr, Div) else 'fmod'}({x}, {y})", _ATOM
        name = "scalar_div" if isinstance(expr, Div) else "scalar_mod"
        return f"{self.writer.use(name)}({x}, {y})", _ATOM

    def _choice(self, condition: Expr, yes: Expr, no: Expr) -> tuple[str, int]:
        parts = [self.operand(part, _OR) for part in (yes, condition, no)]
        return f"{parts[0]} if {parts[1]} else {parts[2]}", _TERNARY

    def _cast(self, value: Expr, dtype: DataType) -> tuple[str, int]:
        source = value.dtype
        if dtype.is_bool:
            return f"{self.operand(value, _BITS)} != 0", _COMPARE
        if dtype.is_int and source.is_int and dtype.bits >= source.bits:
            return self.text(value)
        if dtype.is_int and (source.is_bool or (source.is_uint and dtype.bits > source.bits)):
            return f"int({self.text(value)[0]})", _ATOM
        return f"{self.writer.use('cast')}({self.text(value)[0]}, {str(dtype)!r})", _ATOM

    def _load(self, load: TensorLoad) -> tuple[str, int]:
        state = self.writer.state(load.buffer)
        if state.holds == "nothing":
            raise Unsupported
        indices = self.checked_indices(load.buffer, load.indices)
        position = ", ".join(indices)
        if state.dtype.is_float:
            return f"{state.code}[{position or '()'}]", _ATOM
        return f"{state.code}.item({position})", _ATOM

    def checked_indices(
        self, buffer: Var, indices: tuple[Expr, ...], check: str = "check_index"
    ) -> list[str]:
        """Return the text of each index, with a check where it may be out of bounds."""
        state = self.writer.state(buffer)
        texts = []
        for axis, (index, extent) in enumerate(zip(indices, state.shape, strict=True)):
            text = self.text(index)[0]
            if not _inside(self.writer.analyzer, index, extent):
                size = self.text(extent)[0]
                function = self.writer.use(check)
                text = f"{function}({text}, {size}, {self.writer.name!r}, {buffer.name!r}, {axis})"
            texts.append(text)
        return texts

    def _call(self, call: Call) -> tuple[str, int]:
        name = call.op.name.removeprefix("tirx.") if isinstance(call.op, Op) else ""
        if name == "if_then_else":
            condition, yes, no = call.args
            return self._choice(condition, yes, no)
        if name == "likely":
            return self.text(call.args[0])
        if name in _BITWISE and not call.dtype.is_bool and name != "shift_left":
            a, b = call.args
            return f"{self.operand(a, _SUM)} {_BITWISE[name]} {self.operand(b, _SUM)}", _BITS
        if not is_known_call(name):
            raise Unsupported
        args = "".join(f", {self.text(arg)[0]}" for arg in call.args)
        types = f"{str(call.dtype)!r}, {str(call.args[0].dtype)!r}"
        return f"{self.writer.use('scalar_call')}({name!r}, {types}{args})", _ATOM


def _inside(analyzer: Analyzer, index: Expr, extent: Expr) -> bool:
    """Say whether ``0 <= index < extent`` for sure."""
    bound = analyzer.const_int_bound(index)
    if bound.min_value < 0:
        return False
    if isinstance(extent, IntImm) and bound.max_value < extent.value:
        return True
    return analyzer.can_prove_greater_equal(extent - index, 1)
