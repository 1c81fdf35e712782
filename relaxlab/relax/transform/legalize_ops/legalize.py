"""The pass LegalizeOps: every operator call whose shapes are known becomes a kernel call.

For each call, arguments first: a function from ``customize_legalize_map``, else the operator's
``FLegalize`` is asked for an expression; else a packed function (``FCallPacked``) is called. What
comes back is legalized again, with the bindings it emitted, until nothing changes. A kernel whose
result lies on a virtual device is copied for the target of that device.
Counterpart: ``tvm.relax.transform.LegalizeOps``.

Examples
--------
>>> LegalizeOps(skip_ops=("relax.add",)).info.name
'LegalizeOps'
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from relaxlab.ir import IRModule, ModulePass, PassContext
from relaxlab.ir.expr import Call, Expr, GlobalVar
from relaxlab.ir.op import Op
from relaxlab.ir.target import Target
from relaxlab.ir.transform import config_option
from relaxlab.ir.type import FuncType, PrimType, TupleType, Type
from relaxlab.relax.expr import ExternFunc, Function, ShapeExpr
from relaxlab.relax.expr_functor import ExprMutator
from relaxlab.relax.transform.dead_code_elimination import DeadCodeElimination
from relaxlab.relax.transform.legalize_ops.kernel_cache import KernelCache, call_key
from relaxlab.relax.transform.legalize_ops.registration import LegalizeFunc
from relaxlab.relax.type import ShapeType, TensorType
from relaxlab.tirx.function import PrimFunc

__all__ = ["LegalizeOps"]

_LOGGER = logging.getLogger(__name__)
_APPLY = config_option("relax.transform.apply_legalize_ops", bool)


@dataclass(frozen=True)
class LegalizeOps(ModulePass):
    """Replace operator calls by calls of kernels.

    Parameters
    ----------
    customize_legalize_map
        Operator name to legalization function, taken before the registered one.
    skip_ops
        Names of operators to leave alone.
    enable_warning
        Whether to log a warning for an operator that nothing legalizes.

    Notes
    -----
    The option ``relax.transform.apply_legalize_ops`` of the pass context, when False, disables
    the pass.
    """

    customize_legalize_map: Mapping[str, LegalizeFunc] | None = None
    skip_ops: Iterable[str] | None = None
    enable_warning: bool = field(default=False)

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Legalize every Relax function, in the order of their names."""
        if not ctx.config.get(_APPLY, True):
            return mod
        legalizer = _Legalizer(
            mod,
            dict(self.customize_legalize_map or {}),
            frozenset(self.skip_ops or ()),
            self.enable_warning,
        )
        changed = False
        for gvar, func in mod.functions_items():
            if isinstance(func, Function):
                new = legalizer.visit_expr(func)
                # all of them, which decides the order of functions in the executable
                legalizer.builder.update_func(gvar, new)
                changed = changed or new is not func
        if not changed:
            return mod
        legalized = legalizer.builder.get()
        # kernels that were copied for a target may have no caller left
        return DeadCodeElimination()(legalized) if legalizer.copied else legalized


class _Legalizer(ExprMutator):
    """Rewrites the calls of one module."""

    def __init__(
        self,
        mod: IRModule,
        custom: Mapping[str, LegalizeFunc],
        skipped: frozenset[str],
        warn: bool,
    ) -> None:
        super().__init__(mod)
        self.custom = custom
        self.skipped = skipped
        self.warn = warn
        self.cache = KernelCache()
        self.copied = False

    def visit_call_(self, op: Call) -> Expr:
        visited = super().visit_call_(op)
        if not isinstance(visited, Call) or not isinstance(visited.op, Op):
            return visited
        if visited.op.name in self.skipped:
            return visited
        function = self._choose(visited, visited.op)
        if function is None:
            return visited
        builder = self.builder
        # what users pass in may look at more than the call
        key = call_key(visited) if function is visited.op.get_attr("FLegalize") else None
        template = self.cache.find(key)
        if template is not None:
            return self.cache.instantiate(template, visited)
        if builder.current_block_is_dataflow():
            builder._begin_dataflow_block()
        else:
            builder._begin_binding_block()
        legalized = function(builder, visited)
        prologue = builder._end_block()
        for binding in prologue.bindings:
            self.visit_binding(binding)
        if legalized is visited:
            return visited
        legalized = builder.normalize(self._copy_for_target(legalized))
        again: Expr = self.visit_expr(_keep_pure(visited.op, legalized))
        if not prologue.bindings:
            self.cache.remember(key, visited, again)
        return again

    def _copy_for_target(self, expr: Expr) -> Expr:
        """Let a kernel call whose result lies on a virtual device call a copy for its target."""
        if not isinstance(expr, Call) or expr.op is not Op.get("relax.call_tir"):
            return expr
        gvar, target = expr.args[0], _target_of(expr.ty_args)
        assert isinstance(gvar, GlobalVar)
        kernel = self.builder.lookup_func(gvar)
        if target is None or not isinstance(kernel, PrimFunc):
            return expr
        name = f"{gvar.name_hint}_{target.kind.name}"
        copy = self.builder.add_func(kernel.with_attr("target", target), name)
        self.copied = True
        return Call(expr.op, (copy, *expr.args[1:]), expr.attrs, expr.ty_args)

    def _choose(self, call: Call, op: Op) -> LegalizeFunc | None:
        if _shapes_known_if_required(call, op):
            function: LegalizeFunc | None = self.custom.get(op.name) or op.get_attr("FLegalize")
            if function is not None:
                return function
        packed = op.get_attr("FCallPacked")
        if packed is None:
            if self.warn:
                _LOGGER.warning("No legalization func for %s is found.", op.name)
            return None
        return lambda bb, c: _call_packed(c, packed)


def _shapes_known_if_required(call: Call, op: Op) -> bool:
    """Say whether shapes (and dtypes) are known; what is not lowered is named in the end."""
    if op.get_attr("RequiresArgumentShapes", True) is False:
        return True
    if not all(_shape_known(arg.ty) for arg in call.args):
        return False
    return bool(op.get_attr("FDataDependent", False)) or _shape_known(call.ty)


def _shape_known(ty: Type | None) -> bool:
    match ty:
        case TensorType():
            return isinstance(ty.shape, ShapeExpr) and ty.dtype is not None
        case ShapeType():
            return ty.values is not None
        case TupleType():
            return all(_shape_known(item) for item in ty.fields)
        case PrimType():
            return True
        case _:
            return False


def _target_of(types: Iterable[Type]) -> Target | None:
    """Return the target of the first virtual device in types."""
    for ty in types:
        found = None
        if isinstance(ty, TensorType):
            found = None if ty.vdevice is None else ty.vdevice.target
        elif isinstance(ty, TupleType):
            found = _target_of(ty.fields)
        if found is not None:
            return found
    return None


def _call_packed(call: Call, name: str) -> Expr:
    assert call.ty is not None, "a normalized call has a type"
    return Call(ExternFunc(name), call.args, call.attrs, (call.ty,))


def _keep_pure(op: Op, legalized: Expr) -> Expr:
    """Wrap an impure call that stands for a pure operator."""
    if not op.get_attr("FPurity", False) or not isinstance(legalized, Call):
        return legalized
    callee = legalized.op
    if isinstance(callee, Op):
        pure = bool(callee.get_attr("FPurity", False))
    else:
        pure = isinstance(callee.ty, FuncType) and callee.ty.purity
    if pure:
        return legalized
    return Call(
        Op.get("relax.call_pure_packed"),
        (callee, *legalized.args),
        legalized.attrs,
        legalized.ty_args,
    )
