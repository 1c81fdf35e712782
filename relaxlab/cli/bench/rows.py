"""What a measurement is, how it is timed, and how it is judged.

Absolute times drift from run to run; ratios measured side by side hold. So a row carries our
figure, the peer's figure from the same run, their ratio and the bar it must meet.

Examples
--------
>>> Row("demo", "ns", 20.0, "tvm", 40.0, Bar("<=", 0.7)).ratio
0.5
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

__all__ = ["Bar", "Row", "measure"]


@dataclass(frozen=True, slots=True)
class Bar:
    """A bound on the ratio to the peer, or, without a peer, on our own figure.

    ``<=`` compares times: ours divided by the peer's. ``>=`` compares speeds: for a row in units
    of time the peer's time divided by ours, for a rate ours divided by the peer's.
    """

    relation: Literal["<=", ">="]
    value: float

    def holds(self, figure: float) -> bool:
        """Whether a figure meets the bar."""
        return figure <= self.value if self.relation == "<=" else figure >= self.value


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement.

    Attributes
    ----------
    name, unit
        What was measured; ``ns``, ``us``, ``ms``, ``s``, or a rate such as ``tok/s``.
    ours
        Our figure.
    peer
        Name of the peer; None when the bar is on our figure alone.
    peer_value
        The peer's figure; None when it is not installed.
    bar
        What must hold; None for information only.
    """

    name: str
    unit: str
    ours: float
    peer: str | None
    peer_value: float | None
    bar: Bar | None

    @property
    def ratio(self) -> float | None:
        """Ours against the peer's, in the direction of the bar; None without a peer's figure."""
        if self.peer_value is None:
            return None
        rate = "/" in self.unit
        faster = self.ours / self.peer_value if rate else self.peer_value / self.ours
        if self.bar is not None and self.bar.relation == "<=":
            return 1 / faster
        return faster

    @property
    def ok(self) -> bool | None:
        """Whether the bar is met; None when it cannot be judged."""
        if self.bar is None:
            return None
        if self.peer is None:
            return self.bar.holds(self.ours)
        return None if self.ratio is None else self.bar.holds(self.ratio)

    def record(self) -> dict[str, object]:
        """Return the row as ``--json`` prints it."""
        return {
            "name": self.name,
            "unit": self.unit,
            "ours": self.ours,
            "peer": self.peer,
            "peer_value": self.peer_value,
            "ratio": self.ratio,
            "bar": None if self.bar is None else f"{self.bar.relation} {self.bar.value:g}",
            "ok": self.ok,
        }


def measure(function: Callable[[], object], *, rounds: int = 7, seconds: float = 0.05) -> float:
    """Return the median time of one call in seconds.

    Each of ``rounds`` measurements calls the function often enough to last ``seconds``.
    """
    function()  # first-call costs are not what is asked for
    start = time.perf_counter()
    function()
    once = max(time.perf_counter() - start, 1e-9)
    count = max(1, int(seconds / once))
    results = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(count):
            function()
        results.append((time.perf_counter() - start) / count)
    return statistics.median(results)
