"""Iteration variables in indices."""

import pytest

from relaxlab import te
from relaxlab.ir import Var


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda k, n: k + 1, "k + 1"),
        (lambda k, n: n + k, "n + k"),
        (lambda k, n: k * 2 - k, "k * 2 - k"),
        (lambda k, n: 5 - k, "5 - k"),
        (lambda k, n: k // 2 % 3, "k // 2 % 3"),
        (lambda k, n: -k, "k * -1"),
        (lambda k, n: k < n, "k < n"),
        (lambda k, n: k >= 1, "k >= 1"),
    ],
)
def test_arithmetic_on_an_iteration_variable_is_on_its_variable(build: object, text: str) -> None:
    axis, n = te.reduce_axis((0, 3), "k"), Var("n", "int32")
    assert str(build(axis, n)) == text  # type: ignore[operator]
