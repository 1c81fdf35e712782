"""Visitors and mutators: what they visit, what they keep, what they rebuild."""

from typing import Any

import pytest

from relaxlab import relax
from relaxlab.ir import Var
from relaxlab.ir.type import Type
from relaxlab.relax import op
from relaxlab.relax.expr_functor import (
    ExprFunctor,
    ExprMutator,
    ExprVisitor,
    PyExprMutator,
    PyExprVisitor,
    mutator,
    visitor,
)
from relaxlab.relax.type_variables import substitute


def tensor(name: str, *shape: int | relax.Expr, dtype: str = "float32") -> relax.Var:
    return relax.Var(name, relax.TensorType(shape, dtype))


def example() -> relax.Function:
    """Return a function with a dataflow block, a match_cast, a choice and a tuple."""
    c, x = tensor("c", dtype="bool"), tensor("x", 4)
    m = Var("m", "int64")
    bb = relax.BlockBuilder()
    with bb.function("main", [c, x]):
        with bb.dataflow():
            a = bb.emit(op.exp(x))
            b = bb.emit_output(op.add(a, x))
        cast = bb.match_cast(b, relax.TensorType([m], "float32"))
        choice = bb.emit(relax.If(c, op.exp(cast), op.tanh(cast)))
        pair = bb.emit((choice, b))
        bb.emit_func_output(bb.emit(relax.TupleGetItem(pair, 0)))
    func = bb.get()["main"]
    assert isinstance(func, relax.Function)
    return func


@visitor
class _Trace(PyExprVisitor):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def visit_op_(self, op: Any) -> None:
        self.seen.append(op.name)

    def visit_var_def_(self, var: relax.Var) -> None:
        self.seen.append(f"def {var.name}")

    def visit_dataflow_var_(self, op: Any) -> None:
        self.seen.append(f"use {op.name}")


def test_visitor_meets_values_before_their_variables() -> None:
    trace = _Trace()
    trace.visit_expr(example())
    assert trace.seen == [
        *("def c", "def x"),
        *("relax.exp", "def lv", "relax.add", "use lv", "def gv"),
        *("def gv1",),
        *("relax.exp", "def gv2", "relax.tanh", "def gv3", "def gv4"),
        *("def gv5", "def gv6"),
    ]


def test_visitor_refuses_an_unknown_binding() -> None:
    with pytest.raises(TypeError, match="unknown kind of binding"):
        ExprVisitor().visit_binding(relax.Binding())


def test_mutator_that_changes_nothing_returns_the_same_function() -> None:
    func = example()
    assert ExprMutator().visit_expr(func) is func


