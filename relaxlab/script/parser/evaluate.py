"""Values of Python expressions inside a program, without running Python.

The text of a program may come from a file of a stranger, so nothing in it is executed: this
walker knows literals, operators, calls of what ``I``, ``R`` and ``T`` export, and attributes of
program nodes. A decorated object is the caller's own code; there the names around it can be
called too. Every error shows the place.

What operators mean depends on the language: ``operate`` is asked when an operand is an
expression. On plain Python values they are Python's, within bounds.
"""

import ast
import copy
import difflib
import operator
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from inspect import Parameter, Signature
from types import ModuleType
from typing import Any, Final, TypeVar

from relaxlab.errors import DiagnosticError
from relaxlab.ir.expr import Expr, GlobalVar
from relaxlab.script.namespace import Namespace
from relaxlab.script.parser.scope import MISSING, Scope
from relaxlab.script.parser.source import FAILURES, Source

__all__ = ["Evaluator", "FAILURES", "ModuleNames"]

_BINARY: Final[dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]]] = {
    ast.Add: ("add", operator.add),
    ast.Sub: ("subtract", operator.sub),
    ast.Mult: ("multiply", operator.mul),
    ast.Div: ("divide", operator.truediv),
    ast.FloorDiv: ("floor_divide", operator.floordiv),
    ast.Mod: ("mod", operator.mod),
    ast.Pow: ("power", operator.pow),
    ast.LShift: ("shift_left", operator.lshift),
    ast.RShift: ("shift_right", operator.rshift),
    ast.BitAnd: ("bitwise_and", operator.and_),
    ast.BitOr: ("bitwise_or", operator.or_),
    ast.BitXor: ("bitwise_xor", operator.xor),
    ast.MatMult: ("matmul", operator.matmul),
}
_COMPARE: Final[dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]]] = {
    ast.Eq: ("equal", operator.eq),
    ast.NotEq: ("not_equal", operator.ne),
    ast.Lt: ("less", operator.lt),
    ast.LtE: ("less_equal", operator.le),
    ast.Gt: ("greater", operator.gt),
    ast.GtE: ("greater_equal", operator.ge),
}
_UNARY: Final[dict[type[ast.unaryop], tuple[str, Callable[[Any], Any]]]] = {
    ast.USub: ("negative", operator.neg),
    ast.UAdd: ("positive", operator.pos),
    ast.Invert: ("bitwise_not", operator.invert),
    ast.Not: ("logical_not", operator.not_),
}
_BUILTINS: Final[dict[str, Any]] = {"bool": bool, "float": float, "int": int, "len": len}
#: No integer of a program has more bits; beyond, a short text could ask for a huge number.
_MAX_BITS: Final = 64


