"""Relax functions: from the body of an ``R.function`` to a :class:`~relaxlab.relax.Function`.

Every statement is normalized and typed as it is read, by a block builder of the function's own.
The builder's names are used up as TVM uses them up, so that ``gv3`` is ``gv3`` in both: each
binding takes one, and then is called as the program says.
"""

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

from relaxlab.ir import prim_ops
from relaxlab.ir.attrs import DictAttrs
from relaxlab.ir.expr import EXPR_OPERATORS, Call, Expr, GenericConst, GlobalVar, TupleGetItem, Var
from relaxlab.ir.global_info import VDevice
from relaxlab.ir.node import replace
from relaxlab.ir.source import Span
from relaxlab.ir.type import AnyType, FuncType, PrimType, TupleType, Type, is_void
from relaxlab.relax import op
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.expr import (
    Binding,
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    Function,
    If,
    MatchCast,
    SeqExpr,
    VarBinding,
)
from relaxlab.relax.literals import const, convert_to_expr
from relaxlab.relax.normalizer import is_leaf_or_tuple
from relaxlab.relax.type_relations import BaseCheckResult, type_base_check
from relaxlab.script import relax_parts as parts
from relaxlab.script.annotation import Annotation, AnnotationFunction, to_annotation
from relaxlab.script.parser.attributes import attributes
from relaxlab.script.parser.decorator import FunctionDecorator, decorator_of
from relaxlab.script.parser.evaluate import Evaluator, ModuleNames
from relaxlab.script.parser.macro import Macro
from relaxlab.script.parser.scalar import SCALAR_OPERATORS
from relaxlab.script.parser.scope import Scope
from relaxlab.script.parser.signature import Signature
from relaxlab.script.parser.source import FAILURES, Source

__all__ = ["RelaxParser", "signature_type"]


@dataclass(slots=True)
class _Body:
    """A sequence being read: the body of a function or of a branch.

    Attributes
    ----------
    blocks
        Finished blocks.
    result
        What is returned.
    outputs
        Inside a dataflow block, names whose current binding is visible after it.
    """

    blocks: list[BindingBlock] = field(default_factory=list)
    result: Expr | None = None
    outputs: dict[str, int] = field(default_factory=dict)
    statement: int = 0


