"""Running one kernel in the interpreter and as generated text, and comparing."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaxlab import te
from relaxlab.codegen import Kernel, generate_numpy
from relaxlab.ir import Var
from relaxlab.ir.prim_functor import free_vars
from relaxlab.tirx import BufferType, Interpreter, PrimFunc
from relaxlab.tirx.signature import evaluate_size

_RANDOM = np.random.default_rng(7)


def compile_te(name: str, *tensors: te.Tensor) -> tuple[PrimFunc, Kernel]:
    """Return a kernel of tensor expressions, and its generated form."""
    func = te.create_prim_func(list(tensors)).without_attr("global_symbol")
    return func, generate_numpy(func, name)


def sizes_of(func: PrimFunc) -> dict[Var, int]:
    """Return small random sizes for the symbolic variables of a kernel."""
    sizes: dict[Var, int] = {}
    for param in func.params:
        if isinstance(param.ty, BufferType):
            for var in (v for dim in param.ty.shape for v in free_vars(dim)):
                sizes.setdefault(var, int(_RANDOM.integers(2, 6)))
        else:
            sizes.setdefault(param, int(_RANDOM.integers(1, 6)))
    return sizes


def random_arguments(func: PrimFunc, integers: tuple[int, int] = (1, 3)) -> list[Any]:
    """Return random arguments for a kernel; integers are drawn from a half-open range."""
    sizes = sizes_of(func)
    arguments: list[Any] = []
    for param in func.params:
        if not isinstance(param.ty, BufferType):
            arguments.append(sizes[param])
            continue
        shape = [evaluate_size(dim, sizes, "test") for dim in param.ty.shape]
        dtype = param.ty.dtype
        if dtype.is_float:
            arguments.append(_RANDOM.standard_normal(shape).astype(dtype.numpy()))
        elif dtype.is_bool:
            arguments.append(_RANDOM.integers(0, 2, shape).astype(bool))
        else:
            arguments.append(_RANDOM.integers(*integers, size=shape).astype(dtype.numpy()))
    return arguments


def copied(arguments: list[Any]) -> list[Any]:
    """Return arguments on memory of their own."""
    return [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]


def equal_arrays(expected: NDArray[Any], actual: NDArray[Any], exact: bool = False) -> None:
    """Assert that two arrays are the same; floats within rounding unless ``exact``."""
    assert expected.dtype == actual.dtype
    if exact or expected.dtype.kind in "iub":
        np.testing.assert_array_equal(actual, expected)
        return
    wide = expected.astype("float64"), actual.astype("float64")
    np.testing.assert_allclose(wide[1], wide[0], rtol=2e-5, atol=2e-5)


def assert_same(
    func: PrimFunc, kernel: Kernel, arguments: list[Any] | None = None, exact: bool = False
) -> list[Any]:
    """Assert that both forms of a kernel do the same; return the arguments after it ran.

    Where the interpreter raises, so must the generated text, with the same kind of error.
    """
    given = random_arguments(func) if arguments is None else arguments
    expected, actual = copied(given), copied(given)
    try:
        result = Interpreter(func, "kernel")(*expected)
    except (IndexError, ValueError, ZeroDivisionError) as error:
        try:
            kernel.function(*actual)
        except type(error):
            return actual
        raise AssertionError(f"expected {error!r}, nothing was raised:\n{kernel.source}") from error
    try:
        assert kernel.function(*actual) == result
        for before, after in zip(expected, actual, strict=True):
            if isinstance(before, np.ndarray):
                equal_arrays(before, after, exact)
    except Exception as error:
        error.add_note(kernel.source)
        raise
    return actual


def is_vectorised(kernel: Kernel) -> bool:
    """Say whether the text has neither loops nor interpreted parts."""
    lines = [line.strip() for line in kernel.source.splitlines()]
    return not any(line.startswith(("for ", "while ", "interpret", "#")) for line in lines)


def body_of(kernel: Kernel) -> list[str]:
    """Return the statements of a kernel's text after its argument checks."""
    lines = kernel.source.splitlines()
    starts = [i for i, line in enumerate(lines) if line.strip().startswith("refuse(")]
    lines = lines[starts[-1] + 1 :] if starts else lines[1:]
    frame = ("warnings = silence()", "try:", "finally:", "restore(warnings)", "")
    return [line.strip() for line in lines if line.strip() not in frame]
