"""Kernels: from the body of a ``T.prim_func`` to a :class:`~relaxlab.tirx.PrimFunc`.

One method for each statement of Python, one case for each description of ``kernel_parts``.
``T.attr`` and ``T.launch_thread`` without ``with`` hold to the end of the statements around them.
"""

import ast
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from relaxlab.ir import prim_ops
from relaxlab.ir.attrs import DictAttrs
from relaxlab.ir.expr import Call, Expr, GlobalVar, Var
from relaxlab.ir.global_info import VDevice
from relaxlab.ir.node import Node, children, structural_equal
from relaxlab.ir.prim import Add, IntImm, Ramp, Range, TensorLoad, TensorRegion
from relaxlab.ir.prim_intrinsics import call_intrin
from relaxlab.ir.source import Span
from relaxlab.ir.sym import Analyzer
from relaxlab.ir.type import PointerType, PrimType, TupleType, Type
from relaxlab.runtime.dtype import DataType
from relaxlab.script import kernel_parts as parts
from relaxlab.script.annotation import BufferAnnotation, to_annotation
from relaxlab.script.parser.attributes import attributes
from relaxlab.script.parser.evaluate import Evaluator
from relaxlab.script.parser.macro import Macro
from relaxlab.script.parser.regions import access_regions
from relaxlab.script.parser.scalar import SCALAR_OPERATORS
from relaxlab.script.parser.scope import Scope
from relaxlab.script.parser.signature import Signature
from relaxlab.script.parser.source import FAILURES, Source
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

__all__ = ["KernelParser"]

_INT32 = DataType("int32")
_BOOL = DataType("bool")
_TRUE = IntImm(_BOOL, 1)


@dataclass(slots=True)
class _Block:
    """A block being read."""

    name: str
    axes: list[IterVar] = field(default_factory=list)
    values: list[Expr] = field(default_factory=list)
    predicate: Expr | None = None
    reads: tuple[TensorRegion, ...] | None = None
    writes: tuple[TensorRegion, ...] | None = None
    attrs: dict[str, Any] = field(default_factory=dict)
    allocated: list[Var] = field(default_factory=list)
    matched: list[MatchBufferRegion] = field(default_factory=list)
    init: Stmt | None = None


@dataclass(slots=True)
class _ScalarCell:
    """A Python-style variable ``x = e``: a buffer of one element under a plain name."""

    buffer: Var


@dataclass(slots=True)
class _Expanded:
    """What a macro stands for where it is called as a statement."""

    statements: list[Stmt]


