"""Recognising folds: sums, products, extrema, and positions of extrema.

Counterpart: the commutative reducers of ``tvm.te`` and their detection in ``tvm.s_tir``.

Examples
--------
>>> sorted(FOLDS.values())
['add', 'logical_and', 'logical_or', 'maximum', 'minimum', 'multiply']
"""

from dataclasses import dataclass
from typing import Any, Final

from relaxlab.codegen.numpy.nest import Nest, loads_of
from relaxlab.codegen.numpy.space import variables_of
from relaxlab.codegen.numpy.writer import Unsupported
from relaxlab.ir.expr import Expr, Var
from relaxlab.ir.node import structural_equal
from relaxlab.ir.prim import (
    EQ,
    GT,
    LT,
    Add,
    And,
    FloatImm,
    IntImm,
    Max,
    Min,
    Mul,
    Or,
    Select,
    TensorLoad,
)
from relaxlab.tirx.stmt import Bind, BufferStore

__all__ = ["Arg", "FOLDS", "Fold", "read_arg", "read_folds"]

#: NumPy's name of each fold.
FOLDS: Final[dict[type, str]] = {
    Add: "add",
    And: "logical_and",
    Max: "maximum",
    Min: "minimum",
    Mul: "multiply",
    Or: "logical_or",
}


@dataclass(frozen=True, slots=True)
class Fold:
    """``buffer[...] = fold(buffer[...], term)`` over the folded axes."""

    store: BufferStore
    kind: str
    term: Expr
    initial: Expr | None


def read_folds(nest: Nest) -> list[Fold]:
    """Return the folds of the body, one per store, or raise Unsupported."""
    bound = {s.var: s.value for s in nest.body if isinstance(s, Bind)}
    initial = {}
    for statement in nest.init or ():
        if not isinstance(statement, BufferStore):
            raise Unsupported
        initial[statement.buffer] = statement.value
    folds = []
    for store in nest.stores:
        value: Any = (
            bound.get(store.value, store.value) if isinstance(store.value, Var) else store.value
        )
        kind = FOLDS.get(type(value))
        if kind is None:
            raise Unsupported
        # the running value comes first; a sum or product may have it second
        if _is_running(value.a, store):
            term = value.b
        elif kind in ("add", "multiply") and _is_running(value.b, store):
            term = value.a
        else:
            raise Unsupported
        others = {s.buffer for s in nest.stores}
        if any(load.buffer in others for load in loads_of([term])):
            raise Unsupported
        if variables_of(term) & set(bound):
            raise Unsupported
        start = initial.get(store.buffer)
        if nest.init is not None and start is None:
            raise Unsupported
        folds.append(Fold(store, kind, term, start))
    if not folds:
        raise Unsupported
    return folds


def _is_running(expr: Expr, store: BufferStore) -> bool:
    return (
        isinstance(expr, TensorLoad)
        and expr.buffer is store.buffer
        and structural_equal(expr.indices, store.indices)
    )


@dataclass(frozen=True, slots=True)
class Arg:
    """Position and value of the largest or smallest element."""

    index_store: BufferStore
    value_store: BufferStore
    term: Expr
    initial_value: Expr
    larger: bool
    last: bool


def read_arg(nest: Nest) -> Arg | None:
    """Recognise the two-value fold that argmax and argmin are."""
    if len(nest.stores) != 2 or nest.init is None or len(nest.init) != 2:
        return None
    bound = {s.var: s.value for s in nest.body if isinstance(s, Bind)}
    index_store, value_store = nest.stores
    index_value = _resolved(index_store.value, bound)
    chosen = _resolved(value_store.value, bound)
    starts: dict[Var, Any] = {s.buffer: s.value for s in nest.init if isinstance(s, BufferStore)}
    start_index = starts.get(index_store.buffer)
    start_value = starts.get(value_store.buffer)
    if not isinstance(start_index, IntImm) or start_index.value != -1:
        return None
    if not isinstance(start_value, FloatImm | IntImm):
        return None
    match chosen:
        case Select(condition=GT() | LT() as better, true_value=kept, false_value=term):
            pass
        case _:
            return None
    if not _is_running(kept, value_store) or not structural_equal(better.b, term):
        return None
    if not _is_running(better.a, value_store):
        return None
    match index_value:
        case Select(
            condition=Or(a=first, b=And(a=EQ(a=ea, b=eb), b=GT() | LT() as tie)),
            true_value=old,
            false_value=Var() as position,
        ):
            pass
        case _:
            return None
    folded = [axis.var for axis in nest.axes if axis.reduce]
    matches = (
        type(first) is type(better)
        and structural_equal(first, better)
        and _is_running(ea, value_store)
        and structural_equal(eb, term)
        and _is_running(old, index_store)
        and _is_running(tie.a, index_store)
        and tie.b is position
        and folded == [position]
        and not any(
            load.buffer in (index_store.buffer, value_store.buffer) for load in loads_of([term])
        )
    )
    if not matches:
        return None
    return Arg(
        index_store, value_store, term, start_value, isinstance(better, GT), isinstance(tie, GT)
    )


def _resolved(value: Any, bound: dict[Var, Expr]) -> Any:
    return bound.get(value, value) if isinstance(value, Var) else value