class RelaxParser(Evaluator):
    """Parses one function and the functions inside it.

    Parameters
    ----------
    source, scope, trusted
        See :class:`Evaluator`.
    devices
        Finds a virtual device of the module by name.
    """

    def __init__(
        self,
        source: Source,
        scope: Scope,
        trusted: bool,
        devices: Callable[[str], VDevice],
    ) -> None:
        super().__init__(source, scope, trusted)
        self.devices = devices
        self.signature = Signature(self, scope, devices)
        self.builder = BlockBuilder(normalize_operators=False)
        self.attrs: dict[str, Any] = {}
        self.body = _Body()

    # ------------------------------------------------------------ functions

    def function(
        self, node: ast.FunctionDef, options: Mapping[str, Any], is_global: bool = True
    ) -> Function:
        """Parse a function definition; ``options`` are those of its decorator."""
        known = {"private", "pure", "check_well_formed"}
        if set(options) - known:
            raise self.error(node, f"R.function has no option {min(set(options) - known)!r}")
        with self.scope.frame():
            params, ret_ty = self.signature.parse(node)
            self.builder.begin_scope(params)
            self._begin_block(False)
            self.statements(node.body)
            self._end_block()
            if self.body.result is None:
                raise self.error(
                    node,
                    "A Relax function must have a return value. Please use `return` to return an "
                    "Expr",
                )
            try:
                blocks, result, place = tuple(self.body.blocks), self.body.result, self.builder.span
                body = self.builder.normalize(SeqExpr(blocks, result, span=place))
                if is_global and not options.get("private"):
                    self.attrs.setdefault("global_symbol", node.name)
                return Function(
                    params,
                    body,
                    ret_ty,
                    bool(options.get("pure", True)),
                    DictAttrs(self.attrs),
                    span=self.source.span(node),
                )
            except FAILURES as failure:
                raise self.error(node, str(failure)) from None

    def type_var(self, node: ast.Name, name: str) -> Any:
        """Return the symbolic variable that a TypeVar stands for."""
        if not self.signature.strings_allowed:
            raise self.error(node, f"the symbolic variable {name} is not in the signature")
        return self.signature.define(name)

    def _local_function(self, node: ast.FunctionDef) -> None:
        """Parse a function inside this one, and bind it."""
        options = decorator_of(self, node, "R.function")[1]
        inner = RelaxParser(self.source, self.scope, self.trusted, self.devices)
        name, span = node.name, self.source.span(node)
        if node.returns is not None:
            # it may call itself
            var = Var(name, signature_type(inner, node, options), span)
            self.scope.define(name, var)
            func = inner.function(node, options, is_global=False)
        else:
            func = inner.function(node, options, is_global=False)
            var = Var(name, func.ty, span)
        self.builder.get_unique_name(self._default_name())
        # the function's own type is more precise than its declaration
        object.__setattr__(var, "ty", func.ty)
        self._append(VarBinding(var, func, span=span))
        self.scope.define(name, var)

    # ------------------------------------------------------------ blocks

    def _begin_block(self, is_dataflow: bool) -> None:
        self.builder.begin_block(is_dataflow)

    def _end_block(self) -> None:
        block = self.builder.end_block()
        if block.bindings:
            self.body.blocks.append(block)

    def _append(self, binding: Binding) -> None:
        self.builder.emit_normalized(binding)

    def _default_name(self) -> str:
        return "lv" if self.builder.current_block_is_dataflow() else "gv"

    # ------------------------------------------------------------ statements

    def statements(self, nodes: Sequence[ast.stmt]) -> None:
        """Parse statements in order."""
        for index, node in enumerate(nodes):
            self.body.statement = index
            self.builder.span = self.source.span(node)
            with self.refusing(node):
                self._statement(node)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Expr():
                self._expression(node)
            case ast.Assign(targets=[target]):
                self._assign(node, target, self(node.value))
            case ast.AnnAssign():
                self._annotated(node)
            case ast.Return():
                self._return(node)
            case ast.If():
                self._choice(node)
            case ast.With():
                self._dataflow(node)
            case ast.FunctionDef():
                self._local_function(node)
            case ast.Pass():
                pass
            case _:
                loop = isinstance(node, ast.For | ast.While)
                raise self.error(
                    node,
                    f"{type(node).__name__} is not supported in a Relax function",
                    "a loop is a function that calls itself" if loop else "",
                )

    def _expression(self, node: ast.Expr) -> None:
        value = self(node.value)
        match value:
            case None if self._is_macro(node.value):
                pass
            case parts.FuncAttr():
                self.attrs.update(attributes(value.attrs))
            case parts.Output():
                raise self.error(node, "R.output stands last in a `with R.dataflow()` block")
            case str():  # a docstring
                pass
            case Expr():
                normalized = self._normalize(node, value)
                if not is_void(normalized.ty):
                    raise self.error(
                        node,
                        "Non-void relax expressions must be bound to a variable, but expression "
                        f"of type {normalized.ty} was used as a statement.",
                    )
                self._bind(node, "_", normalized, None)
            case _:
                raise self.error(
                    node, f"Unsupported Expr stmt type {type(value).__name__}: assign it to a name"
                )

    def _return(self, node: ast.Return) -> None:
        if node.value is None:
            raise self.error(node, "return needs a value")
        value = self._expr(node.value, self(node.value))
        if self.body.result is not None:
            raise self.error(
                node,
                "Relax functions do not support multiple return statement.  However, return of "
                f"{value} occurred after a return of {self.body.result}.  Please make sure "
                "function only has a single return statement, which appears at the end of "
                "function.",
            )
        try:
            self.body.result = self.builder.normalize_argument(value)
        except FAILURES as failure:
            raise self.error(node, str(failure)) from None

    # ------------------------------------------------------------ bindings

    def _assign(self, node: ast.stmt, target: ast.expr, value: Any) -> None:
        match target, value:
            case ((ast.Tuple() | ast.List()), _):
                self._unpack(node, target.elts, value)
            case ast.Name(), ModuleNames():  # cls = Module
                self.scope.define(target.id, value)
            case ast.Name(), Var(name=""):  # n = T.int64()
                self._symbol(target, value)
            case ast.Name(), parts.Cast():
                self._match_cast(node, target.id, value, None)
            case ast.Name(), _:
                if isinstance(value, TypeVar):
                    self.scope.define(target.id, value)
                elif isinstance(value, Expr | tuple | list):
                    self._bind(node, target.id, self._expr(node, value), None)
                elif isinstance(value, bool | int | float):
                    self._bind(node, target.id, const(value), None)
                elif isinstance(value, str):
                    self.scope.define(target.id, value)
                else:
                    raise self.error(
                        node, f"a {type(value).__name__} cannot be bound to a variable"
                    )
            case _:
                raise self.error(target, "only a name can be assigned to")

    def _symbol(self, target: ast.Name, value: Var) -> None:
        """Name a symbolic variable, which the signature may have already."""
        known = self.scope.find(target.id)
        if isinstance(known, Var) and self.scope.is_local(target.id) and known.ty == value.ty:
            return
        self.scope.define(target.id, Var(target.id, value.ty, self.source.span(target)))

    def _unpack(self, node: ast.stmt, targets: list[ast.expr], value: Any) -> None:
        values: Sequence[Any]
        if isinstance(value, tuple | list):
            values = value
        else:
            whole = self._normalize(node, self._expr(node, value))
            ty = whole.ty
            if not isinstance(ty, TupleType):
                raise self.error(node, f"only a tuple can be unpacked, got type {ty}")
            if not is_leaf_or_tuple(whole):
                whole = self.builder.bind_normalized(whole)
            values = [TupleGetItem(whole, i) for i in range(len(ty.fields))]
        if len(values) != len(targets):
            raise self.error(node, f"{len(targets)} names for {len(values)} values")
        for target, each in zip(targets, values, strict=True):
            self._assign(node, target, each)

    def _annotated(self, node: ast.AnnAssign) -> None:
        if not isinstance(node.target, ast.Name):
            raise self.error(node, "only a plain name can have a type")
        if node.value is None:
            raise self.error(node, "a variable needs a value")
        ty = self._type(node.annotation, self(node.annotation))
        value = self(node.value)
        if isinstance(value, parts.Cast):
            self._match_cast(node, node.target.id, value, ty)
        elif isinstance(value, bool | int | float) and isinstance(ty, PrimType):
            self._bind(node, node.target.id, prim_ops.const(value, ty.dtype), ty)
        elif isinstance(value, bool | int | float):
            self._bind(node, node.target.id, const(value), ty)
        else:
            self._bind(node, node.target.id, self._expr(node, value), ty)

    def _bind(self, node: ast.stmt, name: str, value: Expr, ty: Type | None) -> None:
        """Bind a value; ``ty`` is what the program says about its type.

        As in TVM, a call takes over the type that is written, which may say more or less than what
        can be inferred. Of every other value the type is known: what is written is only compared.
        """
        span = self.source.span(node)
        if ty is not None and isinstance(value, Call) and value.ty is None:
            value = replace(value, ty=ty)
        normalized = self._normalize(node, value)
        if normalized.ty is None:
            raise self.error(node, f"the type of {normalized} is not known")
        if ty is not None and type_base_check(ty, normalized.ty) is BaseCheckResult.FAIL_L0:
            raise self.error(
                node,
                f"Invalid annotation. Got rhs value type: {normalized.ty}, given type: {ty}",
            )
        self.builder.get_unique_name(self._default_name())
        var = self._new_var(name, normalized.ty, span)
        self._append(VarBinding(var, normalized, span=span))
        self.scope.define(name, var)

    def _match_cast(self, node: ast.stmt, name: str, cast: parts.Cast, ty: Type | None) -> None:
        span = self.source.span(node)
        target = self._type(node, cast.ty)
        if ty is not None and ty != target:
            raise self.error(
                node,
                "Cannot specify inconsistent annotation for a match cast pair. "
                f"Got {ty} for a cast to {target}",
            )
        value = self._normalize(node, self._expr(node, cast.value))
        if value.ty is not None and type_base_check(value.ty, target) is BaseCheckResult.FAIL_L0:
            raise self.error(
                node,
                "It is impossible to match cast any value into the target ty. But got value type: "
                f"{value.ty}, given type: {target}",
            )
        self.builder.get_unique_name(self._default_name())
        var = self._new_var(name, target, span)
        self._append(MatchCast(var, value, target, span=span))
        self.scope.define(name, var)

    def _new_var(self, name: str, ty: Type, span: Span) -> Var:
        if not self.builder.current_block_is_dataflow():
            return Var(name, ty, span)
        if self.body.outputs.get(name) == self.body.statement:
            return Var(name, ty, span)
        return DataflowVar(name, ty, span)

    # ------------------------------------------------------------ dataflow, branches

    def _dataflow(self, node: ast.With) -> None:
        item = node.items[0]
        if (
            len(node.items) != 1
            or item.optional_vars is not None
            or not isinstance(self(item.context_expr), parts.Dataflow)
        ):
            raise self.error(item.context_expr, "expected `with R.dataflow():`")
        self._end_block()
        self._begin_block(True)
        body, last = node.body, self._output_call(node.body[-1])
        outputs: list[ast.expr] = last.args if last is not None else []
        if last is not None:
            body = body[:-1]
        before = (self.body.outputs, self.body.statement)
        self.body.outputs = {}
        names = []
        for output in outputs:
            if not isinstance(output, ast.Name):
                raise self.error(output, "an output is the name of a variable of this block")
            self.body.outputs[output.id] = _last_binding(body, output.id)
            names.append(output)
        with self.scope.frame():
            self.statements(body)
            visible = {name.id: self(name) for name in names}
        for output in names:
            var = visible[output.id]
            if self.body.outputs[output.id] < 0 or not isinstance(var, Var):
                raise self.error(
                    output,
                    "An output variable is not emitted by this dataflow block. Please make sure "
                    "all dataflow block output variables are emitted exactly by this block.",
                )
        for name, var in visible.items():
            self.scope.define(name, var)
        self.body.outputs, self.body.statement = before
        self._end_block()
        self._begin_block(False)

    def _output_call(self, node: ast.stmt) -> ast.Call | None:
        """Return the call if the statement is ``R.output(...)``."""
        call = node.value if isinstance(node, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            function = self(call.func) if call.func.attr == "output" else None
            if function is not None:
                return call
        return None

    def _choice(self, node: ast.If) -> None:
        if self.builder.current_block_is_dataflow():
            raise self.error(node, "Cannot create an IfFrame inside a dataflow block.")
        condition = self._expr(node.test, self(node.test))
        name, true_branch = self._branch(node, node.body, "Then")
        other, false_branch = self._branch(node, node.orelse, "Else")
        if name != other:
            raise self.error(
                node,
                "This last binding of both branches must provide the same variable.  However, the "
                f"R.Then branch provides variable {name}, while the R.Else branch provides "
                f"variable {other}",
            )
        span = self.source.span(node)
        self._bind(node, name, If(condition, true_branch, false_branch, span=span), None)

    def _branch(self, node: ast.If, body: list[ast.stmt], which: str) -> tuple[str, SeqExpr]:
        """Parse a branch; the variable of its last binding gives the If's name and value."""
        outer, self.body = self.body, _Body()
        self.builder.begin_scope(None)
        self._begin_block(False)
        try:
            with self.scope.frame():
                self.statements(body)
            self._end_block()
            if self.body.result is not None:
                raise self.error(node, "return stands at the end of the function, not in a branch")
            if not self.body.blocks:
                raise self.error(node, f"Empty body is not allowed for 'R.{which}' statements.")
            return _value_of_branch(self.body.blocks, f"_{which.lower()}")
        finally:
            self.builder.end_scope()
            self.body = outer

    # ------------------------------------------------------------ values

    def _expr(self, node: ast.AST, value: Any) -> Expr:
        """Return a value as an expression."""
        if isinstance(value, GlobalVar | Expr):
            return value
        try:
            return convert_to_expr(value)
        except TypeError as failure:
            raise self.error(node, str(failure)) from None

    def _normalize(self, node: ast.AST, value: Expr) -> Expr:
        try:
            return self.builder.normalize(value)
        except FAILURES as failure:
            raise self.error(node, str(failure)) from None

    def _type(self, node: ast.AST, value: Any) -> Type:
        try:
            return to_annotation(value).make(self.signature)
        except (*FAILURES, NameError) as failure:
            raise self.error(node, str(failure)) from None

    def __call__(self, node: ast.expr) -> Any:
        """Return the value of an expression; calls and constants remember where they stand."""
        value = super().__call__(node)
        made_here = not isinstance(node, ast.Name | ast.Subscript | ast.Attribute)
        if made_here and isinstance(value, Call | GenericConst) and value.span is None:
            object.__setattr__(value, "span", self.source.span(node))
        return value

    def operate(self, node: ast.expr, name: str, *operands: Any) -> Any:
        """Return the meaning of an operator: on scalars a scalar, else a Relax operator."""
        if all(_is_scalar(operand) for operand in operands):
            function = SCALAR_OPERATORS.get(name)
        else:
            function = EXPR_OPERATORS.find(f"relax.{name}")
        if function is None:
            raise self.error(
                node,
                f"operator {name} is not supported on Relax expressions; use the R function of "
                "that meaning",
            )
        return function(*operands)

    def subscript(self, node: ast.Subscript, value: Any, index: Any) -> Any:
        """Return a field of a tuple."""
        if isinstance(value, Expr):
            return EXPR_OPERATORS.get("relax.getitem")(value, index)
        return super().subscript(node, value, index)

    def attribute(self, node: ast.Attribute, value: Any) -> Any:
        """Return an attribute of an expression."""
        name = node.attr
        if name == "ty" and isinstance(value, Expr):
            return value.ty
        if name == "astype" and isinstance(value, Expr):
            return lambda dtype: op.astype(value, dtype)
        if name in ("shape", "dtype", "ndim"):
            raise self.error(
                node,
                f"{name} is only available on a Var with BufferType; use R.shape_of, or a symbolic "
                "variable of the signature",
            )
        return super().attribute(node, value)

    def call(self, node: ast.Call, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function of ``R``, or build a call of a function of the program."""
        if isinstance(function, AnnotationFunction | FunctionDecorator):
            return function(*args, **kwargs)
        if isinstance(function, Macro):
            return self._expand(node, function, args, kwargs)
        if isinstance(function, Expr):
            return self._call_expression(node, function, args, kwargs)
        if not callable(function):
            raise self.error(node, f"{ast.unparse(node.func)} cannot be called")
        if function is op.to_vdevice:
            args, kwargs = self._with_device(args, kwargs)
        args = [self._made(node, arg) for arg in args]
        kwargs = {
            key: (self._types if key in _TYPES else self._made)(node, value)
            for key, value in kwargs.items()
        }
        types = kwargs.pop("ty_args", None) if not _takes_types(function) else None
        result = function(*args, **kwargs)
        if isinstance(result, Call):
            self._check_call(node, result)
        if types is not None and isinstance(result, Call):
            listed = (types,) if isinstance(types, Type) else tuple(types)
            result = replace(result, ty_args=listed)
        return result

    def _check_call(self, node: ast.Call, call: Call) -> None:
        """Refuse what no call consists of; a call with a written type is not inferred."""
        for part in (call.op, *call.args):
            if not isinstance(part, Expr):
                raise self.error(
                    node,
                    f"expected an expression as argument, got {type(part).__name__}",
                    "a number becomes an expression by R.const or R.prim_value",
                )
        for ty in call.ty_args:
            if not isinstance(ty, Type):
                raise self.error(node, f"expected a type, got {type(ty).__name__}")
        attributes(call.attrs or {})

    def _is_macro(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and isinstance(self(node.func), Macro)

    def _expand(
        self, node: ast.Call, macro: Macro, args: list[Any], kwargs: dict[str, Any]
    ) -> Expr | None:
        """Read a macro's statements here; return what it returns, bound to a variable."""
        if macro.language != "R":
            raise self.error(node, f"{macro!r} belongs to kernels")
        before = (self.body.outputs, self.body.statement)
        self.body.outputs = {}
        try:
            with macro.expanding(self, node, args, kwargs):
                *statements, last = macro.body
                for each in statements:
                    if isinstance(each, ast.Return):
                        raise self.error(each, "'return' should be the last statement")
                if not isinstance(last, ast.Return) or last.value is None:
                    self.statements([*statements, last])
                    return None
                self.statements(statements)
                value = self._expr(last.value, self(last.value))
                try:
                    result = self.builder.normalize_argument(value)
                except FAILURES as failure:
                    raise self.error(last, str(failure)) from None
                # bound again where it is used, as in TVM: a macro's value is a sequence there
                return SeqExpr((), result)
        finally:
            self.body.outputs, self.body.statement = before

    def _with_device(
        self, args: list[Any], kwargs: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Replace the name of a virtual device by the device."""
        found = [self.devices(a) if isinstance(a, str) else a for a in args]
        named = {k: self.devices(v) if isinstance(v, str) else v for k, v in kwargs.items()}
        return found, named

    def _call_expression(
        self, node: ast.Call, function: Expr, args: list[Any], kwargs: dict[str, Any]
    ) -> Call:
        if not isinstance(function, GlobalVar) and not isinstance(function.ty, FuncType):
            raise self.error(node, f"Expression of type {function.ty} cannot be called")
        types = self._types(node, kwargs.pop("ty_args", ()))
        if kwargs:
            raise self.error(node, f"a call of {function} takes no {min(kwargs)}=")
        operands = tuple(self._expr(node, arg) for arg in args)
        listed = (types,) if isinstance(types, Type) else tuple(types)
        return Call(function, operands, None, listed)

    def _made(self, node: ast.AST, value: Any) -> Any:
        """Turn annotations among arguments into types."""
        if isinstance(value, Annotation | AnnotationFunction):
            return self._type(node, value)
        if isinstance(value, list | tuple) and any(map(_holds_annotation, value)):
            return type(value)(self._made(node, item) for item in value)
        return value

    def _types(self, node: ast.AST, value: Any) -> Any:
        """Turn an argument that holds nothing but types into types: ``(T.int64, R.Any)``."""
        if isinstance(value, list | tuple):
            return tuple(self._type(node, item) for item in value)
        return value if value is None else self._type(node, value)


# ---------------------------------------------------------------- pieces


def signature_type(parser: RelaxParser, node: ast.FunctionDef, options: Mapping[str, Any]) -> Type:
    """Return the type that a function's signature declares; the body is not read.

    Parameters
    ----------
    parser
        Any parser of the program; its scope is left as it was.
    node, options
        The definition, and the options of its decorator.
    """
    scope, devices = parser.scope, parser.devices
    reader = RelaxParser(parser.source, scope, parser.trusted, devices)
    with scope.frame():
        params, ret_ty = reader.signature.parse(node)
    types = tuple(param.ty for param in params if param.ty is not None)
    return FuncType(types, ret_ty or AnyType(), bool(options.get("pure", True)))


def _value_of_branch(blocks: list[BindingBlock], suffix: str) -> tuple[str, SeqExpr]:
    """Return the name that the last binding gives to the If, and the branch.

    A value that needs no variable becomes the result itself; any other keeps a variable, called
    as the If's with a suffix.
    """
    *earlier, last = blocks
    *bindings, final = last.bindings
    assert isinstance(final, VarBinding | MatchCast)
    name, is_dataflow = final.var.name, isinstance(last, DataflowBlock)
    result: Expr
    if isinstance(final, VarBinding) and is_leaf_or_tuple(final.value) and not is_dataflow:
        result = final.value
    else:
        var = Var(name + suffix, final.var.ty, final.var.span)
        result = var
        bindings.append(replace(final, var=var))
    rest = [type(last)(tuple(bindings), span=last.span)] if bindings else []
    return name, SeqExpr((*earlier, *rest), result)


def _last_binding(body: Sequence[ast.stmt], name: str) -> int:
    """Return the index of the last statement that binds a name, -1 if none does."""
    for index in range(len(body) - 1, -1, -1):
        node = body[index]
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            if any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(target)):
                return index
    return -1


#: Arguments that hold types.
_TYPES = frozenset({"out_ty", "ty_args"})


def _is_scalar(operand: Any) -> bool:
    if isinstance(operand, Expr):
        return isinstance(operand.ty, PrimType)
    return isinstance(operand, bool | int | float)


def _holds_annotation(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_holds_annotation, value))
    return isinstance(value, Annotation | AnnotationFunction)


@cache
def _takes_types(function: Callable[..., Any]) -> bool:
    """Whether a function of ``R`` has its own use for ``ty_args``."""
    return "ty_args" in inspect.signature(function).parameters
