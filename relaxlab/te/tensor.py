"""Tensors as values of a computation, and what it means to read one.

::

    Operation = PlaceholderOp(name, shape, dtype)
              | ComputeOp(name, axis, reduce_axis, body, tag, attrs)
              | ExternOp(name, inputs, input_buffers, output_buffers, body, tag, attrs)
    Tensor    = (op, value_index)              one result of an operation
    Expr      = ... (ir/prim.py)
              | TensorRead(tensor, indices)    ``A[i, j]``; a TensorLoad after conversion
              | Reduce(combiner, source, init, axis, condition, value_index)

A tensor is no node: a walk over an expression stops at the tensors it reads, and so stays inside
one operation. Counterpart: ``tvm.te.Tensor`` and ``tvm.te.Operation``.

Examples
--------
>>> from relaxlab import te
>>> a = te.placeholder((4, 8), "float32", "a")
>>> a.shape[0].value, a.ndim, type(a[1, 2]).__name__
(4, 2, 'TensorRead')
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from relaxlab.ir.expr import EXPR_OPERATORS, Expr, Var
from relaxlab.ir.node import DEFINES, IGNORED, Node, children
from relaxlab.ir.prim import IntImm
from relaxlab.ir.type import PrimType
from relaxlab.runtime.dtype import DataType
from relaxlab.tirx import IterVar, Stmt

__all__ = [
    "CommReducer",
    "ComputeOp",
    "ExternOp",
    "Operation",
    "PlaceholderOp",
    "Reduce",
    "Tensor",
    "TensorRead",
    "TensorSlice",
    "to_shape",
]

_INT32 = DataType("int32")


def to_shape(shape: Sequence[Expr | int] | Expr | int) -> tuple[Expr, ...]:
    """Return dimensions as scalar expressions; plain ints become int32 literals, as in TVM."""
    dims = (shape,) if isinstance(shape, Expr | int) else tuple(shape)
    return tuple(IntImm(_INT32, dim) if isinstance(dim, int) else dim for dim in dims)


class _Arithmetic:
    """``a + b`` and its like for tensors; ``topi`` says what they mean."""

    __slots__ = ()

    def __add__(self, other: Any) -> Any:
        return _operate("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return _operate("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return _operate("subtract", self, other)

    def __rsub__(self, other: Any) -> Any:
        return _operate("subtract", other, self)

    def __mul__(self, other: Any) -> Any:
        return _operate("multiply", self, other)

    def __rmul__(self, other: Any) -> Any:
        return _operate("multiply", other, self)

    def __truediv__(self, other: Any) -> Any:
        return _operate("divide", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _operate("divide", other, self)

    def __neg__(self) -> Any:
        return _operate("negative", self)


def _operate(name: str, *operands: Any) -> Any:
    read = [o() if isinstance(o, TensorSlice) else o for o in operands]
    family = "te" if any(isinstance(o, Tensor) for o in read) else "prim"
    return EXPR_OPERATORS.get(f"{family}.{name}")(*read)


@dataclass(frozen=True, eq=False, slots=True)
class Operation:
    """Something that produces tensors.

    Attributes
    ----------
    name
        Becomes the name of the block and of the buffer it writes.
    tag
        A word about the kind of computation; nothing depends on it.
    attrs
        Become the annotations of the block.
    """

    name: str
    tag: str = field(default="", kw_only=True)
    attrs: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    _outputs: list["Tensor"] = field(default_factory=list, init=False, repr=False)

    @property
    def num_outputs(self) -> int:
        """Number of tensors it produces."""
        return len(self.outputs)

    @property
    def outputs(self) -> tuple["Tensor", ...]:
        """The tensors it produces, the same objects on every call."""
        if not self._outputs:
            self._outputs.extend(
                Tensor(self, i, shape, dtype) for i, (shape, dtype) in enumerate(self.results())
            )
        return tuple(self._outputs)

    def output(self, index: int) -> "Tensor":
        """Return one of the tensors it produces."""
        return self.outputs[index]

    def results(self) -> list[tuple[tuple[Expr, ...], DataType]]:
        """Shape and dtype of each result."""
        raise TypeError(f"{type(self).__name__} does not say what it produces")

    @property
    def input_tensors(self) -> tuple["Tensor", ...]:
        """The tensors it reads, each once, in the order in which a walk meets them."""
        return ()


@dataclass(frozen=True, eq=False, slots=True)
class PlaceholderOp(Operation):
    """A tensor given from outside."""

    shape: tuple[Expr, ...]
    dtype: DataType

    def results(self) -> list[tuple[tuple[Expr, ...], DataType]]:
        """The given shape and dtype."""
        return [(self.shape, self.dtype)]


@dataclass(frozen=True, eq=False, slots=True)
class ComputeOp(Operation):
    """Elements computed from their index, with or without a reduction.

    ``body`` has one expression per result; with a reduction, each is a :class:`Reduce` of one
    combiner, differing in ``value_index`` only.
    """

    axis: tuple[IterVar, ...]
    body: tuple[Expr, ...]

    @property
    def reduce_axis(self) -> tuple[IterVar, ...]:
        """The reduction axes; empty for an elementwise computation."""
        first = self.body[0]
        return first.axis if isinstance(first, Reduce) else ()

    def results(self) -> list[tuple[tuple[Expr, ...], DataType]]:
        """The axes' extents, with the dtype of each expression."""
        shape = tuple(axis.dom.extent for axis in self.axis)
        return [(shape, value.dtype) for value in self.body]

    @property
    def input_tensors(self) -> tuple["Tensor", ...]:
        """The tensors that the expressions read."""
        found: dict[Tensor, None] = {}
        for value in self.body:
            _collect_reads(value, found)
        return tuple(found)


