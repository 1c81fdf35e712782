"""Libraries of kernels: found by name, compiled when asked for."""

import traceback

import numpy as np
import pytest

from relaxlab.codegen import GENERATORS, Kernel, Library, build, default_target
from relaxlab.errors import InternalError
from relaxlab.ir import IRModule, Target
from tests.tirx.kernels import elementwise

DOUBLE = elementwise(lambda a: a * 2.0, "float32")
NEGATE = elementwise(lambda a: a * -1.0, "float32")


def library(target: str = "numpy") -> Library:
    """Return two kernels, one under a public name of its own."""
    public = NEGATE.with_attr("global_symbol", "negate")
    return build(IRModule({"double": DOUBLE, "private_name": public}), target)


def test_kernels_are_found_by_the_name_that_bytecode_uses() -> None:
    found = library()
    assert found.names == ("double", "negate")
    assert "negate" in found
    assert found.get_function("private_name") is None
    out = np.zeros(2, "float32")
    found["negate"](np.ones(2, "float32"), out)
    assert out.tolist() == [-1, -1]


def test_a_kernel_is_compiled_once_and_when_it_is_asked_for() -> None:
    compiled: list[str] = []

    def generator(func: object, name: str) -> Kernel:
        compiled.append(name)
        return Kernel(lambda: name, f"# {name}")

    lazy = Library("test", {"a": DOUBLE, "b": NEGATE}, generator)
    assert compiled == []
    assert lazy["a"]() == "a"
    assert lazy.source("a") == "# a"
    assert compiled == ["a"]


def test_a_missing_kernel_is_named_with_those_that_exist() -> None:
    with pytest.raises(KeyError, match="it has: double, negate"):
        library().source("treble")


def test_two_kernels_of_one_name_are_refused() -> None:
    twice = {
        "a": DOUBLE.with_attr("global_symbol", "f"),
        "b": NEGATE.with_attr("global_symbol", "f"),
    }
    with pytest.raises(InternalError, match="'f'"):
        build(IRModule(twice), "numpy")


def test_one_kernel_alone_is_a_library() -> None:
    assert build(DOUBLE, "numpy").names == ("main",)


def test_targets() -> None:
    assert default_target().kind.name in GENERATORS
    assert library("c").kind == "numpy"
    with pytest.raises(InternalError, match="cuda"):
        build(IRModule({}), Target("cuda"))


def test_the_interpreter_is_a_generator_too() -> None:
    reference = library("interpreter")
    out = np.zeros(2, "float32")
    reference["double"](np.ones(2, "float32"), out)
    assert out.tolist() == [2, 2]
    assert "T.prim_func" in reference.source("double")


def test_errors_inside_a_kernel_show_its_text() -> None:
    func = elementwise(lambda a, b: a // b, "int32", "int32")
    try:
        build(func, "numpy")["main"](*(np.zeros(1, "int32") for _ in range(3)))
    except ZeroDivisionError as error:
        shown = "".join(traceback.format_exception(error))
    assert "floor_divide(x0, x1, out=out)" in shown


def test_libraries_show_their_names() -> None:
    assert repr(library()) == "Library(numpy: double, negate)"
