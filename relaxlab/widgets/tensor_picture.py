"""A whole tensor as a small heat map, with the exact number of every element.

Colours have a few steps only and are named by a legend in numbers; a hover, and the text twin, say
each element exactly. There is no TVM counterpart.

Examples
--------
>>> import numpy as np
>>> from relaxlab.runtime.tensor import tensor
>>> print(TensorPicture(tensor(np.array([[0.0, 0.5], [1.0, 2.0]], "float32"))))
float32[2, 2], from 0.0 to 2.0
  0.0  0.5
  1.0  2.0
"""

import html
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from relaxlab.runtime.describe import TensorValue
from relaxlab.runtime.tensor import Tensor

__all__ = ["LEVELS", "TensorPicture", "level_of"]

LEVELS: Final = 6
"""Number of shades."""

_ROWS, _COLUMNS = 32, 32
_CELL: Final = 14
_SHADES: Final = ("#f3f7fb", "#d3e3f3", "#9ecae1", "#4a90c4", "#1f5f9e", "#08306b")


def level_of(value: Any, low: float, high: float) -> int:
    """Return the shade of a value, 0 to ``LEVELS - 1``; -1 for one that is not a finite number."""
    number = float(value)
    if not np.isfinite(number) or not np.isfinite(low) or not np.isfinite(high):
        return -1
    if high <= low:
        return 0
    return min(LEVELS - 1, int((number - low) / (high - low) * LEVELS))


class TensorPicture:
    """A picture of a tensor: its last axis runs to the right, all others down.

    Parameters
    ----------
    value
        The tensor; it is copied. Of a large one the first 32 rows and columns are drawn, and the
        picture says so; the colours still span the whole tensor.
    """

    def __init__(self, value: Tensor) -> None:
        array = value.numpy().copy()
        self.dtype, self.shape = str(value.dtype), tuple(value.shape)
        columns = self.shape[-1] if self.shape else 1
        self._all: NDArray[Any] = array.reshape(-1, columns) if array.size else array.reshape(0, 0)
        self._shown = self._all[:_ROWS, :_COLUMNS]
        numbers = self._all.astype(np.float64) if array.dtype.kind != "c" else self._all.real
        finite = np.flatnonzero(np.isfinite(numbers))
        self.low = self.high = float("nan")
        self._ends: tuple[str, str] | None = None
        if finite.size:
            flat = numbers.reshape(-1)[finite]
            least, most = finite[flat.argmin()], finite[flat.argmax()]
            self.low, self.high = float(flat.min()), float(flat.max())
            elements = self._all.reshape(-1)
            self._ends = (_text(elements[least], self.dtype), _text(elements[most], self.dtype))

    @property
    def heading(self) -> str:
        """What is shown, in words."""
        words = [f"{self.dtype}[{', '.join(map(str, self.shape))}]"]
        if self._ends is not None:
            words.append(f"from {self._ends[0]} to {self._ends[1]}")
        rows, columns = self._all.shape
        if rows > _ROWS or columns > _COLUMNS:
            shown = self._shown.shape
            words.append(f"the first {shown[0]} of {rows} rows, {shown[1]} of {columns} columns")
        return ", ".join(words)

    def texts(self) -> list[list[str]]:
        """Return the elements that are drawn, as the rest of the view writes numbers."""
        return [[_text(one, self.dtype) for one in row] for row in self._shown]

    def grid(self) -> dict[str, Any]:
        """Return the picture as plain data for a page."""
        levels = [[level_of(one, self.low, self.high) for one in row] for row in self._shown]
        return {"heading": self.heading, "texts": self.texts(), "levels": levels}

    def __str__(self) -> str:
        """Return the exact numbers, in columns."""
        texts = self.texts()
        width = max((len(one) for row in texts for one in row), default=0)
        rows = ["  " + "  ".join(one.rjust(width) for one in row) for row in texts]
        return "\n".join([self.heading, *rows])

    def __repr__(self) -> str:
        """Return what is shown, without the numbers."""
        return f"TensorPicture({self.heading})"

    def _repr_html_(self) -> str:
        cells = []
        for row, (texts, values) in enumerate(zip(self.texts(), self._shown, strict=True)):
            for column, (text, value) in enumerate(zip(texts, values, strict=True)):
                level = level_of(value, self.low, self.high)
                paint = "none" if level < 0 else _SHADES[level]
                cells.append(
                    f'<rect x="{column * _CELL}" y="{row * _CELL}" width="{_CELL - 1}" '
                    f'height="{_CELL - 1}" fill="{paint}" stroke="#767676" stroke-width="0.5">'
                    f"<title>[{row}, {column}] {html.escape(text)}</title></rect>"
                )
        rows, columns = self._shown.shape
        heading = html.escape(self.heading, quote=True)
        return (
            f'<figure style="margin:0"><svg width="{columns * _CELL}" height="{rows * _CELL}" '
            f'role="img" aria-label="{heading}">{"".join(cells)}</svg>'
            f"<figcaption>{heading}</figcaption></figure>"
        )


def _text(value: Any, dtype: str) -> str:
    one = value.item()
    if not isinstance(one, int | float | bool):  # a narrow float: exact in float32
        one = float(one) if not isinstance(one, complex) else one
    if isinstance(one, complex):
        return repr(one)
    described = TensorValue(dtype, (1,), "", 0, 0, (one,), (), None, None, None, None).text
    return described.partition("[1] s0 [")[2].rpartition("]")[0].removesuffix(" 1 NaN")
