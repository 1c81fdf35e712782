"""Checks of values against annotations: None never crashes, the context comes first."""

import ctypes

import numpy as np
import pytest

from relaxlab.runtime import DataType, ShapeTuple, get_global_func, tensor

CTX = "ErrorContext(fn=main, loc=param[0], param=x, annotation=A) "
START = r"ErrorContext\(fn=main, loc=param\[0\], param=x, annotation=A\): expected "


def check(name, *args):
    return get_global_func(f"vm.builtin.check_{name}_info")(*args)


@pytest.mark.parametrize(
    ("name", "rest", "expected"),
    [
        ("tensor", (2, None), "a Tensor"),
        ("shape", (2,), "a Shape"),
        ("prim_value", (DataType("int64"),), "a value of dtype 'int64'"),
        ("prim_value", (DataType("float32"),), "a value of dtype 'float32'"),
        ("tuple", (2,), "a Tuple"),
        ("func", (), "a Function"),
        ("string", (), "a string"),
    ],
)
@pytest.mark.parametrize(("value", "shown"), [(None, "None"), ({}, "Map"), (b"", "bytes")])
def test_another_kind_is_a_type_error_also_none(name, rest, expected, value, shown):
    with pytest.raises(TypeError, match=f"{START}{expected}, got {shown}"):
        check(name, value, *rest, CTX)


def test_another_rank_dtype_or_length_is_a_value_error():
    x = tensor(np.zeros((2, 3), "float32"))
    with pytest.raises(ValueError, match=START + r"Tensor with ndim 3, got Tensor of shape \(2, 3"):
        check("tensor", x, 3, None, CTX)
    with pytest.raises(ValueError, match=START + "Tensor with dtype 'int8', got .* 'float32'"):
        check("tensor", x, 2, DataType("int8"), CTX)
    with pytest.raises(ValueError, match=START + "Shape with ndim 3"):
        check("shape", ShapeTuple((1,)), 3, CTX)
    with pytest.raises(ValueError, match=START + "a Tuple of 3 elements, got 1 elements"):
        check("tuple", [1], 3, CTX)


def test_what_is_right_passes_with_and_without_a_context():
    x = np.zeros((2, 3), "float32")
    for ctx in (CTX, "", None):
        check("tensor", x, 2, DataType("float32"), ctx)
        check("tensor", x, -1, ctx)
        check("shape", ShapeTuple((1, 2)), -1, ctx)
        check("prim_value", np.float32(1), DataType("float64"), ctx)
        check("prim_value", True, DataType("bool"), ctx)
        check("prim_value", ctypes.c_void_p(5), DataType("handle"), ctx)
        check("tuple", (), 0, ctx)
        check("func", len, ctx)
        check("string", "ab", ctx)


def test_arity_is_named():
    with pytest.raises(TypeError, match="expected 3 or 4 arguments, got 2"):
        check("tensor", tensor([1]), 1)
    with pytest.raises(TypeError, match=r"vm\.builtin\.check_tuple_info\(\) missing 2 required"):
        check("tuple", [])


def test_one_dtype_has_one_object_so_lanes_count():
    with pytest.raises(ValueError, match="float32x4"):
        check("tensor", tensor([1.0], dtype="float32"), 1, DataType("float32x4"), CTX)


@pytest.mark.parametrize("context", [-1, DataType("int8"), ShapeTuple((1,)), tensor([1]), len])
def test_a_context_is_text_or_none(context):
    """Bytecode that no compiler made may pass anything in its place."""
    check("tuple", (1, 2), 2, None)
    with pytest.raises(TypeError, match=r"check_tuple_info: context: expected string, got "):
        check("tuple", (1, 2), 2, context)
