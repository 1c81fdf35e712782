"""Fetch weights when they are needed, hand out results when they are there.

A function that prepares all weights of a model would hold all of them at once. With these passes
it asks a callback for each weight right before its first use, and gives each result to a callback
as soon as it is computed. Counterparts: ``tvm.relax.transform.LazyGetInput``, ``LazySetOutput``.

Examples
--------
>>> LazyGetInput().info.name, LazySetOutput().info.name
('LazyGetInput', 'LazySetOutput')
"""

from dataclasses import dataclass
from typing import Any

from relaxlab.ir import (
    AnyType,
    Call,
    DictAttrs,
    Expr,
    FuncType,
    IntImm,
    IRModule,
    PassContext,
    PrimType,
    StringImm,
    Tuple,
    TupleType,
    Var,
)
from relaxlab.relax.analysis import free_vars
from relaxlab.relax.expr import (
    Binding,
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    Function,
    If,
    MatchCast,
    SeqExpr,
    VarBinding,
)
from relaxlab.relax.expr_functor import ExprMutator
from relaxlab.relax.normalizer import flatten_blocks
from relaxlab.relax.transform.pass_base import FunctionPass
from relaxlab.runtime.dtype import DataType

__all__ = ["LazyGetInput", "LazySetOutput"]

_INT64 = DataType("int64")


def _is_public(func: Function) -> bool:
    return "global_symbol" in func.func_attrs


def _variable(binding: Binding) -> Var:
    assert isinstance(binding, VarBinding | MatchCast)
    return binding.var


def _one_more_input(func: Function) -> tuple[int, DictAttrs]:
    """Return the number of inputs that are no weights, and attributes that count one more."""
    attrs = dict(func.attrs)
    count = int(attrs.get("num_input", 0))
    attrs["num_input"] = count + 1
    return count, DictAttrs(attrs)


class _Getter(ExprMutator):
    def __init__(self, func: Function, count: int) -> None:
        super().__init__()
        self.func = func
        self.weights = {param: index for index, param in enumerate(func.params[count:])}
        ty = FuncType((PrimType(_INT64), AnyType()), AnyType(), True)
        self.fetch = Var("fget_param", ty)

    def visit_var_(self, op: Var) -> Expr:
        index = self.weights.get(op)
        if index is None or op in self.var_remap:
            return super().visit_var_(op)
        call = Call(self.fetch, (IntImm(_INT64, index), StringImm(op.name)))
        untyped = self.builder.emit(call, f"{op.name}_untyped")
        assert op.ty is not None
        self.var_remap[op] = self.builder.match_cast(untyped, op.ty, op.name)
        return self.var_remap[op]

    def visit_if_(self, op: If) -> Expr:
        # what a branch fetches would be unknown behind it
        for var in free_vars(op):
            if var in self.weights:
                self.visit_var_(var)
        return super().visit_if_(op)

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        new = super().visit_dataflow_block_(block)
        for var in self.weights:
            if isinstance(self.var_remap.get(var), DataflowVar):
                del self.var_remap[var]  # no block sees the variables of another one
        return new


@dataclass(frozen=True)
class LazyGetInput(FunctionPass):
    """Replace weights by calls of a parameter ``fget_param(index, name)``.

    Weights are the parameters from the attribute ``num_input`` on, all if there is none. Each is
    fetched where it is first used, and checked by a match_cast; those that are not used are not
    fetched. Private functions stay as they are.
    """

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return the function with fewer parameters, itself if it is private."""
        if not _is_public(func):
            return func
        count, attrs = _one_more_input(func)
        getter = _Getter(func, count)
        params = (*func.params[:count], getter.fetch)
        body: Any = getter.visit_with_new_scope(func.body, params)
        return Function(params, body, func.ret_ty, func.is_pure, attrs, span=func.span)


@dataclass(frozen=True)
class LazySetOutput(FunctionPass):
    """Hand results to a parameter ``fset_output(index, value)`` as soon as they are known.

    The function returns nothing then. What a dataflow block computes is handed out behind the
    block, since a call with effects cannot stand in it. Private functions stay as they are.
    """

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return the function without result, itself if it is private."""
        if not _is_public(func):
            return func
        void = TupleType()
        ty = FuncType((PrimType(_INT64), AnyType()), void, False)
        store = Var("fset_output", ty)
        result = func.body.body
        fields = result.fields if isinstance(result, Tuple) else (result,)
        places: dict[Expr, list[int]] = {}
        for index, output in enumerate(fields):
            places.setdefault(output, []).append(index)

        def handed_out(value: Expr) -> list[Binding]:
            return [
                VarBinding(Var("_", void), Call(store, (IntImm(_INT64, index), value), ty=void))
                for index in places.pop(value, ())
            ]

        head = [binding for param in func.params for binding in handed_out(param)]
        blocks = [BindingBlock(tuple(head))]
        for block in func.body.blocks:
            if isinstance(block, DataflowBlock):
                behind = [b for each in block.bindings for b in handed_out(_variable(each))]
                blocks += [block, BindingBlock(tuple(behind))]
            else:
                bindings: list[Binding] = []
                for each in block.bindings:
                    bindings += [each, *handed_out(_variable(each))]
                blocks.append(BindingBlock(tuple(bindings), span=block.span))
        tail = [binding for value in list(places) for binding in handed_out(value)]
        blocks.append(BindingBlock(tuple(tail)))
        nothing = Tuple(())
        body = SeqExpr(flatten_blocks(tuple(blocks)), nothing, ty=nothing.ty, span=func.body.span)
        params, attrs = [*func.params, store], func.attrs
        if "num_input" in func.attrs:
            count, attrs = _one_more_input(func)
            params = [*func.params[:count], store, *func.params[count:]]
        return Function(tuple(params), body, void, False, attrs, span=func.span)
