"""Layouts: which dimension of an image tensor means what, by letters.

``"NCHW"`` is batch, channel, height, width; ``"NCHW4c"`` splits the channels into blocks of four,
the place inside a block last. A capital is a dimension, a small letter behind a number the part
of it that is split off. Counterpart: ``tvm.s_tir.SLayout`` and ``SBijectiveLayout``.

Examples
--------
>>> from relaxlab.ir import IntImm
>>> dims = [IntImm("int64", d) for d in (1, 8, 5, 7)]
>>> [d.value for d in convert_shape(dims, Layout("NCHW"), Layout("NHWC4c"))]
[1, 5, 7, 2, 4]
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from relaxlab.errors import InternalError
from relaxlab.ir.expr import Expr
from relaxlab.ir.prim import IntImm
from relaxlab.ir.sym import Analyzer

__all__ = ["Layout", "convert_shape"]


@dataclass(frozen=True)
class Layout:
    """Meaning of each dimension.

    Attributes
    ----------
    name
        Such as ``"NCHW"`` or ``"OIHW4i4o"``.
    axes
        One letter per dimension.
    factors
        Extent of each split-off part, by its small letter.

    Raises
    ------
    InternalError
        If the name is no layout.
    """

    name: str
    axes: tuple[str, ...] = field(init=False, compare=False)
    factors: dict[str, int] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        axes: list[str] = []
        factors: dict[str, int] = {}
        factor = 0
        for letter in self.name:
            if letter.isdigit():
                factor = factor * 10 + int(letter)
            elif not (letter.isascii() and letter.isalpha()):
                raise InternalError(f"Invalid layout {self.name}: {letter!r} is no letter")
            elif letter.isupper():
                if factor:
                    raise self._invalid(f"factor size {factor} before dimension {letter}")
                axes.append(letter)
            else:
                if not factor:
                    raise self._invalid(f"factor size {factor} for dimension {letter}")
                if letter in factors:
                    raise InternalError(f"Invalid layout {self.name}: {letter} is split twice")
                axes.append(letter)
                factors[letter] = factor
                factor = 0
        for letter in factors:
            if letter.upper() not in axes:
                raise InternalError(
                    f"Invalid layout {self.name}: {letter} is split off, but there is no "
                    f"{letter.upper()}"
                )
        repeated = sorted({axis for axis in axes if axes.count(axis) > 1})
        if repeated or factor or not axes:
            problem = f"{repeated[0]} twice" if repeated else "an unused number" if factor else "no"
            raise InternalError(f"Invalid layout {self.name!r}: {problem} dimension")
        object.__setattr__(self, "axes", tuple(axes))
        object.__setattr__(self, "factors", factors)

    def _invalid(self, what: str) -> InternalError:
        return InternalError(f"Invalid layout {self.name}: invalid {what}")

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.axes)

    @property
    def primal(self) -> frozenset[str]:
        """The dimensions, without the parts split off."""
        return frozenset(axis for axis in self.axes if axis.isupper())

    def __str__(self) -> str:
        return self.name

    def index(self, axis: str) -> int:
        """Return the place of a dimension; ValueError if there is none."""
        return self.axes.index(axis)

    def convertible(self, other: "Layout") -> bool:
        """Say whether both lay out the same dimensions."""
        return self.primal == other.primal


def convert_shape(dims: Sequence[Expr], source: Layout, target: Layout) -> tuple[Expr, ...]:
    """Return the extents in ``target`` of a tensor of extents ``dims`` in ``source``.

    A dimension that is no multiple of the part to split off is rounded up.
    """
    analyzer = Analyzer()
    result: list[Expr] = []
    for axis in target.axes:
        if axis.islower():
            result.append(IntImm(dims[0].dtype, target.factors[axis]))
            continue
        extent = dims[source.index(axis)]
        have = source.factors.get(axis.lower())
        want = target.factors.get(axis.lower())
        if have is not None:
            extent = extent * have
        if want is not None:
            extent = (extent + (want - 1)) // want
        result.append(extent if have is want is None else analyzer.simplify(extent))
    return tuple(result)
