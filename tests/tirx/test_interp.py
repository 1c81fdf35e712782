"""The interpreter: what every statement and expression of a kernel means."""

from typing import Any

import numpy as np
import pytest

from relaxlab.errors import InternalError
from relaxlab.ir import Broadcast, IntImm, Let, Ramp, Select, TensorLoad, Var, prim_ops
from relaxlab.ir.prim_intrinsics import call_intrin
from relaxlab.ir.prim_ops import const
from relaxlab.ir.type import PointerType, PrimType
from relaxlab.runtime import register_global_func
from relaxlab.runtime.packed_func import remove_global_func
from relaxlab.script import from_source
from relaxlab.tirx import (
    AllocBuffer,
    AssertStmt,
    AttrStmt,
    Bind,
    BufferStore,
    DeclBuffer,
    Evaluate,
    ForKind,
    IfThenElse,
    Interpreter,
    PrimFunc,
    Return,
    SeqStmt,
    Stmt,
    While,
    decl_buffer,
)
from tests.tirx.kernels import elementwise, literal, loops


def run(func: PrimFunc, *args: Any) -> Any:
    """Run a kernel in the interpreter."""
    return Interpreter(func, "kernel")(*args)


def load(buffer: Var, *indices: Any) -> TensorLoad:
    """Read an element; plain numbers are int64 literals."""
    return TensorLoad(buffer, tuple(literal(i) if isinstance(i, int) else i for i in indices))


def test_elementwise_kernels_of_any_length() -> None:
    func = elementwise(lambda a, b: a * b + 1.0, "float32", "float32")
    x, y, out = (np.arange(3, dtype="float32") + k for k in range(3))
    run(func, x, y, out)
    np.testing.assert_array_equal(out, x * y + 1)


def test_sums_of_float16_run_from_left_to_right() -> None:
    x = decl_buffer((4096,), "float16", "x")
    total = decl_buffer((), "float16", "total")
    add = loops((4096,), lambda i: BufferStore(total, load(total) + load(x, i), ()))
    func = PrimFunc((x, total), SeqStmt((BufferStore(total, const(0.0, "float16"), ()), add)))
    out = np.zeros((), "float16")
    run(func, np.ones(4096, "float16"), out)
    assert out == 2048


def test_a_block_initializes_at_the_first_reduction_step_and_respects_its_predicate() -> None:
    module = from_source(
        """
        @T.prim_func(s_tir=True)
        def rows(x: T.Buffer((2, 3), "float32"), y: T.Buffer((2,), "float32")):
            for i, k in T.grid(2, 4):
                with T.sblock("sum"):
                    v_i, v_k = T.axis.remap("SR", [i, k])
                    T.where(k < 3)
                    with T.init():
                        y[v_i] = T.float32(10)
                    y[v_i] = y[v_i] + x[v_i, v_k]
        """
    )
    x, y = np.arange(6, dtype="float32").reshape(2, 3), np.zeros(2, "float32")
    run(module, x, y)
    assert y.tolist() == [13, 22]


def test_only_the_chosen_side_is_computed() -> None:
    x, out = decl_buffer((2,), "int32", "x"), decl_buffer((4,), "int32", "out")

    def store(choose: Any) -> PrimFunc:
        return PrimFunc(
            (x, out),
            loops((4,), lambda i: BufferStore(out, choose(i < 2, load(x, i), const(7)), (i,))),
        )

    for choose in (prim_ops.if_then_else, Select):
        result = np.zeros(4, "int32")
        run(store(choose), np.array([1, 2], "int32"), result)
        assert result.tolist() == [1, 2, 7, 7]


@pytest.mark.parametrize(("offset", "bad"), [(1, 3), (-1, -1)])
def test_reads_and_writes_are_checked(offset: int, bad: int) -> None:
    x, out = decl_buffer((3,), "float32", "x"), decl_buffer((3,), "float32", "out")
    read = PrimFunc((x, out), loops((3,), lambda i: BufferStore(out, load(x, i + offset), (i,))))
    write = PrimFunc((x, out), loops((3,), lambda i: BufferStore(out, load(x, i), (i + offset,))))
    arrays = np.zeros(3, "float32"), np.zeros(3, "float32")
    with pytest.raises(IndexError, match=rf"'kernel' reads x\[{bad}\].* outside \[0, 3\)"):
        run(read, *arrays)
    with pytest.raises(IndexError, match=rf"'kernel' writes out\[{bad}\].* outside \[0, 3\)"):
        run(write, *arrays)


def test_loops_of_every_kind_mean_the_same() -> None:
    x = decl_buffer((3,), "int64", "x")
    for kind in (ForKind.SERIAL, ForKind.PARALLEL, ForKind.VECTORIZED, ForKind.UNROLLED):
        out = np.zeros(3, "int64")
        run(PrimFunc((x,), loops((3,), lambda i: BufferStore(x, i * i, (i,)), kind)), out)
        assert out.tolist() == [0, 1, 4]


