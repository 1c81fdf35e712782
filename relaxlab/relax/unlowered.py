"""Why an operator is left when all passes have run, and what helps.

Operators become kernels only when the shapes and dtypes of what they work on are known. What is
left reaches the code generator, which refuses it; this is what it says. There is no TVM
counterpart: there the message names neither the size nor a remedy.

Examples
--------
>>> from relaxlab.ir import Var
>>> from relaxlab.relax import op
>>> from relaxlab.relax.expr import TensorType
>>> why_left(op.exp(Var("x", TensorType(None, "float32", ndim=2)))).partition("; ")[0]
'the shape of its argument x: R.Tensor(dtype="float32", ndim=2) is not known'
"""

from collections.abc import Iterator
from typing import Final

from relaxlab.ir import Call, Expr, PrimType, Tuple, TupleType, Type, Var
from relaxlab.relax.expr import ShapeExpr, ShapeType, TensorType

__all__ = ["why_left"]

_NAMES: Final = ("m", "n", "k", "p", "q", "r")


def why_left(call: Call) -> str:
    """Return why the operator of ``call`` was not lowered, and what to do about it.

    Parameters
    ----------
    call
        The call that is left.
    """
    for value in _values(call.args):
        why = _of_value(value)
        if why:
            return why
    if isinstance(call.ty, TensorType) and not isinstance(call.ty.shape, ShapeExpr):
        return (
            f"the shape of its result is not known, although those of its arguments are: "
            f"{_listed(call.args)}; nothing says that their sizes go together. Say so with "
            "R.match_cast, by giving one argument the sizes of the other"
        )
    return "no pass of the pipeline lowers it; run the build pipeline (relax.build does)"


def _values(args: tuple[Expr, ...]) -> Iterator[Expr]:
    for arg in args:
        if isinstance(arg, Tuple):
            yield from _values(arg.fields)
        else:
            yield arg


def _of_value(value: Expr) -> str:
    ty = value.ty
    match ty:
        case TensorType() if not isinstance(ty.shape, ShapeExpr):
            what, fix = "shape", _cast(value, ty)
        case TensorType() if ty.dtype is None:
            what, fix = "dtype", _cast(value, ty)
        case ShapeType() if ty.values is None and not isinstance(value, ShapeExpr):
            what, fix = "content", _cast_shape(value, ty)
        case TupleType() if any(map(_unknown, ty.fields)):
            what, fix = "shape", "a type that says the shape of every field"
        case None | PrimType() | TensorType() | ShapeType() | TupleType():
            return ""
        case _:
            return ""
    if isinstance(ty, TupleType):
        fix = f"bind it to {fix} first, with R.match_cast"
    else:
        fix = f"bind it to a type with its {what} first, as in {fix}"
    kind = " shape" if what == "content" else ""
    return f"the {what} of its argument{kind} {_shown(value)} is not known; {fix}"


def _unknown(ty: Type) -> bool:
    match ty:
        case TensorType():
            return not isinstance(ty.shape, ShapeExpr) or ty.dtype is None
        case TupleType():
            return any(map(_unknown, ty.fields))
        case _:
            return False


def _cast(value: Expr, ty: TensorType) -> str:
    if isinstance(ty.shape, ShapeExpr):
        shape = repr(ty.shape).removeprefix("R.shape([").removesuffix("])")
        shape = f"({shape},)" if len(ty.shape.values) == 1 else f"({shape})"
        names: tuple[str, ...] = ()
    else:
        names = _sizes(ty.ndim)
        shape = f"({', '.join(names)}{',' if len(names) == 1 else ''})"
    dtype = "float32" if ty.dtype is None else ty.dtype
    name = value.name if isinstance(value, Var) else "x"
    return f'`{name}1 = R.match_cast({name}, R.Tensor({shape}, "{dtype}"))`{_declared(names)}'


def _cast_shape(value: Expr, ty: ShapeType) -> str:
    names = _sizes(ty.ndim)
    name = value.name if isinstance(value, Var) else "s"
    cast = f"`{name}1 = R.match_cast({name}, R.Shape([{', '.join(names)}]))`"
    return cast + _declared(names)


def _sizes(ndim: int) -> tuple[str, ...]:
    if ndim < 0:
        return _NAMES[:2]
    return tuple(_NAMES[i] if i < len(_NAMES) else f"n{i}" for i in range(ndim))


def _declared(names: tuple[str, ...]) -> str:
    if not names:
        return ""
    return " with " + " and ".join(f"`{name} = T.int64()`" for name in names) + " before it"


def _listed(args: tuple[Expr, ...]) -> str:
    return ", ".join(_shown(value) for value in _values(args))


def _shown(value: Expr) -> str:
    name = value.name if isinstance(value, Var) else repr(value).rpartition("\n")[2]
    ty = repr(value.ty).rpartition("\n")[2]
    return f"{name}: {ty}"
