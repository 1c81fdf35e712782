"""Why something is left when all passes have run, and what helps.

Operators become kernels only when the shapes and dtypes of what they work on are known. What is
left reaches the code generator, which refuses it; this is what it says: the pass that is missing,
or what is not known. There is no TVM counterpart: there the message names neither.

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

from relaxlab.ir import Call, Expr, Op, PrimType, Tuple, TupleType, Type, Var
from relaxlab.relax.expr import Function, ShapeExpr, ShapeType, TensorType

__all__ = ["how_to_run", "missing_pass", "why_left"]

#: The pass that lowers what no kernel stands for, by the operators it is there for.
_PASSES: Final = {
    "CallTIRRewrite": (
        "call_dps_packed",
        "call_tir",
        "call_tir_inplace",
        "call_tir_with_grad",
    ),
    "DispatchSampling": ("multinomial_from_uniform",),
    "DispatchSortScan": ("argsort", "bucketize", "cumprod", "cumsum", "sort", "topk"),
    "LowerAllocTensor": ("builtin.alloc_tensor",),
    "LowerRuntimeBuiltin": (
        "call_py_func",
        "invoke_closure",
        "make_closure",
        "memory.alloc_storage",
        "memory.alloc_tensor",
        "memory.ensure_zero_offset",
        "memory.kill_storage",
        "memory.kill_tensor",
        "memory.view",
        "reshape",
        "shape_of",
        "tensor_to_shape",
        "to_vdevice",
        "vm.call_tir_dyn",
    ),
    "RemovePurityChecking": ("call_inplace_packed", "call_pure_packed", "invoke_pure_closure"),
}
_PASS_OF: Final = {
    f"relax.{name}": pass_name for pass_name, names in _PASSES.items() for name in names
}

_NAMES: Final = ("m", "n", "k", "p", "q", "r")


def missing_pass(expr: Expr) -> str:
    """Return the name of the pass that lowers an expression; empty when none does.

    Parameters
    ----------
    expr
        What the code generator has no instruction for.
    """
    match expr:
        case Call(op=Op() as operator):
            known = _PASS_OF.get(operator.name)
            return known or ("LegalizeOps" if operator.has_attr("FLegalize") else "")
        case Function():
            return "LambdaLift"
        case ShapeExpr():
            return "VMShapeLower"
        case _ if isinstance(expr.ty, PrimType):
            return "ComputePrimValue"
        case _:
            return ""


def how_to_run(pass_name: str) -> str:
    """Return the advice to run a pass; empty names the whole pipeline."""
    if not pass_name:
        return "run the build pipeline (relax.build does)"
    return f"run {pass_name}" + ("" if pass_name == "LambdaLift" else " (relax.build does)")


def why_left(call: Call) -> str:
    """Return why the operator of ``call`` was not lowered, and what to do about it.

    Parameters
    ----------
    call
        The call that is left.
    """
    needed = missing_pass(call)
    if needed in _PASSES:
        return how_to_run(needed)
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
    return how_to_run(needed) if needed else "no pass of the build pipeline does"


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
