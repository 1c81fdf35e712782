"""How long a call takes.

Counterpart: TVM's ``time_evaluator`` and its ``BenchmarkResult``.

Examples
--------
>>> result = measure(sum, number=10, repeat=3)([1, 2])
>>> len(result.results), result.min <= result.median <= result.max
(3, True)
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["BenchmarkResult", "measure"]


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """Seconds per call, one entry per measurement."""

    results: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Arithmetic mean of the results, in seconds."""
        return statistics.fmean(self.results)

    @property
    def median(self) -> float:
        """Median of the results, in seconds."""
        return statistics.median(self.results)

    @property
    def min(self) -> float:
        """Smallest result, in seconds."""
        return min(self.results)

    @property
    def max(self) -> float:
        """Largest result, in seconds."""
        return max(self.results)

    @property
    def std(self) -> float:
        """Standard deviation of the results, in seconds."""
        return statistics.pstdev(self.results)


def measure(
    function: Callable[..., Any], number: int, repeat: int
) -> Callable[..., BenchmarkResult]:
    """Return a function that times ``function``: one call to warm up, then the measurements."""

    def evaluate(*args: Any) -> BenchmarkResult:
        function(*args)
        results = []
        for _ in range(repeat):
            start = time.perf_counter()
            for _ in range(number):
                function(*args)
            results.append((time.perf_counter() - start) / number)
        return BenchmarkResult(tuple(results))

    return evaluate
