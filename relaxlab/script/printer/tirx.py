"""Kernels as TVMScript: PrimFunc, then the statements in the order of ``tirx/stmt.py``.

The root block of a function is not written out when the parser would add the same one; a comment
stands for it.
"""

from collections.abc import Callable
from typing import Any

from relaxlab.ir.expr import Call, Expr, Var
from relaxlab.ir.node import Node, children, structural_equal
from relaxlab.ir.prim import IntImm
from relaxlab.ir.prim_ops import add
from relaxlab.ir.type import is_void
from relaxlab.script.printer.ir import (
    TYPES,
    dimensions,
    element_text,
    is_variable,
    region_text,
    scalar,
    symbolic_vars,
    tuple_text,
    type_text,
)
from relaxlab.script.printer.lines import INDENT, indented
from relaxlab.script.printer.literal import string_text
from relaxlab.script.printer.state import FunctionFrame, Printing
from relaxlab.script.printer.value import value_text
from relaxlab.tirx.buffer import BufferType, buffer_type
from relaxlab.tirx.function import PrimFunc
from relaxlab.tirx.stmt import (
    AllocBuffer,
    AssertStmt,
    AttrStmt,
    Bind,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    IterVar,
    IterVarType,
    MatchBufferRegion,
    Return,
    SBlock,
    SBlockRealize,
    SeqStmt,
    Stmt,
    While,
)

__all__ = ["prim_func", "statements"]


# ---------------------------------------------------------------- functions, buffers


def prim_func(p: Printing, func: PrimFunc, name: str) -> tuple[list[str], list[str]]:
    """Return the lines of a kernel, decorator first, and the TypeVars it needs, sorted."""
    with p.kernel(), p.function() as frame:
        frame.params = set(func.params)
        frame.is_s_tir = bool(func.attrs.get("s_tir"))
        variables = symbolic_vars(p, (param.ty for param in func.params), func.params)
        frame.type_vars = set(variables)
        type_vars = sorted(p.names.define(var, var.name) for var in variables)
        with p.signature():
            params = [_with_declarations(p, frame, param) for param in func.params]
        result = "" if is_void(func.ret_type) else f" -> {type_text(p, func.ret_type)}"
        generic = f"[{', '.join(type_vars)}]" if p.use_pep695 and type_vars else ""
        lines = [
            _decorator(p, func),
            f"def {name}{generic}({', '.join(params)}){result}:",
        ]
        body = _body(p, func.body)
        lines += indented(frame.declarations)
        shown = {k: v for k, v in func.attrs.items() if k != "s_tir" and not _is_name(k, v, name)}
        if shown:
            lines.append(f"{INDENT}{p.mark('T')}.func_attr({value_text(p, shown)})")
        return lines + indented(body), type_vars


def _with_declarations(p: Printing, frame: FunctionFrame, param: Var) -> str:
    """Return a parameter; what it defines for the body is declared in one line."""
    before = len(frame.declarations)
    text = _parameter(p, param)
    if len(frame.declarations) - before > 1:
        pairs = [line.partition(" = ")[::2] for line in frame.declarations[before:]]
        names, values = (", ".join(part) for part in zip(*pairs, strict=True))
        frame.declarations[before:] = [f"{names} = {values}"]
    return text


def _is_name(key: str, value: object, name: str) -> bool:
    return key == "global_symbol" and value == name


def _decorator(p: Printing, func: PrimFunc) -> str:
    options = []
    if "global_symbol" not in func.attrs:
        options.append("private=True")
    if func.attrs.get("s_tir"):
        options.append("s_tir=True")
    name = f"@{p.mark('T')}.prim_func"
    return f"{name}({', '.join(options)})" if options else name


def _parameter(p: Printing, param: Var) -> str:
    # an earlier buffer may have mentioned a scalar parameter
    name = p.names.find(param) or p.names.define(param, param.name)
    p.functions[-1].shown.add(param)
    if isinstance(param.ty, BufferType):
        offset = param.ty.elem_offset
        if isinstance(offset, Var) and _is_its_own(p, offset):
            p.names.call(offset, f"{name}.elem_offset")
        arguments = _buffer_arguments(p, param.ty, dtype_always=True)
        return f"{name}: {p.mark('T')}.Buffer({', '.join(arguments)})"
    return f"{name}: {type_text(p, param.ty)}"


