"""What a Python value becomes in a register."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxlab.runtime import Array, DataType, ShapeTuple, Tensor, cpu, tensor
from relaxlab.runtime.values import as_value, kind_of

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
NESTED = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.lists(inner).map(tuple))


@given(NESTED)
def test_nested_values_keep_their_elements_and_convert_once(value):
    converted = as_value(value)
    assert converted == value
    assert as_value(converted) is converted
    if isinstance(value, list | tuple):
        assert type(converted) is Array


@pytest.mark.parametrize("value", [ShapeTuple((1,)), DataType("int8"), cpu(), tensor([1]), len])
def test_these_stay_themselves(value):
    assert as_value(value) is value


def test_arrays_are_wrapped_also_inside():
    array = np.zeros(2)
    inner = as_value({"a": [array]})["a"][0]
    assert isinstance(inner, Tensor)
    assert inner.array is array


def test_a_dlpack_exporter_becomes_a_tensor():
    class Exporter:
        array = np.zeros(2)

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return (1, 0)

    as_value(Exporter()).array[0] = 4
    assert Exporter.array[0] == 4


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "None"),
        (True, "bool"),
        (1, "int"),
        (1.0, "float"),
        ("", "string"),
        (b"", "bytes"),
        (np.int8(1), "int"),
        (np.zeros(1), "Tensor"),
        ((), "Tuple"),
        ({}, "Map"),
        (ShapeTuple(), "Shape"),
        (DataType("int8"), "DataType"),
        (cpu(), "Device"),
        (len, "Function"),
        (object(), "object"),
    ],
)
def test_kinds_have_words(value, kind):
    assert kind_of(value) == kind
