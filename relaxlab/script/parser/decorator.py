"""The decorators: ``@I.ir_module``, ``@R.function``, ``@T.prim_func``.

In plain Python a decorator parses the source of what it decorates. The functions of a class are
left alone, since the decorator of the class parses them together. The parser meets the same
objects in the text and asks only for their names.
"""

import ast
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType, FunctionType
from typing import Any

__all__ = ["Decorated", "FunctionDecorator", "ModuleDecorator", "decorator_of"]


@dataclass(frozen=True, slots=True)
class Decorated:
    """A decorated class or function: where its text is, and what is visible there.

    Attributes
    ----------
    name
        Its name.
    filename, line
        Where its definition begins.
    names
        Names visible there, with their values.
    options
        Options of the decorator.
    """

    name: str
    filename: str
    line: int
    names: Mapping[str, Any]
    options: Mapping[str, Any]


class FunctionDecorator:
    """A decorator of functions, with or without options.

    Examples
    --------
    >>> FunctionDecorator("T.prim_func", lambda program: program.name)(lambda: None)
    '<lambda>'
    """

    def __init__(self, name: str, parse: Callable[[Decorated], Any]) -> None:
        self.name = name
        self._parse = parse

    def __call__(self, func: Any = None, /, **options: Any) -> Any:
        """Parse ``func``, or return the decorator with these options."""
        if func is None:
            return lambda decorated: self._decorate(decorated, options, sys._getframe(1))
        return self._decorate(func, options, sys._getframe(1))

    def _decorate(self, func: Any, options: Mapping[str, Any], caller: FrameType) -> Any:
        if not isinstance(func, FunctionType):
            raise TypeError(f"@{self.name} decorates a function, got {func!r}")
        if _in_class(func):
            return func
        code = func.__code__
        names = _surroundings(func, caller)
        return self._parse(
            Decorated(func.__name__, code.co_filename, code.co_firstlineno, names, options)
        )

    def __repr__(self) -> str:
        return self.name


class ModuleDecorator(FunctionDecorator):
    """A decorator of classes."""

    def _decorate(self, cls: Any, options: Mapping[str, Any], caller: FrameType) -> Any:
        if not isinstance(cls, type):
            raise TypeError(f"@{self.name} decorates a class, got {cls!r}")
        # the line that is executed is that of the decorator
        filename, line = caller.f_code.co_filename, caller.f_lineno
        names = {**caller.f_globals, **caller.f_locals}
        return self._parse(Decorated(cls.__name__, filename, line, names, options))


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


def _surroundings(func: FunctionType, caller: FrameType) -> dict[str, Any]:
    """Return the names visible where a function is defined, innermost last."""
    names: dict[str, Any] = {**caller.f_globals, **func.__globals__}
    for name, cell in zip(func.__code__.co_freevars, func.__closure__ or (), strict=True):
        with suppress(ValueError):  # not assigned yet
            names[name] = cell.cell_contents
    return {**names, **caller.f_locals}
