"""Where parsing begins: a text, a decorated class, a decorated function.

A module is read in four steps: what its class says about the whole, the signatures of all
functions (so that they can call each other), the kernels, the Relax functions.
"""

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from relaxlab.ir.expr import GlobalVar
from relaxlab.ir.global_info import GlobalInfo, VDevice
from relaxlab.ir.module import BaseFunc, IRModule
from relaxlab.relax.analysis import well_formed
from relaxlab.relax.call_type import prim_func_type
from relaxlab.relax.expr import ExternFunc, Function
from relaxlab.script.parser.attributes import attributes
from relaxlab.script.parser.decorator import (
    Decorated,
    FunctionDecorator,
    ModuleDecorator,
    decorator_of,
)
from relaxlab.script.parser.evaluate import Evaluator, ModuleNames
from relaxlab.script.parser.macro import macro_of
from relaxlab.script.parser.metadata import load_metadata
from relaxlab.script.parser.relax import RelaxParser, signature_type
from relaxlab.script.parser.scope import Scope
from relaxlab.script.parser.source import FAILURES, Source
from relaxlab.script.parser.tirx import KernelParser

__all__ = ["parse_function", "parse_module", "parse_text"]

_WELL_FORMED = (
    "Program is not well-formed. If this is deliberate, consider setting check_well_formed in the "
    "top-level decorator to False (e.g., @I.ir_module(check_well_formed=False) or "
    "@R.function(check_well_formed=False))."
)


def parse_text(
    text: str,
    languages: Mapping[str, Any],
    name: str = "<str>",
    check_well_formed: bool = True,
) -> IRModule | BaseFunc:
    """Return the module, or the single function, that a text holds.

    Parameters
    ----------
    text
        TVMScript. Nothing in it is executed.
    languages
        What ``I``, ``R`` and ``T`` mean.
    name
        What errors call the text.
    check_well_formed
        Whether the program must be well-formed; its own decorator may say no as well.

    Raises
    ------
    DiagnosticError
        If it is no program; the message shows the place.
    """
    source = Source(text, name)
    tree = source.parse()
    names = {**languages, "TypeVar": TypeVar}
    scope = Scope(names)
    evaluator = Evaluator(source, scope, trusted=False)
    program: ast.ClassDef | ast.FunctionDef | None = None
    with scope.frame():
        _read_metadata(tree.body, source, scope)
        for node in tree.body:
            match node:
                case ast.Import() | ast.ImportFrom():
                    _import(node, scope, languages)
                case ast.Assign(targets=[ast.Name() as target]):
                    if target.id != "metadata":
                        value = evaluator(node.value)
                        if isinstance(value, TypeVar) and not isinstance(value.__name__, str):
                            raise source.error(node.value, "the name of a TypeVar is a string")
                        scope.define(target.id, value)
                case ast.FunctionDef() if _is_macro(node, source, scope):
                    pass
                case ast.ClassDef() | ast.FunctionDef():
                    if program is not None:
                        raise source.error(node, "a text holds one module or one function")
                    program = node
                case ast.Expr(value=ast.Constant()):
                    pass
                case _:
                    raise source.error(node, f"{type(node).__name__} is not part of a program")
        if program is None:
            raise source.error(
                _Place(), "there is no program: expected a class under @I.ir_module or a function"
            )
        if isinstance(program, ast.ClassDef):
            options = _module_options(evaluator, program)
            if not check_well_formed:
                options["check_well_formed"] = False
            return _module(program, source, scope, False, options)
        return _single(program, source, scope, False, check_well_formed)


def parse_module(program: Decorated) -> IRModule:
    """Return the module that a decorated class describes."""
    source = Source.of_file(program.filename, program.names)
    node = source.definition(ast.ClassDef, program.name, program.line)
    return _module(node, source, Scope(program.names), True, program.options)


