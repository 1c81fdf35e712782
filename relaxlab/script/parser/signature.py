"""Signatures: annotations first, then the symbolic variables in them, then types.

A symbolic variable is defined by standing alone as a dimension of any parameter, whichever comes
first; ``"n * 2"`` uses variables that are defined so. Variables are int64 and belong to one
function.
"""

import ast
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from relaxlab.errors import DiagnosticError
from relaxlab.ir.expr import Expr, Var
from relaxlab.ir.global_info import VDevice
from relaxlab.ir.type import PrimType, Type
from relaxlab.runtime.dtype import DataType
from relaxlab.script.annotation import Annotation, TypeAnnotation, to_annotation
from relaxlab.script.parser.evaluate import Evaluator
from relaxlab.script.parser.scope import MISSING, Scope
from relaxlab.script.parser.source import FAILURES

__all__ = ["Signature"]

_INT64 = PrimType(DataType("int64"))


class Signature:
    """Makes types for one function; see :class:`relaxlab.script.annotation.Context`.

    Parameters
    ----------
    evaluator
        Evaluates annotations, and dimensions written as strings.
    scope
        Where the symbolic variables become names of the function.
    devices
        Finds a virtual device of the module by name.
    string_dtype
        In a kernel, the dtype of symbolic variables that a string defines: ``T.Buffer(("n + 1",))``
        does, and parameters to the right may use ``n`` without quotes. None in Relax.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        scope: Scope,
        devices: Callable[[str], VDevice],
        string_dtype: DataType | None = None,
    ) -> None:
        self.evaluator = evaluator
        self.scope = scope
        self.devices = devices
        self.string_dtype = string_dtype
        self.symbols: dict[str, Var] = {}
        self.scalars: dict[str, Var] = {}
        #: Dtypes that the body gives to names: ``o = T.int32()``.
        self.declared: dict[str, PrimType] = {}
        #: Whether a string may be a dimension: in a signature, not in a body.
        self.strings_allowed = True
        self.is_s_tir = False

    def parse(self, node: ast.FunctionDef) -> tuple[list[Var], Type | None]:
        """Return the parameters of a function, named in its scope, and the declared result type."""
        arguments = node.args.args
        self.declared = _declared_dtypes(node)
        if node.args.vararg or node.args.kwarg or node.args.kwonlyargs or node.args.defaults:
            raise self.error(node, "a function of a program has plain parameters only")
        for name in self.evaluator.source.type_params.get(node.lineno, ()):
            self.define(name)
        annotations = self._annotations(arguments)
        returns = None if node.returns is None else self.annotation(node.returns)
        for annotation in (*annotations.values(), *((returns,) if returns else ())):
            for name in annotation.symbols():
                self.define(name)
        params = []
        for arg in arguments:
            var = self.scalars.get(arg.arg)
            if var is None:
                assert arg.annotation is not None
                ty = self.type(arg.annotation, annotations[arg.arg])
                var = Var(arg.arg, ty, self.evaluator.source.span(arg))
                if self.scope.is_in_frame(arg.arg):
                    raise self.error(arg, f"Variable {arg.arg} already defined in current scope")
                self.scope.define(arg.arg, var)
            params.append(var)
        ret_ty = None
        if returns is not None and node.returns is not None:
            ret_ty = self.type(node.returns, returns)
        self.strings_allowed = False
        return params, ret_ty

    def _annotations(self, arguments: list[ast.arg]) -> dict[str, Annotation]:
        # scalars first: the type of a parameter to the left may have one as a dimension
        for arg in arguments:
            if arg.annotation is None:
                raise self.error(arg, "Type annotation is required for function parameters.")
            if arg.arg in self.scalars:
                raise self.error(arg, f"Variable {arg.arg} already defined in current scope")
            if _may_be_scalar(arg.annotation):
                annotation = self.annotation(arg.annotation)
                ty = annotation.ty if isinstance(annotation, TypeAnnotation) else None
                if isinstance(ty, PrimType):
                    var = Var(arg.arg, ty, self.evaluator.source.span(arg))
                    self.scalars[arg.arg] = var
                    self.scope.define(arg.arg, var)
        found: dict[str, Annotation] = {}
        for arg in arguments:
            if arg.annotation is not None and arg.arg not in self.scalars:
                if self.string_dtype is not None:
                    self._define_quoted(arg.annotation, PrimType(self.string_dtype))
                found[arg.arg] = self.annotation(arg.annotation)
        return found

    def _define_quoted(self, annotation: ast.expr, ty: PrimType) -> None:
        """Define the variables in the strings among the dimensions and strides of a buffer."""
        for group in ast.walk(annotation):
            for each in group.elts if isinstance(group, ast.Tuple | ast.List) else ():
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    for name in _names_in(each.value):
                        if self._known(name) is None and self.scope.find(name) is MISSING:
                            self.define(name, ty)

    def error(self, node: ast.AST, message: str) -> DiagnosticError:
        """Return an error at a place."""
        return self.evaluator.error(node, message)

    def define(self, name: str, ty: PrimType = _INT64) -> Expr:
        """Return the variable of a name, a new one if the function has none."""
        known = self._known(name)
        if known is None:
            known = self.symbols[name] = Var(name, self.declared.get(name, ty))
            self.scope.define(name, known)
        return known

    def _known(self, name: str) -> Var | None:
        return self.symbols.get(name, self.scalars.get(name))

    def symbol(self, name: str) -> Expr:
        """Return the variable of a name."""
        if not self.strings_allowed:
            raise ValueError(_STRINGS)
        known = self._known(name)
        if known is None:
            raise NameError(f"name {name!r} is not defined")
        return known

    def symbolic(self, text: str) -> Any:
        """Return the value of an expression over symbolic variables."""
        if not self.strings_allowed:
            raise ValueError(_STRINGS)
        try:
            node = ast.parse(text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise ValueError(f"{text!r} is no expression") from None
        for name in (each.id for each in ast.walk(node) if isinstance(each, ast.Name)):
            if self._known(name) is None and self.scope.find(name) is MISSING:
                raise NameError(f"name {name!r} is not defined")
        return self.evaluator.inside(text)(node)

    def vdevice(self, name: str) -> VDevice:
        """Return a virtual device of the module."""
        return self.devices(name)

    def annotation(self, node: ast.expr) -> Annotation:
        """Evaluate an annotation."""
        value = self.evaluator(node)
        try:
            return to_annotation(value)
        except FAILURES as failure:
            raise self.evaluator.error(node, str(failure)) from None

    def type(self, node: ast.expr, annotation: Annotation) -> Type:
        """Make the type of an annotation."""
        try:
            return annotation.make(self)
        except (*FAILURES, NameError) as failure:
            raise self.evaluator.error(node, str(failure)) from None


def _declared_dtypes(node: ast.FunctionDef) -> dict[str, PrimType]:
    """Return the dtypes of names that a body declares with ``name = T.<dtype>()``."""
    found = {}
    for statement in node.body:
        match statement:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                pairs = list(zip(names, values, strict=False))
            case ast.Assign(targets=[name], value=value):
                pairs = [(name, value)]
            case _:
                continue
        for name, value in pairs:
            match name, value:
                case ast.Name(id=text), ast.Call(
                    func=ast.Attribute(attr=dtype), args=[], keywords=[]
                ):
                    with suppress(ValueError):  # another function of that form
                        found[text] = PrimType(DataType(dtype))
                case _:
                    pass
    return found


def _names_in(text: str) -> list[str]:
    """Return the names in an expression, in order; none in what is no expression."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []  # whoever evaluates it says so
    attributes = {node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n not in attributes]
    return [node.id for node in names if node.id != "T"]


def _may_be_scalar(node: ast.expr) -> bool:
    """Whether an annotation is ``T.int64``, ``R.Prim("int64")`` or the like."""
    if isinstance(node, ast.Call):
        return all(isinstance(arg, ast.Constant) for arg in node.args) and not node.keywords
    return isinstance(node, ast.Attribute)


_STRINGS = (
    "String-defined shape expr is only allowed when parsing function parameters and return "
    "annotations for TVMScript."
)
