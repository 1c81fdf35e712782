"""Macros: ``@R.macro`` and ``@T.macro``, statements that are written once and used in many places.

A macro is no function of the program. Where it is called, its statements are read again with its
parameters standing for the arguments. A hygienic macro (the default) sees the names around its
definition; ``hygienic=False`` sees those around the call. Counterpart: ``tvm.script`` macros; TVM
reads them from decorated Python only, here a text may have them in front of the program too.

Examples
--------
>>> from relaxlab.script import from_source
>>> func = from_source('''
... @R.macro
... def twice(x):
...     return R.add(x, x)
...
... @R.function
... def f(x: R.Tensor((4,), "float32")):
...     y = twice(x)
...     return y
... ''')
>>> [str(binding.value) for binding in func.body.blocks[0].bindings]
['R.add(x, x)', 'gv']
"""

import ast
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from relaxlab.script.parser.decorator import Decorated, FunctionDecorator
from relaxlab.script.parser.evaluate import Evaluator
from relaxlab.script.parser.scope import Scope
from relaxlab.script.parser.source import Source

__all__ = ["Macro", "macro_decorator", "macro_of"]

#: A macro that calls itself would never end.
_DEEPEST = 64


class Macro:
    """A definition that is read where it is called.

    Parameters
    ----------
    language
        ``"R"`` or ``"T"``.
    node
        The definition.
    source, scope, trusted
        Where it stands; see :class:`~relaxlab.script.parser.evaluate.Evaluator`.
    hygienic
        Whether names mean what they mean at the definition.
    """

    def __init__(
        self,
        language: str,
        node: ast.FunctionDef,
        source: Source,
        scope: Scope,
        trusted: bool,
        hygienic: bool,
    ) -> None:
        self.language = language
        self.node = node
        self.source = source
        self.scope = scope
        self.trusted = trusted
        self.hygienic = hygienic

    @property
    def name(self) -> str:
        """Its name."""
        return self.node.name

    @property
    def body(self) -> Sequence[ast.stmt]:
        """Its statements, without a docstring."""
        first = self.node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            return self.node.body[1:]
        return self.node.body

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: there is nothing to run."""
        raise TypeError(
            f"{self.language}.macro {self.name} is no Python function; call it inside a function "
            f"of a program"
        )

    def __repr__(self) -> str:
        return f"<{self.language}.macro {self.name}>"

    @contextmanager
    def expanding(
        self, parser: Evaluator, call: ast.Call, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Iterator[None]:
        """Let ``parser`` read the macro's statements, its parameters bound to the arguments.

        Raises
        ------
        DiagnosticError
            If the arguments do not fit.
        """
        if len(parser.expanded) >= _DEEPEST:
            raise parser.error(call, f"macro {self.name} is nested more than {_DEEPEST} deep")
        before = (parser.source, parser.scope, parser.trusted)
        parser.expanded.append(self.name)
        try:
            parser.source, parser.trusted = self.source, self.trusted
            if self.hygienic:
                parser.scope = self.scope
            bound = self._bind(parser, call, before, args, kwargs)
            with parser.scope.frame():
                for name, value in bound.items():
                    parser.scope.define(name, value)
                yield
        finally:
            parser.expanded.pop()
            parser.source, parser.scope, parser.trusted = before

    def _bind(
        self,
        parser: Evaluator,
        call: ast.Call,
        caller: tuple[Source, Scope, bool],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Mapping[str, Any]:
        try:
            bound = self._signature(parser).bind(*args, **kwargs)
        except TypeError as failure:
            parser.source, parser.scope, parser.trusted = caller
            raise parser.error(call, f"{self.name}: {failure}") from None
        bound.apply_defaults()
        return bound.arguments

    def _signature(self, parser: Evaluator) -> inspect.Signature:
        given, kinds = self.node.args, inspect.Parameter
        empty = inspect.Parameter.empty
        positional = [*given.posonlyargs, *given.args]
        missing = len(positional) - len(given.defaults)
        params = []
        for index, arg in enumerate(positional):
            kind = (
                kinds.POSITIONAL_ONLY
                if index < len(given.posonlyargs)
                else kinds.POSITIONAL_OR_KEYWORD
            )
            default = empty if index < missing else parser(given.defaults[index - missing])
            params.append(inspect.Parameter(arg.arg, kind, default=default))
        if given.vararg is not None:
            params.append(inspect.Parameter(given.vararg.arg, kinds.VAR_POSITIONAL))
        for arg, node in zip(given.kwonlyargs, given.kw_defaults, strict=True):
            default = empty if node is None else parser(node)
            params.append(inspect.Parameter(arg.arg, kinds.KEYWORD_ONLY, default=default))
        if given.kwarg is not None:
            raise parser.error(self.node, "a macro takes no **keywords")
        return inspect.Signature(params)


def macro_of(
    language: str,
    node: ast.FunctionDef,
    source: Source,
    scope: Scope,
    trusted: bool,
    options: Mapping[str, Any],
) -> Macro:
    """Return the macro that a definition describes; ``options`` are those of its decorator."""
    if set(options) - {"hygienic"}:
        unknown = min(set(options) - {"hygienic"})
        raise source.error(node, f"{language}.macro has no option {unknown!r}")
    return Macro(language, node, source, scope, trusted, bool(options.get("hygienic", True)))


def macro_decorator(language: str) -> FunctionDecorator:
    """Return ``@R.macro`` or ``@T.macro`` for decorated Python."""

    def parse(program: Decorated) -> Macro:
        source = Source.of_file(program.filename, program.names)
        node = source.definition(ast.FunctionDef, program.name, program.line)
        scope = Scope(program.names)
        return macro_of(language, node, source, scope, True, program.options)

    return FunctionDecorator(f"{language}.macro", parse)
