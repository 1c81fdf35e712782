"""Bringing expressions into normal form, and giving each its type.

In normal form everything but leaves (and tuples of leaves) is bound to a variable. Normalizing an
expression therefore emits bindings for what is nested inside it, into the block at hand. The same
object comes back when it was in normal form already; a type that was missing is filled in on the
node itself, since it is knowledge about the node and not a change of it.

Chains of nested calls and long blocks are walked with an explicit stack, so neither can exhaust
Python's. Only local functions and If branches nest on it. Counterpart: TVM's
``BlockBuilder::Normalize`` (compiler.md, 3.6).

Examples
--------
>>> from relaxlab.relax import op
>>> from relaxlab.relax.block_builder import BlockBuilder
>>> from relaxlab.relax.expr import TensorType, Var
>>> call = op.exp(Var("x", TensorType([4])))
>>> BlockBuilder().normalize(call) is call, call.ty.ndim
(True, 1)
"""

from collections.abc import Iterable
from typing import Protocol

from relaxlab.errors import InternalError
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
from relaxlab.ir.op import Op
from relaxlab.ir.prim import IntImm
from relaxlab.ir.source import Span
from relaxlab.ir.sym import Analyzer
from relaxlab.ir.type import PrimType, TupleType, Type, is_void
from relaxlab.relax.call_type import infer_function_call
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
    ShapeExpr,
    VarBinding,
)
from relaxlab.relax.type_relations import type_lca
from relaxlab.relax.type_variables import erase_to_well_defined

__all__ = ["Normalizer", "is_leaf", "is_leaf_or_tuple"]

#: Kinds that are leaves whatever they hold; scalar calls are leaves too.
_LEAVES = frozenset(
    {Var, DataflowVar, GlobalVar, ExternFunc, GenericConst, ShapeExpr, StringImm, Op, IntImm}
)
_COMPOUND = frozenset({Call, Tuple, TupleGetItem, If, SeqExpr, Function})
_VOID_VALUE = Tuple(())


def is_leaf(expr: Expr) -> bool:
    """Say whether ``expr`` may be nested in another expression of a normal form."""
    kind = type(expr)
    if kind in _LEAVES:
        return True
    if kind not in _COMPOUND:
        return True  # scalar expressions
    return kind is Call and is_scalar_call(expr)


def is_scalar_call(expr: Expr) -> bool:
    """Say whether a call is a scalar expression, such as ``T.exp(n)``."""
    return (
        isinstance(expr, Call)
        and isinstance(expr.ty, PrimType)
        and isinstance(expr.op, Op)
        and not expr.op.name.startswith("relax.")
    )


def is_leaf_or_tuple(expr: Expr) -> bool:
    """Say whether ``expr`` is a leaf or a tuple of such."""
    if isinstance(expr, Tuple):
        return all(is_leaf_or_tuple(field) for field in expr.fields)
    return is_leaf(expr)


class Builder(Protocol):
    """What normalization asks of the block builder.

    Attributes
    ----------
    span
        Where the program says what is being built; what is emitted takes it.
    """

    span: Span | None

    @property
    def analyzer(self) -> Analyzer:
        """Facts about symbolic variables."""

    def lookup_binding(self, var: Var) -> Expr | None:
        """Return the value a variable was bound to."""

    def current_block_is_dataflow(self) -> bool:
        """Say whether a dataflow block is being built."""

    def normalized_before(self) -> dict[Expr, Expr]:
        """Return what was emitted into the current block, by the expression it came from."""

    def emit_normalized(self, binding: Binding) -> None:
        """Append a binding to the current block."""

    def bind_normalized(self, expr: Expr, name_hint: str = "") -> Var:
        """Bind an expression in normal form to a fresh variable."""

    def begin_block(self, is_dataflow: bool) -> None:
        """Start a block."""

    def end_block(self) -> BindingBlock:
        """Finish the current block."""

    def begin_scope(self, params: Iterable[Var] | None = None) -> None:
        """Open a scope of symbolic variables."""

    def end_scope(self) -> None:
        """Close it."""

    def known_dims(self) -> dict[Var, Expr] | None:
        """Return the symbolic variables in scope; None outside of all scopes."""