def parse_function(program: Decorated) -> BaseFunc:
    """Return the function that a decorated Python function describes."""
    source = Source.of_file(program.filename, program.names)
    node = source.definition(ast.FunctionDef, program.name, program.line)
    return _single(node, source, Scope(program.names), True)


class _Place(ast.expr):
    """The beginning of a text, for an error that is about all of it."""

    lineno = end_lineno = 1
    col_offset = end_col_offset = 0


# ---------------------------------------------------------------- around the program


def _import(node: ast.Import | ast.ImportFrom, scope: Scope, languages: Mapping[str, Any]) -> None:
    """Bind ``from tvm.script import relax as R``; other imports are not looked at."""
    known = {"ir": "I", "relax": "R", "tirx": "T"}
    if isinstance(node, ast.ImportFrom) and node.module in ("tvm.script", "relaxlab.script"):
        for alias in node.names:
            if alias.name in known:
                scope.define(alias.asname or alias.name, languages[known[alias.name]])


def _is_macro(node: ast.FunctionDef, source: Source, scope: Scope) -> bool:
    """Whether a definition in front of the program is a macro, which then has its name."""
    evaluator = Evaluator(source, scope, trusted=False)
    decorator, options = decorator_of(
        evaluator, node, "R.function", "T.prim_func", "R.macro", "T.macro"
    )
    language, _, kind = decorator.name.partition(".")
    if kind == "macro":
        scope.define(node.name, macro_of(language, node, source, scope, False, options))
    return kind == "macro"


def _read_metadata(body: Sequence[ast.stmt], source: Source, scope: Scope) -> None:
    """Read the constants that a program mentions, wherever they stand."""
    for node in body:
        match node:
            case ast.Assign(
                targets=[ast.Name(id="metadata")],
                value=ast.Call(args=[ast.Constant(value=str(text))]) as call,
            ):
                try:
                    scope.define("metadata", load_metadata(text))
                except FAILURES as failure:
                    raise source.error(call, f"the metadata cannot be read: {failure}") from None
            case _:
                pass


# ---------------------------------------------------------------- single functions


def _single(
    node: ast.FunctionDef,
    source: Source,
    scope: Scope,
    trusted: bool,
    check_well_formed: bool = True,
) -> BaseFunc:
    evaluator = Evaluator(source, scope, trusted)
    decorator, options = decorator_of(evaluator, node, "R.function", "T.prim_func")
    with evaluator.refusing(node):
        if decorator.name == "T.prim_func":
            return KernelParser(source, scope, trusted).function(node, options)
        func = RelaxParser(source, scope, trusted, _no_devices).function(node, options)
    if check_well_formed and options.get("check_well_formed", True):
        _check(func, node, source)
    return func


def _no_devices(name: str) -> VDevice:
    raise ValueError(f"there is no virtual device {name!r} outside of a module")


def _check(program: IRModule | Function, node: ast.AST, source: Source) -> None:
    try:
        well_formed(program)
    except FAILURES as failure:
        raise source.error(node, f"{_WELL_FORMED}\n{failure}") from None


# ---------------------------------------------------------------- modules


def _module_options(evaluator: Evaluator, node: ast.ClassDef) -> dict[str, Any]:
    for decorator in node.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        value = evaluator(decorator if call is None else call.func)
        if isinstance(value, ModuleDecorator):
            keywords = [] if call is None else call.keywords
            return {k.arg: evaluator(k.value) for k in keywords if k.arg is not None}
    raise evaluator.error(node, f"class {node.name!r} needs the decorator @I.ir_module")


