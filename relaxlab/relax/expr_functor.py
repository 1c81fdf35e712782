"""Walking and rewriting Relax programs.

:class:`ExprVisitor` walks; :class:`ExprMutator` rebuilds through a block builder, so that what a
pass returns is in normal form and typed, and hands back the very same object when nothing
changed. A subclass overrides the methods of the nodes it cares about, named as in TVM
(``visit_call_``, ``visit_var_binding_``, ...); calling ``super()`` goes on with the default.
Counterpart: ``tvm.relax.expr_functor``.

Examples
--------
>>> class CountCalls(ExprVisitor):
...     def __init__(self):
...         self.count = 0
...     def visit_call_(self, op):
...         self.count += 1
...         super().visit_call_(op)
"""

from functools import cache
from typing import Any, TypeVar

from relaxlab.ir import (
    Call,
    Expr,
    GenericConst,
    GlobalVar,
    IRModule,
    Op,
    PrimType,
    StringImm,
    Tuple,
    TupleGetItem,
    Type,
    Var,
    replace,
)
from relaxlab.relax.block_builder import BlockBuilder
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
from relaxlab.relax.normalizer import flatten_blocks
from relaxlab.relax.type_relations import type_lca
from relaxlab.relax.type_variables import erase_to_well_defined

__all__ = [
    "ExprFunctor",
    "ExprMutator",
    "ExprVisitor",
    "PyExprMutator",
    "PyExprVisitor",
    "mutator",
    "visitor",
]

C = TypeVar("C", bound=type)

#: The method that handles each kind of node; scalar expressions share ``visit_prim_expr_``.
_METHODS: dict[type, str] = {
    Call: "visit_call_",
    DataflowVar: "visit_dataflow_var_",
    ExternFunc: "visit_extern_func_",
    Function: "visit_function_",
    GenericConst: "visit_generic_const_",
    GlobalVar: "visit_global_var_",
    If: "visit_if_",
    Op: "visit_op_",
    SeqExpr: "visit_seq_expr_",
    ShapeExpr: "visit_shape_expr_",
    StringImm: "visit_string_imm_",
    Tuple: "visit_tuple_",
    TupleGetItem: "visit_tuple_getitem_",
    Var: "visit_var_",
}


def _method(expr: Expr) -> str:
    name = _METHODS.get(type(expr))
    if name is None or (name == "visit_call_" and _is_scalar_call(expr)):
        return "visit_prim_expr_"
    return name


def _is_scalar_call(expr: Expr) -> bool:
    # T.exp(n) and its like are leaves of Relax, although they are calls
    return (
        isinstance(expr, Call)
        and isinstance(expr.op, Op)
        and isinstance(expr.ty, PrimType)
        and not expr.op.name.startswith("relax.")
    )


