"""Remembering which kernel a call became, so that the next call alike need not be legalized.

A model repeats few kernels many times: thirty layers have hundreds of calls and some twenty
kernels. Two calls are alike when operator, attributes, argument types, folded scalars and shapes
agree; then the kernel, which sees nothing else, is the same. What cannot be told from that (a
shape held by a variable, a legalization that emits bindings) is not remembered.
TVM makes every kernel again and finds it equal afterwards; the result is the same.

Examples
--------
>>> KernelCache().find(call_key(None)) is None
True
"""

from collections.abc import Hashable
from dataclasses import dataclass

from relaxlab.ir.expr import Call, Expr, GenericConst, GlobalVar, Tuple, Var
from relaxlab.ir.op import Op
from relaxlab.ir.prim import FloatImm, IntImm
from relaxlab.ir.type import PrimType, Type
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import TensorType

__all__ = ["KernelCache", "call_key"]


def call_key(call: Call | None) -> Hashable | None:
    """Return what a kernel can depend on, None when that cannot be told from the call."""
    if call is None or not isinstance(call.op, Op):
        return None
    parts = [_argument_key(arg) for arg in call.args]
    if any(part is None for part in parts):
        return None
    return (call.op.name, call.attrs, call.ty, tuple(parts))


def _argument_key(arg: Expr) -> Hashable | None:
    ty = arg.ty
    match arg:
        case Tuple():
            parts = tuple(_argument_key(field) for field in arg.fields)
            return None if None in parts else ("tuple", *parts)
        case IntImm() | FloatImm():
            return ("literal", arg.dtype, arg.value)
        case GenericConst() if isinstance(ty, TensorType):
            if ty.ndim == 0:
                return ("scalar", ty, arg.value.numpy().tobytes())
            return ("tensor", ty)
        case ShapeExpr():
            return ("shape", ty)
        case Var() if isinstance(ty, PrimType):
            return ("symbol", arg)
        case _ if isinstance(ty, TensorType):
            return ("tensor", ty)
        case _:
            return None


@dataclass(frozen=True)
class _Template:
    """A call of a kernel, with the places of its arguments among those of the operator."""

    gvar: GlobalVar
    arguments: tuple[int | Var, ...]
    ty_args: tuple[Type, ...]
    ty: Type | None


class KernelCache:
    """Templates by :func:`call_key`."""

    def __init__(self) -> None:
        self._templates: dict[Hashable, _Template] = {}

    def find(self, key: Hashable | None) -> _Template | None:
        """Return the template of calls alike, if any."""
        return None if key is None else self._templates.get(key)

    def instantiate(self, template: _Template, call: Call) -> Call:
        """Return the kernel call that stands for ``call``."""
        given = _tensors(call)
        fields = tuple(given[a] if isinstance(a, int) else a for a in template.arguments)
        return Call(
            Op.get("relax.call_tir"),
            (template.gvar, Tuple(fields)),
            ty_args=template.ty_args,
            ty=template.ty,
        )

    def remember(self, key: Hashable | None, call: Call, legalized: Expr) -> None:
        """Note that ``call`` became ``legalized``, when that can be said of all calls alike."""
        if key is None or not isinstance(legalized, Call):
            return
        if legalized.op is not Op.get("relax.call_tir") or len(legalized.args) != 2:
            return
        gvar, passed = legalized.args
        if not isinstance(gvar, GlobalVar) or not isinstance(passed, Tuple):
            return
        given = _tensors(call)
        if len({id(tensor) for tensor in given}) != len(given):
            return  # the same tensor twice: which of the two is passed where is not known
        places: list[int | Var] = []
        for field in passed.fields:
            place = next((i for i, tensor in enumerate(given) if tensor is field), None)
            if place is not None:
                places.append(place)
            elif isinstance(field, Var) and isinstance(field.ty, PrimType):
                places.append(field)
            else:
                return
        self._templates[key] = _Template(gvar, tuple(places), legalized.ty_args, legalized.ty)


def _tensors(call: Call) -> list[Expr]:
    """Return the tensors among the arguments, those of tuples included."""
    opened = (arg.fields if isinstance(arg, Tuple) else (arg,) for arg in call.args)
    return [item for items in opened for item in items if isinstance(item.ty, TensorType)]
