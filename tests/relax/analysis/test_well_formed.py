"""Rules of well-formedness that the recorded cases do not show."""

from collections.abc import Callable

import pytest

from relaxlab import relax, te
from relaxlab.ir import FuncType, IRModule, Var
from relaxlab.relax import analysis, op
from relaxlab.tirx import const

TY = relax.TensorType([4], "float32")
SCALAR = relax.Var("c", relax.TensorType([], "bool"))


def var(name: str, ty: relax.Type = TY) -> relax.Var:
    return relax.Var(name, ty)


def function(
    params: list[relax.Var], *bindings: relax.Binding, result: relax.Expr, dataflow: bool = False
) -> relax.Function:
    block = (relax.DataflowBlock if dataflow else relax.BindingBlock)(bindings)
    return relax.Function(params, relax.SeqExpr([block], result, ty=result.ty), result.ty)


def normal(expr: relax.Expr) -> relax.Expr:
    return relax.BlockBuilder().normalize(expr)


X, Y, Z = var("x"), var("y"), var("z")
N = Var("n", "int64")


def seq(body: relax.Expr) -> relax.SeqExpr:
    return relax.SeqExpr([], body, ty=body.ty)


BROKEN: dict[str, tuple[Callable[[], relax.Function], type[Exception], str]] = {
    "tuple field": (
        lambda: function(
            [X],
            relax.VarBinding(var("t", relax.AnyType()), relax.Tuple((normal(op.exp(X)),))),
            result=X,
        ),
        ValueError,
        r"Tuple is not in ANF form, field 0 gets ir\.Call",
    ),
    "projection": (
        lambda: function(
            [X],
            relax.VarBinding(
                Y, relax.TupleGetItem(normal(op.split(X, 2)), 0, ty=relax.TensorType([2]))
            ),
            result=X,
        ),
        TypeError,
        "The tuple value in a TupleGetItem node must be a leaf expression",
    ),
    "condition": (
        lambda: function(
            [X],
            relax.VarBinding(Y, relax.If(normal(op.sum(X)), seq(X), seq(X), ty=TY)),
            result=X,
        ),
        TypeError,
        "The condition for an if node must be a leaf expression",
    ),
    "callee": (
        lambda: function(
            [X], relax.VarBinding(Y, relax.Call(normal(op.exp(X)), (X,), ty=TY)), result=X
        ),
        TypeError,
        "The called expression must be a leaf expression",
    ),
    "sequence as value": (
        lambda: function([X], relax.VarBinding(Y, seq(X)), result=X),
        ValueError,
        "SeqExpr only serves as the function body",
    ),
    "variable of a branch": (
        lambda: function(
            [SCALAR, X],
            relax.VarBinding(
                Y,
                relax.If(
                    SCALAR,
                    relax.SeqExpr(
                        [relax.BindingBlock([relax.VarBinding(Z, normal(op.exp(X)))])], Z, ty=TY
                    ),
                    seq(X),
                    ty=TY,
                ),
            ),
            result=Z,
        ),
        ValueError,
        "Var z is not defined",
    ),
    "dataflow variable of another block": (
        lambda: relax.Function(
            [X],
            relax.SeqExpr(
                [
                    relax.DataflowBlock([relax.VarBinding(_D, normal(op.exp(X)))]),
                    relax.DataflowBlock([relax.VarBinding(Y, normal(op.exp(_D)))]),
                ],
                Y,
                ty=TY,
            ),
            TY,
        ),
        ValueError,
        "DataflowVar d is not defined",
    ),
    "dataflow variable as a shape": (
        lambda: function(
            [X],
            relax.VarBinding(_S, relax.ShapeExpr([4])),
            relax.VarBinding(var("t", relax.TensorType(_S)), X),
            result=X,
            dataflow=True,
        ),
        ValueError,
        "DataflowVar cannot be used as a dependent type expression",
    ),
    "dimension before its definition": (
        lambda: function([X], relax.VarBinding(Y, normal(op.zeros((N,), "float32"))), result=X),
        ValueError,
        "Var n is not defined",
    ),
    "annotation that cannot be": (
        lambda: function(
            [X],
            relax.VarBinding(
                var("w", relax.TensorType([5])),
                relax.Call(op.exp(X).op, (X,), ty=relax.TensorType([5])),
            ),
            result=X,
        ),
        TypeError,
        r"is annotated as .*\(5,\).*, the expression outputs .*\(4,\)",
    ),
    "call that cannot be typed": (
        lambda: function(
            [X],
            relax.VarBinding(Y, relax.Call(op.exp(X).op, (X, X), ty=TY)),
            result=X,
        ),
        TypeError,
        "must be able to have its Type inferred.*expects 1 arguments",
    ),
    "parameter twice": (
        lambda: function([X, X], result=X),
        ValueError,
        "Var x is defined more than once",
    ),
    "unknown function": (
        lambda: function([X], relax.VarBinding(Y, relax.Call(_UNKNOWN, (X,), ty=TY)), result=X),
        ValueError,
        "GlobalVar .*nobody.* is not defined",
    ),
}

