"""Relax functions as TVMScript: functions, blocks, bindings, then expressions.

Variables that a match_cast introduces are declared at the head of the function that uses them.
A value of void type prints as a bare statement, and its variable, which nothing needs, does not
print at all. One difference from TVM is deliberate: a literal that is not int64 says so
(``T.int32(3)``), since a bare number is read as int64.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relaxlab.ir.expr import (
    Call,
    Expr,
    GenericConst,
    GlobalVar,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
)
from relaxlab.ir.node import structural_equal
from relaxlab.ir.op import Op
from relaxlab.ir.prim import IntImm
from relaxlab.ir.type import TupleType, Type, is_void
from relaxlab.relax.expr import (
    Binding,
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    ExternFunc,
    Function,
    If,
    MatchCast,
    SeqExpr,
    VarBinding,
)
from relaxlab.relax.shape import ShapeExpr
from relaxlab.runtime.dtype import DataType
from relaxlab.script.printer.ir import (
    ATOM,
    SCALARS,
    scalar,
    symbolic_vars,
    tuple_text,
    type_text,
)
from relaxlab.script.printer.lines import INDENT, INDENTED_BLANK, indented
from relaxlab.script.printer.literal import float_text, string_text
from relaxlab.script.printer.state import Printing
from relaxlab.script.printer.value import value_text

__all__ = ["binding", "block", "choice", "expression", "function", "header", "seq"]


# ---------------------------------------------------------------- functions


def function(p: Printing, func: Function, name: str) -> tuple[list[str], list[str]]:
    """Return the lines of a function, decorator first, and the TypeVars it needs, sorted."""
    with p.relax(), p.function() as frame:
        frame.params = set(func.params)
        types = [param.ty for param in func.params] + [func.ret_ty]
        variables = symbolic_vars(p, types, func.params)
        frame.type_vars = set(variables)
        with p.signature():
            params = [_parameter(p, param) for param in func.params]
            result = type_text(p, func.ret_ty)
        type_vars = sorted(filter(None, map(p.names.find, variables)))
        generic = f"[{', '.join(type_vars)}]" if p.use_pep695 and type_vars else ""
        head = [
            _decorator(p, func),
            f"def {name}{generic}({', '.join(params)}) -> {result}:",
        ]
        shown = {k: v for k, v in func.attrs.items() if not (k == "global_symbol" and v == name)}
        if shown:
            head.append(f"{INDENT}{p.mark('R')}.func_attr({value_text(p, shown)})")
        body = _body(p, func.body, lambda text: f"return {text}", expression)
        return head + indented([*frame.declarations, *body]), type_vars


def _decorator(p: Printing, func: Function) -> str:
    options = []
    if not func.is_pure:
        options.append("pure=False")
    if "global_symbol" not in func.attrs and len(p.functions) == 1:
        options.append("private=True")
    name = f"@{p.mark('R')}.function"
    return f"{name}({', '.join(options)})" if options else name


def _parameter(p: Printing, param: Var) -> str:
    # an earlier type may have mentioned a scalar parameter
    ty = type_text(p, param.ty)
    name = p.names.find(param) or p.names.define(param, param.name)
    p.functions[-1].shown.add(param)
    return f"{name}: {ty}"


def _local_function(p: Printing, var: Var, func: Function) -> list[str]:
    """Print a local function with the header of a page of its own, as TVM does."""
    name = p.names.define(var, var.name)
    lines, type_vars = function(p, func, name)
    # the blank line of the header is indented, the one behind the function is not
    return [*(line or INDENTED_BLANK for line in header(p, type_vars)), *lines, ""]


def header(p: Printing, type_vars: list[str]) -> list[str]:
    """Return the comment lines that say what a page needs, a blank line, and its TypeVars."""
    if p.use_pep695:
        type_vars = []
    lines = []
    if type_vars:
        lines.append("# from typing import TypeVar")
    if "I" in p.languages:
        lines.append("# from tvm.script import ir as I")
    if "T" in p.languages:
        lines.append("# from tvm.script import tirx as T")
        lines.append("# from tvm.tirx.layout import Axis")
    if "R" in p.languages:
        lines.append("# from tvm.script import relax as R")
    lines.append("")
    lines += [f'{name} = TypeVar("{name}")' for name in type_vars]
    return lines


# ---------------------------------------------------------------- blocks, bindings


def _body(
    p: Printing,
    body: SeqExpr,
    finish: Callable[[str], str],
    text: Callable[[Printing, Expr], str],
) -> list[str]:
    lines: list[str] = []
    for each in body.blocks:
        printed = block(p, each)
        lines += p.take_pending() + printed
    last = finish(text(p, body.body))
    return [*lines, *p.take_pending(), last]


def seq(p: Printing, body: SeqExpr) -> list[str]:
    """Return the lines of a sequence, its result on the last one."""
    return _body(p, body, lambda text: text, expression)


def block(p: Printing, bindings: BindingBlock) -> list[str]:
    """Return the lines of a block."""
    lines = [line for each in bindings.bindings for line in binding(p, each)]
    if not isinstance(bindings, DataflowBlock):
        return lines
    names = ", ".join(
        scalar(p, each.var)
        for each in bindings.bindings
        if isinstance(each, VarBinding | MatchCast) and not isinstance(each.var, DataflowVar)
    )
    lines.append(f"{p.mark('R')}.output({names})")
    return [f"with {p.mark('R')}.dataflow():", *indented(lines)]


def binding(p: Printing, each: Binding) -> list[str]:
    """Return the lines of a binding; more than one for an If or a local function."""
    match each:
        case MatchCast():
            ty = type_text(p, each.ty)
            value = expression(p, each.value)
            annotation = "" if each.var.ty is None else f": {type_text(p, each.var.ty)}"
            name = p.names.define(each.var, each.var.name)
            return [f"{name}{annotation} = {p.mark('R')}.match_cast({value}, {ty})"]
        case VarBinding(value=Function() as func):
            return _local_function(p, each.var, func)
        case VarBinding(value=If() as value):
            return choice(p, value, each.var)
        case VarBinding():
            return [_var_binding(p, each.var, each.value)]
        case _:
            raise TypeError(f"no text for a binding of kind {type(each).__name__}")


def _var_binding(p: Printing, var: Var, value: Expr) -> str:
    if is_void(var.ty) and is_void(value.ty):
        return expression(p, value)
    if var.ty is None or _says_its_type(var.ty, value):
        annotation = ""
    else:
        annotation = f": {type_text(p, var.ty)}"
    text = _bound_value(p, value)
    return f"{p.names.define(var, var.name)}{annotation} = {text}"


def _bound_value(p: Printing, value: Expr) -> str:
    """Print a tuple of several fields without its parentheses, as ``a, b``."""
    if isinstance(value, Tuple) and len(value.fields) > 1:
        return ", ".join(expression(p, field) for field in value.fields)
    return expression(p, value)


def _says_its_type(ty: Type, value: Expr) -> bool:
    """Whether the value's own ``out_ty=`` makes an annotation superfluous."""
    if not isinstance(value, Call) or not isinstance(value.op, Op):
        return False
    if value.op.name not in _NAMED_BY_OUT_TY or not value.ty_args:
        return False
    return structural_equal(value.ty_args[0], ty)