class ExprFunctor:
    """Plain dispatch: ``visit_expr`` calls the method of the node's kind, and nothing else happens.

    A subclass says what each kind comes to. Scalar expressions have methods of their own, named
    after their classes: ``visit_add_``, ``visit_int_imm_``.

    Raises
    ------
    NotImplementedError
        From ``visit_expr``, for a kind that the subclass has no method for.
    """

    def visit_expr(self, expr: Expr) -> Any:
        """Return what the method of this kind of expression returns."""
        method = _METHODS.get(type(expr), f"visit_{_snake(type(expr).__name__)}_")
        function = getattr(self, method, None)
        return self.visit_expr_fallback_(expr) if function is None else function(expr)

    def visit_expr_fallback_(self, op: Expr) -> Any:
        """Say what to do with an expression that has no method."""
        method = _METHODS.get(type(op), f"visit_{_snake(type(op).__name__)}_")
        raise NotImplementedError(
            f"{type(self).__name__} does not say what a {type(op).__name__} comes to: it needs "
            f"{method}, or visit_expr_fallback_ for all kinds"
        )

    def visit_binding(self, binding: Binding) -> Any:
        """Return what the method of this kind of binding returns."""
        name = "visit_match_cast_" if isinstance(binding, MatchCast) else "visit_var_binding_"
        return self._of(name, binding, Binding)

    def visit_binding_block(self, block: BindingBlock) -> Any:
        """Return what the method of this kind of block returns."""
        dataflow = isinstance(block, DataflowBlock)
        name = "visit_dataflow_block_" if dataflow else "visit_binding_block_"
        return self._of(name, block, BindingBlock)

    def visit_var_def(self, var: Var) -> Any:
        """Return what the method of this kind of variable returns, where it is defined."""
        dataflow = isinstance(var, DataflowVar)
        return self._of("visit_dataflow_var_def_" if dataflow else "visit_var_def_", var, Var)

    def _of(self, method: str, node: Any, kind: type) -> Any:
        if not isinstance(node, kind):
            raise TypeError(f"Invalid type: {type(node)}, expected a {kind.__name__}")
        function = getattr(self, method, None)
        if function is None:
            raise NotImplementedError(
                f"{type(self).__name__} does not say what a {type(node).__name__} comes to: it "
                f"needs {method}"
            )
        return function(node)


@cache
def _snake(name: str) -> str:
    """Return the name of a class as part of a method's name: FloorDiv is floor_div."""
    if name.isupper():
        return name.lower()
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


class ExprVisitor:
    """Visits every node once, bindings in order, a binding's variable after its value."""

    def visit_expr(self, expr: Expr) -> None:
        """Visit any expression."""
        getattr(self, _method(expr))(expr)

    def visit_leaf_(self, op: Expr) -> None:
        """Visit a leaf: what ``visit_var_`` and the like do unless overridden."""

    def visit_var_(self, op: Var) -> None:
        """Visit a use of a variable."""
        self.visit_leaf_(op)

    def visit_dataflow_var_(self, op: DataflowVar) -> None:
        """Visit a use of a dataflow variable; as any variable unless overridden."""
        self.visit_var_(op)

    def visit_global_var_(self, op: GlobalVar) -> None:
        """Visit a reference to a function of the module."""
        self.visit_leaf_(op)

    def visit_extern_func_(self, op: ExternFunc) -> None:
        """Visit an external function."""
        self.visit_leaf_(op)

    def visit_op_(self, op: Op) -> None:
        """Visit an operator."""
        self.visit_leaf_(op)

    def visit_generic_const_(self, op: GenericConst) -> None:
        """Visit a constant."""
        self.visit_leaf_(op)

    def visit_string_imm_(self, op: StringImm) -> None:
        """Visit a string."""
        self.visit_leaf_(op)

    def visit_prim_expr_(self, op: Expr) -> None:
        """Visit a scalar expression, as a whole."""
        self.visit_leaf_(op)

    def visit_shape_expr_(self, op: ShapeExpr) -> None:
        """Visit a shape and its dimensions."""
        for value in op.values:
            self.visit_expr(value)

    def visit_tuple_(self, op: Tuple) -> None:
        """Visit a tuple and its fields."""
        for item in op.fields:
            self.visit_expr(item)

    def visit_tuple_getitem_(self, op: TupleGetItem) -> None:
        """Visit a projection and its tuple."""
        self.visit_expr(op.tuple_value)

    def visit_call_(self, op: Call) -> None:
        """Visit a call: callee, then arguments."""
        self.visit_expr(op.op)
        for arg in op.args:
            self.visit_expr(arg)

    def visit_if_(self, op: If) -> None:
        """Visit a choice: condition, then both branches."""
        self.visit_expr(op.cond)
        self.visit_expr(op.true_branch)
        self.visit_expr(op.false_branch)

    def visit_seq_expr_(self, op: SeqExpr) -> None:
        """Visit the blocks in order, then the result."""
        for block in op.blocks:
            self.visit_binding_block(block)
        self.visit_expr(op.body)

    def visit_function_(self, op: Function) -> None:
        """Visit the parameters, then the body."""
        for param in op.params:
            self.visit_var_def(param)
        self.visit_expr(op.body)

    def visit_binding_block(self, block: BindingBlock) -> None:
        """Visit a block of either kind."""
        if isinstance(block, DataflowBlock):
            self.visit_dataflow_block_(block)
        else:
            self.visit_binding_block_(block)

    def visit_binding_block_(self, block: BindingBlock) -> None:
        """Visit the bindings of a block."""
        for binding in block.bindings:
            self.visit_binding(binding)

    def visit_dataflow_block_(self, block: DataflowBlock) -> None:
        """Visit the bindings of a dataflow block."""
        self.visit_binding_block_(block)

    def visit_binding(self, binding: Binding) -> None:
        """Visit a binding of either kind.

        Raises
        ------
        TypeError
            If it is no binding.
        """
        if isinstance(binding, MatchCast):
            self.visit_match_cast_(binding)
        elif isinstance(binding, VarBinding):
            self.visit_var_binding_(binding)
        else:
            raise TypeError(f"unknown kind of binding: {type(binding).__name__}")

    def visit_var_binding_(self, binding: VarBinding) -> None:
        """Visit the value, then the variable defined."""
        self.visit_expr(binding.value)
        self.visit_var_def(binding.var)

    def visit_match_cast_(self, binding: MatchCast) -> None:
        """Visit the value, then the variable defined."""
        self.visit_expr(binding.value)
        self.visit_var_def(binding.var)

    def visit_var_def(self, var: Var) -> None:
        """Visit a place where a variable is defined."""
        if isinstance(var, DataflowVar):
            self.visit_dataflow_var_def_(var)
        else:
            self.visit_var_def_(var)

    def visit_var_def_(self, var: Var) -> None:
        """Visit the definition of a variable."""

    def visit_dataflow_var_def_(self, var: DataflowVar) -> None:
        """Visit the definition of a dataflow variable; as any variable unless overridden."""
        self.visit_var_def_(var)


