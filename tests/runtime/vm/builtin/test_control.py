"""Conditions, tuples, functions, and calls by name."""

import numpy as np
import pytest

from relaxlab.errors import InternalError
from relaxlab.runtime import Array, DataType, ShapeTuple, get_global_func, tensor
from relaxlab.runtime.vm import Closure
from relaxlab.runtime.vm.builtin.control import PYTHON_FUNCTIONS
from relaxlab.runtime.vm.frame import LinkedFunction


def call(name, *args):
    return get_global_func(f"vm.builtin.{name}")(*args)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64"])
def test_a_condition_is_the_first_element(dtype):
    assert call("read_if_cond", tensor([[1, 0]], dtype=dtype)) is True
    assert call("read_if_cond", tensor([[0, 1]], dtype=dtype)) is False
    assert call("read_if_cond", np.array(1)) is True
    assert call("read_if_cond", np.bool_(False)) is False


def test_several_bools_are_no_condition():
    assert call("read_if_cond", tensor([[True]])) is True
    with pytest.raises(InternalError, match=r"ambiguous: expected a bool scalar .* shape \(2,\)"):
        call("read_if_cond", tensor([True, False]))


@pytest.mark.parametrize("bad", [None, "x", 1.0, [1], ShapeTuple((1,))])
def test_other_conditions_are_type_errors(bad):
    with pytest.raises(TypeError, match="condition: expected int, bool or Tensor, got"):
        call("read_if_cond", bad)


def test_an_empty_condition_is_refused_instead_of_read():
    with pytest.raises(InternalError, match="at least one element"):
        call("read_if_cond", tensor(np.zeros(0, "int32")))
    with pytest.raises(InternalError, match="integer or bool tensor"):
        call("read_if_cond", tensor(np.zeros(1, "float16")))
    with pytest.raises(InternalError, match="integer or bool tensor"):
        call("read_if_cond", tensor(np.zeros(1), dtype="int4"))


def test_tuple_reset_item_is_seen_by_every_holder():
    inner = Array([1, 2])
    outer = call("make_tuple", inner, 3)
    call("tuple_reset_item", inner, 1)
    assert outer == ((1, None), 3)
    plain = (1, 2)
    call("tuple_reset_item", plain, 0)
    assert plain == (1, 2)


def test_call_tir_dyn_unpacks_the_shape():
    seen = []
    assert call("call_tir_dyn", lambda *args: seen.append(args), 1, ShapeTuple((2, 3))) is None
    assert seen == [(1, 2, 3)]
    assert call("call_tir_dyn", lambda *args: np.zeros(args), [4]).shape == (4,)
    for bad in (None, 3):
        with pytest.raises(TypeError, match="function: expected Function"):
            call("call_tir_dyn", bad, ShapeTuple())
    with pytest.raises(TypeError, match="last argument: expected Shape, got int 5"):
        call("call_tir_dyn", len, 5)
    with pytest.raises(TypeError, match="got no argument"):
        call("call_tir_dyn", len)


def test_closures():
    closure = Closure(LinkedFunction("f", 3, 3))
    bound = call("make_closure", call("make_closure", closure, 1), 2)
    assert bound.bound == (2, 1)
    with pytest.raises(TypeError, match="closure: expected a closure, got Function"):
        call("make_closure", len)
    with pytest.raises(TypeError, match="machine: expected %vm, got int 1"):
        call("invoke_closure", 1, closure)


@pytest.fixture
def _python_functions():
    yield
    call("clear_py_func_registry")


@pytest.mark.usefixtures("_python_functions")
def test_python_functions():
    call("register_py_func", "twice", lambda x: 2 * x)
    call("register_py_func", "twice", lambda x: [3 * x])
    assert call("get_py_func", "twice")(2) == [6]
    assert call("call_py_func", ("twice", (5,))) == (15,)
    with pytest.raises(InternalError, match="'thrice' is not registered; did you mean 'twice'"):
        call("call_py_func", ("thrice", ()))
    with pytest.raises(InternalError, match="one tuple"):
        call("call_py_func", "twice", ())
    with pytest.raises(InternalError, match="a tuple of 1"):
        call("call_py_func", ("twice",))
    with pytest.raises(TypeError, match="function: expected Function"):
        call("register_py_func", "x", 3)
    call("clear_py_func_registry")
    assert len(PYTHON_FUNCTIONS) == 0


def test_debug_functions(capsys):
    call("invoke_debug_func", None, "vm.builtin.debug_print", "here", tensor([1, 2]))
    assert capsys.readouterr().out == "here: shape = (2,), dtype = int64, data =\n[1 2]\n"
    with pytest.raises(ValueError, match="no global function 'nope'"):
        call("invoke_debug_func", None, "nope", "here")
    with pytest.raises(InternalError, match="got 2 values"):
        call("invoke_debug_func", None, "nope")
    with pytest.raises(ValueError, match="expected None or an object as effect, got int 1"):
        call("invoke_debug_func", 1, "vm.builtin.debug_print", "here")


def test_a_dtype_is_no_condition():
    with pytest.raises(TypeError, match="got DataType"):
        call("read_if_cond", DataType("int8"))
