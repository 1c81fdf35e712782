"""Split a function at the weights: what depends on weights only is computed once, beforehand.

Of a function with ``num_input = k``, bindings in dataflow blocks that depend on nothing but
parameters from k on (and constants) move into ``<name>_transform_params``, which takes the weights
as a tuple and returns, as a tuple, what the rest needs: sizes, weights, lifted values. The
function takes these after its inputs. ``R.builtin.stop_lift_params`` keeps a value from being
lifted. Counterpart: ``tvm.relax.transform.LiftTransformParams`` (compiler.md, 6.19).

A weight or lifted value that only the result mentions is needed too (TVM leaves a variable there
that nothing binds), and a function that the module itself calls keeps its signature.

Examples
--------
>>> LiftTransformParams(shared_transform=True).info.name
'LiftTransformParams'
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from relaxlab.ir import (
    Call,
    Expr,
    GlobalVar,
    IntImm,
    IRModule,
    ModulePass,
    Op,
    Pass,
    PassContext,
    Sequential,
    Tuple,
    TupleGetItem,
    TupleType,
    Var,
    merge_spans,
)
from relaxlab.ir.transform import config_option
from relaxlab.relax.analysis import remove_all_unused, used_vars
from relaxlab.relax.expr import (
    DataflowBlock,
    DataflowVar,
    ExternFunc,
    Function,
    SeqExpr,
    ShapeExpr,
    ShapeType,
    VarBinding,
)
from relaxlab.relax.expr_functor import ExprMutator
from relaxlab.relax.substitution import bind_vars, copy_with_new_vars
from relaxlab.relax.transform.bundle_model_params import bundle_params
from relaxlab.relax.transform.canonicalize_bindings import canonicalize_function
from relaxlab.relax.transform.lambda_lift import LambdaLift
from relaxlab.relax.transform.liftable_params import Weights, is_stop, keep_common
from relaxlab.relax.transform.private_functions import only_called
from relaxlab.relax.type_variables import definable_tir_vars_in_type
from relaxlab.runtime.dtype import DataType

__all__ = ["LiftTransformParams"]

_CONSUME = config_option("relax.lift_transform_params.consume_params", bool)
_INT64 = DataType("int64")


@dataclass(frozen=True)
class LiftTransformParams(Pass):
    """Compute beforehand what depends on weights only.

    Parameters
    ----------
    shared_transform
        Whether one function ``transform_params`` does it for all functions with ``num_input``, or
        for those named; what they do not all compute stays in them.

    Raises
    ------
    InternalError
        If functions that are to share the transformation have different weights.

    Notes
    -----
    With the option ``relax.lift_transform_params.consume_params`` of the pass context, the
    generated function clears each field of its argument as soon as it is read.
    """

    shared_transform: bool | Sequence[str] = False

    def run(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Split the functions, lift local ones, clean up."""
        shared = self.shared_transform
        steps = (
            _PartitionTransformParams(shared if isinstance(shared, bool) else tuple(shared)),
            LambdaLift(),
            _LiftTransformParamsPostProc(),
        )
        return Sequential(steps).run(mod, ctx)


@dataclass(frozen=True)
class _PartitionTransformParams(ModulePass):
    opt_level: ClassVar[int] = 1
    pass_name = "PartitionTransformParams"

    shared: bool | tuple[str, ...]

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        chosen = {
            gvar: func
            for gvar, func, calls in only_called(mod, public_too=True)
            if "num_input" in func.attrs and not calls and int(func.attrs["num_input"]) > 0
        }
        if isinstance(self.shared, tuple):
            named = [mod.get_global_var(name) for name in self.shared]
            chosen = {gvar: chosen[gvar] for gvar in named if gvar in chosen}
        if not chosen:
            return mod
        result = mod.clone()
        groups = [list(chosen.items())] if self.shared else [[item] for item in chosen.items()]
        for group in groups:
            first = group[0][0].name_hint
            name = "transform_params" if self.shared else f"{first}_transform_params"
            transform, rest = _split([func for _, func in group], name)
            for (gvar, _), func in zip(group, rest, strict=True):
                result.remove(gvar)
                result.add(GlobalVar(gvar.name_hint), func)
            result.add(GlobalVar(name), transform)
        return result


def _split(functions: Sequence[Function], name: str) -> tuple[Function, list[Function]]:
    """Return the function that computes what depends on weights only, and the rest of each."""
    parts = [Weights(func) for func in functions]
    names = keep_common(parts)
    first = parts[0]
    needed = [part.needed() for part in parts]

    def is_needed(var: Var) -> bool:
        return any(own.get(var) in vars_ for own, vars_ in zip(names, needed, strict=True))

    outputs = [var for var in (*first.weights, *first.lifted) if is_needed(var)]
    sizes = [
        size
        for size in first.sizes()
        if any(
            own.get(size) in vars_
            and not _defines((*part.inputs, *_named(outputs, own)), own[size])
            for part, own, vars_ in zip(parts, names, needed, strict=True)
        )
    ]
    rest = [
        _rest(part, _named(sizes, own), _named(outputs, own))
        for part, own in zip(parts, names, strict=True)
    ]
    return _transformation(first, sizes, outputs, name), rest