class ExprMutator:
    """Rebuilds a program; override what should come out different.

    Parameters
    ----------
    mod
        Module whose functions the rewritten code may refer to or extend.

    Attributes
    ----------
    builder
        Where bindings are emitted; ``self.builder.emit(e)`` inside a visit adds one in front of
        the binding being visited.
    """

    def __init__(self, mod: IRModule | None = None) -> None:
        self.builder = BlockBuilder(mod)
        #: What stands for a variable of the old program in the new one, where that differs.
        self.var_remap: dict[Var, Expr] = {}

    def visit_expr(self, expr: Expr) -> Any:
        """Return what replaces ``expr``."""
        return getattr(self, _method(expr))(expr)

    # ---- types ------------------------------------------------------------------------------

    def visit_ty(self, ty: Type) -> Type:
        """Return what replaces a type; override to substitute symbolic variables."""
        return ty

    # ---- leaves -----------------------------------------------------------------------------

    def visit_var_(self, op: Var) -> Expr:
        """Return what a use of a variable becomes."""
        return self.var_remap.get(op, op)

    def visit_dataflow_var_(self, op: DataflowVar) -> Expr:
        """Return what a use of a dataflow variable becomes."""
        return self.visit_var_(op)

    def visit_global_var_(self, op: GlobalVar) -> Expr:
        """Return what a reference to a function becomes."""
        return op

    def visit_extern_func_(self, op: ExternFunc) -> Expr:
        """Return what an external function becomes."""
        return op

    def visit_op_(self, op: Op) -> Expr:
        """Return what an operator becomes."""
        return op

    def visit_generic_const_(self, op: GenericConst) -> Expr:
        """Return what a constant becomes."""
        return op

    def visit_string_imm_(self, op: StringImm) -> Expr:
        """Return what a string becomes."""
        return op

    def visit_prim_expr_(self, op: Expr) -> Expr:
        """Return what a scalar expression becomes; as a whole, it is a leaf."""
        return op

    # ---- expressions with parts -------------------------------------------------------------

    def visit_each(self, exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Return the replaced expressions; the same tuple when none changed."""
        new = tuple(self.visit_expr(e) for e in exprs)
        return exprs if all(a is b for a, b in zip(new, exprs, strict=True)) else new

    def visit_shape_expr_(self, op: ShapeExpr) -> Expr:
        """Rebuild a shape from its dimensions."""
        values = self.visit_each(op.values)
        return op if values is op.values else ShapeExpr(values)

    def visit_tuple_(self, op: Tuple) -> Expr:
        """Rebuild a tuple from its fields."""
        fields = self.visit_each(op.fields)
        return op if fields is op.fields else self.builder.normalize(Tuple(fields, span=op.span))

    def visit_tuple_getitem_(self, op: TupleGetItem) -> Expr:
        """Rebuild a projection from its tuple."""
        value = self.visit_expr(op.tuple_value)
        if value is op.tuple_value:
            return op
        return self.builder.normalize(TupleGetItem(value, op.index, span=op.span))

    def visit_call_(self, op: Call) -> Expr:
        """Rebuild a call from its callee, arguments and type arguments."""
        callee = self.visit_expr(op.op)
        args = self.visit_each(op.args)
        ty_args = tuple(self.visit_ty(ty) for ty in op.ty_args)
        if all(a is b for a, b in zip(ty_args, op.ty_args, strict=True)):
            ty_args = op.ty_args
        if callee is op.op and args is op.args and ty_args is op.ty_args:
            return op
        return self.builder.normalize(
            Call(callee, args, op.attrs, ty_args, span=op.span)  # its type is inferred anew
        )

    def visit_if_(self, op: If) -> Expr:
        """Rebuild a choice from its condition and branches."""
        cond = self.visit_expr(op.cond)
        true_branch = self.visit_with_new_scope(op.true_branch)
        false_branch = self.visit_with_new_scope(op.false_branch)
        return self.rebuild_if(op, cond, true_branch, false_branch)

    def rebuild_if(self, op: If, cond: Expr, true_branch: Expr, false_branch: Expr) -> Expr:
        """Return ``op`` with other parts that were visited already; itself if all are the same."""
        if cond is op.cond and true_branch is op.true_branch and false_branch is op.false_branch:
            return op
        if not isinstance(true_branch, SeqExpr) or not isinstance(false_branch, SeqExpr):
            return self.builder.normalize(If(cond, true_branch, false_branch, span=op.span))
        # the branches are normal and typed: the builder would only walk them once more
        cond = self.builder.normalize_argument(cond)
        ty = op.ty
        before = (op.true_branch.ty, op.false_branch.ty)
        if ty is None or (true_branch.ty, false_branch.ty) != before:
            assert true_branch.ty is not None
            assert false_branch.ty is not None
            joined = type_lca(true_branch.ty, false_branch.ty, self.builder.analyzer)
            ty = self.erase_to_scope(joined)
        return If(cond, true_branch, false_branch, ty=ty, span=op.span)

    def erase_to_scope(self, ty: Type) -> Type:
        """Drop from a type what the scope at hand does not know."""
        known = self.builder.known_dims()
        return ty if known is None else erase_to_well_defined(ty, known)

    def visit_seq_expr_(self, op: SeqExpr) -> Expr:
        """Rebuild a sequence from its blocks and result."""
        blocks = [self.visit_binding_block(block) for block in op.blocks]
        # what the result needs emitted goes into a block of its own
        around, self.builder.span = self.builder.span, op.span or self.builder.span
        self.builder.begin_block(self.builder.current_block_is_dataflow())
        body = self.builder.normalize_argument(self.visit_expr(op.body))
        last = self.builder.end_block()
        self.builder.span = around
        if last.bindings:
            blocks.append(last)
        flat = flatten_blocks(tuple(blocks))
        if body is op.body and len(flat) == len(op.blocks) and all(map(_is, flat, op.blocks)):
            return op
        ty = None if body.ty is None else self.erase_to_scope(body.ty)
        # everything in it was emitted in normal form: normalizing would only walk it once more
        return SeqExpr(flat, body, ty=ty, span=op.span)

    def visit_with_new_scope(self, expr: Expr, params: tuple[Var, ...] | None = None) -> Expr:
        """Rebuild a body in a scope of its own (with a function's parameters)."""
        self.builder.begin_scope(params)
        try:
            result: Expr = self.visit_expr(expr)
        finally:
            self.builder.end_scope()
        return result

    def visit_function_(self, op: Function) -> Expr:
        """Rebuild a function from its parameters and body.

        The declared result type is kept where the new body still has it.
        """
        around, self.builder.span = self.builder.span, op.span or self.builder.span
        params = tuple(self.visit_var_def(p) for p in op.params)
        for old, new in zip(op.params, params, strict=True):
            if old is not new:
                self.var_remap[old] = new
        body = self.visit_with_new_scope(op.body, params)
        self.builder.span = around
        ret_ty: Type | None = self.visit_ty(op.ret_ty)
        if body is op.body and ret_ty is op.ret_ty and params == op.params:
            return op
        return self.builder.rebuild_function(op, params, body, ret_ty)

    # ---- bindings ---------------------------------------------------------------------------

    def visit_binding_block(self, block: BindingBlock) -> BindingBlock:
        """Rebuild a block of either kind."""
        if isinstance(block, DataflowBlock):
            return self.visit_dataflow_block_(block)
        return self.visit_binding_block_(block)

    def visit_binding_block_(self, block: BindingBlock) -> BindingBlock:
        """Rebuild a plain block."""
        self.builder.begin_block(is_dataflow=False)
        return self._finish_block(block)

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        """Rebuild a dataflow block."""
        self.builder.begin_block(is_dataflow=True)
        return self._finish_block(block)

    def _finish_block(self, block: BindingBlock) -> BindingBlock:
        around = self.builder.span
        for binding in block.bindings:
            self.builder.span = binding.span or around
            self.visit_binding(binding)
        self.builder.span = around
        new = self.builder.end_block()
        same = len(new.bindings) == len(block.bindings) and all(
            a is b for a, b in zip(new.bindings, block.bindings, strict=True)
        )
        return block if same and type(new) is type(block) else new

    def visit_binding(self, binding: Binding) -> None:
        """Emit what replaces a binding.

        Raises
        ------
        TypeError
            If it is no binding.
        """
        if isinstance(binding, MatchCast):
            self.visit_match_cast_(binding)
        elif isinstance(binding, VarBinding):
            self.visit_var_binding_(binding)
        else:
            raise TypeError(f"unknown kind of binding: {type(binding).__name__}")

    def visit_var_binding_(self, binding: VarBinding) -> None:
        """Emit the binding with its value replaced."""
        self.reemit_binding(binding, self.visit_expr(binding.value))

    def reemit_binding(self, binding: VarBinding, value: Expr) -> None:
        """Emit ``binding`` with another value; its variable takes on the value's type."""
        var = self.visit_var_def(binding.var)
        if value is binding.value and var is binding.var:
            self.builder.emit_normalized(binding)
            return
        value = self.builder.normalize(value)
        if value.ty is not None and var.ty != value.ty:
            var = replace(var, ty=value.ty)
        if var is not binding.var:
            self.var_remap[binding.var] = var
        self.builder.emit_normalized(VarBinding(var, value, span=binding.span))

    def visit_match_cast_(self, binding: MatchCast) -> None:
        """Emit the match_cast with its value and type replaced."""
        value = self.visit_expr(binding.value)
        ty = self.visit_ty(binding.ty)
        var = self.visit_var_def(binding.var)
        if value is binding.value and ty is binding.ty and var is binding.var:
            self.builder.emit_normalized(binding)
            return
        if ty is not binding.ty:
            var = replace(var, ty=ty)
        if var is not binding.var:
            self.var_remap[binding.var] = var
        # what was changed is an argument like any other: a call gets a variable of its own
        value = self.builder.normalize_argument(value)
        self.builder.emit_normalized(MatchCast(var, value, ty, span=binding.span))

    def visit_var_def(self, var: Var) -> Var:
        """Return the variable that a definition of ``var`` defines in the new program."""
        if isinstance(var, DataflowVar):
            return self.visit_dataflow_var_def_(var)
        return self.visit_var_def_(var)

    def visit_dataflow_var_def_(self, var: DataflowVar) -> Var:
        """Return what the definition of a dataflow variable defines; as any variable's."""
        return self.visit_var_def_(var)

    def visit_var_def_(self, var: Var) -> Var:
        """Return what the definition of a variable defines: itself, unless its type changes."""
        if var.ty is None:
            return var
        ty = self.visit_ty(var.ty)
        return var if ty is var.ty else replace(var, ty=ty)


def _is(a: object, b: object) -> bool:
    return a is b


class PyExprVisitor(ExprVisitor):
    """A visitor under TVM's name for user-defined ones; see :func:`visitor`.

    As in TVM a dataflow variable is no variable to ``visit_var_``, nor a dataflow block a block
    to ``visit_binding_block_``. Sizes inside types are not visited.
    """

    def visit_dataflow_var_(self, op: DataflowVar) -> None:
        """Visit a use of a dataflow variable."""
        self.visit_leaf_(op)

    def visit_dataflow_block_(self, block: DataflowBlock) -> None:
        """Visit the bindings of a dataflow block."""
        for binding in block.bindings:
            self.visit_binding(binding)


class PyExprMutator(ExprMutator):
    """A mutator with the methods that TVM gives to user-defined ones; see :func:`mutator`."""

    def visit_dataflow_var_(self, op: DataflowVar) -> Expr:
        """Return what a use of a dataflow variable becomes; ``visit_var_`` is not asked."""
        return self.var_remap.get(op, op)

    @property
    def builder_(self) -> BlockBuilder:
        """The builder, under TVM's name."""
        return self.builder

    def visit_expr_post_order(self, expr: Expr) -> Any:
        """Rebuild ``expr`` from its replaced parts, whatever is overridden for its own kind."""
        return getattr(ExprMutator, _method(expr))(self, expr)

    def set_var_remap(self, old_var: Var, new_var: Var) -> None:
        """Let ``new_var`` stand for ``old_var`` from here on."""
        self.var_remap[old_var] = new_var

    def get_var_remap(self, var: Var) -> Expr:
        """Return what stands for a variable: itself unless it was replaced."""
        return self.var_remap.get(var, var)

    def lookup_binding(self, var: Var) -> Expr | None:
        """Return the value that a variable of the new program is bound to."""
        return self.builder.lookup_binding(var)

    def with_type(self, var: Var, ty: Type) -> Var:
        """Return ``var`` if it has the type, else a variable of its name that has."""
        return var if var.ty == ty else replace(var, ty=ty)


def visitor(cls: C) -> C:
    """Mark a class as a visitor.

    Raises
    ------
    AssertionError
        If it is no subclass of :class:`PyExprVisitor`.
    """
    return _derived(cls, PyExprVisitor)


def mutator(cls: C) -> C:
    """Mark a class as a mutator.

    Raises
    ------
    AssertionError
        If it is no subclass of :class:`PyExprMutator`.
    """
    return _derived(cls, PyExprMutator)


def _derived(cls: C, base: type) -> C:
    if not issubclass(cls, base):
        raise AssertionError(
            "Please use the user-facing method overriding class, i.e., "
            f"{base.__name__}: {cls!r} is no subclass of it"
        )
    return cls
