"""Symbolic variables in signatures: which are TypeVars, which strings, which declarations."""

import pytest

from relaxlab import relax, tirx
from relaxlab.ir import IRModule, PrimType, Var
from relaxlab.script import from_source
from relaxlab.script.printer import script


def tensor(name, *dims):
    return Var(name, relax.TensorType(dims, "float32"))


def test_typevars_are_sorted_and_numbered():
    a, first, second = Var("a", "int64"), Var("n", "int64"), Var("n", "int64")
    params = [Var("n", relax.TensorType((2,), "float32")), tensor("o", first, second, a)]
    func = relax.Function(params, relax.Tuple([])).with_attr("global_symbol", "main")
    assert script(func) == (
        "# from typing import TypeVar\n"
        "# from tvm.script import relax as R\n"
        "\n"
        'a = TypeVar("a")\n'
        'n_1 = TypeVar("n_1")\n'
        'n_2 = TypeVar("n_2")\n'
        "@R.function\n"
        'def main(n: R.Tensor((2,), dtype="float32"), '
        'o: R.Tensor((n_1, n_2, a), dtype="float32")) -> R.Tuple:\n'
        "    return R.tuple()"
    )


def test_the_variables_of_a_kernel_are_named_before_its_parameters():
    n = Var("n", "int64")
    kernel = tirx.PrimFunc(
        (Var("n", "int64"), tirx.decl_buffer((n, n + 1), name="A")), tirx.Evaluate(n)
    )
    assert 'def main(n_1: T.int64, A: T.Buffer((n, "n + T.int64(1)"), "float32")):' in script(
        kernel
    )


def test_a_parameter_may_be_a_dimension_before_and_behind_itself():
    p = Var("p", PrimType("int64"))
    before = relax.Function([tensor("w", p, p + 1), p], relax.Tuple([]))
    assert 'w: R.Tensor(("p", "p + 1"), dtype="float32"), p: T.int64' in script(before)
    behind = relax.Function([p, tensor("w", p, p + 1)], relax.Tuple([]))
    assert 'p: T.int64, w: R.Tensor((p, p + 1), dtype="float32")' in script(behind)
    # TVM declares p once more in the body of the first
    assert "p = T.int64()" not in script(before)


def test_declarations_come_in_order_of_use():
    mod = from_source(
        """
        @I.ir_module
        class Module:
            @R.function
            def f(x: R.Any) -> R.Any:
                return x

            @R.function
            def main(x: R.Any) -> R.Any:
                b, a = T.int64(), T.int64()
                y = R.match_cast(x, R.Shape([a, b]))
                return Module.f(y)
        """
    )
    body = mod.script().split("def main")[1].splitlines()[1:4]
    assert [line.strip() for line in body] == ["a = T.int64()", "b = T.int64()", "cls = Module"]


def test_one_name_in_two_functions_is_two_variables():
    text = (
        "# from typing import TypeVar\n# from tvm.script import ir as I\n"
        "# from tvm.script import relax as R\n\n"
        'n = TypeVar("n")\n@I.ir_module\nclass Module:\n'
        "    @R.function\n    def f(x: R.Tensor((n,))) -> R.Tensor((n,)):\n        return x\n\n"
        "    @R.function\n    def main(x: R.Tensor((n,))) -> R.Tensor((n,)):\n        return x"
    )
    mod = from_source(text)
    (a,), (b,) = (mod[name].params[0].ty.shape.values for name in ("f", "main"))
    assert a is not b
    assert mod.script() == text


PEP695 = (
    "from __future__ import annotations\n\n"
    "# from tvm.script import ir as I\n"
    "# from tvm.script import tirx as T\n"
    "# from tvm.tirx.layout import Axis\n"
    "# from tvm.script import relax as R\n\n"
    "@I.ir_module\n"
    "class Module:\n"
    "    @T.prim_func(s_tir=True)\n"
    '    def f[m, n](A: T.Buffer((n, m, n * m, "o"), "float32")):\n'
    "        o = T.int32()\n"
    "        T.evaluate(0)\n\n"
    "    @R.function\n"
    "    def main[m, n](x: R.Tensor((n, m)), y: R.Tensor((m * 2,))) -> R.Shape([n, m]):\n"
    "        k = T.int64()\n"
    "        z: R.Tensor((k, n)) = R.match_cast(x, R.Tensor((k, n)))\n"
    "        return R.shape([n, m])"
)


def test_pep695_form_is_read_and_printed_on_every_python():
    mod = from_source(PEP695)
    assert mod.script(extra_config={"script.use_pep695": True}) == PEP695
    plain = mod.script()
    assert "TypeVar" in plain
    assert from_source(plain).structural_equal(mod)


def test_printer_options_are_checked():
    with pytest.raises(ValueError, match="use_pep965"):
        IRModule().script(extra_config={"script.use_pep965": True})