def _named(variables: Sequence[Var], own: dict[Var, Var]) -> list[Var]:
    return [own[var] for var in variables if var in own]


def _defines(params: Sequence[Var], size: Var) -> bool:
    return any(param is size or size in definable_tir_vars_in_type(param.ty) for param in params)


def _transformation(
    part: Weights, sizes: Sequence[Var], outputs: Sequence[Var], name: str
) -> Function:
    """Return the function from the weights to what the rest needs."""
    wanted, bindings = set(outputs), []
    known = {**part.constant, **part.lifted}
    for block in reversed(part.func.body.blocks):
        for binding in reversed(block.bindings):
            if isinstance(binding, VarBinding) and binding.var in wanted and binding.var in known:
                wanted.update(used_vars(binding.value))
                bindings.append(binding)
    values: dict[Var, Expr] = {}
    inside: list[VarBinding] = []
    for binding in reversed(bindings):
        var = DataflowVar(binding.var.name, binding.var.ty)
        inside.append(VarBinding(var, binding.value, span=binding.span))
        values[binding.var] = var
    shape = [ShapeExpr(sizes)] if sizes else []
    fields = Tuple((*shape, *outputs))
    result = Var("output_tuple", fields.ty)
    place = merge_spans(binding.span for binding in inside)
    block = DataflowBlock((*inside, VarBinding(result, fields, span=place)))
    attrs = {"global_symbol": name, "num_input": 0}
    body = SeqExpr((block,), result, ty=result.ty, span=place)
    func = bind_vars(Function(part.weights, body, None, True, attrs, part.func.span), values)
    return remove_all_unused(canonicalize_function(bundle_params(copy_with_new_vars(func))))


def _rest(part: Weights, sizes: Sequence[Var], outputs: Sequence[Var]) -> Function:
    """Return the function that takes what the transformation gives."""
    func = part.func
    values: dict[Var, Expr] = {}
    taken: list[Var] = []
    for var in outputs:
        # a dataflow variable cannot be a parameter
        param = Var(var.name, var.ty, var.span) if isinstance(var, DataflowVar) else var
        values[var] = param
        taken.append(param)
    shape: list[Var] = []
    if sizes:
        shape.append(Var("vars_from_compile_time_params", ShapeType(sizes)))
    params = (*part.inputs, *shape, *taken)
    # the result may be no variable, so that it is bound where the bodies are joined
    inner = SeqExpr(part.rest(), func.body.body, ty=func.body.ty, span=func.body.span)
    body = SeqExpr((), inner, ty=func.body.ty, span=func.body.span)
    new = Function(params, body, func.ret_ty, func.is_pure, func.attrs, span=func.span)
    return bind_vars(new, {v: e for v, e in values.items() if v is not e})


# --- cleaning up --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _LiftTransformParamsPostProc(ModulePass):
    opt_level: ClassVar[int] = 1
    pass_name = "LiftTransformParamsPostProc"

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        consume = bool(ctx.config.get(_CONSUME, False))
        changed: dict[GlobalVar, Function] = {}
        for gvar, func in mod.functions.items():
            if not isinstance(func, Function) or "num_input" not in func.attrs:
                continue
            new = _Unstopper(mod).visit_expr(func)
            new = canonicalize_function(new)
            if consume and int(func.attrs["num_input"]) == 0 and len(func.params) == 1:
                new = _Consumer(mod, new.params[0]).visit_expr(new)
            changed[gvar] = new
        return mod.with_functions(changed)


class _Unstopper(ExprMutator):
    """Takes ``stop_lift_params`` out, now that nothing is lifted any more."""

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        return call.args[0] if isinstance(call, Call) and is_stop(call) else call


class _Consumer(ExprMutator):
    """Clears each field of a tuple once it is read; it is read once."""

    def __init__(self, mod: IRModule, bundle: Var) -> None:
        super().__init__(mod)
        self.bundle = bundle
        self.read: dict[int, Var] = {}

    def visit_var_binding_(self, binding: VarBinding) -> None:
        value = binding.value
        if not isinstance(value, TupleGetItem) or value.tuple_value is not self.bundle:
            super().visit_var_binding_(binding)
            return
        if value.index in self.read:
            self.reemit_binding(binding, self.read[value.index])
            return
        super().visit_var_binding_(binding)
        self.read[value.index] = binding.var
        reset = Call(
            Op.get("relax.call_pure_packed"),
            (
                ExternFunc("vm.builtin.tuple_reset_item"),
                self.bundle,
                IntImm(_INT64, value.index),
            ),
            ty_args=(TupleType(()),),
        )
        self.builder.emit(reset, "_")
