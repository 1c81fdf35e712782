"""Choosing the next token: penalties, temperature, top-k, top-p, and a seed.

The random number of the i-th token of a request depends on its seed and on ``i`` only. So a
request gives the same text alone or in a batch, before or after preemption, and with or without
speculation: a draft is accepted exactly when it is what would have been drawn anyway.
Counterpart: MLC's sampler, which keeps a generator per request; the registered
``vm.builtin.sample_top_p_from_logits`` is the runtime's.

Examples
--------
>>> import numpy as np
>>> logits = np.array([0.0, 2.0, 1.0], np.float32)
>>> choose(logits, Sampling(), [], [], 0)
1
>>> [choose(logits, Sampling(temperature=1.0, seed=s), [], [], 0) for s in range(6)]
[1, 2, 0, 1, 1, 1]
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

__all__ = ["Sampling", "choose", "chooser", "probabilities", "uniform"]

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the tokens of one request are chosen.

    Attributes
    ----------
    temperature
        Logits are divided by it; 0 always takes the most likely token.
    top_k
        Keep so many of the most likely tokens; 0 keeps all.
    top_p
        Keep the most likely tokens that together reach this probability.
    repetition_penalty
        Tokens of the prompt or the output: positive logits are divided by it, others multiplied.
    presence_penalty, frequency_penalty
        Subtracted from the logit of every token of the output, once, or once per occurrence.
    seed
        Same seed, same choice.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature: expected 0 or more, got {self.temperature}")
        if self.top_k < 0:
            raise ValueError(f"top_k: expected 0 (off) or more, got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p: expected above 0 and at most 1, got {self.top_p}")
        if not 0 < self.repetition_penalty < math.inf:
            raise ValueError(
                f"repetition_penalty: expected more than 0 (1 is off), got "
                f"{self.repetition_penalty}"
            )
        for name in ("presence_penalty", "frequency_penalty"):
            if not math.isfinite(getattr(self, name)):
                raise ValueError(f"{name}: expected a finite number, got {getattr(self, name)}")

    def reseeded(self, index: int) -> "Sampling":
        """Return the same rules for answer ``index`` of a request."""
        return replace(self, seed=self.seed + index)

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is taken."""
        return self.temperature == 0


def uniform(seed: int, index: int) -> float:
    """Return the random number in [0, 1) of token ``index`` under a seed (SplitMix64)."""
    state = _mix((_mix(seed & _MASK) + 0x9E3779B97F4A7C15 * (index + 1)) & _MASK)
    return (state >> 11) * 2.0**-53


def _mix(state: int) -> int:
    state = (state + 0x9E3779B97F4A7C15) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)


def choose(
    logits: NDArray[np.float32],
    sampling: Sampling,
    prompt: Sequence[int],
    output: Sequence[int],
    index: int,
) -> int:
    """Return the next token.

    Parameters
    ----------
    logits
        ``(vocab,)`` after the last token.
    sampling
        The rules.
    prompt, output
        Tokens so far, for the penalties.
    index
        Number of the token to choose within the output, which selects the random number.

    Raises
    ------
    ValueError
        A logit is NaN, or none is finite.
    """
    scores = _penalised(logits, sampling, prompt, output)
    if sampling.greedy:
        best = int(scores.argmax())
        if not math.isfinite(scores[best]):
            raise ValueError(f"logits: expected numbers, the largest is {scores[best]}")
        return best
    shares = _shares(scores, sampling)
    # In the order of tokens, not of likelihood: a rounding error that swaps two nearly equal
    # tokens then moves a boundary by as little, where sorting would exchange their intervals.
    sums = np.cumsum(shares)
    chosen = int(np.searchsorted(sums, uniform(sampling.seed, index) * sums[-1], side="right"))
    return min(chosen, int(np.flatnonzero(shares)[-1]))


def chooser(sampling: Sampling, prompt: Sequence[int]) -> Callable[[NDArray[np.float32]], int]:
    """Return a function that chooses one token after the other, for a model without an engine.

    Parameters
    ----------
    sampling
        The rules; under the same seed an engine chooses the same tokens.
    prompt
        Tokens before the first, for the penalties.
    """
    output: list[int] = []

    def next_token(logits: NDArray[np.float32]) -> int:
        output.append(choose(logits, sampling, prompt, output, len(output)))
        return output[-1]

    return next_token


def probabilities(
    logits: NDArray[np.float32],
    sampling: Sampling,
    prompt: Sequence[int] = (),
    output: Sequence[int] = (),
) -> NDArray[np.float64]:
    """Return the probability ``(vocab,)`` of each token to be chosen, for views and tests."""
    scores = _penalised(logits, sampling, prompt, output)
    if sampling.greedy:
        shares = np.zeros(len(scores))
        shares[int(scores.argmax())] = 1.0
        return shares
    shares = _shares(scores, sampling)
    normed: NDArray[np.float64] = shares / shares.sum()
    return normed


def _penalised(
    logits: NDArray[np.float32], sampling: Sampling, prompt: Sequence[int], output: Sequence[int]
) -> NDArray[np.float64]:
    scores = logits.astype(np.float64)
    if sampling.repetition_penalty != 1 and (prompt or output):
        seen = np.unique(np.array([*prompt, *output]))
        values = scores[seen]
        penalty = sampling.repetition_penalty
        scores[seen] = np.where(values > 0, values / penalty, values * penalty)
    if output and (sampling.presence_penalty or sampling.frequency_penalty):
        seen, counts = np.unique(np.array(output), return_counts=True)
        scores[seen] -= sampling.presence_penalty + sampling.frequency_penalty * counts
    return scores


def _shares(scores: NDArray[np.float64], sampling: Sampling) -> NDArray[np.float64]:
    """Return unnormalised probabilities, zero for the tokens that are not kept."""
    top = scores.max()
    if not math.isfinite(top):
        raise ValueError(f"logits: expected numbers, the largest is {top}")
    shares: NDArray[np.float64] = np.exp((scores - top) / sampling.temperature)
    if 0 < sampling.top_k < len(shares):
        shares[np.argsort(-shares, kind="stable")[sampling.top_k :]] = 0.0
    if sampling.top_p < 1:
        order = np.argsort(-shares, kind="stable")
        sums = np.cumsum(shares[order])
        before = sums - shares[order]
        shares[order[before >= sampling.top_p * sums[-1]]] = 0.0
    return shares
