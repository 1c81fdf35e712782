"""Floats and strings as literals."""

import ast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxlab import relax
from relaxlab.ir import FloatImm
from relaxlab.script.printer.literal import float_text, string_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e10, "10000000000.0"),
        (0.1, "0.10000000000000001"),
        (1e-5, "1.0000000000000001e-05"),
        (-3.4028234663852886e38, "-340282346638528859811704183484516925440.0"),
        (123456789012345678.0, "123456789012345680.0"),
        (-0.0, "-0.0"),
        (5e-324, "4.9406564584124654e-324"),
        (float("inf"), '"inf"'),
    ],
)
def test_float(value, text):
    assert float_text(value) == text


@given(st.floats(allow_nan=False))
def test_floats_read_back(value):
    text = float_text(value)
    assert float(ast.literal_eval(text)) == value


@given(st.text())
def test_strings_read_back(value):
    assert ast.literal_eval(string_text(value)) == value


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (1.5, "float16", 'R.const(1.5, "float16")'),
        (0.1, "float32", 'R.const(0.10000000149011612, "float32")'),
        (True, "bool", 'R.const(True, "bool")'),
        (-3, "int8", 'R.const(-3, "int8")'),
        (float("nan"), "float32", 'R.const("nan", "float32")'),
        (2**40, "int64", 'R.const(1099511627776, "int64")'),
    ],
)
def test_scalar_constants(value, dtype, text):
    assert str(relax.const(value, dtype)) == text


@pytest.mark.parametrize("dtype", ["uint8", "bfloat16", "uint64"])
def test_scalars_of_other_dtypes_go_to_the_metadata(dtype):
    assert str(relax.const(np.array(3), dtype)).startswith('metadata["ir.GenericConst"][0]')


def test_infinity_is_a_string_in_a_constructor():
    assert str(FloatImm("float32", float("-inf"))) == 'T.float32("-inf")'