class ModuleNames:
    """What the class's own name stands for inside it: ``Module.f`` is a function of the module."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.functions: dict[str, GlobalVar] = {}

    def __repr__(self) -> str:
        return self.name


class Evaluator:
    """Evaluates expressions of one program.

    Parameters
    ----------
    source
        Where the expressions stand.
    scope
        What names mean.
    trusted
        Whether the text is the caller's own code, so that objects of Python may be used.
    """

    def __init__(self, source: Source, scope: Scope, trusted: bool) -> None:
        self.source = source
        self.scope = scope
        self.trusted = trusted
        #: Macros that are being read, outermost first.
        self.expanded: list[str] = []
        #: Python's own functions that a program may use.
        self.builtins: dict[str, Any] = _BUILTINS

    # ------------------------------------------------------------ for the languages to say

    def operate(self, node: ast.expr, name: str, *operands: Any) -> Any:
        """Return the meaning of an operator with at least one expression among its operands."""
        raise self.error(node, f"operator {name} has no meaning here")

    def subscript(self, node: ast.Subscript, value: Any, index: Any) -> Any:
        """Return ``value[index]`` where ``value`` is part of a program."""
        raise self.error(node, f"a {type(value).__name__} cannot be indexed")

    def attribute(self, node: ast.Attribute, value: Any) -> Any:
        """Return an attribute of a part of a program."""
        raise self.error(node, f"a {type(value).__name__} has no attribute {node.attr!r}")

    def type_var(self, node: ast.Name, name: str) -> Any:
        """Return the symbolic variable that a TypeVar stands for."""
        raise self.error(node, f"the symbolic variable {name} is not defined here")

    def call(self, node: ast.Call, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call what ``I``, ``R``, ``T`` or the caller's own code exports."""
        return function(*args, **kwargs)

    # ------------------------------------------------------------ the walk

    def error(self, node: ast.AST, message: str, advice: str = "") -> DiagnosticError:
        """Return an error at a place; ``advice`` says what to do about it."""
        return self.source.error(node, message, advice)

    @contextmanager
    def refusing(self, node: ast.AST) -> Iterator[None]:
        """Show what the functions that build a program refuse at a place of the text."""
        try:
            yield
        except DiagnosticError:
            raise
        except RecursionError:
            raise self.error(node, "the program is nested too deeply") from None
        except FAILURES as failure:
            raise self.error(node, _message(failure)) from None

    def inside(self, text: str) -> "Evaluator":
        """Return an evaluator for an expression written as a string in this program."""
        inner = copy.copy(self)
        inner.source = Source(text, f"{self.source.name} (in a string)")
        return inner

    def __call__(self, node: ast.expr) -> Any:
        """Return the value of an expression."""
        handler = _HANDLERS.get(type(node))
        if handler is None:
            raise self.error(node, f"{type(node).__name__} is not supported in a program")
        try:
            return handler(self, node)
        except DiagnosticError:
            raise
        except RecursionError:
            raise self.error(node, "the expression is nested too deeply") from None
        except FAILURES as failure:
            raise self.error(node, _message(failure)) from None

    def _constant(self, node: ast.Constant) -> Any:
        if isinstance(node.value, int) and _bits(node.value) > _MAX_BITS:
            raise self.error(node, f"an integer has at most {_MAX_BITS} bits")
        if isinstance(node.value, bool | int | float | str | None):
            return node.value
        raise self.error(node, f"a literal of type {type(node.value).__name__} is not supported")

    def _name(self, node: ast.Name) -> Any:
        value = self.scope.find(node.id)
        if value is MISSING:
            value = self.builtins.get(node.id, MISSING)
        if value is MISSING:
            raise self.error(node, f"Undefined variable: {node.id}", self._undefined(node.id))
        return self.type_var(node, value.__name__) if isinstance(value, TypeVar) else value

    def _tuple(self, node: ast.Tuple) -> Any:
        return tuple(self._items(node.elts))

    def _list(self, node: ast.List) -> Any:
        return self._items(node.elts)

    def _items(self, nodes: list[ast.expr]) -> list[Any]:
        items: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                starred = self(node.value)
                if not isinstance(starred, list | tuple):
                    raise self.error(node, "* needs a tuple that is written out")
                items.extend(starred)
            else:
                items.append(self(node))
        return items

    def _dict(self, node: ast.Dict) -> Any:
        result = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                raise self.error(node, "** is not supported in a dictionary")
            result[self(key)] = self(value)
        return result

    def _attribute(self, node: ast.Attribute) -> Any:
        value = self(node.value)
        if isinstance(value, ModuleNames):
            return (
                value.functions[node.attr]
                if node.attr in value.functions
                else self._no(node, value.functions)
            )
        if node.attr.startswith("_"):
            raise self.error(node, f"{node.attr!r} is private")
        if isinstance(value, Namespace):
            return (
                value.members[node.attr]
                if node.attr in value.members
                else self._no(node, value.members)
            )
        if isinstance(value, ModuleType) and value.__name__.startswith("relaxlab."):
            found = getattr(value, node.attr, MISSING)
            members = getattr(value, "__all__", ())
            if node.attr in members or _is_own_module(found):
                return found
            return self._no(node, members)
        if self.trusted and not isinstance(value, Expr) and hasattr(value, node.attr):
            return getattr(value, node.attr)
        return self.attribute(node, value)

    def _undefined(self, name: str) -> str:
        if name == "metadata":
            return "the constants were left out of this text; print with show_meta=True"
        return _nearest(name, self.scope.local_names())

    def _no(self, node: ast.Attribute, members: Iterable[str]) -> Any:
        advice = _nearest(node.attr, members)
        raise self.error(node, f"{ast.unparse(node.value)} has no {node.attr!r}", advice)

    def _subscript(self, node: ast.Subscript) -> Any:
        value, index = self(node.value), self._index(node.slice)
        if isinstance(value, tuple | list | dict):
            return value[index]
        if self.trusted and not isinstance(value, Expr) and hasattr(value, "__getitem__"):
            return value[index]
        return self.subscript(node, value, index)

    def _index(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Slice):
            parts = (node.lower, node.upper, node.step)
            return slice(*(None if part is None else self(part) for part in parts))
        if isinstance(node, ast.Tuple):
            return tuple(self._index(item) for item in node.elts)
        return self(node)

    def _call(self, node: ast.Call) -> Any:
        function = self(node.func)
        args = self._items(node.args)
        kwargs: dict[str, Any] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise self.error(keyword.value, "** is not supported in a call")
            kwargs[keyword.arg] = self(keyword.value)
        return self.call(node, function, args, kwargs)

    def _binary(self, node: ast.BinOp) -> Any:
        # the left spine in a loop: a + b + c + ... may be longer than Python's stack
        spine: list[ast.BinOp] = []
        left: ast.expr = node
        while isinstance(left, ast.BinOp):
            spine.append(left)
            left = left.left
        value = self(left)
        for step in reversed(spine):
            other = self(step.right)
            name, function = _BINARY[type(step.op)]
            if isinstance(value, Expr) or isinstance(other, Expr):
                value = self._at(step, self.operate, step, name, value, other)
            else:
                value = self._at(step, self._plain, function, value, other)
        return value

    def _at(self, node: ast.AST, function: Callable[..., Any], *args: Any) -> Any:
        try:
            return function(*args)
        except DiagnosticError:
            raise
        except FAILURES as failure:
            raise self.error(node, _message(failure)) from None

    def _plain(self, function: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
        if self.trusted:
            return function(a, b)
        if isinstance(a, list | tuple) and isinstance(b, list | tuple) and function is operator.add:
            return function(a, b)
        if isinstance(a, str) and isinstance(b, str) and function is operator.add:
            return function(a, b)
        if not isinstance(a, int | float) or not isinstance(b, int | float):
            raise TypeError(f"expected numbers, got {type(a).__name__} and {type(b).__name__}")
        growing = function in (operator.pow, operator.lshift)
        if growing and abs(b) * (1 if function is operator.lshift else _bits(a)) > _MAX_BITS:
            raise ValueError(f"the result would have more than {_MAX_BITS} bits")
        result = function(a, b)
        if _bits(result) > _MAX_BITS:
            raise ValueError(f"the result has more than {_MAX_BITS} bits")
        return result

    def _unary(self, node: ast.UnaryOp) -> Any:
        value = self(node.operand)
        name, function = _UNARY[type(node.op)]
        return self.operate(node, name, value) if isinstance(value, Expr) else function(value)

    def _compare(self, node: ast.Compare) -> Any:
        values = [self(node.left), *map(self, node.comparators)]
        result: Any = None
        for op, a, b in zip(node.ops, values, values[1:], strict=False):
            known = _COMPARE.get(type(op))
            if known is None:
                raise self.error(node, f"{type(op).__name__} is not supported in a program")
            name, function = known
            each = (
                self.operate(node, name, a, b)
                if isinstance(a, Expr) or isinstance(b, Expr)
                else function(a, b)
            )
            result = each if result is None else self._both(node, "logical_and", result, each)
        return result

    def _both(self, node: ast.expr, name: str, a: Any, b: Any) -> Any:
        if isinstance(a, Expr) or isinstance(b, Expr):
            return self.operate(node, name, a, b)
        return (a and b) if name == "logical_and" else (a or b)

    def _bool(self, node: ast.BoolOp) -> Any:
        name = "logical_and" if isinstance(node.op, ast.And) else "logical_or"
        result = self(node.values[0])
        for value in node.values[1:]:
            result = self._both(node, name, result, self(value))
        return result

    def _if(self, node: ast.IfExp) -> Any:
        condition = self(node.test)
        if isinstance(condition, Expr):
            return self.operate(node, "if_then_else", condition, self(node.body), self(node.orelse))
        return self(node.body if condition else node.orelse)

    def _lambda(self, node: ast.Lambda) -> Any:
        names = [argument.arg for argument in node.args.args]
        rest = None if node.args.vararg is None else node.args.vararg.arg

        def function(*args: Any) -> Any:
            if len(args) < len(names) or (rest is None and len(args) > len(names)):
                raise TypeError(f"expected {len(names)} arguments, got {len(args)}")
            with self.scope.frame():
                for name, value in zip(names, args, strict=False):
                    self.scope.define(name, value)
                if rest is not None:
                    self.scope.define(rest, args[len(names) :])
                return self(node.body)

        # what asks for the names of the parameters (an index map) finds those written
        parameters = [Parameter(name, Parameter.POSITIONAL_ONLY) for name in names]
        if rest is not None:
            parameters.append(Parameter(rest, Parameter.VAR_POSITIONAL))
        function.__dict__["__signature__"] = Signature(parameters)
        return function


def _bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 64


def _is_own_module(value: Any) -> bool:
    """Whether a value is a group of operators, such as ``R.nn``."""
    return isinstance(value, ModuleType) and value.__name__.startswith("relaxlab.relax.op.")


def _nearest(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {near[0]!r}?" if near else ""


def _message(failure: BaseException) -> str:
    if isinstance(failure, KeyError) and failure.args:
        return f"there is no {failure.args[0]!r}"
    return str(failure) or type(failure).__name__


_HANDLERS: Final[dict[type[ast.expr], Callable[[Evaluator, Any], Any]]] = {
    ast.Constant: Evaluator._constant,
    ast.Name: Evaluator._name,
    ast.Tuple: Evaluator._tuple,
    ast.List: Evaluator._list,
    ast.Dict: Evaluator._dict,
    ast.Attribute: Evaluator._attribute,
    ast.Subscript: Evaluator._subscript,
    ast.Call: Evaluator._call,
    ast.BinOp: Evaluator._binary,
    ast.UnaryOp: Evaluator._unary,
    ast.Compare: Evaluator._compare,
    ast.BoolOp: Evaluator._bool,
    ast.IfExp: Evaluator._if,
    ast.Lambda: Evaluator._lambda,
}