class KernelParser(Evaluator):
    """Parses one kernel.

    Parameters
    ----------
    source, scope, trusted
        See :class:`Evaluator`.
    """

    def __init__(self, source: Source, scope: Scope, trusted: bool) -> None:
        super().__init__(source, scope, trusted)
        self.builtins = {**self.builtins, "range": _range}
        self.signature = Signature(self, scope, _no_devices, string_dtype=_INT32)
        self.params: list[Var] = []
        self.attrs: dict[str, Any] = {}
        self.blocks: list[_Block] = []
        self.loops: dict[Var, Range] = {}
        self.whole_body: list[ast.stmt] = []

    # ------------------------------------------------------------ functions

    def function(self, node: ast.FunctionDef, options: Mapping[str, Any]) -> PrimFunc:
        """Parse a function definition; ``options`` are those of its decorator."""
        known = {"private", "check_well_formed", "s_tir"}
        if set(options) - known:
            raise self.error(node, f"T.prim_func has no option {min(set(options) - known)!r}")
        self.signature.is_s_tir = bool(options.get("s_tir"))
        with self.scope.frame():
            self.params, result = self.signature.parse(node)
            for param, arg in zip(self.params, node.args.args, strict=True):
                if not isinstance(param.ty, BufferType | PrimType | PointerType):
                    raise self.error(arg, f"a kernel has no parameter of type {param.ty}")
            self.blocks.append(_Block("root"))
            self.whole_body = [each for each in node.body if not _is_declaration(each)]
            body = self._sequence(self.statements(node.body), node)
            root = self.blocks.pop()
        given = self.attrs.get("global_symbol", node.name)
        if not isinstance(given, str):
            raise self.error(node, f"global_symbol is a name, got {given!r}")
        if not options.get("private"):
            self.attrs.setdefault("global_symbol", node.name)
        elif "global_symbol" in self.attrs:
            name = self.attrs["global_symbol"]
            raise self.error(
                node, f"a private function has no global_symbol, but {name!r} is given as it"
            )
        if options.get("s_tir"):
            self.attrs["s_tir"] = True
        span = self.source.span(node)
        body = _with_root(root, body, span)
        attrs = DictAttrs(dict(sorted(self.attrs.items())))
        return PrimFunc(tuple(self.params), body, result or TupleType(), attrs, span=span)

    def _define(self, node: ast.AST, name: str, value: Any) -> None:
        if self.scope.is_local(name):
            raise self.error(node, f"Variable {name} already defined in current scope")
        self.scope.define(name, value)

    def type_var(self, node: ast.Name, name: str) -> Any:
        """Return the symbolic variable that a TypeVar stands for."""
        if not self.signature.strings_allowed:
            raise self.error(node, f"the symbolic variable {name} is not in the signature")
        return self.signature.define(name)

    # ------------------------------------------------------------ statements

    def statements(self, nodes: Sequence[ast.stmt]) -> list[Stmt]:
        """Parse statements in order; an open-ended ``T.attr`` encloses those after it."""
        result: list[Stmt] = []
        for index, node in enumerate(nodes):
            with self.refusing(node):
                opened = self._opened(node)
                if opened is not None:
                    rest = self._sequence(self.statements(nodes[index + 1 :]), node)
                    return [*result, self._enclose(opened, rest, node)]
                result.extend(self._statement(node))
        return result

    def _sequence(self, statements: list[Stmt], node: ast.AST) -> Stmt:
        flat: list[Stmt] = []
        for statement in statements:
            flat.extend(statement.seq if isinstance(statement, SeqStmt) else (statement,))
        if not flat:
            return Evaluate(IntImm(_INT32, 0), span=self.source.span(node))
        return flat[0] if len(flat) == 1 else SeqStmt(tuple(flat), span=self.source.span(node))

    def _body(self, nodes: list[ast.stmt], node: ast.AST) -> Stmt:
        with self.scope.frame():
            return self._sequence(self.statements(nodes), node)

    def _opened(self, node: ast.stmt) -> parts.Attr | parts.LaunchThread | None:
        """Return the region that a statement opens for all statements after it."""
        value = getattr(node, "value", None)
        if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
            return None
        if value.func.attr not in ("attr", "launch_thread"):
            return None
        part = self(value)
        if isinstance(part, parts.LaunchThread) and isinstance(node, ast.Assign):
            return self._named_thread(part, node.targets[0])
        return part if isinstance(part, parts.Attr | parts.LaunchThread) else None

    def _named_thread(self, part: parts.LaunchThread, target: ast.expr) -> parts.LaunchThread:
        if not isinstance(target, ast.Name) or not isinstance(part.thread, str):
            raise self.error(target, "a thread index needs a name and a tag")
        extent = prim_ops.as_operand(part.extent)
        var = Var(target.id, extent.ty)
        self._define(target, target.id, var)
        domain = Range(IntImm(extent.dtype, 0), extent)
        index = IterVar(domain, var, IterVarType.THREAD_INDEX, part.thread)
        return parts.LaunchThread(index, extent)

    def _enclose(self, part: parts.Attr | parts.LaunchThread, body: Stmt, node: ast.AST) -> Stmt:
        span = self.source.span(node)
        if isinstance(part, parts.LaunchThread):
            if not isinstance(part.thread, IterVar):
                raise self.error(node, "write bx = T.launch_thread(tag, extent)")
            extent = prim_ops.as_operand(part.extent)
            return AttrStmt(part.thread, "thread_extent", extent, body, span=span)
        for owner, key, value in reversed(part.pairs):
            body = AttrStmt(_attr_node(owner), key, _attr_value(value), body, span=span)
        return body

    def _statement(self, node: ast.stmt) -> list[Stmt]:
        match node:
            case ast.Expr():
                return self._expression(node)
            case ast.Assign(targets=[target]):
                return self._assign(node, target)
            case ast.AugAssign():
                return self._augmented(node)
            case ast.AnnAssign():
                return self._annotated(node)
            case ast.For():
                return [self._for(node)]
            case ast.While():
                condition = self.scalar(node.test)
                body = self._body(node.body, node)
                return [While(condition, body, span=self.source.span(node))]
            case ast.If():
                return self._choice(node)
            case ast.With():
                return self._with(node)
            case ast.Assert():
                return [self._assert(node)]
            case ast.Return():
                if node.value is None:
                    return []
                return [Return(self.scalar(node.value), span=self.source.span(node))]
            case ast.Pass():
                return []
            case ast.Break() | ast.Continue():
                name = "break_loop" if isinstance(node, ast.Break) else "continue_loop"
                return [self._evaluate(call_intrin("int32", f"tirx.{name}"), node)]
            case _:
                raise self.error(node, f"{type(node).__name__} is not supported in a kernel")

    def _evaluate(self, value: Expr, node: ast.AST) -> Stmt:
        return Evaluate(value, span=self.source.span(node))

    def _expression(self, node: ast.Expr) -> list[Stmt]:
        value = self(node.value)
        if isinstance(value, _Expanded):
            return value.statements
        span = self.source.span(node)
        match value:
            case parts.FuncAttr():
                self.attrs.update(attributes(value.attrs))
            case parts.Where():
                self.blocks[-1].predicate = value.predicate
            case parts.Reads():
                self.blocks[-1].reads = self._regions(value.regions, node)
            case parts.Writes():
                self.blocks[-1].writes = self._regions(value.regions, node)
            case parts.BlockAttr():
                self.blocks[-1].attrs.update(attributes(value.attrs))
            case parts.Eval():
                return [Evaluate(self._to_scalar(value.value, node), span=span)]
            case parts.Store():
                store = self._store(node, value.buffer, value.indices, value.value)
                return [store]
            case str():  # a docstring
                pass
            case Expr():
                return [Evaluate(self._to_scalar(value, node), span=span)]
            case _:
                raise self.error(node, f"a value of type {type(value).__name__} does nothing here")
        return []

    # ------------------------------------------------------------ assignments

    def _assign(self, node: ast.Assign, target: ast.expr) -> list[Stmt]:
        if isinstance(target, ast.Subscript):
            return [self._store_to(node, target, self(node.value))]
        value = self(node.value)
        if isinstance(target, ast.Tuple | ast.List):
            return self._unpack(node, target.elts, value)
        if not isinstance(target, ast.Name):
            raise self.error(target, "expected a name or an element of a buffer")
        return self._name_value(node, target, value)

    def _unpack(self, node: ast.Assign, targets: list[ast.expr], value: Any) -> list[Stmt]:
        values: Sequence[Any]
        if isinstance(value, parts.Axes):
            values = [parts.Axes((axis,), value.remap) for axis in value.axes]
        elif isinstance(value, tuple | list):
            values = value
        else:
            raise self.error(node, f"a {type(value).__name__} cannot be unpacked")
        if len(values) != len(targets):
            raise self.error(node, f"{len(targets)} names for {len(values)} values")
        result = []
        for target, each in zip(targets, values, strict=True):
            if not isinstance(target, ast.Name):
                raise self.error(target, "expected a name")
            result += self._name_value(node, target, each)
        return result

    def _name_value(self, node: ast.stmt, target: ast.Name, value: Any) -> list[Stmt]:
        name, span = target.id, self.source.span(node)
        match value:
            case parts.Axes():
                self._axis(node, target, value)
                return []
            case parts.BlockAlloc():
                buffer = self._buffer(node, name, value.buffer)
                self._define(target, name, buffer)
                self.blocks[-1].allocated.append(buffer)
                return []
            case parts.Scalar():
                return [self._new_cell(node, target, value.dtype, value.scope)]
            case parts.Alloc():
                buffer = self._buffer(node, name, value.buffer)
                if value.buffer.has_layout and not self.signature.is_s_tir:
                    buffer = _as_variable(buffer)
                self._define(target, name, buffer)
                return [AllocBuffer(buffer, dict(value.annotations), span=span)]
            case parts.Decl():
                buffer = self._buffer(node, name, value.buffer)
                self._define(target, name, buffer)
                if value.data is None:
                    return [AllocBuffer(buffer, span=span)]
                return [DeclBuffer(buffer, value.data, span=span)]
            case parts.MatchBuffer():
                self._match_buffer(node, target, value)
                return []
            case Var(name="") if isinstance(node, ast.Assign):
                # ``n = T.int64()`` names a symbolic variable, which a signature may have already
                self._symbol(target, value)
                return []
            case Expr() | int() | float():
                return self._set_cell(node, target, self._to_scalar(value, node))
            case _:
                raise self.error(node, f"a {type(value).__name__} cannot be assigned to a name")

    def _symbol(self, target: ast.Name, value: Var) -> None:
        known = self.scope.find(target.id) if self.scope.is_local(target.id) else None
        if isinstance(known, Var) and known.ty == value.ty:
            return
        self._define(target, target.id, Var(target.id, value.ty, self.source.span(target)))

    def _set_cell(self, node: ast.stmt, target: ast.Name, value: Expr) -> list[Stmt]:
        """Assign to a plain name: the first time it makes a buffer of one element."""
        zero = (IntImm(_INT32, 0),)
        known = self.scope.find(target.id) if self.scope.is_local(target.id) else None
        if isinstance(known, _ScalarCell):
            return [self._store(node, known.buffer, zero, value)]
        made = self._new_cell(node, target, value.dtype)
        return [made, self._store(node, made.buffer, zero, value)]

    def _new_cell(
        self, node: ast.stmt, target: ast.Name, dtype: DataType, scope: str = "local"
    ) -> AllocBuffer:
        """Make the buffer behind a plain name."""
        # only what is local prints as a variable: its text has no place for a scope
        one = (IntImm(_INT32, 1),)
        ty = BufferType(one, dtype, storage_scope=scope, is_scalar=scope == "local")
        buffer = Var(target.id, ty, self.source.span(target))
        self._define(target, target.id, _ScalarCell(buffer))
        return AllocBuffer(buffer, span=self.source.span(node))

    def _augmented(self, node: ast.AugAssign) -> list[Stmt]:
        load = ast.copy_location(ast.BinOp(_as_load(node.target), node.op, node.value), node)
        value = self(load)
        if isinstance(node.target, ast.Subscript):
            return [self._store_to(node, node.target, value)]
        if isinstance(node.target, ast.Name):
            return self._set_cell(node, node.target, self._to_scalar(value, node))
        raise self.error(node, "expected a name or an element of a buffer")

    def _annotated(self, node: ast.AnnAssign) -> list[Stmt]:
        if not isinstance(node.target, ast.Name):
            raise self.error(node, "only a plain name can have a type")
        annotation = self(node.annotation)
        if isinstance(annotation, parts.Let):
            if node.value is None:
                raise self.error(node, "T.let needs a value")
            value = self.scalar(node.value)
            ty = value.ty
            if annotation.annotation is not None:
                ty = self._made(node.annotation, annotation.annotation)
                if ty != value.ty:
                    raise self.error(node, f"the value has type {value.ty}, not {ty}")
            var = Var(node.target.id, ty, self.source.span(node.target))
            self._define(node.target, node.target.id, var)
            return [Bind(var, value, span=self.source.span(node))]
        ty = self._made(node.annotation, annotation)
        if not isinstance(ty, PrimType):
            raise self.error(node, "Use T.let[...] for a name of a pointer")
        if node.value is None:
            return [self._new_cell(node, node.target, ty.dtype)]
        value = prim_ops.cast(ty.dtype, self.scalar(node.value))
        return self._set_cell(node, node.target, value)

    def _made(self, node: ast.expr, annotation: Any) -> Type:
        try:
            made = to_annotation(annotation)
        except TypeError as failure:
            raise self.error(node, str(failure)) from None
        return self.signature.type(node, made)

    # ------------------------------------------------------------ buffers

    def _buffer(self, node: ast.AST, name: str, annotation: BufferAnnotation) -> Var:
        try:
            ty = annotation.make(self.signature)
        except FAILURES as failure:
            raise self.error(node, str(failure)) from None
        return Var(name, ty, self.source.span(node))

    def _match_buffer(self, node: ast.AST, target: ast.Name, part: parts.MatchBuffer) -> None:
        source = part.source
        if isinstance(source, Var) and isinstance(source.ty, PointerType):
            if not any(param is source for param in self.params):
                raise self.error(node, "T.match_buffer needs a parameter of the kernel")
            buffer = self._buffer(node, target.id, replace(part.buffer, is_parameter=True))
            self._define(target, target.id, buffer)
            self.params = [buffer if param is source else param for param in self.params]
            return
        region = self._region(source, node)
        annotation = part.buffer
        if annotation.shape is None:
            shape = tuple(rng.extent for rng in region.region)
            annotation = BufferAnnotation(shape, buffer_type(region.buffer).dtype)
        buffer = self._buffer(node, target.id, annotation)
        self._define(target, target.id, buffer)
        self.blocks[-1].matched.append(MatchBufferRegion(buffer, region))

    def _store_to(self, node: ast.stmt, target: ast.Subscript, value: Any) -> Stmt:
        buffer = self(target.value)
        index = self._index(target.slice)
        if not isinstance(buffer, Var) or not isinstance(buffer.ty, BufferType):
            raise self.error(target, "only an element of a buffer can be assigned to")
        return self._store(node, buffer, index if isinstance(index, tuple) else (index,), value)

    def _store(self, node: ast.AST, buffer: Var, index: Any, value: Any) -> Stmt:
        indices = self._indices(node, buffer, index)
        dtype = buffer_type(buffer).dtype
        lanes = indices[-1].dtype.lanes if indices else 1
        try:
            converted = prim_ops.cast(
                dtype.with_lanes(dtype.lanes * lanes), self._to_scalar(value, node)
            )
        except FAILURES as failure:
            raise self.error(node, str(failure)) from None
        return BufferStore(buffer, converted, indices, span=self.source.span(node))

    def _indices(self, node: ast.AST, buffer: Var, index: tuple[Any, ...]) -> tuple[Expr, ...]:
        rank = len(buffer_type(buffer).shape)
        if len(index) != rank:
            raise self.error(
                node,
                f"BufferVar {buffer.name} is {rank}-dimensional, cannot be indexed with the "
                f"{len(index)}-dimensional indices provided.",
            )
        return tuple(self._index_value(node, each) for each in index)

    def _index_value(self, node: ast.AST, index: Any) -> Expr:
        if not isinstance(index, slice):
            value = self._to_scalar(index, node)
            if not isinstance(value.ty, PrimType) or not (
                value.dtype.is_int or value.dtype.is_uint
            ):
                raise self.error(node, f"an index is an integer, got type {value.ty}")
            return value
        start = prim_ops.as_operand(0 if index.start is None else index.start)
        extent = prim_ops.subtract(index.stop, start)
        if index.step is not None or not isinstance(extent, IntImm):
            raise self.error(node, "a slice of an access needs literal bounds and no step")
        if extent.value == 1:
            return start
        return Ramp(start, IntImm(start.dtype, 1), extent.value)

    def _regions(self, values: tuple[Any, ...], node: ast.AST) -> tuple[TensorRegion, ...]:
        return tuple(self._region(value, node) for value in values)

    def _region(self, value: Any, node: ast.AST) -> TensorRegion:
        match value:
            case TensorRegion():
                return value
            case TensorLoad():
                one = [Range(i, IntImm(i.dtype, 1)) for i in value.indices]
                return TensorRegion(value.buffer, tuple(one))
            case Var() if isinstance(value.ty, BufferType):
                whole = [Range(IntImm(d.dtype, 0), d) for d in value.ty.shape]
                return TensorRegion(value, tuple(whole))
            case _:
                raise self.error(node, f"expected a region of a buffer, got {value!r}")

    # ------------------------------------------------------------ loops, blocks, branches

    def _for(self, node: ast.For) -> Stmt:
        part = self(node.iter)
        if not isinstance(part, parts.Loops):
            raise self.error(node.iter, "expected range, T.grid, T.serial, T.parallel or the like")
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        names = []
        for target in targets:
            if not isinstance(target, ast.Name):
                raise self.error(target, "expected a name")
            names.append(target)
        if len(names) != len(part.ranges):
            raise self.error(node, f"{len(names)} loop variables for {len(part.ranges)} loops")
        with self.scope.frame():
            loops = []
            for target, (start, stop) in zip(names, part.ranges, strict=True):
                domain = _range_between(start, stop)
                var = Var(target.id, domain.min.ty, self.source.span(target))
                self._define(target, target.id, var)
                self.loops[var] = domain
                loops.append((var, domain.min, domain.extent))
            body = self._sequence(self.statements(node.body), node)
        span = self.source.span(node)
        for var, low, extent in reversed(loops):
            binding = None
            if part.thread:
                index = Var("", low.ty)
                domain = Range(low, extent)
                binding = IterVar(domain, index, IterVarType.THREAD_INDEX, part.thread)
            annotations = attributes(part.annotations)
            body = For(var, low, extent, part.kind, body, binding, annotations, span=span)
        return body

    def _choice(self, node: ast.If) -> list[Stmt]:
        test = self(node.test)
        if isinstance(test, bool):  # decided while parsing
            return self.statements(node.body if test else node.orelse)
        condition = self._to_scalar(test, node.test)
        then_case = self._body(node.body, node)
        else_case = self._body(node.orelse, node) if node.orelse else None
        return [IfThenElse(condition, then_case, else_case, span=self.source.span(node))]

    def _assert(self, node: ast.Assert) -> Stmt:
        condition = self.scalar(node.test)
        message = self(node.msg) if node.msg is not None else ""
        kind, words = ("RuntimeError", [message]) if isinstance(message, str) else message
        return AssertStmt(condition, str(kind), tuple(map(str, words)), span=self.source.span(node))

    def _with(self, node: ast.With) -> list[Stmt]:
        if len(node.items) != 1:
            raise self.error(node, "one with for one part of a kernel")
        item = node.items[0]
        part = self(item.context_expr)
        match part:
            case parts.Sblock():
                return [self._sblock(node, part)]
            case parts.Init():
                if not self.blocks[-1].name and len(self.blocks) == 1:
                    raise self.error(node, "T.init stands inside a block")
                self.blocks[-1].init = self._body(node.body, node)
                return []
            case parts.Attr():
                return [self._enclose(part, self._body(node.body, node), node)]
            case parts.LaunchThread():
                with self.scope.frame():
                    if item.optional_vars is not None:
                        part = self._named_thread(part, item.optional_vars)
                    body = self._sequence(self.statements(node.body), node)
                return [self._enclose(part, body, node)]
            case _:
                raise self.error(item.context_expr, "expected T.sblock, T.init or T.attr")

    def _sblock(self, node: ast.With, part: parts.Sblock) -> Stmt:
        if not isinstance(part.name, str):
            raise self.error(node, f"the name of a block is a string, got {part.name!r}")
        block = _Block(part.name)
        self.blocks.append(block)
        with self.scope.frame():
            body = self._sequence(self.statements(node.body), node)
        self.blocks.pop()
        reads, writes = block.reads, block.writes
        if (reads is None or writes is None) and not self._is_whole_body(node, block):
            found = access_regions(body, block.init)
            reads = found[0] if reads is None else reads
            writes = found[1] if writes is None else writes
        span = self.source.span(node)
        made = SBlock(
            tuple(block.axes),
            reads or (),
            writes or (),
            block.name,
            body,
            block.init,
            tuple(block.allocated),
            tuple(block.matched),
            block.attrs,
            span=span,
        )
        predicate = _TRUE if block.predicate is None else block.predicate
        return SBlockRealize(tuple(block.values), predicate, made, span=span)

    def _is_whole_body(self, node: ast.With, block: _Block) -> bool:
        """Whether a block is the root that the function writes out; its regions stay empty."""
        return not block.axes and self.whole_body == [node]

    def _axis(self, node: ast.stmt, target: ast.Name, part: parts.Axes) -> None:
        kind, domain, value = part.axes[0]
        bound = self._to_scalar(value, node)
        if part.remap:
            loop = self.loops.get(bound) if isinstance(bound, Var) else None
            if loop is None:
                raise self.error(node, f"T.axis.remap needs loop variables, got {bound}")
            rng = loop
        elif isinstance(domain, tuple | list):
            start = prim_ops.as_operand(domain[0])
            rng = Range(start, _range_between(*domain).extent)
        else:
            extent = prim_ops.as_operand(domain)
            rng = Range(IntImm(extent.dtype, 0), extent)
        var = Var(target.id, rng.extent.ty, self.source.span(target))
        self._define(target, target.id, var)
        self.blocks[-1].axes.append(IterVar(rng, var, kind))
        self.blocks[-1].values.append(bound)

    # ------------------------------------------------------------ scalars

    def scalar(self, node: ast.expr) -> Expr:
        """Evaluate a scalar expression."""
        return self._to_scalar(self(node), node)

    def _to_scalar(self, value: Any, node: ast.AST) -> Expr:
        match value:
            case _ScalarCell():
                return TensorLoad(value.buffer, (IntImm(_INT32, 0),))
            case TensorRegion():
                ranges = value.region
                index = tuple(
                    slice(r.min, prim_ops.add(r.min, r.extent)) if not _is_one(r.extent) else r.min
                    for r in ranges
                )
                return TensorLoad(value.buffer, self._indices(node, value.buffer, index))
            case Expr():
                return value
            case bool() | int() | float() | str():
                return prim_ops.as_operand(value)
            case _:
                raise self.error(node, f"expected a scalar, got {type(value).__name__}")

    def __call__(self, node: ast.expr) -> Any:
        """Return the value of an expression; a plain name of a kernel stands for its element."""
        value = super().__call__(node)
        if isinstance(value, _ScalarCell) and isinstance(getattr(node, "ctx", None), ast.Load):
            return TensorLoad(value.buffer, (IntImm(_INT32, 0),))
        if isinstance(value, Call) and value.span is None and isinstance(node, ast.Call):
            object.__setattr__(value, "span", self.source.span(node))
        return value

    def operate(self, node: ast.expr, name: str, *operands: Any) -> Any:
        """Return the meaning of an operator on scalars."""
        operands = tuple(self._to_scalar(operand, node) for operand in operands)
        if name == "positive":
            return operands[0]
        function = SCALAR_OPERATORS.get(name)
        if function is None:
            raise self.error(node, f"operator {name} is not supported on scalars; use T.pow")
        return function(*operands)

    def subscript(self, node: ast.Subscript, value: Any, index: Any) -> Any:
        """Return an element of a buffer, or a region where there is a slice."""
        if isinstance(value, parts.Let):
            return value[index]
        if not isinstance(value, Var) or not isinstance(value.ty, BufferType):
            return super().subscript(node, value, index)
        indices = index if isinstance(index, tuple) else (index,)
        if any(isinstance(each, slice) for each in indices):
            return TensorRegion(value, self._box(node, value, indices))
        return TensorLoad(value, self._indices(node, value, indices), span=self.source.span(node))

    def _box(self, node: ast.AST, buffer: Var, index: tuple[Any, ...]) -> tuple[Range, ...]:
        shape = buffer_type(buffer).shape
        if len(shape) != len(index):
            raise self.error(node, f"{buffer.name} has {len(shape)} dimensions, got {len(index)}")
        ranges = []
        for extent, each in zip(shape, index, strict=True):
            if not isinstance(each, slice):
                point = self._to_scalar(each, node)
                ranges.append(Range(point, IntImm(point.dtype, 1)))
                continue
            if each.step not in (None, 1):
                raise self.error(node, "Buffer slices with a non-unit step are not supported")
            stop = extent if each.stop is None else each.stop
            start = IntImm(_INT32, 0) if each.start is None else prim_ops.as_operand(each.start)
            # as in TVM, a literal start keeps its own dtype
            ranges.append(Range(start, _range_between(start, stop).extent))
        return tuple(ranges)

    def attribute(self, node: ast.Attribute, value: Any) -> Any:
        """Return an attribute of a buffer, a variable's type, or a function of the module."""
        name = node.attr
        if isinstance(value, Var) and isinstance(value.ty, BufferType):
            ty = value.ty
            known: dict[str, Any] = {
                "dtype": str(ty.dtype),
                "shape": ty.shape,
                "strides": ty.strides,
                "elem_offset": IntImm(_INT32, 0) if ty.elem_offset is None else ty.elem_offset,
            }
            if name == "data":
                pointer = PointerType(PrimType(ty.dtype), ty.storage_scope)
                return call_intrin(pointer, "tirx.buffer_data", value)
            if name in known:
                return known[name]
        if name == "ty" and isinstance(value, Expr):
            return value.ty
        if name == "dtype" and isinstance(value, Expr):
            return str(value.dtype)
        if name == "astype" and isinstance(value, Expr):
            return lambda dtype: prim_ops.cast(_dtype(dtype), value)
        return super().attribute(node, value)

    def call(self, node: ast.Call, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function of ``T``, or build a call of a function of the module."""
        if isinstance(function, GlobalVar):
            operands = tuple(self._to_scalar(arg, node) for arg in args)
            return Call(function, operands, ty=getattr(function.ty, "ret", None))
        if isinstance(function, Macro):
            if function.language != "T":
                raise self.error(node, f"{function!r} belongs to Relax functions")
            with function.expanding(self, node, args, kwargs):
                return _Expanded(self.statements(function.body))
        if not callable(function):
            raise self.error(node, f"{ast.unparse(node.func)} cannot be called")
        # a region stands for a load everywhere but in T.reads, T.writes and T.match_buffer
        return function(*args, **kwargs)


# ---------------------------------------------------------------- pieces


def _range(start: Any, stop: Any = None, step: int = 1) -> parts.Loops:
    if step != 1:
        raise ValueError("a loop of a kernel has step 1")
    return parts.Loops(ForKind.SERIAL, ((0, start) if stop is None else (start, stop),))


def _range_between(start: Any, stop: Any) -> Range:
    """Return the range from ``start`` up to ``stop``."""
    low, high = prim_ops.match_dtypes(start, stop)
    if isinstance(high, Add) and structural_equal(high.a, low):
        return Range(low, high.b)  # how a range prints: ``low:low + extent``
    extent = prim_ops.subtract(high, low)
    return Range(low, extent if isinstance(extent, IntImm) else Analyzer().simplify(extent))


def _dtype(dtype: Any) -> DataType:
    return DataType(getattr(dtype, "dtype", dtype))


def _as_load(target: ast.expr) -> ast.expr:
    """Return the target of an assignment as the expression that reads it."""
    load = copy.copy(target)
    if isinstance(load, ast.Name | ast.Subscript | ast.Attribute):
        load.ctx = ast.Load()
    return load


def _no_devices(name: str) -> VDevice:
    raise ValueError(f"a kernel has no virtual device {name!r}")


def _as_variable(buffer: Var) -> Var:
    """Return the buffer that ``T.alloc_local((1,))`` makes outside blocks: a variable."""
    ty = buffer_type(buffer)
    plain = BufferType((IntImm(_INT32, 1),), ty.dtype, storage_scope="local")
    if not structural_equal(ty, plain):
        return buffer
    return Var(buffer.name, replace(ty, is_scalar=True), buffer.span)


def _with_root(root: _Block, body: Stmt, span: Span) -> Stmt:
    """Add the root block where the block dialect needs one."""
    single = body.block if isinstance(body, SBlockRealize) else None
    if root.allocated or (_has_block(body) and (single is None or single.iter_vars)):
        block = SBlock((), (), (), "root", body, None, tuple(root.allocated), span=span)
        return SBlockRealize((), _TRUE, block, span=span)
    return body


def _has_block(node: Node) -> bool:
    stack: list[Node] = [node]
    while stack:
        node = stack.pop()
        if isinstance(node, SBlockRealize):
            return True
        stack.extend(child for child in children(node) if isinstance(child, Stmt))
    return False


def _is_one(expr: Expr) -> bool:
    return isinstance(expr, IntImm) and expr.value == 1


def _is_declaration(node: ast.stmt) -> bool:
    """Whether a statement of a kernel's body belongs to its head."""
    value = getattr(node, "value", None)
    if isinstance(value, ast.Constant):
        return True
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return isinstance(node, ast.Assign) and isinstance(value, ast.Tuple)
    return value.func.attr in ("func_attr", "match_buffer") or not (value.args or value.keywords)


def _attr_node(owner: Any) -> Any:
    return IntImm(_INT32, owner) if isinstance(owner, int) else owner


def _attr_value(value: Any) -> Expr:
    return prim_ops.as_operand(value)
