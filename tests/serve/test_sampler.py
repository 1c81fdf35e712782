"""What may be chosen, how often, and that a seed decides."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxlab.serve.sampler import Sampling, choose, probabilities, uniform

LOGITS = np.array([1.0, 3.0, 2.0, -1.0, 0.5], np.float32)


def _softmax(x):
    x = np.exp(np.asarray(x, np.float64) - np.max(x))
    return x / x.sum()


def test_temperature_zero_takes_the_largest_whatever_the_seed():
    assert {choose(LOGITS, Sampling(seed=s), [], [], i) for s in range(5) for i in range(5)} == {1}


def test_without_limits_tokens_come_as_often_as_their_probability_says():
    sampling = Sampling(temperature=0.8, seed=4)
    counts = np.bincount([choose(LOGITS, sampling, [], [], i) for i in range(8000)], minlength=5)
    assert np.allclose(counts / 8000, _softmax(LOGITS / 0.8), atol=0.02)
    assert np.allclose(probabilities(LOGITS, sampling), _softmax(LOGITS / 0.8))


def test_top_k_keeps_the_k_most_likely():
    kept = probabilities(LOGITS, Sampling(temperature=1.0, top_k=2))
    assert np.flatnonzero(kept).tolist() == [1, 2]
    assert np.allclose(kept[[1, 2]], _softmax([3.0, 2.0]))
    assert np.count_nonzero(probabilities(LOGITS, Sampling(temperature=1.0, top_k=99))) == 5


@pytest.mark.parametrize(("top_p", "kept"), [(0.01, [1]), (0.6, [1]), (0.7, [1, 2]), (1.0, None)])
def test_top_p_keeps_the_fewest_that_reach_it(top_p, kept):
    shares = probabilities(LOGITS, Sampling(temperature=1.0, top_p=top_p))
    assert np.flatnonzero(shares).tolist() == (kept or [0, 1, 2, 3, 4])


def test_penalties_are_those_of_the_formulas():
    sampling = Sampling(temperature=1.0, repetition_penalty=2.0)
    expected = LOGITS.copy()
    expected[1], expected[3] = 1.5, -2.0  # positive divided, negative multiplied
    assert np.allclose(probabilities(LOGITS, sampling, [1], [3]), _softmax(expected))
    sampling = Sampling(temperature=1.0, presence_penalty=0.5, frequency_penalty=0.25)
    expected = LOGITS.copy()
    expected[2] -= 0.5 + 0.25 * 3
    expected[0] -= 0.5 + 0.25
    assert np.allclose(probabilities(LOGITS, sampling, [4, 4], [2, 0, 2, 2]), _softmax(expected))
    assert choose(LOGITS, Sampling(repetition_penalty=9.0), [1], [], 0) == 2


@given(st.integers(-(2**70), 2**70), st.integers(0, 10**6))
def test_random_numbers_are_in_range_and_depend_on_seed_and_index(seed, index):
    number = uniform(seed, index)
    assert 0 <= number < 1
    assert number == uniform(seed, index)
    assert number != uniform(seed, index + 1)
    assert number != uniform(seed + 1, index)


def test_random_numbers_are_even_over_indices_and_over_seeds():
    for numbers in ([uniform(3, i) for i in range(4000)], [uniform(s, 0) for s in range(4000)]):
        counts = np.histogram(numbers, 10, (0, 1))[0]
        assert np.all(abs(counts - 400) < 100)


def test_a_small_error_of_the_logits_seldom_changes_a_choice():
    random = np.random.default_rng(0)
    changed = 0
    for i in range(2000):
        logits = random.standard_normal(256).astype(np.float32)
        noise = random.standard_normal(256).astype(np.float32) * 1e-6
        sampling = Sampling(temperature=0.9, top_p=0.95, seed=i)
        first = choose(logits, sampling, [], [], 0)
        changed += first != choose(logits + noise, sampling, [], [], 0)
    assert changed <= 1


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"temperature": -1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_k": -1}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"presence_penalty": float("inf")}, "presence_penalty"),
    ],
)
def test_wrong_rules_are_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        Sampling(**wrong)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_that_are_no_numbers_are_refused(temperature, bad):
    with pytest.raises(ValueError, match="logits"):
        choose(np.array([0.0, bad], np.float32), Sampling(temperature=temperature), [], [], 0)
