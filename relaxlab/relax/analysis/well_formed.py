"""Whether a program obeys the rules of the language, and if not, which one it breaks.

Counterpart: ``tvm.relax.analysis.well_formed``; the rules are listed in compiler.md, section 1.8.
The first violation is raised. Errors are of TVM's types and say TVM's words, with functions called
by their names.

Examples
--------
>>> from relaxlab.relax.expr import Function, TensorType, Var
>>> x, y = Var("x", TensorType([4])), Var("y", TensorType([4]))
>>> check_well_formed(Function([x], x)), check_well_formed(Function([x], y))
(True, False)
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from relaxlab.errors import InternalError
from relaxlab.ir.expr import Call, Expr, GlobalVar, StringImm, Tuple, TupleGetItem, Var
from relaxlab.ir.module import IRModule
from relaxlab.ir.op import Op
from relaxlab.ir.prim_functor import free_vars as scalar_vars
from relaxlab.ir.type import FuncType, PrimType, TupleType, Type
from relaxlab.relax.analysis.purity import find_impure_call, is_impure_call
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
    ShapeExpr,
    VarBinding,
)
from relaxlab.relax.normalizer import Normalizer, is_leaf_or_tuple
from relaxlab.relax.type import ShapeType, TensorType
from relaxlab.relax.type_relations import BaseCheckResult, is_base_of, type_base_check
from relaxlab.relax.type_variables import definable_tir_vars_in_type
from relaxlab.tirx.function import PrimFunc

__all__ = ["check_well_formed", "well_formed"]


def well_formed(obj: IRModule | Function, check_ty: bool = True) -> None:
    """Raise an error that names the first rule that a module or function breaks.

    Parameters
    ----------
    obj
        What to check; kernels of a module are not looked into.
    check_ty
        Whether the types written on calls are compared with those that follow.

    Raises
    ------
    ValueError, TypeError, InternalError
        As TVM does for the rule; the message names the culprit.
    """
    if isinstance(obj, Function):
        _Checker(None, check_ty).function(obj, _name_of(obj))
        return
    checker = _Checker(obj, check_ty)
    for gvar, func in obj.functions.items():
        if isinstance(func, Function):
            symbol = func.func_attrs.get("global_symbol")
            if symbol is not None and symbol != gvar.name_hint:
                raise ValueError(
                    f"Name in GlobalVar is not equal to name in gsymbol: {gvar} != {symbol}"
                )
            checker.global_function(gvar, func)


def check_well_formed(obj: IRModule | Function, check_ty: bool = True) -> bool:
    """Say whether :func:`well_formed` finds nothing."""
    try:
        well_formed(obj, check_ty)
    except (ValueError, TypeError, InternalError, IndexError):
        return False
    return True


def _name_of(func: Function) -> str:
    return str(func.func_attrs.get("global_symbol", "main"))


def _kind(expr: Expr) -> str:
    """Return the kind of a node as messages show it."""
    name = type(expr).__name__
    return (
        f"ir.{name}" if type(expr).__module__.startswith("relaxlab.ir.") else f"relax.expr.{name}"
    )


class _Checker:
    """One check: what is defined where, in which function and block we are."""

    def __init__(self, mod: IRModule | None, check_ty: bool) -> None:
        self.mod = mod
        self.check_ty = check_ty
        # a builder on the module knows the types of its kernels, and how to infer
        self.builder = BlockBuilder(mod)
        self.normalizer = Normalizer(self.builder)
        #: Variables in scope, and those defined in this function at all.
        self.visible: set[Var] = set()
        self.dataflow_visible: set[Var] = set()
        self.in_dataflow = False
        #: Which function has a variable as a parameter, which defines a symbolic variable.
        self.param_owner: dict[Var, str] = {}
        self.symbol_owner: dict[Var, str] = {}
        self.name = ""

    # --- functions ------------------------------------------------------------------------------

    def global_function(self, gvar: GlobalVar, func: Function) -> None:
        self.visible = set()
        self.function(func, gvar.name_hint, gvar)

    def function(self, func: Function, name: str, own: Var | GlobalVar | None = None) -> None:
        outer_name, outer_flow = self.name, self.in_dataflow
        if isinstance(own, GlobalVar) or own is None:
            self.name = name
        self.in_dataflow = False
        with self.scope():
            for param in func.params:
                self.parameter(param)
            for param in func.params:
                self.type(param.ty)
            if not isinstance(func.body, SeqExpr):
                raise ValueError(f"The body of function {name} must be a SeqExpr")
            self.sequence(func.body)
            self.type(func.ret_ty)
            self.purity(func, name, own)
        self.name, self.in_dataflow = outer_name, outer_flow

    def parameter(self, param: Var) -> None:
        if isinstance(param, DataflowVar):
            raise ValueError(f"DataflowVar {param.name} is defined outside DataflowBlock.")
        if param in self.visible:
            raise ValueError(f"Var {param.name} is defined more than once.")
        owner = self.param_owner.setdefault(param, self.name)
        if owner != self.name:
            raise ValueError(
                f"Relax variable {param.name} is used as a parameter in both function "
                f'"{owner}" and function "{self.name}".'
            )
        if param.ty is None:
            raise InternalError(f"Var {param.name} does not have type.")
        self.visible.add(param)
        self.define_symbols(param.ty)

    def purity(self, func: Function, name: str, own: Var | GlobalVar | None) -> None:
        forced = bool(func.func_attrs.get("relax.force_pure", False))
        if forced and not func.is_pure:
            raise ValueError(
                f"Function {name} has true for relax.force_pure but false for is_pure; "
                "relax.force_pure should be true only if is_pure is also true."
            )
        if func.is_pure and not forced:
            call = find_impure_call(func, own)
            if call is not None:
                raise ValueError(
                    f"Function {name} is annotated as pure but contains an impure call: {call}.  "
                    "Please set relax.force_pure to true or use a pure operator variant (e.g., "
                    "call_pure_packed) if it is necessary to override this judgment."
                )

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Forget afterwards what is defined inside."""
        before, flow = self.visible, self.dataflow_visible
        self.visible, self.dataflow_visible = set(before), set(flow)
        yield
        self.visible, self.dataflow_visible = before, flow

    # --- blocks and bindings --------------------------------------------------------------------

    def sequence(self, seq: SeqExpr) -> None:
        for block in seq.blocks:
            self.block(block)
        if not is_leaf_or_tuple(seq.body):
            raise TypeError("SeqExpr bodies must be leaf expressions.")
        self.leaf(seq.body)
        self.typed(seq)

    def block(self, block: BindingBlock) -> None:
        outer = self.in_dataflow
        self.in_dataflow = isinstance(block, DataflowBlock)
        visible_flow = self.dataflow_visible
        self.dataflow_visible = set()
        for binding in block.bindings:
            self.binding(binding)
        self.in_dataflow, self.dataflow_visible = outer, visible_flow

    def binding(self, binding: Binding) -> None:
        match binding:
            case VarBinding(var=var, value=value):
                local = isinstance(value, Function)
                if local:
                    self.define(var)  # a local function may call itself
                self.value(value, var)
                if not local:
                    self.define(var)
                self.assignable(var, value.ty)
            case MatchCast(var=var, value=value, ty=ty):
                self.value(value, var)
                self.define_symbols(ty)
                self.type(ty)
                self.define(var)
                self.assignable(var, ty)
            case _:
                raise TypeError(f"unknown kind of binding: {type(binding).__name__}")

    def define(self, var: Var) -> None:
        if var in self.visible or var in self.dataflow_visible:
            raise ValueError(f"Var {var.name} is defined more than once.")
        if isinstance(var, DataflowVar):
            if not self.in_dataflow:
                raise ValueError(f"DataflowVar {var.name} is defined outside DataflowBlock.")
            self.dataflow_visible.add(var)
        else:
            self.visible.add(var)
        if var.ty is None:
            raise InternalError(f"Var {var.name} does not have type.")

    def assignable(self, var: Var, ty: Type | None) -> None:
        self.type(var.ty)
        if not self.check_ty or var.ty is None or ty is None:
            return
        if not is_base_of(var.ty, ty, self.builder.analyzer):
            raise TypeError(
                f"Expression of type {ty!r} cannot be assigned to a variable of type {var.ty!r}"
            )

    # --- values ---------------------------------------------------------------------------------

    def value(self, expr: Expr, var: Var) -> None:
        """Check the value of a binding."""
        match expr:
            case Function():
                self.function(expr, var.name, var)
            case If():
                self.choice(expr)
            case SeqExpr():
                raise ValueError(
                    "SeqExpr only serves as the function body in FunctionNode, or the true/false "
                    "branch body in IfNode."
                )
            case PrimFunc():
                raise ValueError("Inline PrimFunc is disallowed in Relax IR.")
            case Call() if not is_leaf_or_tuple(expr):
                self.call(expr)
            case TupleGetItem():
                if not is_leaf_or_tuple(expr.tuple_value):
                    raise TypeError(
                        "The tuple value in a TupleGetItem node must be a leaf expression."
                    )
                self.leaf(expr.tuple_value)
                self.typed(expr)
            case Tuple():
                for i, field in enumerate(expr.fields):
                    if not is_leaf_or_tuple(field):
                        raise ValueError(f"Tuple is not in ANF form, field {i} gets {_kind(field)}")
                self.leaf(expr)
            case _:
                self.leaf(expr)

    def choice(self, expr: If) -> None:
        if self.in_dataflow:
            raise ValueError("If nodes are not allowed to appear in dataflow blocks.")
        if not is_leaf_or_tuple(expr.cond):
            raise TypeError("The condition for an if node must be a leaf expression.")
        self.leaf(expr.cond)
        for branch in (expr.true_branch, expr.false_branch):
            if not isinstance(branch, SeqExpr):
                raise ValueError(f"The branch of an If must be a SeqExpr, got {_kind(branch)}")
            with self.scope():
                self.sequence(branch)
        self.typed(expr)

    def call(self, call: Call) -> None:
        if not is_leaf_or_tuple(call.op):
            raise TypeError("The called expression must be a leaf expression")
        self.leaf(call.op)
        for i, arg in enumerate(call.args):
            if not is_leaf_or_tuple(arg):
                raise ValueError(f"Call is not in ANF form, arg {i} gets {_kind(arg)}")
            self.leaf(arg)
        for ty in call.ty_args:
            self.type(ty)
        self.typed(call)
        if self.in_dataflow and is_impure_call(call):
            raise ValueError(f"Impure function call {call} occurs within a dataflow block.")
        if isinstance(call.op, Op):
            self.operator_rules(call, call.op)
        if self.check_ty:
            self.inferable(call)

    def operator_rules(self, call: Call, op: Op) -> None:
        validate = op.get_attr("FValidate")
        if validate is not None:
            validate(call)
        normalize = op.get_attr("FNormalize")
        if normalize is not None:
            changed = normalize(call, self.builder)
            if changed is not call:
                raise ValueError(
                    "If an operator defines an operator-specific normalization function "
                    "(FNormalize), calls to that operator must be normalized with it.  However, "
                    f"normalization of {call} resulted in {changed}"
                )

    def inferable(self, call: Call) -> None:
        try:
            inferred = self.normalizer.infer(call)
        except (ValueError, TypeError, InternalError) as error:
            raise TypeError(
                "Each Relax expression must be able to have its Type inferred.  However, "
                f"inferring the type of expression {call} resulted in the error:\n{error}"
            ) from error
        assert call.ty is not None, "checked before"
        check = type_base_check(call.ty, inferred, self.builder.analyzer)
        if check is BaseCheckResult.FAIL_L0:
            raise TypeError(
                "All information in Type annotations must be correct.  However, while the "
                f"expression {call} is annotated as {call.ty!r}, the expression outputs "
                f"{inferred!r}"
            )

    # --- leaves ---------------------------------------------------------------------------------

    def leaf(self, expr: Expr) -> None:
        match expr:
            case DataflowVar():
                if not self.in_dataflow:
                    raise ValueError(f"DataflowVar {expr.name} is used outside DataflowBlock.")
                if expr not in self.dataflow_visible:
                    raise ValueError(f"DataflowVar {expr.name} is not defined.")
            case Var():
                self.used(expr)
            case GlobalVar():
                if self.mod is not None and expr not in self.mod.functions:
                    raise ValueError(f"GlobalVar {expr} is not defined.")
            case Tuple():
                for field in expr.fields:
                    self.leaf(field)
                self.typed(expr)
            case ShapeExpr():
                self.dims(expr.values)
            case Op() | StringImm():
                pass
            case _ if isinstance(expr.ty, PrimType):
                for var in scalar_vars(expr):
                    self.used(var)
            case _:
                self.typed(expr)

    def used(self, var: Var) -> None:
        if var not in self.visible:
            raise ValueError(f"Var {var.name} is not defined.")

    def typed(self, expr: Expr) -> None:
        if expr.ty is None:
            raise TypeError(f"The ty of Expr {expr} is missing.")

    # --- types ----------------------------------------------------------------------------------

    def define_symbols(self, ty: Type) -> None:
        """Define the symbolic variables that ``ty`` defines and nothing did before."""
        for var in definable_tir_vars_in_type(ty):
            if var in self.visible:
                continue
            owner = self.symbol_owner.setdefault(var, self.name)
            if owner != self.name:
                raise ValueError(
                    f'Var {var.name} is defined in both function "{owner}" and function '
                    f'"{self.name}".'
                )
            self.visible.add(var)
            self.builder.analyzer.mark_global_non_neg_value(var)

    def type(self, ty: Type | None) -> None:
        """Check that what a type mentions is defined."""
        match ty:
            case TensorType(shape=ShapeExpr(values=values)):
                self.dims(values)
            case TensorType(shape=DataflowVar()):
                raise ValueError("DataflowVar cannot be used as a dependent type expression.")
            case TensorType(shape=Var() as shape):
                self.used(shape)
            case ShapeType(values=values) if values is not None:
                self.dims(values)
            case TupleType(fields=fields):
                for item in fields:
                    self.type(item)
            case FuncType(params=params):
                with self.scope():
                    # its parameters define variables of its own
                    for param in params or ():
                        self.visible.update(definable_tir_vars_in_type(param))
                    for param in params or ():
                        self.type(param)
                    self.type(ty.ret)
            case _:
                pass

    def dims(self, values: Iterable[Expr]) -> None:
        for dim in values:
            if not isinstance(dim.ty, PrimType) or not (dim.dtype.is_int or dim.dtype.is_uint):
                raise TypeError(
                    f"Shape expressions must be of integer type, but got {dim} of type {dim.ty!r}"
                )
            for var in [dim] if isinstance(dim, Var) else scalar_vars(dim):
                self.used(var)
