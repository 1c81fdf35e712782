"""Small expressions over registers: conditions of breakpoints, and things to watch.

They are evaluated on recorded descriptions, never on live values, so a condition gives the same
answer forwards, backwards and in a saved trace, and cannot change the machine. Registers are
written ``%3`` or ``r3``, or by parameter name; tensors have ``shape``, ``dtype``, ``min``, ``max``,
``nan``, ``storage``, ``offset`` and their first elements by index. There is no TVM counterpart.

Examples
--------
>>> from relaxlab.runtime.vm.observer import ScalarValue
>>> Expression("%1 * 2 >= n")([ScalarValue("int", "3"), ScalarValue("int", "2")], names=("n",))
True
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from relaxlab.runtime.vm.observer import ScalarValue, StorageValue, TensorValue, TupleValue, Value

__all__ = ["Expression", "ExpressionError"]

_MAX_LENGTH: Final = 400
_REGISTER: Final = re.compile(r"r(\d+)")
_PERCENT: Final = re.compile(r"%(?=\d)")

_BINARY: Final[Mapping[type[ast.AST], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: Final[Mapping[type[ast.AST], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
}
_UNARY: Final[Mapping[type[ast.AST], Callable[[Any], Any]]] = {
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_ATTRIBUTES: Final[Mapping[str, Callable[[TensorValue], object]]] = {
    "shape": lambda value: value.shape,
    "dtype": lambda value: value.dtype,
    "min": lambda value: _number(value.minimum),
    "max": lambda value: _number(value.maximum),
    "nan": lambda value: value.nan_count,
    "storage": lambda value: value.storage,
    "offset": lambda value: value.offset,
}


class ExpressionError(ValueError):
    """An expression cannot be read, or has no value in this frame."""


class Expression:
    """A condition or a value, read once and evaluated in many frames.

    Parameters
    ----------
    text
        Comparisons, ``and or not``, ``+ - * / // %``, numbers, strings, registers, tensor
        attributes and indices.

    Raises
    ------
    ExpressionError
        If the text is no such expression.
    """

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        if len(self.text) > _MAX_LENGTH:
            raise ExpressionError(f"an expression has at most {_MAX_LENGTH} characters")
        try:
            # `5 %2` would be ambiguous; a remainder needs a space or parentheses: `r1 % 2`
            self._body = ast.parse(_PERCENT.sub("r", self.text), mode="eval").body
        except SyntaxError as error:
            raise ExpressionError(f"cannot read {text!r} as an expression: {error.msg}") from None
        for node in ast.walk(self._body):
            if not isinstance(node, _ALLOWED):
                raise ExpressionError(
                    f"cannot read {text!r}: {type(node).__name__} is not allowed; expected "
                    "comparisons, arithmetic, registers such as %1, and attributes such as r1.max"
                )

    def __call__(
        self, registers: Sequence[Value], names: Sequence[str] = (), **variables: object
    ) -> Any:
        """Return the value in a frame.

        Parameters
        ----------
        registers
            Description of each register.
        names
            Parameter names of the function: the first registers.
        variables
            Further names.

        Raises
        ------
        ExpressionError
            If a name is unknown or an operation does not fit its operands.
        """
        scope: dict[str, object] = dict(variables)
        for register, name in enumerate(names[: len(registers)]):
            scope[name] = registers[register]
        try:
            return _plain(self._evaluate(self._body, registers, scope))
        except ExpressionError as error:
            raise ExpressionError(f"{self.text!r} has no value here: {error}") from None
        except (TypeError, ArithmeticError, LookupError) as error:
            raise ExpressionError(f"{self.text!r} has no value here: {error}") from None

    def _evaluate(
        self, node: ast.expr, registers: Sequence[Value], scope: dict[str, object]
    ) -> Any:
        def visit(inner: ast.expr) -> Any:
            return _plain(self._evaluate(inner, registers, scope))

        match node:
            case ast.Constant(value):
                return value
            case ast.Name(name):
                return _lookup(name, registers, scope)
            case ast.BoolOp(ast.And(), parts):
                return all(visit(part) for part in parts)
            case ast.BoolOp(_, parts):
                return any(visit(part) for part in parts)
            case ast.UnaryOp(op, operand):
                return _UNARY[type(op)](visit(operand))
            case ast.BinOp(left, op, right):
                return _arithmetic(op, visit(left), visit(right))
            case ast.Compare(left, ops, comparators):
                value = visit(left)
                for relation, comparator in zip(ops, comparators, strict=True):
                    other = visit(comparator)
                    if not _COMPARE[type(relation)](value, other):
                        return False
                    value = other
                return True
            case ast.Attribute(inner, name):
                return _attribute(self._evaluate(inner, registers, scope), name)
            case ast.Subscript(inner, index):
                return _item(self._evaluate(inner, registers, scope), visit(index))
            case ast.Tuple(items) | ast.List(items):
                return tuple(visit(item) for item in items)
            case _:
                raise ExpressionError(f"{type(node).__name__} is not allowed")

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"


_ALLOWED: Final = (
    *(ast.Constant, ast.Name, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Compare, ast.Attribute),
    *(ast.Subscript, ast.Tuple, ast.List, ast.And, ast.Or, ast.Load),
    *(*_BINARY, *_COMPARE, *_UNARY),
)


def _lookup(name: str, registers: Sequence[Value], scope: dict[str, object]) -> object:
    if name in scope:
        return scope[name]
    match = _REGISTER.fullmatch(name)
    if match is None:
        known = ", ".join(sorted(scope)) or "no names"
        raise ExpressionError(f"unknown name {name!r}: expected a register such as %0, or {known}")
    number = int(match[1])
    if number >= len(registers):
        raise ExpressionError(f"no register %{number}: the frame has {len(registers)}")
    return registers[number]


def _plain(value: object) -> object:
    """Return the Python value of a description; a tensor of one element counts as its element."""
    match value:
        case ScalarValue("none"):
            return None
        case ScalarValue("bool" | "int" | "shape" | "str" | "bytes", text):
            try:
                return ast.literal_eval(text)
            except (ValueError, SyntaxError):  # a long string, shown cut off
                return text
        case ScalarValue("float", text):
            return float(text)
        case ScalarValue(_, text):
            return text
        case TensorValue(head=(only,), tail=()):
            return _number(only)
        case TensorValue():
            raise ExpressionError("a tensor is no number: use its .min, .max, .nan or an index")
        case TupleValue():
            raise ExpressionError("a tuple is no number: use an index")
        case StorageValue():
            return value.storage
        case _:
            return value


def _number(value: object) -> object:
    return float(value) if isinstance(value, str) and value in ("nan", "inf", "-inf") else value


def _arithmetic(op: ast.operator, left: object, right: object) -> Any:
    for operand in (left, right):
        if not isinstance(operand, int | float):
            raise ExpressionError(f"expected a number, got {operand!r}")
    return _BINARY[type(op)](left, right)


def _attribute(value: object, name: str) -> object:
    if not isinstance(value, TensorValue):
        raise ExpressionError(f"only a tensor has .{name}")
    if name not in _ATTRIBUTES:
        raise ExpressionError(f"a tensor has no .{name}: expected one of {', '.join(_ATTRIBUTES)}")
    return _ATTRIBUTES[name](value)


def _item(value: object, index: object) -> object:
    if not isinstance(index, int):
        raise ExpressionError(f"expected an integer index, got {index!r}")
    match value:
        case TensorValue(head=head):
            if not -len(head) <= index < len(head):
                raise ExpressionError(
                    f"element {index} is not recorded, only the first {len(head)}"
                )
            return _number(head[index])
        case TupleValue(items=items):
            return items[index]
        case ScalarValue("shape" | "str"):
            return _plain(value)[index]  # type: ignore[index]  # a tuple or a string
        case tuple() | str():
            return value[index]
        case _:
            raise ExpressionError("only a tensor, a tuple, a shape or a text has elements")