def _is_its_own(p: Printing, offset: Var) -> bool:
    """Say whether an offset is a variable that the parameter itself defines."""
    frame = p.functions[-1]
    return offset not in frame.params | frame.type_vars and p.names.find(offset) is None


def _buffer_arguments(p: Printing, ty: BufferType, dtype_always: bool = False) -> list[str]:
    """Return what a buffer's constructor is given; float32 and other defaults are left out."""
    parts = [tuple_text(dimensions(p, ty.shape))]
    if dtype_always or str(ty.dtype) != "float32":
        parts.append(f'"{ty.dtype}"')
    # only dimensions are quoted in a signature
    if ty.strides:
        parts.append(f"strides={tuple_text(scalar(p, stride) for stride in ty.strides)}")
    offset = None if ty.elem_offset is None else scalar(p, ty.elem_offset)
    is_own = offset is not None and offset.endswith(".elem_offset")
    if offset is not None and not is_own:
        parts.append(f"elem_offset={offset}")
    if ty.storage_scope not in ("", "global"):
        parts.append(f'scope="{ty.storage_scope}"')
    if ty.data_alignment != 64:
        parts.append(f"align={ty.data_alignment}")
    if ty.offset_factor != 1 or is_own:
        parts.append(f"offset_factor={ty.offset_factor}")
    if not ty.has_layout and p.functions and not p.functions[-1].is_s_tir:
        parts.append("layout=None")
    return parts


def _buffer_type(p: Printing, ty: BufferType) -> str:
    return f"{p.mark('T')}.Buffer({', '.join(_buffer_arguments(p, ty))})"


TYPES[BufferType] = _buffer_type


# ---------------------------------------------------------------- statements


def _body(p: Printing, body: Stmt) -> list[str]:
    if isinstance(body, SBlockRealize) and _is_implicit_root(body):
        block = body.block
        lines = ['# with T.sblock("root"):']
        lines += [_alloc_in_block(p, buffer) for buffer in block.alloc_buffers]
        return lines + statements(p, block.body)
    return statements(p, body)


def _is_implicit_root(realize: SBlockRealize) -> bool:
    """Whether the parser adds this very block when it is not written out."""
    block = realize.block
    if (
        block.iter_vars
        or block.reads
        or block.writes
        or block.annotations
        or block.match_buffers
        or block.init is not None
        or not _is_true(realize.predicate)
    ):
        return False
    if block.alloc_buffers:
        return True
    if isinstance(block.body, SBlockRealize):
        return bool(block.body.block.iter_vars)
    return _has_block(block.body)


def _has_block(node: Node) -> bool:
    stack: list[Node] = [node]
    while stack:
        node = stack.pop()
        if isinstance(node, SBlockRealize):
            return True
        stack.extend(child for child in children(node) if isinstance(child, Stmt))
    return False


def _is_true(expr: Expr) -> bool:
    return isinstance(expr, IntImm) and expr.value == 1


def statements(p: Printing, stmt: Stmt) -> list[str]:
    """Return the lines of a statement, below what has to be declared for it."""
    handler = _STATEMENTS.get(type(stmt))
    if handler is None:
        raise TypeError(f"no text for a statement of kind {type(stmt).__name__}")
    before, p.ahead = p.ahead, []
    lines = handler(p, stmt)
    lines, p.ahead = p.ahead + lines, before
    return lines


def _nested(p: Printing, stmt: Stmt) -> list[str]:
    """Return the lines of a statement in a scope of its own, indented."""
    with p.names.scope():
        return indented(statements(p, stmt))


def _for(p: Printing, loop: For) -> list[str]:
    loops = _grid(loop)
    with p.names.scope():
        # extents first: none of them mentions a variable of the grid
        extents = [scalar(p, each.extent) for each in loops]
        if len(loops) > 1:
            names = ", ".join(p.names.define(e.loop_var, e.loop_var.name) for e in loops)
            head = f"for {names} in {p.mark('T')}.grid({', '.join(extents)}):"
        else:
            domain = _domain(p, loop)
            name = p.names.define(loop.loop_var, loop.loop_var.name)
            head = f"for {name} in {domain}:"
        p.loops.extend(loops)
        body = indented(statements(p, loops[-1].body))
        del p.loops[-len(loops) :]
        return [head, *body]