def test_while_break_and_continue() -> None:
    count = decl_buffer((2,), "int64", "count")
    stop = IfThenElse(load(count, 0) >= 5, Evaluate(call_intrin("int32", "tirx.break_loop")))
    skip = IfThenElse(
        prim_ops.equal(load(count, 0) % 2, 0), Evaluate(call_intrin("int32", "tirx.continue_loop"))
    )
    body = SeqStmt(
        (
            BufferStore(count, load(count, 0) + 1, (literal(0),)),
            stop,
            skip,
            BufferStore(count, load(count, 1) + 1, (literal(1),)),
        )
    )
    out = np.zeros(2, "int64")
    run(PrimFunc((count,), While(const(True), body)), out)
    assert out.tolist() == [5, 2]


def test_local_buffers_bindings_and_attributes() -> None:
    x, local = decl_buffer((2,), "float32", "x"), decl_buffer((2,), "float32", "local")
    v = Var("v", "float32")
    body: Stmt = SeqStmt(
        (
            AllocBuffer(local),
            BufferStore(local, const(2.0), (literal(0),)),
            Bind(v, load(local, 0) * 3.0),
            AttrStmt(x, "note", const(1), BufferStore(x, v, (literal(0),))),
            BufferStore(x, load(local, 1), (literal(1),)),
        )
    )
    out = np.zeros(2, "float32")
    run(PrimFunc((x,), body), out)
    assert out[0] == 6
    # what was never written shows
    assert np.isnan(out[1])


def test_a_buffer_over_existing_memory() -> None:
    x, flat = decl_buffer((2, 3), "float32", "x"), decl_buffer((6,), "float32", "flat")
    pointer = PointerType(PrimType("float32"))
    body = SeqStmt(
        (
            DeclBuffer(flat, call_intrin(pointer, "tirx.buffer_data", x)),
            loops((6,), lambda i: BufferStore(flat, prim_ops.cast("float32", i), (i,))),
        )
    )
    out = np.zeros((2, 3), "float32")
    run(PrimFunc((x,), body), out)
    assert out.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_returned_numbers_and_assertions() -> None:
    n = Var("n", "int64")
    assert run(PrimFunc((n,), Return(n * 2)), 21) == 42
    check = AssertStmt(n > 3, "ValueError", ("n must ", "be large"))
    with pytest.raises(ValueError, match="n must be large"):
        run(PrimFunc((n,), check), 3)
    run(PrimFunc((n,), check), 4)


def test_let_names_a_value() -> None:
    n, k = Var("n", "int64"), Var("k", "int64")
    assert run(PrimFunc((n,), Return(Let(k, n + 1, k * k))), 2) == 9


def test_vectors_are_lanes() -> None:
    x, out = decl_buffer((4,), "int32", "x"), decl_buffer((4,), "int32", "out")
    every = Ramp(const(0, "int64"), const(1, "int64"), 4)
    value = TensorLoad(x, (every,)) * Broadcast(const(2), 4) + Broadcast(const(1), 4)
    result = np.zeros(4, "int32")
    run(PrimFunc((x, out), BufferStore(out, value, (every,))), np.arange(4, dtype="int32"), result)
    assert result.tolist() == [1, 3, 5, 7]


def test_kernels_call_packed_functions_with_views_of_their_buffers() -> None:
    x = decl_buffer((2, 2), "float32", "x")
    data = call_intrin(PointerType(PrimType("float32")), "tirx.buffer_data", x)
    shape = call_intrin("handle", "tirx.tvm_stack_make_shape", literal(2), literal(2))
    array = call_intrin(
        "handle",
        "tirx.tvm_stack_make_array",
        data,
        shape,
        const(0),
        const(2),
        const(0.0, "float32"),
        literal(0),
    )
    func = PrimFunc((x,), Evaluate(prim_ops.call_packed("test.fill", array, 5)))

    @register_global_func("test.fill", override=True)
    def fill(tensor: Any, value: int) -> None:
        tensor.array[...] = value

    out = np.zeros((2, 2), "float32")
    run(func, out)
    assert (out == 5).all()
    remove_global_func("test.fill")
    with pytest.raises(InternalError, match=r"test\.fill"):
        run(func, out)


def test_fields_of_tensors_are_read_through_pointers() -> None:
    handle = Var("t", PointerType(PrimType("int64")))

    def field(number: int) -> PrimFunc:
        call = call_intrin("int64", "tirx.tvm_struct_get", handle, const(0), const(number))
        return PrimFunc((handle,), Return(call))

    tensor = np.zeros((2, 3), "float32")
    assert run(field(4), tensor) == 2
    assert run(field(6), tensor) == 32
    with pytest.raises(InternalError, match="field number 99"):
        run(field(99), tensor)


def test_values_stored_in_another_width_are_converted() -> None:
    func = elementwise(lambda a: a * 3, "int32", out="int8")
    out = np.zeros(1, "int8")
    run(func, np.array([100], "int32"), out)
    assert out.tolist() == [44]


def test_an_unknown_variable_is_named() -> None:
    with pytest.raises(InternalError, match="'loose'"):
        run(PrimFunc((), Return(Var("loose", "int64"))))
    with pytest.raises(InternalError, match=r"no meaning"):
        run(PrimFunc((), Return(call_intrin("int32", "tirx.tvm_throw_last_error"))))
    assert isinstance(literal(1), IntImm)
