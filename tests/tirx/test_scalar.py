"""Arithmetic on one element: the meaning of a kernel's expressions."""

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from relaxlab.runtime.dtype import DataType
from relaxlab.tirx import scalar


@pytest.mark.parametrize(
    ("name", "a", "b", "dtype", "expected"),
    [
        ("Add", 100, 100, "int8", -56),
        ("Sub", 1, 2, "uint8", 255),
        ("Mul", 2**62, 4, "int64", 0),
        ("FloorDiv", -7, 2, "int32", -4),
        ("FloorMod", -7, 2, "int32", 1),
        ("FloorMod", 7, -2, "int32", -1),
        ("Div", -7, 2, "int32", -3),
        ("Mod", -7, 2, "int32", -1),
        ("FloorDiv", -128, -1, "int8", -128),
        ("Max", 3, 4, "int32", 4),
        ("Min", 3, 4, "int32", 3),
        ("LT", 3, 4, "int32", True),
        ("NE", 3, 3, "int32", False),
    ],
)
def test_integer_operations(name: str, a: int, b: int, dtype: str, expected: Any) -> None:
    assert scalar.binary(name, a, b, DataType(dtype)) == expected


def test_integers_are_not_divided_by_zero() -> None:
    for name in ("Div", "Mod", "FloorDiv", "FloorMod"):
        with pytest.raises(ZeroDivisionError):
            scalar.binary(name, 1, 0, DataType("int64"))


def test_a_nan_is_forgotten_from_the_left_and_kept_from_the_right() -> None:
    nan, one = np.float32("nan"), np.float32(1)
    dtype = DataType("float32")
    for name in ("Max", "Min"):
        assert scalar.binary(name, nan, one, dtype) == 1
        assert math.isnan(scalar.binary(name, one, nan, dtype))


def test_floats_round_in_their_own_dtype() -> None:
    half = scalar.binary("Add", np.float16(2048), np.float16(1), DataType("float16"))
    assert half == 2048
    assert half.dtype == np.float16
    brain = scalar.binary(
        "Mul", ml_dtypes.bfloat16(3), ml_dtypes.bfloat16(0.1), DataType("bfloat16")
    )
    assert brain.dtype == ml_dtypes.bfloat16


def test_division_of_floats_by_zero_is_infinite() -> None:
    with np.errstate(all="ignore"):
        assert math.isinf(scalar.binary("Div", np.float32(1), np.float32(0), DataType("float32")))


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (300, "int8", 44),
        (-1, "uint8", 255),
        (np.float32(2.7), "int32", 2),
        (np.float32(-2.7), "int32", -2),
        (np.float32(0.5), "bool", True),
        (0, "bool", False),
        (True, "int32", 1),
        (2**60 + 1, "float32", np.float32(2**60)),
    ],
)
def test_casts(value: Any, dtype: str, expected: Any) -> None:
    result = scalar.cast(value, DataType(dtype))
    assert result == expected
    assert type(result) is type(scalar.literal(expected, DataType(dtype)))


@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        ("round", 2.5, 2.0),
        ("nearbyint", 3.5, 4.0),
        ("trunc", -1.5, -1.0),
        ("erf", 0.5, math.erf(0.5)),
        ("sigmoid", 0.0, 0.5),
        ("rsqrt", 4.0, 0.5),
        ("exp10", 2.0, 100.0),
    ],
)
def test_mathematics(name: str, x: float, expected: float) -> None:
    dtype = DataType("float64")
    assert scalar.call(name, [np.float64(x)], dtype, dtype) == pytest.approx(expected, rel=1e-15)


def test_a_power_of_a_negative_number_is_nan() -> None:
    dtype = DataType("float32")
    with np.errstate(all="ignore"):
        result = scalar.call("pow", [np.float32(-2), np.float32(0.5)], dtype, dtype)
    assert math.isnan(result)


def test_bits() -> None:
    i8, i32, u8 = DataType("int8"), DataType("int32"), DataType("uint8")
    assert scalar.call("shift_right", [-8, 1], i8, i8) == -4
    assert scalar.call("shift_left", [64, 1], i8, i8) == -128
    assert scalar.call("bitwise_not", [5], u8, u8) == 250
    assert scalar.call("popcount", [-1], i8, i8) == 8
    assert scalar.call("clz", [1], i32, i8) == 7
    assert scalar.call("reinterpret", [np.float32(1.0)], i32, DataType("float32")) == 0x3F800000
    with pytest.raises(ValueError, match="0 to 7"):
        scalar.call("shift_left", [1, 8], i8, i8)
