"""Chapter 04, kernels.

Examples
--------
>>> from relaxlab.exercises import WrongAnswer, check
>>> try:
...     check("04.q1", 1)
... except WrongAnswer as wrong:
...     print(wrong.found.expected)
a function of two tensors
"""

from typing import Any

import numpy as np

from relaxlab.exercises.exercise import Wrong, exercise, shown
from relaxlab.runtime.tensor import tensor


@exercise("04.q1")
def rms_norm(answer: Any) -> None:
    """Judge a kernel that normalises each row."""
    if not callable(answer):
        raise Wrong("a function of two tensors", shown(answer), "the function is the answer")
    random = np.random.default_rng(2)
    for shape in ((2, 4), (3, 7)):
        x = random.standard_normal(shape).astype("float32") * 3
        given, out = tensor(x.copy()), tensor(np.full(shape, 7, "float32"))
        answer(given, out)
        if not np.array_equal(given.numpy(), x):
            raise Wrong("inputs left alone", "a changed x", "only `out` is written")
        got = out.numpy()
        if (got == 7).all():
            raise Wrong("values written into out", "an untouched out", "out.copyfrom(...)")
        sizes = np.sqrt((got.astype("float64") ** 2).mean(axis=1))
        if not np.allclose(sizes, 1, atol=1e-3):
            raise Wrong(
                "rows whose mean square is about 1",
                f"mean squares {np.round(sizes**2, 3).tolist()}",
                "over which axis is the mean, and is the root taken?",
            )
        expected = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-6)
        if not np.allclose(got, expected, rtol=1e-4, atol=1e-5):
            raise Wrong(
                "each row in its own direction",
                "rows of the right size, but other values",
                "a row is divided by one number",
            )
