"""A whole page: the header, the TypeVars, the module or function, the metadata.

``script`` prints modules and functions as files; ``text`` prints any node as ``str`` shows it.
Both are what ``IRModule.script`` and ``repr`` find in the printers' registry.
"""

from collections.abc import Mapping
from typing import Any

from relaxlab.ir.expr import Call, Expr, GlobalVar, Tuple, TupleGetItem
from relaxlab.ir.global_info import DummyGlobalInfo, GlobalInfo, VDevice
from relaxlab.ir.module import BaseFunc, IRModule
from relaxlab.ir.node import Node
from relaxlab.ir.op import Op
from relaxlab.ir.prim import Range, TensorRegion
from relaxlab.ir.prim_ops import add
from relaxlab.ir.type import AnyType, FuncType, Type
from relaxlab.relax.expr import (
    Binding,
    BindingBlock,
    ExternFunc,
    Function,
    GenericConst,
    If,
    SeqExpr,
    StringImm,
)
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import ShapeType, TensorType
from relaxlab.script.printer import relax, tirx
from relaxlab.script.printer.ir import region_text, scalar, type_text
from relaxlab.script.printer.lines import INDENTED_BLANK, indented
from relaxlab.script.printer.literal import string_text
from relaxlab.script.printer.metadata import metadata_text
from relaxlab.script.printer.state import Printing
from relaxlab.script.printer.value import target_fields, value_text
from relaxlab.tirx.function import PrimFunc
from relaxlab.tirx.stmt import IterVar, MatchBufferRegion, Stmt

__all__ = ["script", "text"]


def script(
    node: IRModule | Node,
    *,
    show_meta: bool = False,
    name: str | None = None,
    extra_config: Mapping[str, Any] | None = None,
) -> str:
    """Return a module or a function as TVMScript, anything else as ``str`` shows it.

    Parameters
    ----------
    node
        What to print.
    show_meta
        Whether constants without a text of their own are written out in front; otherwise a
        comment at the end says that they are missing.
    name
        Name of the class (default ``Module``) or of the function.
    extra_config
        ``"script.use_pep695": True`` writes symbolic variables as ``def main[n](...)`` (Python
        3.12 and later) instead of ``n = TypeVar("n")``. It is off by default, so that the text
        does not depend on the version of Python.

    Raises
    ------
    ValueError
        If an option is unknown.
    """
    options = dict(extra_config or {})
    p = Printing(use_pep695=bool(options.pop("script.use_pep695", False)))
    if options:
        raise ValueError(f"unknown printer options: {', '.join(sorted(options))}")
    if isinstance(node, IRModule):
        p.module, p.module_name = node, name or "Module"
        lines = _module(p, node)
    elif isinstance(node, Function | PrimFunc):
        lines = _function(p, node, name)
    else:
        lines = _any(p, node)
    if p.metadata and show_meta:
        lines = [metadata_text(p.metadata), *lines]
    elif p.metadata:
        # a page has a blank line before the comment, a single node has not
        lines += [""] if isinstance(node, IRModule | Function | PrimFunc) else []
        lines.append("# Metadata omitted. Use show_meta=True in script() method to show it.")
    page = "\n".join(lines)
    return page.replace(INDENTED_BLANK, "")


def text(node: Any) -> str:
    """Return any node as ``str`` shows it."""
    return script(node)


# ---------------------------------------------------------------- modules, functions


def _module(p: Printing, mod: IRModule) -> list[str]:
    p.names.reserve(p.module_name)
    body: list[str] = []
    if mod.attrs:
        body.append(f"{p.mark('I')}.module_attrs({value_text(p, mod.attrs)})")
    if mod.global_infos:
        body.append(f"{p.mark('I')}.module_global_infos({_global_infos(p, mod)})")
    type_vars: dict[str, None] = {}
    functions = sorted(mod.functions.items(), key=_order)
    after_definition = False
    for gvar, func in functions:
        lines, names = _printed(p, func, gvar.name_hint)
        type_vars.update(dict.fromkeys(names))
        body += ([""] if after_definition else []) + lines
        after_definition = not isinstance(func, ExternFunc)
    if not body:
        body.append("pass")
    p.mark("I")
    page = relax.header(p, list(type_vars))
    page += ["@I.ir_module", f"class {p.module_name}:"]
    return _future(p) + page + indented(body)


