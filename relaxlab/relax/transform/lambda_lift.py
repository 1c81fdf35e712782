"""Turn local functions into functions of the module.

A local function that uses nothing from around it becomes a plain function. One that does gets what
it uses as extra last parameters, and where it stood a closure is made of it and those values; a
call through the closure becomes ``R.invoke_pure_closure`` (or ``R.invoke_closure``, when it has
effects). A recursive closure calls itself directly.
Counterpart: ``tvm.relax.transform.LambdaLift``.

Examples
--------
>>> LambdaLift().info.opt_level
1
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from relaxlab.ir import (
    AnyType,
    Call,
    Expr,
    FuncType,
    GlobalVar,
    IRModule,
    ModulePass,
    Op,
    PassContext,
    PrimType,
    Tuple,
    Type,
    Var,
)
from relaxlab.relax.analysis import free_vars
from relaxlab.relax.expr import Function, VarBinding
from relaxlab.relax.expr_functor import ExprMutator, ExprVisitor
from relaxlab.relax.type_variables import substitute, tir_vars_in_type

__all__ = ["LambdaLift"]


@dataclass(frozen=True, slots=True)
class _Recursive:
    """What the name of a closure means inside it: the lifted function, and what it captured."""

    gvar: GlobalVar
    captured: tuple[Var, ...]


class _LocalFunctions(ExprVisitor):
    def __init__(self) -> None:
        self.found = False

    def visit_var_binding_(self, binding: VarBinding) -> None:
        self.found = self.found or isinstance(binding.value, Function)
        super().visit_var_binding_(binding)


def _has_local_functions(func: Function) -> bool:
    visitor = _LocalFunctions()
    visitor.visit_expr(func)
    return visitor.found


def _call_closure(mutator: ExprMutator, op: Call) -> Expr | None:
    """Return the call of a variable that was a function and is a closure now, else None."""
    if not isinstance(op.op, Var) or not isinstance(op.op.ty, FuncType):
        return None
    callee = mutator.visit_expr(op.op)
    if not isinstance(callee.ty, AnyType):
        return None
    name = "relax.invoke_pure_closure" if op.op.ty.purity else "relax.invoke_closure"
    assert op.ty is not None
    args = (callee, Tuple(mutator.visit_each(op.args)))
    call = Call(Op.get(name), args, None, (mutator.visit_ty(op.ty),), span=op.span)
    return mutator.builder.normalize(call)


class _Lifter(ExprMutator):
    def __init__(self, mod: IRModule, outer: str, taken: set[str]) -> None:
        super().__init__(mod)
        #: Names from the module's function down to the local function being lifted.
        self.path = [outer]
        self.taken = taken
        self.lifted: list[tuple[GlobalVar, Function]] = []
        self.recursive: dict[Var, _Recursive] = {}
        #: Symbolic variables of a lifted function, to its own copies.
        self.sizes: dict[Var, Expr] = {}

    # ---- what the variables of the old program mean -----------------------------------------

    def visit_ty(self, ty: Type) -> Type:
        return substitute(ty, self.sizes)

    def visit_prim_expr_(self, op: Expr) -> Expr:
        return substitute(op, self.sizes)

    def visit_var_(self, op: Var) -> Expr:
        if op in self.sizes:
            return self.sizes[op]
        itself = self.recursive.get(op)
        if itself is not None:
            return self.closure(itself.gvar, itself.captured)
        return super().visit_var_(op)

    def visit_call_(self, op: Call) -> Expr:
        itself = self.recursive.get(op.op) if isinstance(op.op, Var) else None
        if itself is not None:
            args = (*self.visit_each(op.args), *itself.captured)
            return self.builder.normalize(Call(itself.gvar, args, span=op.span))
        through_closure = _call_closure(self, op)
        return super().visit_call_(op) if through_closure is None else through_closure

    # ---- lifting ----------------------------------------------------------------------------

    def visit_var_binding_(self, binding: VarBinding) -> None:
        if not isinstance(binding.value, Function):
            super().visit_var_binding_(binding)
            return
        func = binding.value
        captured = tuple(self.captured(func, binding.var))
        self.path.append(binding.var.name)
        gvar = GlobalVar(self.name(func))
        lifted = self.lift(func, binding.var, gvar, captured)
        self.path.pop()
        self.lifted.append((gvar, lifted))
        gvar.set_ty(lifted.ty)  # type: ignore[arg-type]  # a function has a type
        if captured:
            closure = self.closure(gvar, tuple(self.visit_expr(var) for var in captured))
            self.reemit_binding(binding, closure)
        else:
            self.var_remap[binding.var] = gvar

    def closure(self, gvar: GlobalVar, captured: tuple[Expr, ...]) -> Expr:
        call = Call(Op.get("relax.make_closure"), (gvar, Tuple(captured)))
        return self.builder.normalize(call)

    def captured(self, func: Function, itself: Var) -> Iterable[Var]:
        """Yield what a local function uses from around it, in order of use."""
        for var in free_vars(func):
            if var is itself or isinstance(self.var_remap.get(var), GlobalVar):
                continue
            yield var

    def name(self, func: Function) -> str:
        """Choose the name of the function being lifted."""
        symbol = func.func_attrs.get("global_symbol")
        if symbol is not None:
            if symbol in self.taken:
                raise ValueError(
                    f"local function {self.path[-1]!r} has the global_symbol {symbol!r}, which "
                    "another function of the module has"
                )
            self.taken.add(symbol)
            return str(symbol)
        base = f"{self.path[0]}_{self.path[-1]}"
        candidates = [base, "_".join(self.path)]
        name = next((c for c in candidates if c not in self.taken), None)
        count = 0
        while name is None:
            candidate = f"{base}_{count}"
            name = None if candidate in self.taken else candidate
            count += 1
        self.taken.add(name)
        return name

    def lift(
        self, func: Function, itself: Var, gvar: GlobalVar, captured: tuple[Var, ...]
    ) -> Function:
        """Return the function for the module, with parameters for what it captured."""
        remap, sizes, recursive = self.var_remap, self.sizes, self.recursive
        self.var_remap, self.sizes = dict(remap), dict(sizes)
        self.recursive = dict(recursive)
        # a variable belongs to one function: the lifted one gets its own
        for size in _sizes(func):
            if size not in captured:
                self.sizes[size] = Var(size.name, size.ty)
        extra: list[Var] = []
        for var in captured:
            if isinstance(var.ty, PrimType):
                own = Var(var.name, var.ty)
                self.sizes[var] = own
            else:
                outside = remap.get(var, var)
                assert outside.ty is not None
                own = Var(var.name, self.visit_ty(outside.ty))
                self.var_remap[var] = own
                self.recursive.pop(var, None)
            extra.append(own)
        params = [Var(p.name, self.visit_ty(_type_of(p)), p.span) for p in func.params]
        self.var_remap.update(zip(func.params, params, strict=True))
        every = (*params, *extra)
        ret_ty = self.visit_ty(func.ret_ty)
        gvar.set_ty(FuncType(tuple(_type_of(p) for p in every), ret_ty, func.is_pure))
        if captured:
            self.recursive[itself] = _Recursive(gvar, tuple(extra))
        else:
            self.var_remap[itself] = gvar
        body = self.visit_with_new_scope(func.body, every)
        self.var_remap, self.sizes, self.recursive = remap, sizes, recursive
        return _function(func, every, body, ret_ty)


def _sizes(func: Function) -> list[Var]:
    return [var for param in func.params for var in tir_vars_in_type(param.ty)]


def _type_of(var: Var) -> Type:
    assert var.ty is not None
    return var.ty


def _function(func: Function, params: tuple[Var, ...], body: Expr, ret_ty: Type) -> Function:
    """Rebuild a function; one that returned a local function returns a closure now."""
    if isinstance(ret_ty, FuncType) and isinstance(body.ty, AnyType):
        ret_ty = AnyType()
    return Function(params, body, ret_ty, func.is_pure, func.attrs, span=func.span)


class _Callers(ExprMutator):
    """Adapts calls of functions that return closures since lifting."""

    def __init__(self, mod: IRModule, changed: Mapping[GlobalVar, GlobalVar]) -> None:
        super().__init__(mod)
        self.changed = changed

    def visit_global_var_(self, op: GlobalVar) -> Expr:
        return self.changed.get(op, op)

    def visit_call_(self, op: Call) -> Expr:
        through_closure = _call_closure(self, op)
        return super().visit_call_(op) if through_closure is None else through_closure


@dataclass(frozen=True)
class LambdaLift(ModulePass):
    """Lift local functions out of all functions of the module."""

    opt_level: ClassVar[int] = 1

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return the module without local functions."""
        result = mod.clone()
        taken = {gvar.name_hint for gvar in mod.functions}
        closures: dict[GlobalVar, GlobalVar] = {}
        changed = False
        for gvar, func in mod.functions.items():
            if not isinstance(func, Function) or not _has_local_functions(func):
                continue
            lifter = _Lifter(result, gvar.name_hint, taken)
            body = lifter.visit_with_new_scope(func.body, func.params)
            new = _function(func, func.params, body, func.ret_ty)
            for name, lifted in lifter.lifted:
                result.add(name, lifted)
            _update(result, gvar, func, new, closures)
            changed = True
        while closures:
            closures = self.adapt_callers(result, closures)
        return result if changed else mod

    def adapt_callers(
        self, mod: IRModule, closures: Mapping[GlobalVar, GlobalVar]
    ) -> dict[GlobalVar, GlobalVar]:
        """Adapt callers in place; return those that return closures themselves now."""
        more: dict[GlobalVar, GlobalVar] = {}
        for gvar, func in list(mod.functions.items()):
            if not isinstance(func, Function):
                continue
            callers: Any = _Callers(mod, closures)
            body = callers.visit_with_new_scope(func.body, func.params)
            if body is func.body:
                continue
            new = _function(func, func.params, body, func.ret_ty)
            _update(mod, gvar, func, new, more)
        return more


def _update(
    mod: IRModule,
    gvar: GlobalVar,
    before: Function,
    after: Function,
    renamed: dict[GlobalVar, GlobalVar],
) -> None:
    """Replace a function; one that returns a closure now has another type, so another variable.

    The module that the pass was given keeps the variable, and what it says of its functions.
    """
    if not isinstance(after.ret_ty, AnyType) or not isinstance(before.ret_ty, FuncType):
        mod.update_func(gvar, after)
        return
    assert after.ty is not None
    renamed[gvar] = GlobalVar(gvar.name_hint)
    renamed[gvar].set_ty(after.ty)
    mod.remove(gvar)
    mod.add(renamed[gvar], after)