_D = relax.DataflowVar("d", TY)
_S = relax.DataflowVar("s", relax.ShapeType(ndim=1))
_UNKNOWN = relax.GlobalVar("nobody", ty=FuncType((TY,), TY))


@pytest.mark.parametrize("name", BROKEN)
def test_rule_is_enforced(name: str) -> None:
    build, error, words = BROKEN[name]
    mod = IRModule.from_expr(build().with_attr("global_symbol", "main"))
    with pytest.raises(error, match=f"(?s){words}"):
        analysis.well_formed(mod)
    assert not analysis.check_well_formed(mod)


def test_types_written_on_calls_are_compared_only_when_asked() -> None:
    build, _, _ = BROKEN["annotation that cannot be"]
    assert analysis.check_well_formed(build(), check_ty=False)


def test_later_parameter_may_define_what_an_earlier_one_uses() -> None:
    x, y = var("x", relax.TensorType([N * 2])), var("y", relax.TensorType([N]))
    analysis.well_formed(relax.Function([x, y], y))


def test_scalar_parameter_is_a_dimension() -> None:
    x = var("x", relax.TensorType(dtype="float32", ndim=1))
    cast = var("cast", relax.TensorType([N]))
    func = function([N, x], relax.MatchCast(cast, x, cast.ty), result=cast)
    analysis.well_formed(func)


def test_dimensions_of_a_function_type_are_its_own() -> None:
    f = var("f", FuncType((relax.TensorType([N]),), relax.TensorType([N])))
    analysis.well_formed(relax.Function([f, X], X))


def test_local_function_may_call_itself_and_see_what_is_around_it() -> None:
    y = var("y")
    own = relax.Var("own", FuncType((TY,), TY))
    bb = relax.BlockBuilder()
    bb.begin_block(is_dataflow=False)
    inner = relax.Function([y], bb.normalize(seq(relax.Call(own, [op.add(y, X)]))), TY)
    func = function([X], relax.VarBinding(own, inner), result=X)
    assert isinstance(func, relax.Function)
    analysis.well_formed(bb.normalize(func))  # type: ignore[arg-type]  # a function stays one


def test_kernel_call_is_checked_against_the_kernel() -> None:
    a = te.placeholder((N, 4), "float32", name="a")
    kernel = te.create_prim_func(
        [a, te.compute((N, 4), lambda i, j: a[i, j] + const(1, "float32"), name="b")]
    )
    bb = relax.BlockBuilder()
    gvar = bb.add_func(kernel, "k")
    x = var("x", relax.TensorType([3, 4]))

    def call(args: tuple[relax.Expr, ...], *shape: int) -> relax.Expr:
        return normal(op.call_tir(gvar, args, relax.TensorType(shape)))

    def check(value: relax.Expr) -> None:
        assert value.ty is not None
        mod = bb.get()
        func = function([x], relax.VarBinding(var("y", value.ty), value), result=x)
        mod["f"] = func.with_attr("global_symbol", "f")
        analysis.well_formed(mod)

    check(call((x,), 3, 4))
    with pytest.raises(ValueError, match="must be compatible with the PrimFunc"):
        check(call((x,), 2, 4))
    with pytest.raises(ValueError, match="only accepts 2 arguments in total"):
        check(call((x, x, x), 3, 4))
    wrong = var("x", relax.TensorType([3, 5]))
    value = call((wrong,), 3, 4)
    func = function([wrong], relax.VarBinding(var("y", relax.AnyType()), value), result=wrong)
    mod = bb.get()
    mod["f"] = func.with_attr("global_symbol", "f")
    with pytest.raises(ValueError, match="Argument 0 type mismatch"):
        analysis.well_formed(mod)


def test_kernel_call_must_have_its_arguments_in_line() -> None:
    gvar = relax.GlobalVar("k")
    pair = var("pair", relax.TupleType((TY,)))
    call = relax.BlockBuilder(normalize_operators=False).normalize(op.call_tir(gvar, pair, TY))
    with pytest.raises(ValueError, match=r"\(FNormalize\), calls to that operator"):
        analysis.well_formed(function([pair], relax.VarBinding(Y, call), result=pair))