def _grid(loop: For) -> list[For]:
    """Return the loops that print as one ``T.grid``."""
    loops = [loop]
    if not _is_plain(loop):
        return loops
    while True:
        inner = loops[-1].body
        if not isinstance(inner, For) or not _is_plain(inner):
            return loops
        if _mentions(inner.extent, {each.loop_var for each in loops}):
            return loops
        loops.append(inner)


def _is_plain(loop: For) -> bool:
    return (
        loop.kind is ForKind.SERIAL
        and loop.thread_binding is None
        and not loop.annotations
        and _is_literal_zero(loop.min)
    )


def _is_literal_zero(expr: Expr) -> bool:
    return isinstance(expr, IntImm) and expr.value == 0


def _mentions(node: Node, variables: set[Var]) -> bool:
    return node in variables or any(_mentions(child, variables) for child in children(node))


_LOOP_KINDS = {
    ForKind.SERIAL: "serial",
    ForKind.PARALLEL: "parallel",
    ForKind.VECTORIZED: "vectorized",
    ForKind.UNROLLED: "unroll",
    ForKind.THREAD_BINDING: "thread_binding",
}


def _domain(p: Printing, loop: For) -> str:
    if _is_literal_zero(loop.min):
        parts = [scalar(p, loop.extent)]
    else:
        parts = [scalar(p, loop.min), scalar(p, add(loop.min, loop.extent))]
    if loop.thread_binding is not None:
        parts.append(f"thread={string_text(loop.thread_binding.thread_tag)}")
    if loop.annotations:
        parts.append(f"annotations={value_text(p, loop.annotations)}")
    if loop.kind is ForKind.SERIAL and not loop.annotations:
        return f"range({', '.join(parts)})"
    return f"{p.mark('T')}.{_LOOP_KINDS[loop.kind]}({', '.join(parts)})"


# ---------------------------------------------------------------- blocks


def _sblock_realize(p: Printing, realize: SBlockRealize) -> list[str]:
    return _block(p, realize.block, realize)


def _sblock(p: Printing, block: SBlock) -> list[str]:
    return _block(p, block, None)


def _block(p: Printing, block: SBlock, realize: SBlockRealize | None) -> list[str]:
    t = p.mark("T")
    with p.names.scope():
        lines = _axes(p, block, realize.iter_values if realize else None)
        if realize is not None and not _is_true(realize.predicate):
            lines.append(f"{t}.where({scalar(p, realize.predicate)})")
        # the regions mention the block's own buffers, which are declared below them
        for buffer in (*block.alloc_buffers, *(match.buffer for match in block.match_buffers)):
            p.names.define(buffer, buffer.name)
        lines.append(f"{t}.reads({', '.join(region_text(p, region) for region in block.reads)})")
        lines.append(f"{t}.writes({', '.join(region_text(p, region) for region in block.writes)})")
        if block.annotations:
            lines.append(f"{t}.sblock_attr({value_text(p, block.annotations)})")
        lines += [_alloc_in_block(p, buffer) for buffer in block.alloc_buffers]
        lines += [_match_buffer(p, match) for match in block.match_buffers]
        if block.init is not None:
            lines.append(f"with {t}.init():")
            lines += _nested(p, block.init)
        lines += statements(p, block.body)
    return [f"with {t}.sblock({string_text(block.name_hint)}):", *indented(lines)]


def _alloc_in_block(p: Printing, buffer: Var) -> str:
    name = p.names.find(buffer) or p.names.define(buffer, buffer.name)
    arguments = _buffer_arguments(p, buffer_type(buffer))
    return f"{name} = {p.mark('T')}.sblock_alloc_buffer({', '.join(arguments)})"


def _match_buffer(p: Printing, match: MatchBufferRegion) -> str:
    name = p.names.find(match.buffer) or p.names.define(match.buffer, match.buffer.name)
    arguments = [region_text(p, match.source), *_buffer_arguments(p, buffer_type(match.buffer))]
    return f"{name} = {p.mark('T')}.match_buffer({', '.join(arguments)})"


_AXIS_KINDS = {
    IterVarType.DATA_PAR: "spatial",
    IterVarType.COMM_REDUCE: "reduce",
    IterVarType.ORDERED: "scan",
    IterVarType.OPAQUE: "opaque",
}


