"""The decorators: ``@I.ir_module``, ``@R.function``, ``@T.prim_func``.

In plain Python a decorator parses the source of what it decorates. The functions of a class are
left alone, since the decorator of the class parses them together. The parser meets the same
objects in the text and asks only for their names.
"""

import ast
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import FrameType, FunctionType
from typing import Any

__all__ = ["FunctionDecorator", "ModuleDecorator", "decorator_of", "surroundings"]

#: Parses a decorated object: (object, visible names, options).
Parse = Callable[[Any, Mapping[str, Any], Mapping[str, Any]], Any]


class FunctionDecorator:
    """A decorator of functions, with or without options.

    Examples
    --------
    >>> FunctionDecorator("T.prim_func", lambda func, names, options: "parsed")(len)
    'parsed'
    """

    def __init__(self, name: str, parse: Parse) -> None:
        self.name = name
        self._parse = parse

    def __call__(self, func: Any = None, /, **options: Any) -> Any:
        """Parse ``func``, or return the decorator with these options."""
        if func is None:
            return lambda decorated: self._decorate(decorated, options, sys._getframe(1))
        return self._decorate(func, options, sys._getframe(1))

    def _decorate(self, func: Any, options: Mapping[str, Any], caller: FrameType) -> Any:
        if isinstance(func, FunctionType) and _in_class(func):
            return func
        return self._parse(func, surroundings(func, caller), options)

    def __repr__(self) -> str:
        return self.name


class ModuleDecorator(FunctionDecorator):
    """A decorator of classes."""


def decorator_of(
    evaluator: Any, node: ast.FunctionDef, *names: str
) -> tuple[FunctionDecorator, dict[str, Any]]:
    """Return the decorator of a function in a program, and its options.

    Parameters
    ----------
    evaluator
        Evaluates the decorators.
    node
        The definition.
    names
        Which decorators are possible here.

    Raises
    ------
    DiagnosticError
        If it has none of them.
    """
    for decorator in node.decorator_list:
        options: dict[str, Any] = {}
        function = decorator
        if isinstance(decorator, ast.Call):
            function = decorator.func
            options = {k.arg: evaluator(k.value) for k in decorator.keywords if k.arg is not None}
        value = evaluator(function)
        if isinstance(value, FunctionDecorator) and value.name in names:
            return value, options
    expected = " or ".join(f"@{name}" for name in names)
    raise evaluator.error(node, f"function {node.name!r} needs a decorator: {expected}")


def _in_class(func: FunctionType) -> bool:
    """Whether the function is being defined directly in the body of a class."""
    outer = func.__qualname__.rpartition(".")[0]
    return bool(outer) and not outer.endswith("<locals>")


def surroundings(program: Any, caller: FrameType | None) -> dict[str, Any]:
    """Return the names visible where a decorated object stands.

    Parameters
    ----------
    program
        The function or class.
    caller
        The frame that the decorator was called from, which holds the local variables.
    """
    names: dict[str, Any] = {}
    if caller is not None:
        names.update(caller.f_globals)
    if isinstance(program, FunctionType):
        names.update(program.__globals__)
        for name, cell in zip(program.__code__.co_freevars, program.__closure__ or (), strict=True):
            with suppress(ValueError):  # not assigned yet
                names[name] = cell.cell_contents
    if caller is not None:
        names.update(caller.f_locals)
    return names