def choice(p: Printing, each: If, var: Var | None = None) -> list[str]:
    """Return the lines of an If; its value is bound to ``var`` in both branches."""
    condition = expression(p, each.cond)
    target = ""
    if var is not None:
        annotation = "" if var.ty is None else f": {type_text(p, var.ty)}"
        target = f"{p.names.define(var, var.name)}{annotation} = "
    lines = [f"if {condition}:", *_branch(p, each.true_branch, target)]
    return [*lines, "else:", *_branch(p, each.false_branch, target)]


def _branch(p: Printing, branch: Expr, target: str) -> list[str]:
    pending, p.pending = p.pending, []
    body = branch if isinstance(branch, SeqExpr) else SeqExpr((), branch)
    with p.names.scope():
        if target:
            lines = _body(p, body, lambda text: target + text, _bound_value)
        else:
            lines = seq(p, body)
    p.pending = pending
    return indented(lines)


# ---------------------------------------------------------------- expressions


def expression(p: Printing, expr: Expr) -> str:
    """Return the text of an expression that is an argument, a field or a result."""
    if isinstance(expr, IntImm) and not (expr.dtype.is_bool or expr.dtype is p.bare):
        return f"{p.mark('T')}.{expr.dtype}({expr.value})"
    return scalar(p, expr)


