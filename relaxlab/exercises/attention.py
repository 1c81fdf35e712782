"""Chapters 10 and 12, attention in pieces and recurrent state.

Examples
--------
>>> from relaxlab.exercises import WrongAnswer, check
>>> try:
...     check("12.q1", 6.0)
... except WrongAnswer as wrong:
...     print(wrong.found.got)
6.0, as if nothing were taken back
"""

from typing import Any

import numpy as np

from relaxlab.exercises.exercise import Wrong, exercise, shown
from relaxlab.runtime.kv.rnn_state import RNNState


@exercise("10.q1")
def merge_all(answer: Any) -> None:
    """Judge the merging of any number of pieces."""
    if not callable(answer):
        raise Wrong("a function of two lists", shown(answer), "the function is the answer")
    random = np.random.default_rng(3)
    for pieces in (1, 2, 5):
        for shift in (0.0, -1000.0, 1000.0):
            results = [random.standard_normal((1, 8)) for _ in range(pieces)]
            lses = [float(x) + shift for x in random.standard_normal(pieces) * 3]
            got = np.asarray(answer([one.copy() for one in results], list(lses)))
            weights = np.exp(np.array(lses) - max(lses))
            expected = sum(w * one for w, one in zip(weights, results, strict=True)) / sum(weights)
            if got.shape != (1, 8):
                raise Wrong(
                    "a result of shape (1, 8)", f"shape {got.shape}", "one result comes out"
                )
            if not np.isfinite(got).all():
                raise Wrong(
                    f"finite numbers for log-sum-exps near {shift:g}",
                    "infinite ones, or none at all",
                    "what is subtracted before the exponential?",
                )
            if not np.allclose(got, expected):
                raise Wrong(
                    f"{pieces} piece{'' if pieces == 1 else 's'} averaged by their weights",
                    "another average",
                    "how much weight has a piece, given its log-sum-exp?",
                )
    empty = answer([np.ones((1, 8)), np.full((1, 8), 9.0)], [1.0, -1e30])
    if not np.allclose(empty, 1):
        raise Wrong("an empty piece without weight", "a result it changed", "exp of -1e30")


@exercise("12.q1")
def turned_back(answer: Any) -> None:
    """Judge the current value of a ring that was turned back."""
    if isinstance(answer, bool) or not isinstance(answer, int | float):
        raise Wrong("a number", shown(answer), "let a state do it")
    zero = np.zeros(1, "float32")
    state = RNNState.of(num_layers=1, reserved_num_seqs=1, max_history=4, init_values=[zero])
    state.add_sequence(0)
    for value in range(1, 7):
        state.begin_forward([0], [1])
        state.set(0, 0, np.array([[float(value)]], "float32"))
        state.end_forward()
    last = float(state.debug_get(0, 0, 0).numpy().ravel()[0])
    state.popn(0, 2)
    right = float(state.debug_get(0, 0, 0).numpy().ravel()[0])
    if answer == right:
        return
    if answer == last:
        raise Wrong(
            "the value after turning back", f"{answer}, as if nothing were taken back", "popn"
        )
    raise Wrong("the value after turning back", shown(answer), "each round wrote one place")
