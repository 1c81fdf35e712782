"""Decorated classes and functions: parsed from their file, with the names around them."""

from pathlib import Path
from typing import TypeVar

import pytest

from relaxlab.errors import DiagnosticError
from relaxlab.script import ir as I
from relaxlab.script import ir_module
from relaxlab.script import relax as R
from relaxlab.script import tirx as T

WIDTH = 8
n = TypeVar("n")


@I.ir_module
class Scale:
    @T.prim_func(private=True, s_tir=True)
    def scale(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, WIDTH), "float32")
        B = T.match_buffer(b, (n, WIDTH), "float32")
        for i, j in T.grid(n, WIDTH):
            with T.sblock("scale"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)

    @R.function
    def main(x: R.Tensor(("n", WIDTH), "float32")) -> R.Tensor(("n", WIDTH), "float32"):
        n = T.int64()
        cls = Scale
        y = R.call_tir(cls.scale, (x,), out_ty=R.Tensor((n, WIDTH), "float32"))
        return y  # noqa: RET504  # the binding is what is tested


def test_module_sees_globals():
    assert 'A: T.Buffer((n, 8), "float32")' in Scale.script()
    assert [g.name_hint for g in Scale.get_global_vars()] == ["scale", "main"]


def test_module_in_a_function_sees_local_variables():
    def make(width):
        @ir_module
        class Module:
            @R.function
            def main(x: R.Tensor((width,), "float32")):
                return R.add(x, R.const(float(width), "float32"))

        return Module

    assert 'R.const(3.0, "float32")' in make(3).script()
    assert "R.Tensor((5,)" in make(5).script()


def test_function_with_a_typevar():
    @R.function(private=True)
    def f(x: R.Tensor((n, "m"), "float32")):
        return R.nn.relu(x)

    assert "global_symbol" not in f.attrs
    assert [d.name for d in f.params[0].ty.shape.values] == ["n", "m"]


def test_single_kernel():
    @T.prim_func
    def k(A: T.Buffer((4,), "float32")):
        for i in range(4):
            A[i] = A[i] + 1.0

    assert k.attrs["global_symbol"] == "k"
    assert k.script().endswith("A[i] = A[i] + T.float32(1.0)")


def test_error_shows_this_file():
    with pytest.raises(DiagnosticError) as error:

        @I.ir_module
        class Module:
            @R.function
            def main(x: R.Tensor((4,), "float32")):
                y = R.exp(z)  # noqa: F821  # undefined on purpose
                return y  # noqa: RET504

    text = str(error.value)
    assert text.startswith("error: Undefined variable: z\n --> ")
    assert "test_decorators.py:" in text
    line, caret = text.splitlines()[3:5]
    assert line[caret.index("^")] == "z"


def test_two_classes_of_one_name():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            return R.exp(x)

    first = Module

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            return R.negative(x)

    assert "R.exp(x)" in first.script()
    assert "R.negative(x)" in Module.script()


def test_well_formedness_can_be_left_out():
    @I.ir_module(check_well_formed=False)
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            y: R.Tensor((5,), "float32") = R.exp(x)
            return y

    assert Module["main"].ret_ty == R.Tensor((5,), "float32").make(None)


def test_spans_point_into_this_file():
    call = Scale["main"].body.blocks[0].bindings[0].value
    assert call.span.source_name.name.endswith("test_decorators.py")
    text = Path(__file__).read_text().splitlines()[call.span.line - 1]
    assert text[call.span.column - 1 :].startswith("R.call_tir(")


def test_a_program_without_a_file_is_refused():
    names = {"R": R}
    with pytest.raises(DiagnosticError, match="from_source"):
        exec("@R.function\ndef f(x: R.Tensor((4,))):\n    return x\n", names)
