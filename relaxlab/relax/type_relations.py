"""How two Relax types relate: subtype, with a degree of proof, and least common ancestor.

Shapes are symbolic, so "is a subtype" has more answers than yes and no: it may be impossible, it
may need a check of kind, dtype or rank at run time, or it may hang on the values of symbolic
dimensions alone. Counterpart: ``tvm.relax.analysis.type_base_check`` and ``type_lca``.

Examples
--------
>>> from relaxlab.ir.expr import Var
>>> from relaxlab.relax.type import TensorType
>>> n = Var("n", "int64")
>>> type_base_check(TensorType([n]), TensorType([4])).name
'FAIL_L2'
>>> is_base_of(TensorType(ndim=1), TensorType([n]))
True
"""

from enum import IntEnum

from relaxlab.ir.expr import Expr, Var
from relaxlab.ir.node import structural_equal
from relaxlab.ir.prim import IntImm
from relaxlab.ir.sym import Analyzer
from relaxlab.ir.type import AnyType, FuncType, PrimType, TupleType, Type
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import ShapeType, TensorType

__all__ = [
    "BaseCheckResult",
    "dims_equal",
    "is_base_of",
    "shapes_equal",
    "type_base_check",
    "type_lca",
]


class BaseCheckResult(IntEnum):
    """How far "is a subtype" can be proved, from impossible to certain."""

    FAIL_L0 = 0  # no value can have both types
    FAIL_L1 = 1  # a run-time check of kind, dtype or rank decides
    FAIL_L2 = 2  # only the values of symbolic dimensions are open
    PASS = 3


_L0, _L1, _L2, _PASS = BaseCheckResult


def dims_equal(a: Expr, b: Expr, analyzer: Analyzer | None = None) -> bool:
    """Say whether two dimensions are provably equal."""
    if a is b:
        return True
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return a.value == b.value
    return (analyzer or Analyzer()).can_prove_equal(a, b)


def shapes_equal(
    a: tuple[Expr, ...], b: tuple[Expr, ...], analyzer: Analyzer | None = None
) -> bool:
    """Say whether two shapes have the same rank and provably equal dimensions."""
    return len(a) == len(b) and all(map(lambda p, q: dims_equal(p, q, analyzer), a, b))


def _compare_dims(
    base: tuple[Expr, ...], derived: tuple[Expr, ...], analyzer: Analyzer | None
) -> BaseCheckResult:
    if len(base) != len(derived):
        return _L0
    result = _PASS
    for a, b in zip(base, derived, strict=True):
        if isinstance(a, IntImm) and isinstance(b, IntImm):
            if a.value != b.value:
                return _L0
        elif not dims_equal(a, b, analyzer):
            result = _L2
    return result


def _compare_ranks(base: int, derived: int) -> BaseCheckResult:
    if base in (-1, derived):
        return _PASS
    return _L1 if derived == -1 else _L0


def type_base_check(base: Type, derived: Type, analyzer: Analyzer | None = None) -> BaseCheckResult:
    """Say how far it can be proved that every value of ``derived`` is one of ``base``.

    Parameters
    ----------
    base, derived
        The types to relate.
    analyzer
        What is known of symbolic variables; nothing but their identity when None.

    Returns
    -------
    BaseCheckResult
        ``FAIL_L0`` impossible, ``FAIL_L1`` open (kind, dtype, rank), ``FAIL_L2`` open
        (dimensions), ``PASS`` certain.
    """
    if base is derived or isinstance(base, AnyType):
        return _PASS
    if isinstance(derived, AnyType):
        return _L1
    match base, derived:
        case TensorType(), TensorType():
            return _check_tensors(base, derived, analyzer)
        case ShapeType(), ShapeType():
            result = _compare_ranks(base.ndim, derived.ndim)
            if result is not _PASS or base.values is None:
                return result
            if derived.values is None:
                return _L2
            return _compare_dims(base.values, derived.values, analyzer)
        case TupleType(), TupleType():
            if len(base.fields) != len(derived.fields):
                return _L0
            pairs = zip(base.fields, derived.fields, strict=True)
            return min((type_base_check(a, b, analyzer) for a, b in pairs), default=_PASS)
        case FuncType(), FuncType():
            return _check_functions(base, derived, analyzer)
        case _:
            return _PASS if type(base) is type(derived) and base == derived else _L0