@mutator
class _ExpToSigmoid(PyExprMutator):
    def visit_call_(self, op_: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(op_)
        if call.op.name == "relax.exp":
            return op.sigmoid(call.args[0])
        assert isinstance(call, relax.Call)
        return call


def test_mutator_rewrites_inside_blocks_and_branches_and_keeps_names() -> None:
    func = example()
    new = _ExpToSigmoid().visit_expr(func)
    relax.analysis.well_formed(new)
    names = list(relax.analysis.name_to_binding(new))
    assert names == list(relax.analysis.name_to_binding(func))
    called = [o.name for o in _operators(new)]
    assert called == ["relax.sigmoid", "relax.add", "relax.sigmoid", "relax.tanh"]


def _operators(expr: relax.Expr) -> list[Any]:
    found: list[Any] = []
    relax.analysis.post_order_visit(
        expr, lambda e: found.append(e.op) if isinstance(e, relax.Call) else None
    )
    return found


class _ToHalf(ExprMutator):
    def visit_call_(self, op_: relax.Call) -> Any:
        call = super().visit_call_(op_)
        if call.op.name == "relax.exp":
            return op.astype(self.builder.emit(op.exp(call.args[0]), "full"), "float16")
        return call


def test_changed_types_flow_on_and_emitted_bindings_come_first() -> None:
    x = tensor("x", 4)
    bb = relax.BlockBuilder()
    with bb.function("f", [x]):
        with bb.dataflow():
            a = bb.emit(op.exp(x))
            out = bb.emit_output(op.tanh(a))
        bb.emit_func_output(out)
    func = bb.get()["f"]
    new = _ToHalf().visit_expr(func)
    relax.analysis.well_formed(new)
    (block,) = new.body.blocks
    assert [b.var.name for b in block.bindings] == ["full", "lv", "gv"]
    assert [str(b.var.ty.dtype) for b in block.bindings] == ["float32", "float16", "float16"]
    # the old result type is impossible now and gives way
    assert str(new.ret_ty) == 'R.Tensor((4,), dtype="float16")'
    assert func.body.blocks[0].bindings[0].var.ty.dtype == "float32"


class _BindDim(ExprMutator):
    def __init__(self, n: Var, value: int) -> None:
        super().__init__()
        self.values = {n: relax.prim_value(value)}

    def visit_ty(self, ty: Type) -> Type:
        return substitute(ty, self.values)

    def visit_prim_expr_(self, op_: relax.Expr) -> relax.Expr:
        return substitute(op_, self.values)

    def visit_var_(self, op_: relax.Var) -> relax.Expr:
        return self.values.get(op_) or super().visit_var_(op_)


def test_symbolic_variables_are_replaced_in_types_shapes_and_parameters() -> None:
    n = Var("n", "int64")
    x = tensor("x", n, 2)
    bb = relax.BlockBuilder()
    with bb.function("f", [x]):
        flat = bb.emit(op.reshape(x, (n * 2,)))
        bb.emit_func_output(flat)
    new = _BindDim(n, 3).visit_expr(bb.get()["f"])
    relax.analysis.well_formed(new)
    assert str(new.params[0].ty) == 'R.Tensor((3, 2), dtype="float32")'
    assert str(new.ret_ty) == 'R.Tensor((6,), dtype="float32")'
    assert str(new.body.blocks[0].bindings[0].value) == "R.reshape(x, R.shape([6]))"


def test_tvm_names_of_a_mutators_methods() -> None:
    x, y = tensor("x", 4), tensor("y", 4)
    changer = PyExprMutator()
    assert changer.builder_ is changer.builder
    assert changer.get_var_remap(x) is x
    changer.set_var_remap(x, y)
    assert changer.get_var_remap(x) is y
    assert changer.visit_expr(op.exp(x)).args == (y,)
    assert changer.with_type(x, relax.TensorType([4], "float32")) is x
    other = changer.with_type(x, relax.TensorType([5], "float32"))
    assert (other.name, str(other.ty)) == ("x", 'R.Tensor((5,), dtype="float32")')
    assert changer.lookup_binding(x) is None


@visitor
class _Log(PyExprVisitor):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def visit_var_(self, op_: relax.Var) -> None:
        self.seen.append(f"var {op_.name}")

    def visit_dataflow_var_(self, op_: Any) -> None:
        self.seen.append(f"dataflow {op_.name}")
        super().visit_dataflow_var_(op_)

    def visit_binding_block_(self, block: Any) -> None:
        self.seen.append("block")
        super().visit_binding_block_(block)


def test_visitors_of_users_tell_dataflow_apart_as_in_tvm() -> None:
    log = _Log()
    log.visit_expr(example())
    assert log.seen.count("dataflow lv") == 1
    assert "var lv" not in log.seen
    assert log.seen[0] != "block"  # the first block of the example is a dataflow block


class _Doubling(PyExprMutator):
    def visit_var_(self, op_: relax.Var) -> relax.Expr:
        raise AssertionError("asked for a dataflow variable")


def test_mutators_of_users_are_not_asked_for_dataflow_variables_as_variables() -> None:
    lv = relax.DataflowVar("lv", relax.TensorType([4], "float32"))
    assert _Doubling().visit_expr(relax.Tuple((lv,))).fields == (lv,)


class _Sizes(ExprFunctor):
    def visit_var_(self, op_: relax.Var) -> int:
        return 1

    def visit_call_(self, op_: relax.Call) -> Any:
        return 1 + sum(map(self.visit_expr, op_.args))

    def visit_add_(self, op_: Any) -> Any:
        return self.visit_expr(op_.a) + self.visit_expr(op_.b)

    def visit_int_imm_(self, op_: Any) -> Any:
        return int(op_.value)


def test_functor_dispatches_and_nothing_else() -> None:
    x = tensor("x", 4)
    sizes = _Sizes()
    assert sizes.visit_expr(op.add(op.exp(x), x)) == 4
    assert sizes.visit_expr(Var("n", "int64") + 5) == 6
    with pytest.raises(NotImplementedError, match=r"_Sizes .* ShapeExpr .* visit_shape_expr_"):
        sizes.visit_expr(relax.ShapeExpr([1]))
    with pytest.raises(NotImplementedError, match="visit_var_def_"):
        sizes.visit_var_def(x)
    with pytest.raises(TypeError, match="Invalid type"):
        sizes.visit_binding(x)  # type: ignore[arg-type]  # what is being tested
    binding = relax.VarBinding(x, x)
    with pytest.raises(NotImplementedError, match="visit_var_binding_"):
        sizes.visit_binding(binding)
    with pytest.raises(NotImplementedError, match="visit_dataflow_block_"):
        sizes.visit_binding_block(relax.DataflowBlock((binding,)))


def test_only_what_can_be_one_is_marked() -> None:
    assert visitor(_Log) is _Log
    assert mutator(_Doubling) is _Doubling
    for mark in (visitor, mutator):
        with pytest.raises(AssertionError, match="user-facing method overriding class"):
            mark(_Sizes)
