"""Scalar operators: dtypes meet and literals fold as in TVM."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaxlab.errors import InternalError
from relaxlab.ir import Add, And, Broadcast, Cast, Not, StringImm, Var, call_intrin, prim_ops
from relaxlab.ir.prim_intrinsics import CallEffectKind, effect_of
from relaxlab.ir.prim_ops import const

DTYPES = [
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
    "float16",
    "float32",
    "float64",
    "bfloat16",
]
NAMES: dict[str, Any] = {name: getattr(prim_ops, name) for name in prim_ops.__all__}
NAMES |= {f"{v}_{dtype}": Var(f"{v}_{dtype}", dtype) for v in "xy" for dtype in DTYPES}
NAMES["Cast"] = Cast
GOLDEN = Path(__file__).parents[1] / "golden" / "ir" / "prim_ops.json"
CASES = json.loads(GOLDEN.read_text(encoding="utf-8"))["cases"]

n, m = Var("n", "int64"), Var("m", "int64")
f = Var("f", "float32")
b = Var("b", "bool")


def test_operators_give_the_recorded_expressions() -> None:
    wrong = []
    for text, expected, dtype in CASES:
        result = eval(text, NAMES)  # noqa: S307  # recorded, our own text
        if (str(result), str(result.dtype)) != (expected, dtype):
            wrong.append((text, expected, str(result)))
    assert not wrong


def test_adding_zero_and_multiplying_by_one_give_the_operand_itself() -> None:
    assert n + 0 is n
    assert 0 + n is n
    assert n - 0 is n
    assert 1 * n is n
    assert n // 1 is n
    assert int(n * 0) == 0


def test_only_literals_fold() -> None:
    assert str((n + 1) + 1) == "n + T.int64(1) + T.int64(1)"
    assert str(n - n) == "n - n"


def test_integers_wrap_in_their_dtype() -> None:
    assert int(const(100, "int8") + const(100, "int8")) == -56
    assert int(const(2**63 - 1, "int64") + 1) == -(2**63)
    assert int(const(1, "uint32") - const(2, "uint32")) == 2**32 - 1


def test_floats_fold_in_their_own_precision() -> None:
    assert (const(0.1, "float32") + const(0.2, "float32")).value == float(
        np.float32(0.1) + np.float32(0.2)
    )
    assert (const(0.1, "float64") + const(0.2, "float64")).value == 0.1 + 0.2
    assert isinstance(const(0.1, "float16") + const(0.2, "float16"), Add)


@pytest.mark.parametrize(
    ("a", "d", "floor", "mod", "trunc", "rem"),
    [(-7, 2, -4, 1, -3, -1), (7, -2, -4, -1, -3, 1), (-7, -2, 3, -1, 3, -1)],
)
def test_divisions_of_literals(a: int, d: int, floor: int, mod: int, trunc: int, rem: int) -> None:
    x, y = const(a, "int64"), const(d, "int64")
    assert int(x // y) == floor
    assert int(x % y) == mod
    assert int(prim_ops.truncdiv(x, y)) == trunc
    assert int(prim_ops.truncmod(x, y)) == rem


def test_a_literal_nan_decides_as_at_run_time() -> None:
    nan, one = const(math.nan, "float32"), const(1.0, "float32")
    assert prim_ops.max(nan, one).value == 1.0
    assert math.isnan(prim_ops.max(one, nan).value)
    assert prim_ops.min(nan, one).value == 1.0
    assert math.isnan(prim_ops.min(one, nan).value)


def test_division_by_a_literal_zero_is_refused() -> None:
    for operator in (prim_ops.floordiv, prim_ops.floormod, prim_ops.truncdiv, prim_ops.truncmod):
        with pytest.raises(InternalError, match="zero"):
            operator(n, 0)


def test_slash_on_signed_integers_is_ambiguous() -> None:
    with pytest.raises(RuntimeError, match="floordiv"):
        n / 2


@pytest.mark.parametrize(
    ("value", "dtype"), [(300, "uint8"), (-129, "int8"), (2**31, "int32"), (7e4, "float16")]
)
def test_literals_out_of_range_are_refused(value: float, dtype: str) -> None:
    with pytest.raises(ValueError, match=dtype):
        const(value, dtype)


def test_literals_without_a_dtype() -> None:
    assert [str(const(v).dtype) for v in (1, 2**40, 1.5, True, np.int8(3))] == [
        "int32",
        "int64",
        "float32",
        "bool",
        "int8",
    ]
    assert isinstance(const(1, "float32x4"), Broadcast)
    with pytest.raises(TypeError, match="number"):
        const("a")


def test_convert_keeps_expressions_and_turns_the_rest() -> None:
    assert prim_ops.convert(n) is n
    assert isinstance(prim_ops.convert("a"), StringImm)
    assert [int(v) for v in prim_ops.convert([1, 2])] == [1, 2]


def test_limits_of_dtypes() -> None:
    assert int(prim_ops.min_value("int8")) == -128
    assert int(prim_ops.max_value("uint64")) == 2**64 - 1
    assert prim_ops.min_value("float16").value == -65504.0
    assert math.isinf(prim_ops.infinity("float32").value)
    with pytest.raises(InternalError, match="bool"):
        prim_ops.max_value("bool")


def test_casts_of_literals_happen_at_once() -> None:
    assert int(prim_ops.cast("int32", const(2.7, "float32"))) == 2
    assert prim_ops.cast("int64", n) is n
    with pytest.raises(InternalError, match="negative"):
        prim_ops.cast("uint8", const(-1, "int32"))


def test_booleans_join() -> None:
    assert prim_ops.all(b, True) is b
    assert int(prim_ops.any(b, True)) == 1
    assert isinstance(prim_ops.all(b, b, b), And)
    assert isinstance(prim_ops.logical_not(b), Not)
    with pytest.raises(InternalError, match="boolean"):
        prim_ops.all(b, n)
    with pytest.raises(ValueError, match="at least 1"):
        prim_ops.all()


def test_a_known_condition_chooses_at_once() -> None:
    assert prim_ops.if_then_else(True, n, m) is n
    assert str(prim_ops.if_then_else(b, n, 1)) == "T.if_then_else(b, n, T.int64(1))"
    with pytest.raises(InternalError, match="boolean"):
        prim_ops.if_then_else(n, n, m)


def test_mathematics_keeps_the_dtype() -> None:
    half = Var("h", "float16")
    assert str(prim_ops.exp(half).dtype) == "float16"
    assert prim_ops.floor(n) is n
    assert prim_ops.round(const(2.5, "float32")).value == 2.0
    assert str(prim_ops.abs(n)) == "T.Select(n >= T.int64(0), n, T.int64(0) - n)"
    with pytest.raises(TypeError, match="floating-point"):
        prim_ops.sin(n)
    with pytest.raises(InternalError, match="float"):
        prim_ops.power(n, 2)


def test_shifts_are_checked() -> None:
    assert int(const(1, "int64") << const(3, "int64")) == 8
    with pytest.raises(InternalError, match="63"):
        n << 64


def test_operators_of_python_build_expressions() -> None:
    texts = [n + m, n - m, n * m, n // m, n % m, n < m, n >= 3, -n, ~n, n & m, f**2.0]
    assert [str(t) for t in texts] == [
        "n + m",
        "n - m",
        "n * m",
        "n // m",
        "n % m",
        "n < m",
        "n >= T.int64(3)",
        "n * T.int64(-1)",
        "~n",
        "n & m",
        "T.pow(f, T.float32(2.0))",
    ]
    with pytest.raises(TypeError, match="truth"):
        bool(n < m)


def test_scalars_do_not_meet_what_is_no_scalar() -> None:
    with pytest.raises(TypeError, match="scalar"):
        prim_ops.add(n, Var("t"))
    with pytest.raises(TypeError, match="number"):
        prim_ops.add(n, None)


def test_calls_know_their_effect() -> None:
    assert effect_of(prim_ops.exp(f)) == CallEffectKind.PURE
    assert effect_of(prim_ops.call_packed("f", n)) == CallEffectKind.UPDATE_STATE
    with pytest.raises(AttributeError, match=r"tirx\.expp"):
        call_intrin("float32", "tirx.expp", f)


def test_external_calls_carry_the_name_as_a_string() -> None:
    call = prim_ops.call_extern("int32", "g", n)
    assert str(call) == 'T.call_extern("int32", "g", n)'
