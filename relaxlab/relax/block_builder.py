"""Building Relax programs binding by binding.

A builder keeps a module, a supply of names, the blocks under construction and what is known of
symbolic variables. Everything emitted is brought into normal form and typed at once, so a mistake
is reported where it is made. Counterpart: ``tvm.relax.BlockBuilder``.

Examples
--------
>>> from relaxlab.relax import op
>>> from relaxlab.relax.expr import TensorType, Var
>>> x, bb = Var("x", TensorType([4])), BlockBuilder()
>>> with bb.function("main", [x]):
...     with bb.dataflow():
...         y = bb.emit(op.exp(x))
...         z = bb.emit_output(op.add(y, x))
...     main = bb.emit_func_output(z)
>>> y.name, z.name, bb.get()["main"].ret_ty.ndim
('lv', 'gv', 1)
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from relaxlab.errors import InternalError
from relaxlab.ir.attrs import Attrs
from relaxlab.ir.expr import Call, Expr, GlobalVar, Tuple, Var
from relaxlab.ir.module import BaseFunc, IRModule
from relaxlab.ir.node import structural_equal
from relaxlab.ir.op import Op
from relaxlab.ir.source import Span
from relaxlab.ir.sym import Analyzer
from relaxlab.ir.type import Type
from relaxlab.relax.call_te import call_te
from relaxlab.relax.expr import (
    Binding,
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    Function,
    MatchCast,
    SeqExpr,
    VarBinding,
)
from relaxlab.relax.function_table import FunctionTable
from relaxlab.relax.global_names import normalize_global_names
from relaxlab.relax.normalizer import Normalizer
from relaxlab.relax.type_relations import BaseCheckResult, type_base_check
from relaxlab.relax.type_variables import definable_tir_vars_in_type
from relaxlab.relax.unique_names import UniqueNames

__all__ = ["BlockBuilder"]

Values = Expr | Sequence[Expr]

#: Builders whose ``function`` scope is open, innermost last.
_ACTIVE: ContextVar[tuple["BlockBuilder", ...]] = ContextVar("relaxlab.block_builders", default=())


@dataclass(slots=True)
class _Block:
    """A block under construction."""

    is_dataflow: bool
    bindings: list[Binding] = field(default_factory=list)
    normalized: dict[Expr, Expr] = field(default_factory=dict)


@dataclass(slots=True)
class _FunctionInProgress:
    """What ``function`` was told, and the finished blocks of the body."""

    name: str
    params: tuple[Var, ...] | None
    attrs: Mapping[str, Any]
    pure: bool
    private: bool
    blocks: list[BindingBlock] = field(default_factory=list)
    result: GlobalVar | None = None


class BlockBuilder:
    """Builds functions into a module.

    Parameters
    ----------
    mod
        Module to extend; it is not changed itself.
    normalize_operators
        Whether operators' own normalizations apply (the parser leaves them out).

    Attributes
    ----------
    analyzer
        What is known of the symbolic variables: all dimensions are non-negative.
    span
        Where the program says what is being built; new bindings take it, unless their value is a
        call that knows better. Mutators set it to the place of the binding they are rewriting.
    """

    def __init__(self, mod: IRModule | None = None, *, normalize_operators: bool = True) -> None:
        self.analyzer = Analyzer()
        self.span: Span | None = None
        self._table = FunctionTable(IRModule() if mod is None else mod.clone())
        self._names = UniqueNames()
        self._blocks: list[_Block] = []
        self._scopes: list[dict[Var, Expr]] = []
        self._bindings: dict[Var, Expr] = {}
        self._functions: list[_FunctionInProgress] = []
        self._normalizer = Normalizer(self, normalize_operators)

    @staticmethod
    def current() -> "BlockBuilder | None":
        """Return the builder whose ``function`` scope is open, innermost first."""
        active = _ACTIVE.get()
        return active[-1] if active else None

    # --- functions ------------------------------------------------------------------------------

    def function(
        self,
        name: str,
        params: Var | Tuple | Sequence[Var] | None = None,
        attrs: Mapping[str, Any] | None = None,
        pure: bool = True,
        private: bool = False,
    ) -> AbstractContextManager[None]:
        """Open a scope that builds one function; it ends with :meth:`emit_func_output`.

        Parameters
        ----------
        name
            Its name in the module, and its symbol unless it is private.
        params
            Its parameters; they may be given to ``emit_func_output`` instead.
        attrs
            Function attributes.
        pure
            Whether calls of it have no visible effect.
        private
            Whether other modules cannot see it.
        """
        checked = None if params is None else _to_params(params)
        return self._function_scope(_FunctionInProgress(name, checked, attrs or {}, pure, private))

    @contextmanager
    def _function_scope(self, func: _FunctionInProgress) -> Iterator[None]:
        blocks, scopes, active = len(self._blocks), len(self._scopes), _ACTIVE.get()
        _ACTIVE.set((*active, self))
        self._functions.append(func)
        self.begin_scope(func.params or ())
        self.begin_block(is_dataflow=False)
        try:
            yield
        finally:
            _ACTIVE.set(active)
            self._functions.pop()
            # an error may have left more than one block open
            del self._blocks[blocks:]
            del self._scopes[scopes:]
        if func.result is None:
            raise RuntimeError("emit_func_output must be called in a relax function.")

    def _current_function(self) -> _FunctionInProgress:
        if not self._functions:
            raise RuntimeError(
                "Cannot access BlockBuilder._func when outside a bb._function() block"
            )
        return self._functions[-1]

    def emit_func_output(
        self, output: Values, params: Var | Tuple | Sequence[Var] | None = None
    ) -> GlobalVar:
        """Finish the function: return ``output``, add the function to the module.

        Parameters
        ----------
        output
            An expression, or several for a tuple.
        params
            The parameters, unless ``function`` was told.

        Returns
        -------
        GlobalVar
            The function. A public function replaces one of its name; a private one that equals a
            function of the module *is* that function.

        Raises
        ------
        RuntimeError
            If it is called twice or outside of ``function``, or the parameters are missing or
            given in both places.
        """
        func = self._current_function()
        if func.result is not None:
            raise RuntimeError("emit_func_output must be called exactly once in a relax function.")
        if func.params is not None and params is not None:
            raise RuntimeError(
                "function parameters have been initialized in the function with scope."
            )
        if params is not None:
            func.params = _to_params(params)
            self._define_types_in_scope(param.ty for param in func.params)
        if func.params is None:
            raise RuntimeError("Relax function must have parameter.")
        result = self._to_expr(output)
        block = self.end_block()
        if block.bindings:
            func.blocks.append(block)
        body = self._normalizer.normalize(SeqExpr(tuple(func.blocks), result))
        attrs = dict(func.attrs)
        if not func.private:
            attrs["global_symbol"] = func.name
        built = Function(func.params, body, None, func.pure, attrs)
        self.begin_block(is_dataflow=False)  # what the scope's end closes
        mod = self._table.mod
        if func.private:
            func.result = self.add_func(built, func.name)
        elif func.name in mod:
            func.result = mod.get_global_var(func.name)
            if not structural_equal(mod.functions[func.result], built):
                self._table.put(func.result, built)
        else:
            self._names.fresh(func.name)
            func.result = GlobalVar(func.name)
            self._table.put(func.result, built)
        return func.result

    def add_func(self, func: BaseFunc, func_name: str) -> GlobalVar:
        """Add a function to the module, or find the one that is structurally equal.

        Parameters
        ----------
        func
            A Relax function or a kernel.
        func_name
            Name hint, used when the function is new.

        Returns
        -------
        GlobalVar
            The function of the smallest name among equal ones; constants count by content.
        """
        same = self._table.find_equal(func)
        if same is not None:
            return same
        name = self._names.fresh(func_name)
        while name in self._table.mod:
            name = self._names.fresh(func_name)
        gvar = GlobalVar(name)
        self._table.put(gvar, func)
        return gvar

    def lookup_func(self, gv: GlobalVar) -> BaseFunc:
        """Return the function of a global variable of the module being built."""
        return self._table.mod.functions[gv]

    def update_func(self, gv: GlobalVar, updated_func: BaseFunc) -> None:
        """Replace the function of a global variable; its place in the order is kept."""
        self._table.put(gv, updated_func)

    def rebuild_function(
        self, func: Function, params: Sequence[Var], body: Expr, ret_ty: Type | None
    ) -> Function:
        """Return ``func`` with other parameters and body.

        A declared result type stays only where it says at least as much as the new body's own.
        """
        if ret_ty is not None and body.ty is not None:
            check = type_base_check(body.ty, ret_ty)  # nothing assumed, as in TVM
            ret_ty = ret_ty if check is BaseCheckResult.PASS else None
        return Function(params, body, ret_ty, func.is_pure, func.attrs, span=func.span)

    def get(self) -> IRModule:
        """Return the module as it stands."""
        return self._table.mod.clone()

    def finalize(self) -> IRModule:
        """Return the module with names in order: public functions have those of their symbols."""
        return normalize_global_names(self.get())

    # --- names ----------------------------------------------------------------------------------

    def get_unique_name(self, name_prefix: str) -> str:
        """Return a fresh name: the prefix itself, or with a number behind it."""
        return self._names.fresh(name_prefix)

    # --- emitting -------------------------------------------------------------------------------

    def emit(self, expr: Values, name_hint: str = "") -> Var:
        """Bind an expression to a fresh variable and return it.

        Parameters
        ----------
        expr
            An expression, or several for a tuple; what is nested in it is emitted first.
        name_hint
            Name of the variable; ``lv`` in a dataflow block and ``gv`` elsewhere by default.
        """
        return self.bind_normalized(self._normalizer.normalize(self._to_expr(expr)), name_hint)

    def emit_output(self, output: Values, name_hint: str = "") -> Var:
        """Bind an output of the dataflow block: a variable visible after it.

        Raises
        ------
        InternalError
            If no dataflow block is open.
        """
        if not self._block().is_dataflow:
            raise InternalError("EmitOutput has to be called inside dataflow block.")
        value = self._normalizer.normalize(self._to_expr(output))
        var = self._new_var(value, name_hint, is_output=True)
        self.emit_normalized(VarBinding(var, value, span=self._place(value)))
        return var

    def match_cast(self, value: Expr, ty: Type, name_hint: str = "") -> Var:
        """Bind a value under a type that is checked when the program runs.

        Bare dimensions of ``ty`` that are not known yet are defined here.

        Raises
        ------
        InternalError
            If the value provably cannot have the type.
        """
        value = self._normalizer.normalize(value)
        if value.ty is None:
            raise InternalError(f"the type of {value} is not known")
        if type_base_check(value.ty, ty, self.analyzer) is BaseCheckResult.FAIL_L0:
            raise InternalError(
                "It is impossible to match cast any value into the target ty. But got value type: "
                f"{value.ty!r}, given type: {ty!r}"
            )
        dataflow = self._block().is_dataflow
        name = self._names.fresh(name_hint or ("lv" if dataflow else "gv"))
        kind = DataflowVar if dataflow else Var
        var = kind(name, ty, self.span)
        self.emit_normalized(MatchCast(var, value, ty, span=self.span))
        return var

    def call_te(
        self,
        func: Callable[..., Any],
        *args: Any,
        primfunc_name_hint: str | None = None,
        primfunc_attrs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Call:
        """Make a kernel of a tensor computation and return a call of it, not yet emitted.

        Parameters
        ----------
        func
            Takes te tensors (and other arguments), returns one or a list.
        args, kwargs
            Its arguments; Relax tensors among them become te placeholders.
        primfunc_name_hint
            Name of the kernel; the function's own by default.
        primfunc_attrs
            More attributes of the kernel.
        """
        return call_te(
            self,
            func,
            args,
            kwargs,
            primfunc_name_hint=primfunc_name_hint,
            primfunc_attrs=primfunc_attrs,
        )

    def call_te_with_grad(
        self,
        func: Callable[..., Any],
        *args: Any,
        te_grad_name: str,
        te_grad_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Call:
        """:meth:`call_te`, with the name of the te function that computes the gradient."""
        call = self.call_te(func, *args, **kwargs)
        attrs = {"te_grad_name": te_grad_name, "te_grad_kwargs": dict(te_grad_kwargs or {})}
        return Call(Op.get("relax.call_tir_with_grad"), call.args, Attrs(attrs), call.ty_args)

    def emit_te(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Var:
        """Emit :meth:`call_te`."""
        return self.emit(self.call_te(func, *args, **kwargs))

    def emit_normalized(self, binding: Binding) -> None:
        """Append a binding whose value is in normal form already.

        Raises
        ------
        InternalError
            If it binds a dataflow variable outside a dataflow block.
        TypeError
            If it is no binding.
        """
        block = self._block()
        if not isinstance(binding, VarBinding | MatchCast):
            raise TypeError(f"unknown kind of binding: {type(binding).__name__}")
        if isinstance(binding.var, DataflowVar) and not block.is_dataflow:
            raise InternalError("Cannot emit dataflow var in non-dataflow block")
        block.bindings.append(binding)
        if isinstance(binding, VarBinding):
            self._bindings[binding.var] = binding.value
        else:
            self._define_types_in_scope((binding.ty,))

    def bind_normalized(self, expr: Expr, name_hint: str = "") -> Var:
        """Bind an expression in normal form to a fresh variable."""
        var = self._new_var(expr, name_hint)
        self.emit_normalized(VarBinding(var, expr, span=self._place(expr)))
        return var

    def _place(self, value: Expr) -> Span | None:
        return value.span if isinstance(value, Call) and value.span is not None else self.span

    def _new_var(self, value: Expr, name_hint: str, is_output: bool = False) -> Var:
        dataflow = self._block().is_dataflow and not is_output
        if value.ty is None:
            raise InternalError(
                f"The type is not populated, check if you have normalized the expr: {value}"
            )
        name = self._names.fresh(name_hint or ("lv" if dataflow else "gv"))
        kind = DataflowVar if dataflow else Var
        return kind(name, value.ty, self._place(value))

    def _to_expr(self, values: Values) -> Expr:
        if isinstance(values, tuple | list):
            return Tuple(tuple(self._to_expr(value) for value in values))
        if not isinstance(values, Expr):
            raise TypeError(
                f"expected an expression or a sequence of them, got {values!r}; convert numbers "
                "with relax.const or relax.prim_value first"
            )
        return values

    # --- normal form ----------------------------------------------------------------------------

    def normalize(self, expr: Expr) -> Expr:
        """Return an expression in normal form, with its type; nothing is bound to it.

        What is nested in it is emitted into the current block.
        """
        return self._normalizer.normalize(expr)

    def normalize_argument(self, expr: Expr) -> Expr:
        """Return an expression as a leaf or a tuple of leaves; anything else is emitted."""
        return self._normalizer.argument(expr)

    def normalized_before(self) -> dict[Expr, Expr]:
        """Return what was emitted into the current block, by the expression it came from."""
        return self._blocks[-1].normalized if self._blocks else {}

    def lookup_binding(self, var: Var) -> Expr | None:
        """Return the value a variable was bound to; None for a parameter or a match_cast."""
        return self._bindings.get(var)

    # --- blocks ---------------------------------------------------------------------------------

    def _block(self) -> _Block:
        if not self._blocks:
            raise InternalError("no block is being built")
        return self._blocks[-1]

    def begin_block(self, is_dataflow: bool) -> None:
        """Start a block; it ends with :meth:`end_block`."""
        self._blocks.append(_Block(is_dataflow))

    def end_block(self) -> BindingBlock:
        """Finish the current block and return it."""
        self._block()
        block = self._blocks.pop()
        kind = DataflowBlock if block.is_dataflow else BindingBlock
        return kind(tuple(block.bindings))

    def _begin_binding_block(self) -> None:
        """Start a plain block (TVM's name)."""
        self.begin_block(is_dataflow=False)

    def _begin_dataflow_block(self) -> None:
        """Start a dataflow block (TVM's name)."""
        self.begin_block(is_dataflow=True)

    def _end_block(self) -> BindingBlock:
        """Finish the current block (TVM's name)."""
        return self.end_block()

    @contextmanager
    def dataflow(self) -> Iterator[None]:
        """Open a dataflow block; a new plain block starts after it."""
        self._keep_block()
        self.begin_block(is_dataflow=True)
        yield
        self._keep_block()
        self.begin_block(is_dataflow=False)

    def _keep_block(self) -> None:
        """End the block at hand and keep it for the function's body."""
        block = self.end_block()
        if block.bindings and self._functions:
            self._functions[-1].blocks.append(block)

    def current_block_is_dataflow(self) -> bool:
        """Say whether a dataflow block is being built; False when none is."""
        return bool(self._blocks) and self._blocks[-1].is_dataflow

    # --- symbolic variables ---------------------------------------------------------------------

    def begin_scope(self, params: Iterable[Var] | None = None) -> None:
        """Open a scope of symbolic variables: those around it and those of ``params``."""
        self._scopes.append(dict(self._scopes[-1]) if self._scopes else {})
        if params is not None:
            self._define_types_in_scope(param.ty for param in params)

    def end_scope(self) -> None:
        """Close the innermost scope.

        Raises
        ------
        InternalError
            If none is open.
        """
        if not self._scopes:
            raise InternalError("no scope is open")
        self._scopes.pop()

    @contextmanager
    def testing_scope(self, def_vars: Sequence[Var]) -> Iterator[None]:
        """Open a scope that knows some symbolic variables, with a dataflow block in it."""
        self.begin_scope()
        self._define_in_scope(def_vars)
        self.begin_block(is_dataflow=True)
        try:
            yield
        finally:
            self.end_block()
            self.end_scope()

    def known_dims(self) -> dict[Var, Expr] | None:
        """Return the symbolic variables in scope; None outside of all scopes."""
        return self._scopes[-1] if self._scopes else None

    def _define_types_in_scope(self, types: Iterable[Type | None]) -> None:
        if self._scopes:
            self._define_in_scope(v for ty in types for v in definable_tir_vars_in_type(ty))

    def _define_in_scope(self, variables: Iterable[Var]) -> None:
        scope = self._scopes[-1]
        for var in variables:
            if var not in scope:
                scope[var] = var
                self.analyzer.mark_global_non_neg_value(var)


def _to_params(params: Var | Tuple | Sequence[Var]) -> tuple[Var, ...]:
    if isinstance(params, Var):
        return (params,)
    items = params.fields if isinstance(params, Tuple) else tuple(params)
    for item in items:
        if not isinstance(item, Var):
            raise TypeError(
                "each element of function parameters must be of type tvm.relax.Var, but got: "
                f"{type(item)}"
            )
    return tuple(item for item in items if isinstance(item, Var))