def _order(item: tuple[GlobalVar, BaseFunc]) -> tuple[bool, int, str]:
    """Kernels, then external functions, then Relax functions, each by name; main last."""
    gvar, func = item
    kind = 0 if isinstance(func, PrimFunc) else 1 if isinstance(func, ExternFunc) else 2
    return (gvar.name_hint == "main", kind, gvar.name_hint)


def _printed(p: Printing, func: BaseFunc, name: str) -> tuple[list[str], list[str]]:
    match func:
        case PrimFunc():
            return tirx.prim_func(p, func, name)
        case Function():
            return relax.function(p, func, name)
        case ExternFunc():
            with p.relax():
                return [f"{name} = {scalar(p, func)}"], []
        case _:
            raise TypeError(f"no text for a function of kind {type(func).__name__}")


def _function(p: Printing, func: Function | PrimFunc, name: str | None) -> list[str]:
    lines, type_vars = _printed(p, func, name or func.attrs.get("global_symbol") or "main")
    return _future(p) + relax.header(p, type_vars) + lines


def _future(p: Printing) -> list[str]:
    return ["from __future__ import annotations", ""] if p.use_pep695 else []


def _global_infos(p: Printing, mod: IRModule) -> str:
    pairs = []
    for key in sorted(mod.global_infos):
        infos = ", ".join(_global_info(p, info) for info in mod.global_infos[key])
        pairs.append(f"{string_text(key)}: [{infos}]")
    return f"{{{', '.join(pairs)}}}"


def _global_info(p: Printing, info: GlobalInfo) -> str:
    match info:
        case VDevice():
            target = value_text(p, target_fields(info.target))
            scope = string_text(info.memory_scope)
            return f"I.vdevice({target}, {info.vdevice_id}, {scope})"
        case DummyGlobalInfo():
            return "I.dummy_global_info()"
        case _:
            raise TypeError(f"no text for a global info of kind {type(info).__name__}")


# ---------------------------------------------------------------- single nodes

#: What prints in Relax's way when it stands alone; the rest prints in that of kernels.
_RELAX = (
    AnyType,
    Binding,
    BindingBlock,
    FuncType,
    GenericConst,
    If,
    SeqExpr,
    ShapeExpr,
    ShapeType,
    StringImm,
    TensorType,
    Tuple,
    TupleGetItem,
    ExternFunc,
)


def _any(p: Printing, node: Any) -> list[str]:
    if isinstance(node, _RELAX) or (isinstance(node, Call) and _is_relax_call(node)):
        with p.relax():
            return _lines(p, node)
    return _lines(p, node)


def _is_relax_call(call: Call) -> bool:
    return not isinstance(call.op, Op) or call.op.name.startswith("relax.")


def _lines(p: Printing, node: Any) -> list[str]:
    """Print a node; statements come with declarations of what they use, expressions do not."""
    match node:
        case Binding():
            return _with_pending(p, relax.binding(p, node))
        case BindingBlock():
            return _with_pending(p, relax.block(p, node))
        case SeqExpr():
            return relax.seq(p, node)
        case If():
            return _with_pending(p, relax.choice(p, node))
        case Stmt():
            return _with_pending(p, tirx.statements(p, node))
        case GlobalVar():
            return [f"I.GlobalVar({string_text(node.name_hint)})"]
        case Op():
            return [f"Op({string_text(node.name)})"]
        case Expr():
            return [scalar(p, node)]
        case Type():
            return [type_text(p, node)]
        case TensorRegion():
            return [region_text(p, node)]
        case MatchBufferRegion():
            return [f"{scalar(p, node.buffer)} = {region_text(p, node.source)}"]
        case Range():
            return [f"I.Range({scalar(p, node.min)}, {scalar(p, add(node.min, node.extent))})"]
        case IterVar():
            extent = scalar(p, node.dom.extent)
            kind = node.iter_type.name
            return [f"T.iter_var({scalar(p, node.var)}, {extent}, {string_text(kind)})"]
        case _:
            return [value_text(p, node)]


def _with_pending(p: Printing, lines: list[str]) -> list[str]:
    return p.take_pending() + lines