def _axes(p: Printing, block: SBlock, values: tuple[Expr, ...] | None) -> list[str]:
    """Print iteration variables; two or more bound straight to loops in a row are one remap."""
    lines: list[str] = []
    run: list[tuple[IterVar, Expr]] = []

    def flush() -> None:
        if len(run) == 1:
            lines.append(_axis(p, *run[0]))
        elif run:
            kinds = "".join("S" if v.iter_type is IterVarType.DATA_PAR else "R" for v, _ in run)
            names = ", ".join(p.names.define(v.var, v.var.name) for v, _ in run)
            loops = ", ".join(scalar(p, value) for _, value in run)
            lines.append(f'{names} = {p.mark("T")}.axis.remap("{kinds}", [{loops}])')
        run.clear()

    for index, iter_var in enumerate(block.iter_vars):
        value = None if values is None else values[index]
        if value is not None and _is_remap(p, iter_var, value):
            run.append((iter_var, value))
        else:
            flush()
            lines.append(_axis(p, iter_var, value))
    flush()
    return lines


def _is_remap(p: Printing, iter_var: IterVar, value: Expr) -> bool:
    """Whether the variable has the very domain of the loop that it is bound to."""
    if iter_var.iter_type not in (IterVarType.DATA_PAR, IterVarType.COMM_REDUCE):
        return False
    for loop in p.loops:
        if loop.loop_var is value:
            return (
                _is_literal_zero(iter_var.dom.min)
                and structural_equal(loop.min, iter_var.dom.min)
                and structural_equal(loop.extent, iter_var.dom.extent)
            )
    return False


def _axis(p: Printing, iter_var: IterVar, value: Expr | None) -> str:
    low, extent = iter_var.dom.min, iter_var.dom.extent
    if _is_literal_zero(low):
        domain = scalar(p, extent)
    else:
        domain = f"({scalar(p, low)}, {scalar(p, add(low, extent))})"
    bound = "" if value is None else f", {scalar(p, value)}"
    name = p.names.define(iter_var.var, iter_var.var.name)
    return f"{name} = {p.mark('T')}.axis.{_AXIS_KINDS[iter_var.iter_type]}({domain}{bound})"


# ---------------------------------------------------------------- the rest


def _buffer_store(p: Printing, store: BufferStore) -> list[str]:
    return [f"{element_text(p, store.buffer, store.indices)} = {scalar(p, store.value)}"]


def _seq(p: Printing, stmt: SeqStmt) -> list[str]:
    lines = []
    last = len(stmt.seq) - 1
    for index, part in enumerate(stmt.seq):
        before = stmt.seq[index - 1] if index else None
        if isinstance(part, AttrStmt) and index != last:
            lines += _enclosed(p, part)
        elif isinstance(before, AllocBuffer) and _starts(part, before.buffer):
            value = statements(p, part)[-1].partition(" = ")[2]
            lines[-1] += f" = {value}"
        else:
            lines += statements(p, part)
    return lines


def _starts(stmt: Stmt, buffer: Var) -> bool:
    """Say whether a statement gives a variable that was just made its first value."""
    return isinstance(stmt, BufferStore) and stmt.buffer is buffer and is_variable(buffer)


def _if_then_else(p: Printing, stmt: IfThenElse) -> list[str]:
    lines = [f"if {scalar(p, stmt.condition)}:", *_nested(p, stmt.then_case)]
    if stmt.else_case is not None:
        lines += ["else:", *_nested(p, stmt.else_case)]
    return lines


def _bind(p: Printing, stmt: Bind) -> list[str]:
    value = scalar(p, stmt.value)
    name = p.names.define(stmt.var, stmt.var.name)
    return [f"{name}: {p.mark('T')}.let[{type_text(p, stmt.var.ty)}] = {value}"]