def _module(
    node: ast.ClassDef,
    source: Source,
    scope: Scope,
    trusted: bool,
    options: Mapping[str, Any],
) -> IRModule:
    evaluator = Evaluator(source, scope, trusted)
    names = ModuleNames(node.name)
    attrs: dict[str, Any] = {}
    infos: dict[str, list[GlobalInfo]] = {}
    devices = _device_finder(infos)
    functions: list[tuple[ast.FunctionDef, FunctionDecorator, dict[str, Any]]] = []
    made: dict[str, BaseFunc] = {}
    with scope.frame():
        scope.define(node.name, names)
        for statement in node.body:
            match statement:
                case ast.FunctionDef():
                    if statement.name in names.functions:
                        raise source.error(
                            statement, f"the module already has a function {statement.name!r}"
                        )
                    decorator, own = decorator_of(evaluator, statement, "R.function", "T.prim_func")
                    functions.append((statement, decorator, own))
                    names.functions[statement.name] = GlobalVar(statement.name)
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    extern = evaluator(value)
                    if not isinstance(extern, ExternFunc):
                        raise source.error(statement, "expected R.ExternFunc")
                    made[name] = extern
                    names.functions[name] = GlobalVar(name, ty=extern.ty)
                case ast.Expr(value=ast.Call(func=ast.Attribute(attr="module_attrs")) as call):
                    with evaluator.refusing(call):
                        attrs.update(attributes(evaluator(call.args[0])))
                case ast.Expr(
                    value=ast.Call(func=ast.Attribute(attr="module_global_infos")) as call
                ):
                    with evaluator.refusing(call):
                        infos.update(_global_infos(evaluator(call.args[0])))
                case ast.Expr(value=ast.Constant()) | ast.Pass():
                    pass
                case _:
                    raise source.error(
                        statement, "a module holds functions, I.module_attrs and the like"
                    )
        reader = RelaxParser(source, scope, trusted, devices)
        for function, decorator, own in functions:
            if decorator.name == "R.function":
                with evaluator.refusing(function):
                    ty = signature_type(reader, function, own)
                names.functions[function.name].set_ty(ty)
        # kernels first: a Relax function may call any of them
        for function, decorator, own in functions:
            if decorator.name == "T.prim_func":
                with evaluator.refusing(function):
                    kernel = KernelParser(source, scope, trusted).function(function, own)
                made[function.name] = kernel
                names.functions[function.name].set_ty(prim_func_type(kernel))
        for function, decorator, own in functions:
            if decorator.name == "R.function":
                with evaluator.refusing(function):
                    func = RelaxParser(source, scope, trusted, devices).function(function, own)
                made[function.name] = func
                if func.ty is not None:
                    names.functions[function.name].set_ty(func.ty)
    with evaluator.refusing(node):
        mod = IRModule({gvar: made[name] for name, gvar in names.functions.items()}, attrs, infos)
    for function, decorator, _ in functions:
        if decorator.name == "T.prim_func":
            names.functions[function.name].set_ty(prim_func_type(mod[function.name]))
    if options.get("check_well_formed", True):
        _check(mod, node, source)
    return mod


def _global_infos(value: Any) -> dict[str, list[GlobalInfo]]:
    if not isinstance(value, Mapping):
        raise TypeError(f"expected lists of infos by name, got {type(value).__name__}")
    for infos in value.values():
        if not isinstance(infos, list | tuple) or not all(isinstance(i, GlobalInfo) for i in infos):
            raise TypeError(f"expected a list such as [I.vdevice('llvm')], got {infos!r}")
    return {str(name): list(infos) for name, infos in value.items()}


def _device_finder(infos: Mapping[str, Sequence[GlobalInfo]]) -> Callable[[str], VDevice]:
    """Return a function from ``kind:index:scope`` to the virtual device of the module."""

    def find(name: str) -> VDevice:
        kind, _, rest = name.partition(":")
        index, _, _ = rest.partition(":")
        devices = [d for d in infos.get("vdevice", ()) if isinstance(d, VDevice)]
        same = [d for d in devices if d.target.kind.name == kind]
        number = int(index) if index.isdigit() else 0
        if number >= len(same):
            known = ", ".join(d.target.kind.name for d in devices) or "none"
            raise ValueError(f"the module has no virtual device {name!r}; it has: {known}")
        return same[number]

    return find
