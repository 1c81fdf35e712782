"""``str`` of single nodes, as recorded from TVM."""

import pytest

from relaxlab import relax, tirx
from relaxlab.ir import (
    EQ,
    AnyType,
    FloatImm,
    FuncType,
    GlobalVar,
    IntImm,
    PointerType,
    PrimType,
    Range,
    TensorLoad,
    TensorRegion,
    TupleType,
    Var,
)
from relaxlab.relax import op

F32 = "float32"
n, m = Var("n", "int64"), Var("m", "int32")
b = Var("b", "bool")
x = Var("x", relax.TensorType((2,), F32))
y = Var("y", relax.TensorType((n, 4), F32))
ty = relax.TensorType((n, n + 1), F32)
A = tirx.decl_buffer((n, 4), F32, "A")

EXPRESSIONS = [
    (op.add(x, x), "R.add(x, x)"),
    (relax.Tuple([x, x]), "(x, x)"),
    (relax.Tuple([x]), "(x,)"),
    (relax.Tuple([]), "R.tuple()"),
    (relax.TupleGetItem(relax.Tuple([x, y]), 0), "(x, y)[0]"),
    (n + 1, "n + T.int64(1)"),
    (relax.ShapeExpr([n, n * 2, 3]), "R.shape([n, n * 2, 3])"),
    (relax.const(1), 'R.const(1, "int32")'),
    (relax.ExternFunc("foo"), 'R.ExternFunc("foo")'),
    (GlobalVar("f"), 'I.GlobalVar("f")'),
    (IntImm("int64", 3), "T.int64(3)"),
    (IntImm("int32", 3), "3"),
    (IntImm("bool", 1), "T.bool(True)"),
    (FloatImm(F32, 1.5), "T.float32(1.5)"),
    (op.reshape(y, (n * 4,)), "R.reshape(y, R.shape([n * 4]))"),
    (
        op.call_tir(GlobalVar("f"), [x], relax.TensorType((n,), F32)),
        'R.call_tir(f, (x,), out_ty=R.Tensor((n,), dtype="float32"))',
    ),
    (
        op.call_pure_packed("f", x, ty_args=x.ty),
        'R.call_pure_packed("f", x, ty_args=(R.Tensor((2,), dtype="float32"),))',
    ),
    (op.print(x, format="a{}\n"), 'R.print(x, format=R.str("a{}\\n"))'),
    (TensorLoad(A, (n, IntImm("int32", 0))), "A[n, 0]"),
    (A, "A"),
    (TensorRegion(A, (Range(n, n), Range(n, IntImm("int64", 1)))), "A[n:n + n, n]"),
]

TYPES = [
    (ty, 'R.Tensor((n, n + 1), dtype="float32")'),
    (relax.TensorType(dtype=F32, ndim=2), 'R.Tensor(dtype="float32", ndim=2)'),
    (relax.TensorType(None, None), "R.Tensor"),
    (relax.TensorType([], "int8"), 'R.Tensor((), dtype="int8")'),
    (relax.ShapeType([n, n * 2]), "R.Shape([n, n * 2])"),
    (relax.ShapeType(), "R.Shape(ndim=-1)"),
    (PrimType("int64"), "T.int64"),
    (PointerType(PrimType("int8"), "shared"), 'T.handle("int8", "shared")'),
    (AnyType(), "R.Any"),
    (TupleType(), "None"),
    (
        TupleType((relax.TensorType((n, 2), F32), TupleType(), AnyType())),
        'T.Tuple(R.Tensor((n, T.int64(2)), dtype="float32"), None, R.Any)',
    ),
    (
        FuncType((relax.TensorType((n, n * 2), F32),), relax.TensorType((n,), None)),
        'R.Callable((R.Tensor((n, n * 2), dtype="float32"),), R.Tensor((n,)), True)',
    ),
    (relax.ExternFunc("foo").ty, "R.Callable"),
]


@pytest.mark.parametrize(("node", "text"), EXPRESSIONS, ids=[t for _, t in EXPRESSIONS])
def test_expression(node, text):
    assert str(node) == repr(node) == text


@pytest.mark.parametrize(("node", "text"), TYPES, ids=[t for _, t in TYPES])
def test_type(node, text):
    assert repr(node) == text


def test_a_scalar_type_is_called_as_its_dtype():
    assert str(PrimType("int64")) == "int64"


def test_statements_declare_what_they_use():
    store = tirx.BufferStore(A, TensorLoad(A, (n, n)), (n, n))
    assert str(store) == "n = T.int64()\nA = T.Buffer((n, 4))\nA[n, n] = A[n, n]"
    binding = relax.VarBinding(Var("z", x.ty), op.add(x, x))
    assert str(binding) == (
        'x: R.Tensor((2,), dtype="float32")\nz: R.Tensor((2,), dtype="float32") = R.add(x, x)'
    )


def test_blocks_and_branches():
    block = relax.DataflowBlock((relax.VarBinding(relax.DataflowVar("a", x.ty), op.add(x, x)),))
    assert str(block) == (
        'x: R.Tensor((2,), dtype="float32")\n'
        "with R.dataflow():\n"
        '    a: R.Tensor((2,), dtype="float32") = R.add(x, x)\n'
        "    R.output()"
    )
    assert str(relax.If(relax.const(True), relax.SeqExpr((), x), relax.SeqExpr((), x))) == (
        'if R.const(True, "bool"):\n    x: R.Tensor((2,), dtype="float32")\n    x\n'
        'else:\n    x: R.Tensor((2,), dtype="float32")\n    x'
    )


def test_where_tvm_prints_what_python_reads_differently():
    # TVM prints ``m == 1 == b``, a chain
    one = EQ(m, IntImm("int32", 1))
    assert str(EQ(one, b)) == "(m == 1) == b"
    assert str(EQ(b, one)) == "b == (m == 1)"


def test_a_literal_that_is_not_int64_says_so_in_relax():
    # TVM prints ``3``, which reads back as int64
    fields = relax.Tuple([relax.prim_value(3), IntImm("int32", 3), IntImm("bool", 1)])
    assert str(fields) == "(3, T.int32(3), True)"


def test_repr_has_no_address():
    for node in (relax.BindingBlock(()), Range(n, n), tirx.IterVar(Range(n, n), n)):
        assert "0x" not in repr(node)