def _check_tensors(
    base: TensorType, derived: TensorType, analyzer: Analyzer | None
) -> BaseCheckResult:
    result = _PASS
    if base.dtype is not None and base.dtype is not derived.dtype:
        if derived.dtype is not None:
            return _L0
        result = _L1
    result = min(result, _compare_ranks(base.ndim, derived.ndim))
    if result is _L0:
        return result
    if base.vdevice is not None and base.vdevice is not derived.vdevice:
        if derived.vdevice is None:
            result = _L1
        elif not structural_equal(base.vdevice, derived.vdevice):
            return _L0
    if base.shape is None or base.shape is derived.shape:
        return result
    if isinstance(base.shape, ShapeExpr) and isinstance(derived.shape, ShapeExpr):
        return min(result, _compare_dims(base.shape.values, derived.shape.values, analyzer))
    return min(result, _L2)


def _check_functions(
    base: FuncType, derived: FuncType, analyzer: Analyzer | None
) -> BaseCheckResult:
    if base.purity and not derived.purity:
        return _L0
    if base.params is None:
        if base.derive_func is not None:
            return _PASS if base.derive_func == derived.derive_func else _L2
        return type_base_check(base.ret, derived.ret, analyzer)
    if derived.params is None:
        return _L2
    if structural_equal(base, derived):
        return _PASS
    if len(base.params) != len(derived.params):
        return _L0
    # TVM relates parameters in this direction too; every call checks its arguments at run time
    result = _PASS
    for ours, theirs in zip(base.params, derived.params, strict=True):
        check = type_base_check(ours, theirs, analyzer)
        result = min(result, _L2 if check is _L1 else check)
    return min(result, type_base_check(base.ret, derived.ret, analyzer))


def is_base_of(base: Type, derived: Type, analyzer: Analyzer | None = None) -> bool:
    """Say whether every value of ``derived`` provably is one of ``base``."""
    return type_base_check(base, derived, analyzer) is _PASS


def type_lca(lhs: Type, rhs: Type, analyzer: Analyzer | None = None) -> Type:
    """Return the most precise type that both types are provable subtypes of."""
    if lhs is rhs:
        return lhs
    match lhs, rhs:
        case TensorType(), TensorType():
            return _join_tensors(lhs, rhs, analyzer)
        case ShapeType(), ShapeType():
            if lhs.ndim != rhs.ndim:
                return ShapeType(ndim=-1)
            if lhs.values is None or rhs.values is None:
                return lhs if lhs.values is None else ShapeType(ndim=lhs.ndim)
            same = shapes_equal(lhs.values, rhs.values, analyzer)
            return lhs if same else ShapeType(ndim=lhs.ndim)
        case TupleType(), TupleType() if len(lhs.fields) == len(rhs.fields):
            pairs = zip(lhs.fields, rhs.fields, strict=True)
            return TupleType(tuple(type_lca(a, b, analyzer) for a, b in pairs))
        case FuncType(), FuncType():
            return _join_functions(lhs, rhs, analyzer)
        case PrimType(), PrimType() if lhs == rhs:
            return lhs
        case _:
            return lhs if type(lhs) is type(rhs) and lhs == rhs else AnyType()


def _join_tensors(lhs: TensorType, rhs: TensorType, analyzer: Analyzer | None) -> TensorType:
    dtype = lhs.dtype if lhs.dtype is rhs.dtype else None
    same_device = (
        lhs.vdevice is not None
        and rhs.vdevice is not None
        and structural_equal(lhs.vdevice, rhs.vdevice)
    )
    vdevice = lhs.vdevice if same_device else None
    ndim = lhs.ndim if lhs.ndim == rhs.ndim else -1
    shape: Expr | None = None
    match lhs.shape, rhs.shape:
        case ShapeExpr(), ShapeExpr():
            if shapes_equal(lhs.shape.values, rhs.shape.values, analyzer):
                shape = lhs.shape
        case Var(), Var():
            shape = lhs.shape if lhs.shape is rhs.shape else None
        case _:
            pass
    if shape is lhs.shape and dtype is lhs.dtype and vdevice is lhs.vdevice and ndim == lhs.ndim:
        return lhs
    return TensorType(shape, dtype, vdevice, -1 if shape is not None else ndim)


def _join_functions(lhs: FuncType, rhs: FuncType, analyzer: Analyzer | None) -> Type:
    if structural_equal(lhs, rhs):
        return lhs
    purity = lhs.purity and rhs.purity
    ret = type_lca(lhs.ret, rhs.ret, analyzer)
    if lhs.params is None or rhs.params is None or len(lhs.params) != len(rhs.params):
        same = lhs.derive_func is not None and lhs.derive_func == rhs.derive_func
        return FuncType(None, ret, purity, lhs.derive_func if same else None)
    pairs = zip(lhs.params, rhs.params, strict=True)
    return FuncType(tuple(type_lca(a, b, analyzer) for a, b in pairs), ret, purity)
