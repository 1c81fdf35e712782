"""Small kernels that several tests build."""

from collections.abc import Callable, Sequence

from relaxlab.ir import Expr, IntImm, TensorLoad, Var
from relaxlab.tirx import (
    BufferStore,
    For,
    ForKind,
    PrimFunc,
    Stmt,
    decl_buffer,
)


def literal(value: int) -> IntImm:
    """Return an int64 literal."""
    return IntImm("int64", value)


def loops(
    extents: Sequence[Expr | int], body: Callable[..., Stmt], kind: ForKind = ForKind.SERIAL
) -> Stmt:
    """Return nested loops; ``body`` is given their variables."""
    variables = [Var(f"i{k}", "int64") for k in range(len(extents))]
    stmt = body(*variables)
    for var, extent in reversed(list(zip(variables, extents, strict=True))):
        stop = literal(extent) if isinstance(extent, int) else extent
        stmt = For(var, literal(0), stop, kind, stmt)
    return stmt


def elementwise(function: Callable[..., Expr], *dtypes: str, out: str | None = None) -> PrimFunc:
    """Return ``out[i] = function(a[i], b[i], ...)`` over vectors of one symbolic length."""
    n = Var("n", "int64")
    inputs = [decl_buffer((n,), dtype, f"x{k}") for k, dtype in enumerate(dtypes)]
    probe = function(*(Var(f"p{k}", dtype) for k, dtype in enumerate(dtypes)))
    output = decl_buffer((n,), out or probe.dtype, "out")

    def store(i: Var) -> Stmt:
        return BufferStore(output, function(*(TensorLoad(x, (i,)) for x in inputs)), (i,))

    return PrimFunc((*inputs, output), loops((n,), store))
