"""What function attributes say about the size of symbolic dimensions."""

import pytest

from relaxlab import tirx
from relaxlab.ir import IntImm, Var, structural_equal
from relaxlab.relax.expr import Function, TensorType
from relaxlab.relax.transform.upper_bound import UpperBounds

N, M = Var("n", "int64"), Var("m", "int64")


def bounds(**attrs):
    x = Var("x", TensorType([N, M]))
    return UpperBounds(Function((x,), x, attrs=attrs))


def test_bounded_expressions_become_numbers():
    known = bounds(tir_var_upper_bound={"n": 10, "m": 4}, tir_var_lower_bound={"n": 2})
    assert [known.of(e).value for e in (N, N + 1, N * M, N // 3, M * 2 - 1)] == [10, 11, 40, 3, 7]


def test_what_is_not_bounded_stays():
    known = bounds(tir_var_upper_bound={"n": 10}, tir_non_negative_var=["m"])
    assert known.of(M) is M
    assert structural_equal(known.of(N * 2 * M), IntImm("int64", 20) * M)
    assert known.of(IntImm("int64", 3)).value == 3


def test_without_attributes_nothing_changes():
    dim = N + 1
    assert bounds().of(dim) is dim


def test_only_variables_of_the_signature_count():
    known = bounds(tir_var_upper_bound={"k": 10})
    other = Var("k", "int64")
    assert known.of(other) is other


def test_contradicting_bounds():
    with pytest.raises(ValueError, match="'n' is 3, below its lower bound 5"):
        bounds(tir_var_upper_bound={"n": 3}, tir_var_lower_bound={"n": 5})


def test_bounds_must_be_a_map():
    with pytest.raises(TypeError, match="must be a map of names to numbers"):
        bounds(tir_var_upper_bound=3)


def test_what_falls_and_wraps_has_an_upper_end_too():
    known = bounds(tir_var_upper_bound={"n": 10, "m": 4})
    dims = (10 - N, N % 3, (N - M) * 2, M - N, tirx.max(N - 20, M), tirx.min(N, M))
    assert [known.of(dim).value for dim in dims] == [10, 2, 20, 4, 4, 4]


def test_partly_bounded_expressions():
    known = bounds(tir_var_upper_bound={"n": 10})
    ends = {tirx.max(N, M): tirx.max(IntImm("int64", 10), M), (N + M) // 2: (M + 10) // 2}
    for dim, end in ends.items():
        assert known.analyzer.can_prove_equal(known.of(dim), end)
    assert known.of(tirx.min(N, M)).value == 10
    for dim in (N % M, N - M, M - N, (M - N) * N):
        assert known.of(dim) is dim


def test_bounds_must_be_maps():
    with pytest.raises(TypeError, match="'tir_var_upper_bound' must be a map of names to numbers"):
        bounds(tir_var_upper_bound=[3])
