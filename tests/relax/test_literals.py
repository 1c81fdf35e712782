"""Python values as constants and scalars."""

import numpy as np
import pytest

from relaxlab import relax
from relaxlab.runtime import tensor


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1, "int32"),
        (1.5, "float32"),
        (True, "bool"),
        (np.float64(2), "float32"),
        (np.int8(3), "int8"),
        (np.array([1, 2]), "int32"),
        (np.array([1.0]), "float32"),
        (np.array([1], "uint8"), "uint8"),
        ([1, 2], "int32"),
        (tensor(np.zeros(2, "float64")), "float64"),
    ],
    ids=str,
)
def test_constant_has_tvms_default_dtype(value: object, dtype: str) -> None:
    made = relax.const(value)
    assert isinstance(made.ty, relax.TensorType)
    assert made.ty.dtype == dtype
    assert made.value.dtype == dtype


def test_asked_dtype_wins() -> None:
    made = relax.const([[1, 2]], "int64")
    assert str(made.ty) == 'R.Tensor((1, 2), dtype="int64")'
    assert relax.const(3, "float16").value.numpy() == np.float16(3)


def test_integer_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit int32"):
        relax.const(2**40)
    assert relax.const(2**40, "int64").value.numpy() == 2**40


@pytest.mark.parametrize("value", ["s", None, relax.const(1)], ids=["text", "none", "constant"])
def test_what_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="const needs"):
        relax.const(value)


def test_scalars_and_arguments() -> None:
    assert [str(relax.prim_value(v)) for v in (1, 1.5, True)] == [
        "T.int64(1)",
        "T.float64(1.5)",
        "T.bool(True)",
    ]
    x = relax.Var("x", relax.TensorType([4]))
    converted = relax.convert_to_expr((x, 1, "a", [2.0]))
    assert isinstance(converted, relax.Tuple)
    assert converted[0] is x
    assert isinstance(converted[2], relax.StringImm)
    for refused in (None, np.zeros(2), tensor(np.zeros(2))):
        with pytest.raises(TypeError, match="Cannot convert"):
            relax.convert_to_expr(refused)
    with pytest.raises(TypeError, match="Cannot convert"):
        relax.prim_value("s")


def test_dtype_constant_holds_a_dtype() -> None:
    made = relax.dtype_const("float16")
    assert made.value == "float16"
    assert made.ty == relax.AnyType()
