"""Rows of a real language model: SmolLM2 through our compiler and machine, beside plain NumPy.

Examples
--------
>>> from relaxlab.cli.bench.llm import rows
"""

import time
from collections.abc import Callable, Iterator
from statistics import median

import numpy as np

from relaxlab.cli.bench.rows import Bar, Row
from relaxlab.models.generation import CompiledLlama
from relaxlab.models.language_model import open_model
from relaxlab.models.reference import ReferenceLlama

__all__ = ["rows"]

_CONTEXT = 512
_ROUNDS = 9


def rows() -> Iterator[Row]:
    """Yield the rows of ``relaxlab bench llm``; needs ``relaxlab model get smollm2``."""
    model = open_model("smollm2")
    llama = CompiledLlama(model)
    plain = ReferenceLlama(model.config, dict(model.weights))
    prompt = np.random.default_rng(0).integers(0, model.config.vocab, _CONTEXT).tolist()
    _, caches = llama.prefill(prompt, llama.empty_cache())
    cache = plain.cache(_CONTEXT + 1)

    def plain_prefill() -> None:
        cache.length = 0
        plain.forward(prompt, cache)

    def plain_decode() -> None:
        cache.length = _CONTEXT
        plain.forward([1], cache)

    plain_prefill()
    ours, peer = _side_by_side(lambda: llama.decode(1, caches), plain_decode, _ROUNDS)
    yield Row("smollm2_decode_b1", "tok/s", 1 / ours, "numpy", 1 / peer, Bar(">=", 0.6))
    ours, peer = _side_by_side(lambda: llama.prefill(prompt, llama.empty_cache()), plain_prefill, 3)
    yield Row(
        "smollm2_prefill_512_numpy",
        "tok/s",
        _CONTEXT / ours,
        "numpy",
        _CONTEXT / peer,
        Bar(">=", 0.6),
    )


def _side_by_side(
    ours: Callable[[], object], peer: Callable[[], object], rounds: int
) -> tuple[float, float]:
    """Time two functions in turn, so that a busy moment hits both; return the medians."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for function, results in zip((ours, peer), times, strict=True):
            start = time.perf_counter()
            function()
            results.append(time.perf_counter() - start)
    return median(times[0]), median(times[1])