def _alloc_buffer(p: Printing, stmt: AllocBuffer) -> list[str]:
    ty = buffer_type(stmt.buffer)
    if is_variable(stmt.buffer) and not stmt.annotations:
        name = p.names.define(stmt.buffer, stmt.buffer.name)
        return [f"{name}: {p.mark('T')}.{ty.dtype}"]
    constructor = "alloc_buffer"
    if ty.storage_scope in ("local", "shared"):
        constructor = f"alloc_{ty.storage_scope}"
    arguments = _buffer_arguments(p, ty)
    if constructor != "alloc_buffer":
        arguments = [a for a in arguments if not a.startswith("scope=")]
    if stmt.annotations:
        arguments.append(f"annotations={value_text(p, stmt.annotations)}")
    name = p.names.define(stmt.buffer, stmt.buffer.name)
    return [f"{name} = {p.mark('T')}.{constructor}({', '.join(arguments)})"]


def _decl_buffer(p: Printing, stmt: DeclBuffer) -> list[str]:
    ty = buffer_type(stmt.buffer)
    arguments = _buffer_arguments(p, ty)
    if stmt.data is not None:
        # behind the dtype, before the options
        arguments.insert(1 + (str(ty.dtype) != "float32"), f"data={scalar(p, stmt.data)}")
    name = p.names.define(stmt.buffer, stmt.buffer.name)
    return [f"{name} = {p.mark('T')}.decl_buffer({', '.join(arguments)})"]


def _assert(p: Printing, stmt: AssertStmt) -> list[str]:
    parts = ", ".join(string_text(part) for part in stmt.message_parts)
    return [f"assert {scalar(p, stmt.condition)}, ({string_text(stmt.error_kind)}, [{parts}])"]


def _attr(p: Printing, stmt: AttrStmt) -> list[str]:
    """Print a region that reaches to the end of the statements around it."""
    head, name, body = _region_head(p, stmt)
    return [f"{name} = {head}" if name else head, *statements(p, body)]


def _enclosed(p: Printing, stmt: AttrStmt) -> list[str]:
    """Print a region that ends before other statements do."""
    with p.names.scope():
        head, name, body = _region_head(p, stmt)
        return [f"with {head} as {name}:" if name else f"with {head}:", *_nested(p, body)]


def _region_head(p: Printing, stmt: AttrStmt) -> tuple[str, str, Stmt]:
    """Return what opens a region, the name it gives to a thread index, and the statements."""
    t = p.mark("T")
    if isinstance(stmt.node, IterVar) and stmt.attr_key == "thread_extent":
        extent = scalar(p, stmt.value)
        name = p.names.define(stmt.node.var, stmt.node.var.name)
        tag = string_text(stmt.node.thread_tag)
        return f"{t}.launch_thread({tag}, {extent})", name, stmt.body
    pairs: dict[str, Expr] = {}
    inner: Stmt = stmt
    while isinstance(inner, AttrStmt) and _is_zero(inner.node) and inner.attr_key not in pairs:
        pairs[inner.attr_key] = inner.value
        inner = inner.body
    if pairs:
        text = ", ".join(f"{string_text(key)}: {value_text(p, v)}" for key, v in pairs.items())
        return f"{t}.attr({{{text}}})", "", inner
    node, value = value_text(p, stmt.node), value_text(p, stmt.value)
    return f"{t}.attr({node}, {string_text(stmt.attr_key)}, {value})", "", stmt.body


def _is_zero(node: object) -> bool:
    return isinstance(node, IntImm) and node.value == 0 and str(node.dtype) == "int32"


def _while(p: Printing, stmt: While) -> list[str]:
    return [f"while {scalar(p, stmt.condition)}:", *_nested(p, stmt.body)]


def _evaluate(p: Printing, stmt: Evaluate) -> list[str]:
    text = scalar(p, stmt.value)
    return [text if isinstance(stmt.value, Call) else f"{p.mark('T')}.evaluate({text})"]


def _return(p: Printing, stmt: Return) -> list[str]:
    return [f"return {scalar(p, stmt.value)}"]


_STATEMENTS: dict[type[Stmt], Callable[[Printing, Any], list[str]]] = {
    For: _for,
    SBlockRealize: _sblock_realize,
    SBlock: _sblock,
    BufferStore: _buffer_store,
    SeqStmt: _seq,
    IfThenElse: _if_then_else,
    Bind: _bind,
    AllocBuffer: _alloc_buffer,
    DeclBuffer: _decl_buffer,
    AssertStmt: _assert,
    AttrStmt: _attr,
    While: _while,
    Evaluate: _evaluate,
    Return: _return,
}
