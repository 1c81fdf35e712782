"""Matrix products: two arrays over the axes of a fold, multiplied and summed by BLAS.

Axes fall into four groups: in both operands and kept (batch), only in the left one (rows), only
in the right one (columns), in both and folded (inner). Several axes of a group become one axis
of a matrix. Counterpart: contraction detection in TVM's schedules.

Examples
--------
>>> from relaxlab.codegen.numpy.space import Axis, Space
>>> from relaxlab.codegen.numpy.writer import Writer
>>> from relaxlab.ir import IntImm, Var
>>> from relaxlab.runtime.dtype import DataType
>>> zero, four = IntImm("int64", 0), IntImm("int64", 4)
>>> axes = [Axis(Var(name, "int64"), zero, four) for name in "ijk"]
>>> code = VectorCode(Writer("f"), Space(axes))
>>> x = Value("x[:, None, :]", (0, 2), DataType("float32"), plain="x", order=(0, 2))
>>> w = Value("w", (1, 2), DataType("float32"), plain="w", order=(1, 2))
>>> Product(code, (0, 1), x, w).text()
'np.matmul(x, w.T)'
"""

from collections.abc import Sequence

from relaxlab.codegen.numpy.scalar_code import scalar_code
from relaxlab.codegen.numpy.value import Value, transposed
from relaxlab.codegen.numpy.vector import VectorCode

__all__ = ["Product"]


class Product:
    """A matrix product of two values.

    Parameters
    ----------
    code
        Where lines go, and the space.
    kept
        Places of the axes that are not folded.
    left, right
        The operands; together they have every axis, and both have every folded one.
    """

    def __init__(self, code: VectorCode, kept: Sequence[int], left: Value, right: Value) -> None:
        self.code = code
        self.kept = list(kept)
        both = set(left.axes) & set(right.axes)
        self.batch = sorted(both & set(kept))
        self.rows = sorted(set(left.axes) - both)
        self.columns = sorted(set(right.axes) - both)
        self.inner = sorted(both - set(kept))
        self.order = [*self.batch, *self.rows, *self.columns]
        self.left = self._matrix(left, self.rows, self.inner)
        self.right = self._matrix(right, self.inner, self.columns)

    @property
    def _plain(self) -> bool:
        return len(self.rows) == 1 and len(self.columns) == 1

    def write_into(self, out: str) -> bool:
        """Write the product into an array of the kept axes; False if that takes a copy anyway."""
        writer = self.code.writer
        if self._plain:
            target = transposed(out, self.kept, self.order)
            writer.line(f"np.matmul({self.left}, {self.right}, out={target})")
            return True
        if self.order != self.kept or self.batch:
            return False
        # axes side by side are one axis of a matrix, where memory allows it
        shape = f"{self._count(self.rows)}, {self._count(self.columns)}"
        with writer.block(f"if {out}.flags.c_contiguous:"):
            writer.line(f"np.matmul({self.left}, {self.right}, out={out}.reshape({shape}))")
        with writer.block("else:"):
            writer.line(f"{out}[...] = {self.text()}")
        return True

    def text(self) -> str:
        """Return the text of the product as an array of the kept axes."""
        text = f"np.matmul({self.left}, {self.right})"
        if not self._plain:
            sizes = [self._extent(place) for place in self.order]
            text = f"{text}.reshape({', '.join(sizes)})"
        return transposed(text, self.order, self.kept)

    def _extent(self, place: int) -> str:
        return scalar_code(self.code.writer, self.code.space.extent(place))

    def _count(self, places: list[int]) -> str:
        sizes = [self._extent(place) for place in places]
        return " * ".join(f"({s})" if " " in s else s for s in sizes) or "1"

    def _matrix(self, value: Value, first: list[int], second: list[int]) -> str:
        """Return the text of a value as matrices: batch axes, then two."""
        text = self.code.compact(value, [*self.batch, *first, *second])
        if len(first) == 1 and len(second) == 1:
            return text
        batch = [self._extent(place) for place in self.batch]
        sizes = [*batch, self._count(first), self._count(second)]
        return f"{text}.reshape({', '.join(sizes)})"
