"""The function that a group of bindings becomes.

Values from outside become parameters in the order in which they are read: variables under their
names, constants and computed scalars as ``param_0``, ``param_1``, ...; a tuple becomes one
parameter for each time that a field of it is read. Sizes that no parameter's shape defines come
last, as ``tir_vars``. The function has symbolic variables of its own.
Counterpart: what ``FuseOps`` of TVM does per group (compiler.md, 6.5).

Examples
--------
>>> from relaxlab.relax import op
>>> from relaxlab.relax.expr import DataflowVar, TensorType, Var, VarBinding
>>> x, y = Var("x", TensorType([4])), Var("y", TensorType([4]))
>>> call = op.call_tir(GlobalVar("exp"), (x,), out_ty=TensorType([4]))
>>> fused = FusedFunction([VarBinding(y, call)])
>>> fused.name, [param.name for param in fused.function().params]
('fused_exp', ['x'])
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from relaxlab.ir import (
    AnyType,
    Call,
    Expr,
    GenericConst,
    GlobalVar,
    Op,
    PrimType,
    StringImm,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Var,
    merge_spans,
    replace,
)
from relaxlab.ir.prim_functor import free_vars as scalar_vars
from relaxlab.ir.prim_functor import substitute
from relaxlab.relax.expr import DataflowBlock, Function, SeqExpr, ShapeExpr, ShapeType, VarBinding
from relaxlab.relax.type_variables import definable_tir_vars_in_type, tir_vars_in_type

__all__ = ["FusedFunction"]


class FusedFunction:
    """A function made of bindings.

    Parameters
    ----------
    bindings
        Calls of kernels or operators and fields of tuples, in order. The last one is the result;
        no other is used outside.
    bind_constants
        Whether constants move inside.

    Attributes
    ----------
    name
        Name hint, from the names of the kernels.
    """

    def __init__(self, bindings: Sequence[VarBinding], bind_constants: bool = False) -> None:
        self.bindings = tuple(bindings)
        self._bind_constants = bind_constants
        self.name = "fused"
        self._inside: set[Var] = set()
        #: Parameter by outside value; several, by field, for a tuple.
        self._params: dict[Expr, Var | list[tuple[int, Var]]] = {}
        self._unnamed = 0
        for binding in bindings:
            match binding.value:
                case Call(args=(GlobalVar() as callee, Tuple() as args, *_)):
                    self.name += f"_{callee.name_hint}"
                    for arg in args.fields:
                        self._require(arg)
                case TupleGetItem(tuple_value=source, index=index):
                    self._require_field(source, index)
                case Call(op=Op(name=name), args=args):
                    self.name += f"_{name.replace('.', '_')}"
                    for arg in args:
                        for leaf in arg.fields if isinstance(arg, Tuple) else (arg,):
                            self._require(leaf)
                case _:
                    raise TypeError(f"{binding.value} cannot be part of a fused function")
            self._inside.add(binding.var)
        self._symbols = self._find_symbols()

    def _require(self, arg: Expr) -> None:
        """Make a parameter of a value, unless it is known inside or a literal."""
        if arg in self._inside or arg in self._params or self._moves_inside(arg):
            return
        if isinstance(arg, Var):
            self._params[arg] = Var(arg.name, arg.ty)
        elif not isinstance(arg.ty, PrimType) or scalar_vars(arg):
            self._params[arg] = Var(f"param_{self._unnamed}", arg.ty)
            self._unnamed += 1

    def _moves_inside(self, arg: Expr) -> bool:
        if isinstance(arg, GenericConst):
            return self._bind_constants or isinstance(arg.ty, AnyType)
        return isinstance(arg, ShapeExpr | StringImm)

    def _require_field(self, source: Expr, index: int) -> None:
        if isinstance(source, Tuple):
            self._require(source.fields[index])
            return
        if source in self._inside:
            return
        ty = source.ty
        assert isinstance(ty, TupleType)
        name = source.name if isinstance(source, Var) else f"param_{self._unnamed}"
        fields = self._params.setdefault(source, [])
        assert isinstance(fields, list)
        fields.append((index, Var(f"{name}_{index}", ty.fields[index])))

    def _find_symbols(self) -> dict[Var, Var]:
        """Return the sizes that types mention, in order of appearance, with their new variables.

        A scalar argument that is such a size needs no parameter.
        """
        types: list[Type | None] = [param.ty for _, _, param in self._all_params()]
        types.extend(binding.var.ty for binding in self.bindings)
        calls = [b.value for b in self.bindings if isinstance(b.value, Call)]
        types.extend(ShapeType(a.values) for c in calls for a in c.args if isinstance(a, ShapeExpr))
        found = {var: Var(var.name, var.ty) for ty in types for var in tir_vars_in_type(ty)}
        for var in found:
            self._params.pop(var, None)
        return found

    def _all_params(self) -> Iterator[tuple[Expr, int | None, Var]]:
        """Yield outside value, field of it if it is a tuple, and parameter."""
        for value, params in self._params.items():
            if isinstance(params, Var):
                yield value, None, params
            else:
                for index, param in params:
                    yield value, index, param

    def _sizes(self) -> list[Var]:
        """Return the sizes that no parameter's shape defines, last one first as in TVM."""
        types = [param.ty for _, _, param in self._all_params()]
        defined = {var for ty in types for var in definable_tir_vars_in_type(ty)}
        return [var for var in reversed(self._symbols) if var not in defined]

    def arguments(self) -> list[Expr]:
        """Return what to call the function with."""
        given = [
            value if index is None else TupleGetItem(value, index)
            for value, index, _ in self._all_params()
        ]
        sizes = self._sizes()
        return [*given, ShapeExpr(sizes)] if sizes else given

    def function(self, attrs: Mapping[str, Any] | None = None) -> Function:
        """Return the function: private, with the attribute ``Primitive`` or those given."""
        values: dict[Any, Expr] = {**self._symbols}
        fields: dict[tuple[Expr, int], Expr] = {}
        params: list[Var] = []
        for value, index, param in self._all_params():
            own = Var(param.name, self._own(param.ty))
            params.append(own)
            if index is None:
                values[value] = own
            else:
                fields[value, index] = own
        sizes = self._sizes()
        if sizes:
            params.append(Var("tir_vars", ShapeType([self._symbols[var] for var in sizes])))
        bindings: list[VarBinding] = []
        for binding in self.bindings:
            new = self._rebuild(binding, values, fields)
            if new is not None:
                bindings.append(new)
                values[binding.var] = new.var
        result = values[self.bindings[-1].var]
        body = SeqExpr((DataflowBlock(tuple(bindings)),), result, ty=result.ty)
        place = merge_spans(binding.span for binding in self.bindings)
        given = {"Primitive": True} if attrs is None else dict(attrs)
        return Function(params, body, None, True, given, span=place)

    def _own(self, ty: Type | None) -> Type | None:
        """Return a type in terms of the function's own symbolic variables."""
        return None if ty is None else substitute(ty, self._symbols)

    def _rebuild(
        self,
        binding: VarBinding,
        values: dict[Expr, Expr],
        fields: dict[tuple[Expr, int], Expr],
    ) -> VarBinding | None:
        """Return a binding inside; None for a field that is a parameter now."""
        var, value = binding.var, binding.value
        ty = self._own(var.ty)
        if isinstance(value, TupleGetItem):
            known = fields.get((value.tuple_value, value.index))
            if known is not None:
                values[var] = known
                return None
            new: Expr = TupleGetItem(_inside(value.tuple_value, values), value.index)
        else:
            assert isinstance(value, Call)
            args = tuple(_inside(arg, values) for arg in value.args)
            ty_args = tuple(substitute(item, self._symbols) for item in value.ty_args)
            new = Call(value.op, args, value.attrs, ty_args, ty=ty, span=value.span)
        if binding is self.bindings[-1]:
            return VarBinding(Var("gv", ty), new, span=binding.span)
        return VarBinding(replace(var, ty=ty), new, span=binding.span)


def _inside(expr: Expr, values: dict[Expr, Expr]) -> Expr:
    """Return an argument in terms of what is known inside."""
    if isinstance(expr, Tuple):
        return Tuple(tuple(_inside(item, values) for item in expr.fields), span=expr.span)
    if isinstance(expr, ShapeExpr) and expr not in values:
        sizes = {old: new for old, new in values.items() if isinstance(old, Var)}
        return ShapeExpr(tuple(substitute(dim, sizes) for dim in expr.values), span=expr.span)
    return values.get(expr, expr)