def _arguments(p: Printing, args: Sequence[Expr]) -> list[str]:
    return [expression(p, arg) for arg in args]


def _tuple(p: Printing, expr: Tuple) -> tuple[str, int]:
    if not expr.fields:
        return f"{p.mark('R')}.tuple()", ATOM
    return tuple_text(_arguments(p, expr.fields)), ATOM


def _tuple_get_item(p: Printing, expr: TupleGetItem) -> tuple[str, int]:
    return f"{expression(p, expr.tuple_value)}[{expr.index}]", ATOM


def _shape(p: Printing, expr: ShapeExpr) -> tuple[str, int]:
    values = ", ".join(scalar(p, value) for value in expr.values)
    return f"{p.mark('R')}.shape([{values}])", ATOM


def _string(p: Printing, expr: StringImm) -> tuple[str, int]:
    text = string_text(expr.value)
    return (f"{p.mark('R')}.str({text})" if p.in_relax else text), ATOM


def _const(p: Printing, expr: GenericConst) -> tuple[str, int]:
    value = expr.value
    if isinstance(value, DataType):
        return f'{p.mark("R")}.dtype("{value}")', ATOM
    array = value.numpy() if hasattr(value, "numpy") else None
    if array is not None and array.ndim == 0:
        dtype = str(value.dtype)
        if dtype in _SHOWN_DTYPES:
            item = array.item()
            text = float_text(item) if isinstance(item, float) else str(item)
            return f'{p.mark("R")}.const({text}, "{dtype}")', ATOM
    return p.metadata_reference("ir.GenericConst", expr), ATOM


_SHOWN_DTYPES = frozenset(
    {"bool", "int8", "int16", "int32", "int64", "float16", "float32", "float64"}
)


def _extern_func(p: Printing, expr: ExternFunc) -> tuple[str, int]:
    return f"{p.mark('R')}.ExternFunc({string_text(expr.global_symbol)})", ATOM


def _global_var(p: Printing, expr: GlobalVar) -> tuple[str, int]:
    if not p.in_relax:
        return _scalar_global_var(p, expr)
    if p.module is None:
        return expr.name_hint, ATOM
    if p.functions:
        p.functions[-1].declare_once(f"cls = {p.module_name}")
    return f"cls.{expr.name_hint}", ATOM


# ---------------------------------------------------------------- calls


def _call(p: Printing, expr: Call) -> tuple[str, int]:
    op = expr.op
    if isinstance(op, Op):
        if not op.name.startswith("relax."):
            return _scalar_call(p, expr)
        return _CALLS.get(op.name, _op_call)(p, expr), ATOM
    if isinstance(op, ExternFunc):
        parts = [string_text(op.global_symbol), *_arguments(p, expr.args)]
        return _finish(p, "call_packed", parts, expr), ATOM
    if not p.in_relax:
        return _scalar_call(p, expr)
    parts = _arguments(p, expr.args) + _attributes(p, expr) + _ty_args(p, expr)
    return f"{expression(p, op)}({', '.join(parts)})", ATOM


def _op_call(p: Printing, expr: Call) -> str:
    op: Any = expr.op
    return _finish(p, op.name.partition(".")[2], _arguments(p, expr.args), expr)


def _finish(p: Printing, name: str, parts: list[str], expr: Call) -> str:
    everything = parts + _attributes(p, expr) + _ty_args(p, expr)
    return f"{p.mark('R')}.{name}({', '.join(everything)})"


