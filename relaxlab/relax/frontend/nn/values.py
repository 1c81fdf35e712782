"""A tensor and an object of a model: names for what has been emitted.

A method of a model gets these, calls functions on them and returns others; every function emits a
binding into the builder whose ``function`` scope is open. Counterpart: ``Tensor``, ``Object`` and
``wrap_nested`` of ``tvm.relax.frontend.nn``.

Examples
--------
>>> from relaxlab import relax
>>> builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType([2, 6], "float32"))
>>> with builder.function("main", [x]):
...     with builder.dataflow():
...         y = Tensor(_expr=x).reshape(3, 4)
...         out = builder.emit_output(y._expr)
...     main = builder.emit_func_output(out)
>>> y.shape, y.dtype, y._expr.name
([3, 4], 'float32', 'reshape')
"""

from typing import Any

from relaxlab.errors import InternalError
from relaxlab.ir.expr import Expr, TupleGetItem, Var
from relaxlab.ir.prim import IntImm
from relaxlab.ir.type import TupleType
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.op.reshape import reshape
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import TensorType

__all__ = ["Object", "Tensor", "emit", "wrap_nested"]

Dimension = int | Expr


class Tensor:
    """A tensor of the model.

    Parameters
    ----------
    _expr
        What it is called in the function under construction.

    Raises
    ------
    TypeError
        If the expression is no tensor.
    """

    def __init__(self, *, _expr: Expr) -> None:
        if not isinstance(_expr.ty, TensorType):
            raise TypeError(f"nn.Tensor: expected a tensor, got {_expr.ty}")
        self._expr = _expr

    @property
    def shape(self) -> list[Dimension]:
        """Sizes: numbers where they are known, expressions elsewhere.

        Raises
        ------
        ValueError
            If they are not known at all.
        """
        shape = self._type.shape
        if not isinstance(shape, ShapeExpr):
            raise ValueError("nn.Tensor: the sizes of this tensor are not known")
        return [size.value if isinstance(size, IntImm) else size for size in shape.values]

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self._type.ndim

    @property
    def dtype(self) -> str:
        """Element type."""
        return str(self._type.dtype)

    def reshape(self, *shape: Any) -> "Tensor":
        """Return the elements in another shape."""
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], list | tuple) else shape
        return Tensor(_expr=emit(reshape(self._expr, list(sizes)), "reshape"))

    @property
    def _type(self) -> TensorType:
        ty = self._expr.ty
        assert isinstance(ty, TensorType)
        return ty

    def __repr__(self) -> str:
        return f'Tensor({self.shape}, "{self.dtype}")'


class Object:
    """A value of the model that is no tensor, such as a cache.

    Parameters
    ----------
    _expr
        What makes it, or the parameter that brings it.
    _name
        Name of the variable that it is bound to.
    """

    def __init__(self, *, _expr: Expr, _name: str) -> None:
        self._expr = _expr if isinstance(_expr, Var) else emit(_expr, _name)


def emit(value: Expr, name: str = "") -> Expr:
    """Bind a value in the function under construction and return the variable.

    Raises
    ------
    InternalError
        If there is none.
    """
    builder = BlockBuilder.current()
    if builder is None:
        raise InternalError(
            "nn: no function is being built; call this within BlockBuilder.function"
        )
    return builder.emit(value, name)


def wrap_nested(expr: Expr, name: str) -> Tensor | tuple[Tensor, ...]:
    """Bind a value and return it as a tensor, or as a tuple of the tensors in it.

    Raises
    ------
    TypeError
        If it is something else.
    """
    variable = expr if isinstance(expr, Var) else emit(expr, name)
    match variable.ty:
        case TensorType():
            return Tensor(_expr=variable)
        case TupleType(fields=fields):
            return tuple(Tensor(_expr=emit(TupleGetItem(variable, i))) for i in range(len(fields)))
        case other:
            raise TypeError(f"nn: expected a tensor or a tuple of tensors, got {other}")
