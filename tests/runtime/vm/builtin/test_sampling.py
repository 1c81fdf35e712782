"""Sampling and penalties beyond the recorded calls."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxlab.errors import InternalError
from relaxlab.runtime import get_global_func

F32 = st.floats(-50, 50, width=32)
ROWS = st.lists(F32, min_size=1, max_size=8)


def call(name, *args):
    return get_global_func(f"vm.builtin.{name}")(*args)


def f32(values):
    return np.array(values, "float32")


@given(ROWS, st.floats(0.125, 4))
def test_softmax_is_a_softmax(row, temperature):
    logits = f32([row])
    call("apply_softmax_with_temperature", logits, temperature)
    scaled = (np.array(row) - max(row)) / temperature
    expected = np.exp(scaled) / np.exp(scaled).sum()
    assert np.allclose(logits[0], expected, atol=1e-5)


def test_softmax_of_very_negative_rows_and_of_temperature_zero():
    logits = f32([[-1000, -1001]])
    call("apply_softmax_with_temperature", logits, 1.0)
    assert np.allclose(logits, [[0.7310586, 0.2689414]])
    cold = f32([[1, 3, 2]])
    call("apply_softmax_with_temperature", cold, 0.0)
    assert cold.tolist() == [[0, 1, 0]]


@given(ROWS, st.floats(0, 0.999), st.floats(0.01, 1))
def test_a_sample_is_a_token_of_the_top(row, uniform, top_p):
    token = call("sample_top_p_from_logits", f32([row]), 1.0, top_p, uniform)
    weights = np.exp(f32(row) - max(f32(row)))
    weights /= weights.sum()
    above = weights[weights > weights[token]].sum()
    assert above < top_p + 1e-4, "all likelier tokens together fill the top already"


@given(st.lists(st.floats(0.0078125, 1, width=32), min_size=1, max_size=6), st.floats(0, 0.999))
def test_sampling_from_probabilities_follows_the_sum(weights, uniform):
    prob = f32(weights) / f32(weights).sum(dtype="float32")
    token = call("sample_top_p_from_prob", prob, 1.0, uniform)
    order = np.argsort(-prob, kind="stable")
    sums = np.cumsum(prob[order], dtype="float32")
    rank = int(np.flatnonzero(order == token)[0])
    assert uniform <= sums[rank] + 1e-5
    assert rank == 0 or uniform >= sums[rank - 1] - 1e-5


def test_sampling_from_nothing_is_refused():
    with pytest.raises(InternalError, match="at least one element"):
        call("sample_top_p_from_logits", f32([[]]), 1.0, 1.0, 0.5)
    with pytest.raises(InternalError, match="cannot sample"):
        call("sample_top_p_from_prob", f32([[]]), 0.9, 0.5)


def test_multinomial_picks_one_token_per_row():
    prob = f32([[0.25, 0.75], [1, 0]])
    got = call("multinomial_from_uniform", prob, f32([[0.5], [0.999]]))
    assert (got.dtype, got.numpy().tolist()) == ("int64", [[1], [0]])
    with pytest.raises(InternalError, match="a row of probabilities and a uniform sample"):
        call("multinomial_from_uniform", prob, f32([0.5]))


@pytest.mark.parametrize("token", [-1, 4, 2**31 - 1])
def test_a_token_outside_the_logits_is_refused_and_changes_nothing(token):
    logits = f32([[1, 2, 3, 4]])
    ids = np.array([0, token], "int32")
    with pytest.raises(InternalError, match=f"token id {token} is outside the 4 logits"):
        call("apply_repetition_penalty", logits, ids, 2.0)
    with pytest.raises(InternalError, match="outside the 4 logits"):
        call("apply_presence_and_frequency_penalty", logits, ids, ids, 1.0, 1.0)
    assert logits.tolist() == [[1, 2, 3, 4]]


def test_the_layout_is_checked():
    strided = np.zeros((2, 4), "float32")[:, ::2]
    with pytest.raises(InternalError, match="expected compact memory"):
        call("apply_softmax_with_temperature", strided, 1.0)
    ids = np.array([0, 1], "int32")
    with pytest.raises(InternalError, match="a frequency per token, got 1/2"):
        call("apply_presence_and_frequency_penalty", f32([1, 2]), ids, ids[:1], 1.0, 1.0)