class Normalizer:
    """The algorithm; what it emits goes to a builder.

    Parameters
    ----------
    builder
        Where bindings go.
    operators
        Whether the operators' own normalizations (``FNormalize``) apply. The parser leaves them
        out, so that a program prints back as it was written.
    """

    def __init__(self, builder: Builder, operators: bool = True) -> None:
        self.builder = builder
        self.operators = operators
        #: Sequences known to be normal, so that an outer one does not walk them again.
        self._done: set[Expr] = set()

    # --- entry points ---------------------------------------------------------------------------

    def normalize(self, expr: Expr) -> Expr:
        """Return ``expr`` as the value of a binding: its parts are leaves, its type is known."""
        match expr:
            case Call() if not is_scalar_call(expr):
                return self._call(expr)
            case Var():
                return self._variable(expr)
            case Tuple():
                return self._tuple(expr)
            case TupleGetItem():
                return self._projection(expr)
            case If():
                return self._choice(expr)
            case SeqExpr():
                return self._sequence(expr)
            case Function():
                return self._function(expr)
            case _:
                return expr

    def argument(self, expr: Expr) -> Expr:
        """Return ``expr`` as a part of another expression: a leaf, or a tuple of leaves.

        What is not one is emitted into the current block; the same object in one block is emitted
        once.
        """
        if isinstance(expr, Var):
            return self._variable(expr)
        if is_leaf(expr):
            return expr
        before = self.builder.normalized_before()
        if expr in before:
            return before[expr]
        stack: list[tuple[Expr, bool]] = [(expr, False)]
        while stack:
            node, opened = stack.pop()
            if node in before:
                continue
            if opened:
                value = self.normalize(node)
                # a tuple stands by itself, and is built anew if it comes again
                if not is_leaf_or_tuple(value):
                    value = self.builder.bind_normalized(value)
                before[node] = value
                continue
            stack.append((node, True))
            nested = [part for part in _parts(node) if not is_leaf(part) and part not in before]
            stack.extend((part, False) for part in reversed(nested))
        return before[expr]

    # --- by kind --------------------------------------------------------------------------------

    def _variable(self, var: Var) -> Expr:
        if var.ty is None:
            raise InternalError(f"Var {var.name} does not have type.")
        return _VOID_VALUE if is_void(var.ty) else var

    def _arguments(self, exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        new = tuple([self.argument(expr) for expr in exprs])
        return exprs if all(map(_same, new, exprs)) else new

    def _tuple(self, expr: Tuple) -> Expr:
        fields = self._arguments(expr.fields)
        if fields is not expr.fields or expr.ty is None:
            return Tuple(fields, span=expr.span)
        return expr

    def _projection(self, expr: TupleGetItem) -> Expr:
        value = self.argument(expr.tuple_value)
        if value is not expr.tuple_value:
            expr = TupleGetItem(value, expr.index, span=expr.span)
        if expr.ty is None:
            ty = value.ty
            if not isinstance(ty, TupleType):
                raise InternalError(
                    f"The type of Tuple must be TupleType, but expression {value} has type {ty!r}"
                )
            if expr.index >= len(ty.fields):
                raise IndexError(
                    f"Index out of bounds: Tuple {value} is of size {len(ty.fields)}, and cannot "
                    f"be accessed with index {expr.index}"
                )
            fill_type(expr, ty.fields[expr.index])
        return expr

    def _call(self, call: Call) -> Expr:
        callee = call.op if isinstance(call.op, Op) else self.argument(call.op)
        args = self._arguments(call.args)
        if callee is not call.op or args is not call.args:
            call = Call(callee, args, call.attrs, call.ty_args, span=call.span)
        if call.ty is None:
            fill_type(call, self.infer(call))
        if self.operators and isinstance(callee, Op):
            function = callee.get_attr("FNormalize")
            if function is not None:
                changed: Expr = function(call, self.builder)
                if changed is not call:
                    return self.normalize(changed)
        return call

    def infer(self, call: Call) -> Type:
        """Return the type of a call whose arguments are normal.

        Raises
        ------
        InternalError
            If the callee is an operator without type inference, or no function.
        """
        if isinstance(call.op, Op):
            function = call.op.get_attr("FInferType")
            if function is None:
                raise InternalError(
                    f"Cannot find the FInferType attribute registered to op: {call.op.name}"
                )
            ty: Type = function(call, self.builder)
            return ty
        return infer_function_call(call, self.builder)

    def _choice(self, expr: If) -> Expr:
        cond = self.argument(expr.cond)
        true_branch = self._branch(expr.true_branch)
        false_branch = self._branch(expr.false_branch)
        if (
            cond is not expr.cond
            or true_branch is not expr.true_branch
            or false_branch is not expr.false_branch
        ):
            expr = If(cond, true_branch, false_branch, span=expr.span)
        if expr.ty is None:
            assert true_branch.ty is not None
            assert false_branch.ty is not None
            joined = type_lca(true_branch.ty, false_branch.ty, self.builder.analyzer)
            fill_type(expr, self.erase(joined))
        return expr

    def _branch(self, expr: Expr) -> SeqExpr:
        self.builder.begin_scope(None)
        try:
            return self.body(expr)
        finally:
            self.builder.end_scope()

    def body(self, expr: Expr) -> SeqExpr:
        """Return ``expr`` as the body of a function or branch."""
        if isinstance(expr, SeqExpr):
            return self._sequence(expr)
        self.builder.begin_block(self.builder.current_block_is_dataflow())
        result = self.argument(expr)
        block = self.builder.end_block()
        return self._finished((block,) if block.bindings else (), result, None, expr)

    def _sequence(self, seq: SeqExpr) -> SeqExpr:
        if seq in self._done:
            return seq
        blocks = [self.block(block) for block in seq.blocks]
        self.builder.begin_block(self.builder.current_block_is_dataflow())
        result = self.argument(seq.body)
        last = self.builder.end_block()
        if last.bindings:
            blocks.append(last)
        return self._finished(tuple(blocks), result, seq, seq)

    def _finished(
        self, blocks: tuple[BindingBlock, ...], result: Expr, seq: SeqExpr | None, source: Expr
    ) -> SeqExpr:
        blocks = flatten_blocks(blocks)
        unchanged = (
            seq is not None
            and result is seq.body
            and len(blocks) == len(seq.blocks)
            and all(map(_same, blocks, seq.blocks))
        )
        if seq is None or not unchanged:
            seq = SeqExpr(blocks, result, span=source.span)
        if seq.ty is None and result.ty is not None:
            fill_type(seq, self.erase(result.ty))
        self._done.add(seq)
        return seq

    def _function(self, func: Function) -> Expr:
        self.builder.begin_scope(func.params)
        try:
            body = self.body(func.body)
        finally:
            self.builder.end_scope()
        if body is func.body:
            return func
        return Function(func.params, body, func.ret_ty, func.is_pure, func.attrs, span=func.span)

    # --- bindings -------------------------------------------------------------------------------

    def block(self, block: BindingBlock) -> BindingBlock:
        """Return a block in normal form; its bindings become known to the builder."""
        self.builder.begin_block(isinstance(block, DataflowBlock))
        around = self.builder.span
        for binding in block.bindings:
            self.builder.span = binding.span or around
            self.builder.emit_normalized(self.binding(binding))
        self.builder.span = around
        new = self.builder.end_block()
        same = len(new.bindings) == len(block.bindings) and all(
            map(_same, new.bindings, block.bindings)
        )
        return block if same and type(new) is type(block) else new

    def binding(self, binding: Binding) -> Binding:
        """Return a binding whose value is in normal form, and give its variable a type."""
        match binding:
            case MatchCast(var=var, value=value, ty=ty):
                new = self.normalize(value)
                if var.ty is None:
                    fill_type(var, ty)
                return binding if new is value else MatchCast(var, new, ty, span=binding.span)
            case VarBinding(var=var, value=value):
                if isinstance(value, Function) and var.ty is None:
                    fill_type(var, value.ty)  # a local function may call itself
                new = self.normalize(value)
                if var.ty is None:
                    fill_type(var, new.ty)
                return binding if new is value else VarBinding(var, new, span=binding.span)
            case _:
                raise TypeError(f"unknown kind of binding: {type(binding).__name__}")

    def erase(self, ty: Type) -> Type:
        """Drop what the current scope does not know from a type."""
        known = self.builder.known_dims()
        return ty if known is None else erase_to_well_defined(ty, known)


def _same(a: object, b: object) -> bool:
    return a is b


def fill_type(node: Expr, ty: Type | None) -> None:
    """Record the type of an expression that has none yet."""
    object.__setattr__(node, "ty", ty)


def _parts(expr: Expr) -> tuple[Expr, ...]:
    """Return the parts that must be normalized before ``expr`` is, in this block."""
    match expr:
        case Call(op=callee, args=args):
            return args if isinstance(callee, Op) else (callee, *args)
        case Tuple(fields=fields):
            return fields
        case TupleGetItem(tuple_value=value):
            return (value,)
        case If(cond=cond):
            return (cond,)
        case _:
            return ()


def flatten_blocks(blocks: tuple[BindingBlock, ...]) -> tuple[BindingBlock, ...]:
    """Inline sequences that are bound to variables, drop empty blocks, merge like neighbours.

    The same tuple comes back when there was nothing to do.
    """
    flat: list[BindingBlock] = []
    for block in blocks:
        flat.extend(_inlined(block))
    merged: list[BindingBlock] = []
    for block in flat:
        if not block.bindings:
            continue
        if merged and type(merged[-1]) is type(block):
            merged[-1] = type(block)(merged[-1].bindings + block.bindings, span=merged[-1].span)
        else:
            merged.append(block)
    same = len(merged) == len(blocks) and all(map(_same, merged, blocks))
    return blocks if same else tuple(merged)


def _inlined(block: BindingBlock) -> list[BindingBlock]:
    """Replace each binding of a sequence by the sequence's blocks and a binding of its result."""
    if not any(isinstance(getattr(b, "value", None), SeqExpr) for b in block.bindings):
        return [block]
    kind = type(block)
    done: list[BindingBlock] = []
    pending: list[Binding] = []
    for binding in block.bindings:
        value = getattr(binding, "value", None)
        if not isinstance(value, SeqExpr):
            pending.append(binding)
            continue
        for inner in flatten_blocks(value.blocks):
            if type(inner) is kind or kind is DataflowBlock:
                # inside a dataflow block plain bindings are outputs of it
                pending.extend(inner.bindings)
            else:
                done.extend((kind(tuple(pending)), inner))
                pending = []
        pending.append(_with_value(binding, value.body))
    return [*done, kind(tuple(pending), span=block.span)]


def _with_value(binding: Binding, value: Expr) -> Binding:
    match binding:
        case MatchCast(var=var, ty=ty):
            return MatchCast(var, value, ty, span=binding.span)
        case VarBinding(var=var):
            return VarBinding(var, value, span=binding.span)
        case _:
            raise TypeError(f"unknown kind of binding: {type(binding).__name__}")
