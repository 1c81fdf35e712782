"""Functions found by name."""

import pytest

from relaxlab.runtime import (
    get_global_func,
    list_global_func_names,
    register_global_func,
    remove_global_func,
)


@pytest.fixture
def name():
    name = "packed_func.test"
    yield name
    if get_global_func(name, allow_missing=True):
        remove_global_func(name)


def test_register_as_function_and_as_decorator(name):
    assert register_global_func(name, abs) is abs
    assert get_global_func(name) is abs
    assert name in list_global_func_names()

    @register_global_func(name, override=True)
    def other():
        return 1

    assert get_global_func(name) is other


def test_the_name_may_be_the_functions_own():
    @register_global_func
    def packed_func_own_name():
        return 2

    assert get_global_func("packed_func_own_name")() == 2
    remove_global_func("packed_func_own_name")


def test_a_taken_name_needs_override(name):
    register_global_func(name, abs)
    with pytest.raises(RuntimeError, match=f"'{name}' is already registered.*override=True"):
        register_global_func(name, min)
    assert get_global_func(name) is abs


def test_what_cannot_be_called_is_refused(name):
    with pytest.raises(TypeError, match="expected a callable, got int"):
        register_global_func(name, 5)


def test_a_missing_name_is_an_error_with_near_names():
    with pytest.raises(ValueError, match=r"'vm\.builtin\.cpy' is not registered; did you mean"):
        get_global_func("vm.builtin.cpy")
    assert get_global_func("vm.builtin.cpy", allow_missing=True) is None
    with pytest.raises(ValueError, match="not registered"):
        remove_global_func("packed_func.never")
