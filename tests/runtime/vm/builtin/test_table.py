"""The casts that builtins share: what each accepts, and what a refusal says."""

import ctypes

import numpy as np
import pytest

from relaxlab.errors import InternalError
from relaxlab.runtime import Array, DataType, ShapeTuple, Tensor, get_global_func, tensor
from relaxlab.runtime.vm.builtin import BUILTINS, table

ME = "vm.builtin.f"


@pytest.mark.parametrize(
    ("cast", "good", "expected"),
    [
        (table.as_int, True, 1),
        (table.as_int, np.int8(3), 3),
        (table.as_float, 2, 2.0),
        (table.as_float, np.float32(0.5), 0.5),
        (table.as_float, False, 0.0),
        (table.as_string, "", ""),
        (table.as_shape, (2, True), (2, 1)),
        (table.as_tuple, (1,), (1,)),
        (table.as_dtype, "int8", DataType("int8")),
    ],
)
def test_accepted(cast, good, expected):
    got = cast(good, ME, "p")
    assert got == expected
    assert type(got) is type(expected) or isinstance(got, ShapeTuple)


@pytest.mark.parametrize(
    ("cast", "bad", "message"),
    [
        (table.as_int, 1.0, "expected int, got float 1.0"),
        (table.as_int, tensor(1), "expected int, got Tensor of shape () and dtype 'int64'"),
        (table.as_float, "1", "expected float, got string '1'"),
        (table.as_string, b"a", "expected string, got bytes"),
        (table.as_shape, None, "expected Shape, got None"),
        (table.as_shape, [1.5], "element 0: expected int, got float 1.5"),
        (table.as_tensor, [1], "expected Tensor, got Tuple of 1 elements"),
        (table.as_tuple, ShapeTuple((1,)), "expected Tuple, got Shape (1,)"),
        (table.as_tuple, None, "expected Tuple, got None"),
        (table.as_dtype, "float33x", "unknown dtype 'float33x'"),
        (table.as_dtype, 3, "expected DataType, got int 3"),
        (table.as_int, "x" * 100, f"expected int, got string '{'x' * 56}..."),
        (table.as_int, ctypes.c_void_p(1), "expected int, got c_void_p"),
    ],
)
def test_refused(cast, bad, message):
    with pytest.raises(TypeError) as raised:
        cast(bad, ME, "p")
    assert str(raised.value).startswith(f"{ME}: p")
    assert message in str(raised.value)


def test_as_array_checks_dtype_and_layout():
    assert table.as_array(np.zeros(2, "float32"), ME, "p", "float32").shape == (2,)
    with pytest.raises(InternalError, match="p: expected dtype 'float32', got Tensor of shape"):
        table.as_array(np.zeros(2), ME, "p", "float32")
    with pytest.raises(InternalError, match="p: expected compact memory"):
        table.as_array(np.zeros(4, "float32")[::2], ME, "p", "float32")


@pytest.mark.parametrize("name", BUILTINS.names())
def test_every_builtin_is_a_global_function_with_its_name_and_a_docstring(name):
    function = get_global_func(name)
    assert function is BUILTINS.get(name)
    assert function.__qualname__ == name
    assert function.__doc__


def test_what_is_shown_is_short_and_has_no_address():
    for value in (Array(range(1000)), Tensor(np.zeros(1000)), object(), len, {1: 2}, b"x" * 999):
        assert len(table.shown(value)) < 80
        assert "0x" not in table.shown(value)
