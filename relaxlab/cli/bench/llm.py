"""Rows of a real language model: SmolLM2 through our compiler, machine and paged cache.

Beside plain NumPy, one sequence at a time, and llama.cpp on the same file where the package
``llama_cpp`` is installed. Weights are float32 in all rows but llama.cpp's, which reads the file's.

Examples
--------
>>> from relaxlab.cli.bench.llm import rows
"""

import os
import time
from collections.abc import Callable, Iterator
from statistics import median

import numpy as np

from relaxlab.cli.bench.rows import Bar, Row
from relaxlab.models.download import find_model
from relaxlab.models.language_model import open_model
from relaxlab.models.paged_llama import PagedLlama
from relaxlab.models.reference import ReferenceLlama

__all__ = ["rows"]

_CONTEXT = 512
_BATCH = 8
_ROUNDS = 9


def rows() -> Iterator[Row]:
    """Yield the rows of ``relaxlab bench llm``; needs ``relaxlab model get smollm2``."""
    model = open_model("smollm2")
    llama = PagedLlama(model, capacity=_BATCH * (_CONTEXT + _ROUNDS + 16), chunk=_CONTEXT)
    plain = ReferenceLlama(model.config, dict(zip(model.weights, _arrays(llama), strict=True)))
    prompt = np.random.default_rng(0).integers(0, model.config.vocab, _CONTEXT).tolist()
    cache = plain.cache(_CONTEXT + 1)

    def prefill() -> None:
        llama.cache.clear()
        llama.add_sequence(0)
        llama.run([0], [_CONTEXT], prompt, [_CONTEXT - 1])

    def plain_prefill() -> None:
        cache.length = 0
        plain.forward(prompt, cache)

    def plain_decode() -> None:
        cache.length = _CONTEXT
        plain.forward([1], cache)

    def decode(batch: int) -> Callable[[], None]:
        prefill()
        for sequence in range(1, batch):
            # tokens of its own, so that no page is shared
            llama.add_sequence(sequence)
            llama.run([sequence], [_CONTEXT], prompt, [_CONTEXT - 1])
        everyone, ones = list(range(batch)), [1] * batch

        def step() -> None:
            llama.run(everyone, ones, ones, everyone)
            for sequence in everyone:
                llama.popn(sequence, 1)

        step()
        return step

    plain_prefill()
    ours, peer = _side_by_side(decode(1), plain_decode, _ROUNDS)
    yield Row("smollm2_decode_b1", "tok/s", 1 / ours, "numpy", 1 / peer, Bar(">=", 0.9))
    ours, peer = _side_by_side(decode(_BATCH), plain_decode, _ROUNDS)
    yield Row("smollm2_decode_b8", "tok/s", _BATCH / ours, "numpy", 1 / peer, Bar(">=", 3.0))
    ours, peer = _side_by_side(prefill, plain_prefill, 3)
    rate = _CONTEXT / peer
    yield Row("smollm2_prefill_512_numpy", "tok/s", _CONTEXT / ours, "numpy", rate, None)
    foreign = _llama_cpp_prefill(prompt)
    if foreign is None:
        yield Row(
            "smollm2_prefill_512", "tok/s", _CONTEXT / ours, "llama.cpp", None, Bar(">=", 1.3)
        )
        return
    ours, peer = _side_by_side(prefill, foreign, 3)
    rate = _CONTEXT / peer
    yield Row("smollm2_prefill_512", "tok/s", _CONTEXT / ours, "llama.cpp", rate, Bar(">=", 1.3))


def _arrays(llama: PagedLlama) -> Iterator[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    """Yield the weights as arrays over the tensors' memory: both sides read the same."""
    for tensor in llama.params:
        yield tensor.numpy()


def _llama_cpp_prefill(prompt: list[int]) -> Callable[[], None] | None:
    """Return what lets llama.cpp read the prompt; None if it is not installed."""
    try:
        from llama_cpp import Llama  # type: ignore[import-not-found] # noqa: PLC0415 (optional)
    except ImportError:
        return None
    threads = os.cpu_count() or 1
    model = Llama(
        model_path=str(find_model("smollm2")),
        n_ctx=_CONTEXT + 8,
        n_batch=_CONTEXT,
        n_threads=threads,
        n_threads_batch=threads,
        verbose=False,
    )

    def prefill() -> None:
        model.reset()
        model.eval(prompt)

    prefill()
    return prefill


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