@dataclass(frozen=True, eq=False, slots=True)
class ExternOp(Operation):
    """Results written by a statement over buffers."""

    inputs: tuple["Tensor", ...]
    input_buffers: tuple[Var, ...]
    output_buffers: tuple[Var, ...]
    body: Stmt

    def results(self) -> list[tuple[tuple[Expr, ...], DataType]]:
        """What the output buffers hold."""
        return [(b.ty.shape, b.ty.dtype) for b in self.output_buffers]  # type: ignore[union-attr]  # buffers

    @property
    def input_tensors(self) -> tuple["Tensor", ...]:
        """The given inputs."""
        return self.inputs


def _collect_reads(root: Node, found: dict["Tensor", None]) -> None:
    """Add the tensors read in ``root``: inner reads first, as the reads of a walk complete."""
    pending: list[tuple[Node, bool]] = [(root, False)]
    while pending:
        node, done = pending.pop()
        if not done:
            pending.append((node, True))
            pending.extend((child, False) for child in reversed(list(children(node))))
        elif isinstance(node, TensorRead):
            found.setdefault(node.tensor)


@dataclass(frozen=True, eq=False, slots=True)
class Tensor(_Arithmetic):
    """One result of an operation; two tensors are equal when they are the same result.

    Indexing reads an element: ``A[i, j]`` or ``A(i, j)``. ``A[i]`` of a matrix waits for the
    rest: ``A[i][j]``.
    """

    op: Operation = field(repr=False)
    value_index: int = field(repr=False)
    shape: tuple[Expr, ...] = field(repr=False)
    dtype: DataType = field(repr=False)

    @property
    def name(self) -> str:
        """The operation's name."""
        return self.op.name

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __call__(self, *indices: Expr | int) -> "TensorRead":
        """Read one element.

        Raises
        ------
        ValueError
            If the number of indices is not the number of dimensions.
        """
        if len(indices) != self.ndim:
            raise ValueError(
                f"tensor {self.name!r} has {self.ndim} dimension(s), but was read with "
                f"{len(indices)} index(es); give one index per dimension"
            )
        return TensorRead(
            self,
            tuple(
                IntImm(dim.dtype, i) if isinstance(i, int) else i
                for i, dim in zip((_element(i) for i in indices), self.shape, strict=True)
            ),
        )

    def __getitem__(self, index: Any) -> Any:
        return TensorSlice(self, ())[index]

    def __repr__(self) -> str:
        return f"Tensor(shape={list(self.shape)!r}, op.name={self.name})"


def _element(index: Any) -> Any:
    """Unwrap what stands for a scalar: a loop axis, a finished slice."""
    if isinstance(index, IterVar):
        return index.var
    return index() if isinstance(index, TensorSlice) else index


@dataclass(frozen=True, eq=False, slots=True)
class TensorSlice(_Arithmetic):
    """A tensor with its first indices given."""

    tensor: Tensor
    indices: tuple[Expr | int, ...]

    def __getitem__(self, index: Any) -> "TensorSlice | TensorRead":
        more = index if isinstance(index, tuple) else (index,)
        indices = (*self.indices, *more)
        if len(indices) >= self.tensor.ndim:
            return self.tensor(*indices)
        return TensorSlice(self.tensor, indices)

    def __call__(self) -> "TensorRead":
        """Read the element; an error when indices are missing."""
        return self.tensor(*self.indices)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class TensorRead(Expr):
    """One element of a tensor. Counterpart: TVM's ``te.tensor_load``."""

    tensor: Tensor
    indices: tuple[Expr, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "indices", tuple(self.indices))
        if self.ty is None:
            object.__setattr__(self, "ty", PrimType(self.tensor.dtype))


@dataclass(frozen=True, eq=False, slots=True)
class CommReducer:
    """How two partial results combine, and what to begin with.

    Attributes
    ----------
    name
        For messages.
    combine
        ``combine(lhs, rhs)``: the combined values, one per result.
    identity
        ``identity(dtypes)``: the values that change nothing.
    """

    name: str
    combine: Callable[[tuple[Expr, ...], tuple[Expr, ...]], tuple[Expr, ...]]
    identity: Callable[[tuple[DataType, ...]], tuple[Expr, ...]]


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Reduce(Expr):
    """The combination of ``source`` over ``axis``; only allowed as a whole body of a compute.

    ``init`` (empty: the identity) is what to begin with; points where ``condition`` is false
    take no part.
    """

    combiner: CommReducer = field(metadata=IGNORED)
    source: tuple[Expr, ...]
    init: tuple[Expr, ...]
    axis: tuple[IterVar, ...] = field(metadata=DEFINES)
    condition: Expr
    value_index: int = 0

    def __post_init__(self) -> None:
        if self.ty is None:
            object.__setattr__(self, "ty", self.source[self.value_index].ty)