def _attributes(p: Printing, expr: Call) -> list[str]:
    if expr.attrs is None:
        return []
    return [f"{key}={value_text(p, value)}" for key, value in expr.attrs.items()]


def _ty_args(p: Printing, expr: Call) -> list[str]:
    if not expr.ty_args:
        return []
    return [f"ty_args={tuple_text(type_text(p, ty) for ty in expr.ty_args)}"]


def _callee(p: Printing, func: Expr) -> str:
    """Return a function as an argument; one that is found by name prints as that name."""
    return string_text(func.global_symbol) if isinstance(func, ExternFunc) else expression(p, func)


def _destination_call(p: Printing, expr: Call) -> str:
    """Print ``R.call_tir(f, (args,), out_ty=..., tir_vars=...)`` and its siblings."""
    op: Any = expr.op
    func, args, *tir_vars = expr.args
    parts = [_callee(p, func), expression(p, args)]
    attributes = _attributes(p, expr)
    out = ""
    if expr.ty_args:
        ty = expr.ty_args[0]
        if isinstance(ty, TupleType) and len(ty.fields) != 1:
            out = f"[{', '.join(type_text(p, field) for field in ty.fields)}]"
        else:
            out = type_text(p, ty)
    parts += [f"out_ty={out}", *attributes, *(f"tir_vars={expression(p, v)}" for v in tir_vars)]
    return f"{p.mark('R')}.{op.name.partition('.')[2]}({', '.join(parts)})"


def _packed_call(p: Printing, expr: Call) -> str:
    """Print a call whose first argument is a function found by name."""
    op: Any = expr.op
    func, *args = expr.args
    return _finish(p, op.name.partition(".")[2], [_callee(p, func), *_arguments(p, args)], expr)


def _print(p: Printing, expr: Call) -> str:
    fmt, *values = expr.args
    parts = [*_arguments(p, values), f"format={expression(p, fmt)}"]
    return _finish(p, "print", parts, expr)


def _assert_op(p: Printing, expr: Call) -> str:
    condition, fmt, *values = expr.args
    parts = [*_arguments(p, (condition, *values)), f"format={expression(p, fmt)}"]
    return _finish(p, "assert_op", parts, expr)


def _hint_on_device(p: Printing, expr: Call) -> str:
    attrs: Mapping[str, Any] = expr.attrs or {}
    device = f"{p.mark('R')}.device(device_type={attrs['device_type']}, index={attrs['index']})"
    parts = [expression(p, expr.args[0]), device, string_text(attrs["memory_scope"])]
    return f"{p.mark('R')}.hint_on_device({', '.join(parts)})"


#: Operators whose ``out_ty=`` says the type of the result.
_OUT_TY = frozenset(
    f"relax.{name}"
    for name in ("call_dps_packed", "call_tir", "call_tir_inplace", "call_tir_with_grad")
)
#: Those whose variable needs no annotation beside it.
_NAMED_BY_OUT_TY = frozenset({"relax.call_dps_packed", "relax.call_tir"})
_CALLS: dict[str, Callable[[Printing, Call], str]] = {
    **dict.fromkeys(_OUT_TY, _destination_call),
    "relax.assert_op": _assert_op,
    "relax.call_builtin_with_ctx": _packed_call,
    "relax.call_inplace_packed": _packed_call,
    "relax.call_pure_packed": _packed_call,
    "relax.hint_on_device": _hint_on_device,
    "relax.print": _print,
}

_scalar_call = SCALARS[Call]
_scalar_global_var = SCALARS[GlobalVar]
SCALARS.update(
    {
        DataflowVar: SCALARS[Var],
        Call: _call,
        ExternFunc: _extern_func,
        GenericConst: _const,
        GlobalVar: _global_var,
        ShapeExpr: _shape,
        StringImm: _string,
        Tuple: _tuple,
        TupleGetItem: _tuple_get_item,
    }
)
