"""What a kernel expects of its arguments, and the symbolic sizes that follow from them.

The interpreter and every code generator refuse a wrong argument with the same words, because
they all ask this file. A bare dimension (``n`` of ``(n, 4)``) is bound by the first buffer that
has it; all other dimensions are then checked. Counterpart: the argument checks that TVM compiles
into each packed function.

Examples
--------
>>> import numpy as np
>>> from relaxlab.ir import Var
>>> from relaxlab.tirx import Evaluate, PrimFunc, decl_buffer
>>> from relaxlab.ir import IntImm
>>> n = Var("n", "int64")
>>> f = PrimFunc((decl_buffer((n,), name="x"),), Evaluate(IntImm("int32", 0)))
>>> Signature(f, "f").bind([np.zeros(3, "float32")]).sizes[n]
3
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaxlab.ir.expr import Expr, Var
from relaxlab.ir.prim import Add, FloorDiv, FloorMod, IntImm, Max, Min, Mul, Sub
from relaxlab.ir.type import PointerType, PrimType
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.tensor import Tensor
from relaxlab.tirx.buffer import BufferType
from relaxlab.tirx.function import PrimFunc

__all__ = ["BoundArguments", "Signature", "array_of", "evaluate_size"]


@dataclass(slots=True)
class BoundArguments:
    """Arguments that passed: memory by buffer, and numbers by variable."""

    arrays: dict[Var, NDArray[Any]]
    sizes: dict[Var, Any]


def array_of(value: Any) -> NDArray[Any] | None:
    """Return the memory behind a tensor or a NumPy array, or None for anything else."""
    if isinstance(value, Tensor):
        return value.array
    if isinstance(value, np.ndarray):
        return value
    return None


class Signature:
    """The parameters of one kernel.

    Parameters
    ----------
    func
        The kernel.
    name
        What messages call it.
    """

    def __init__(self, func: PrimFunc, name: str) -> None:
        self.func = func
        self.name = name

    def bind(self, args: Sequence[Any]) -> BoundArguments:
        """Check arguments (tensors, NumPy arrays, numbers) and bind symbolic sizes.

        Raises
        ------
        TypeError
            If the number of arguments, a kind or a dtype is wrong.
        ValueError
            If a rank or a size is wrong; the message names the variable and who bound it first.
        """
        params = self.func.params
        if len(args) != len(params):
            names = ", ".join(p.name for p in params)
            raise TypeError(
                f"kernel {self.name!r} takes {len(params)} arguments ({names}), got {len(args)}"
            )
        bound = BoundArguments({}, {})
        origin: dict[Var, str] = {}
        for position, (param, value) in enumerate(zip(params, args, strict=True)):
            self._check_kind(position, param, value, bound, origin)
        for position, param in enumerate(params):
            self._bind_dims(position, param, bound, origin)
        for position, param in enumerate(params):
            self._check_dims(position, param, bound)
        return bound

    def _where(self, position: int, param: Var) -> str:
        return f"kernel {self.name!r}: argument {position} ({param.name})"

    def _check_kind(
        self, position: int, param: Var, value: Any, bound: BoundArguments, origin: dict[Var, str]
    ) -> None:
        ty = param.ty
        if isinstance(ty, BufferType):
            array = array_of(value)
            if array is None:
                raise TypeError(
                    f"{self._where(position, param)} must be a tensor, got {type(value).__name__}"
                )
            self._check_array(position, param, ty, array, value)
            if isinstance(ty.elem_offset, Var):
                # the memory that is handed over begins at the first element
                bound.sizes.setdefault(ty.elem_offset, 0)
            bound.arrays[param] = array
        elif isinstance(ty, PrimType):
            if isinstance(value, Expr) or not isinstance(value, int | float | np.generic):
                raise TypeError(
                    f"{self._where(position, param)} must be a number of dtype {ty.dtype}, "
                    f"got {type(value).__name__}"
                )
            bound.sizes[param] = _number(value, ty.dtype)
            origin[param] = self._where(position, param)
        elif isinstance(ty, PointerType):
            bound.sizes[param] = value
        else:
            raise TypeError(f"{self._where(position, param)} has a type no kernel takes: {ty!r}")

    def _check_array(
        self, position: int, param: Var, ty: BufferType, array: NDArray[Any], value: Any
    ) -> None:
        dtype, rank = ty.dtype, len(ty.shape)
        found = value.dtype if isinstance(value, Tensor) else None
        if dtype.lanes != 1:
            matches = found is dtype
        else:
            matches = array.dtype == dtype.numpy() if found is None else found is dtype
        if not matches:
            raise TypeError(
                f"{self._where(position, param)} must have dtype {dtype}, "
                f"got {found or array.dtype}"
            )
        if array.ndim != rank + (dtype.lanes != 1):
            raise ValueError(
                f"{self._where(position, param)} must have {rank} dimensions, "
                f"got shape {tuple(array.shape)}"
            )

    def _bind_dims(
        self, position: int, param: Var, bound: BoundArguments, origin: dict[Var, str]
    ) -> None:
        if not isinstance(param.ty, BufferType):
            return
        array = bound.arrays[param]
        for axis, dim in enumerate(param.ty.shape):
            if isinstance(dim, Var):
                size = int(array.shape[axis])
                if dim not in bound.sizes:
                    bound.sizes[dim] = size
                    origin[dim] = f"dimension {axis} of argument {position} ({param.name})"
                elif bound.sizes[dim] != size:
                    raise ValueError(
                        f"{self._where(position, param)}: dimension {axis} is {size}, but "
                        f"{dim.name} is {bound.sizes[dim]}, as {origin[dim]} says"
                    )

    def _check_dims(self, position: int, param: Var, bound: BoundArguments) -> None:
        if not isinstance(param.ty, BufferType):
            return
        array = bound.arrays[param]
        for axis, dim in enumerate(param.ty.shape):
            if isinstance(dim, Var):
                continue
            expected = evaluate_size(dim, bound.sizes, self.name)
            if array.shape[axis] != expected:
                raise ValueError(
                    f"{self._where(position, param)}: dimension {axis} must be {expected}, "
                    f"got shape {tuple(array.shape)}"
                )


def _number(value: Any, dtype: DataType) -> Any:
    if dtype.is_float:
        return float(value)
    return bool(value) if dtype.is_bool else int(value)


def evaluate_size(expr: Expr, sizes: dict[Var, Any], name: str) -> int:
    """Compute an integer expression of known variables.

    Raises
    ------
    ValueError
        If a variable is not known: no argument of the kernel binds it.
    """
    match expr:
        case IntImm(value=value):
            return value
        case Var():
            if expr not in sizes:
                raise ValueError(
                    f"kernel {name!r}: no argument binds the size {expr.name!r}; a buffer must "
                    "have it as a dimension of its own"
                )
            return int(sizes[expr])
        case Add(a=a, b=b):
            return evaluate_size(a, sizes, name) + evaluate_size(b, sizes, name)
        case Sub(a=a, b=b):
            return evaluate_size(a, sizes, name) - evaluate_size(b, sizes, name)
        case Mul(a=a, b=b):
            return evaluate_size(a, sizes, name) * evaluate_size(b, sizes, name)
        case FloorDiv(a=a, b=b):
            return evaluate_size(a, sizes, name) // evaluate_size(b, sizes, name)
        case FloorMod(a=a, b=b):
            return evaluate_size(a, sizes, name) % evaluate_size(b, sizes, name)
        case Min(a=a, b=b):
            return min(evaluate_size(a, sizes, name), evaluate_size(b, sizes, name))
        case Max(a=a, b=b):
            return max(evaluate_size(a, sizes, name), evaluate_size(b, sizes, name))
        case _:
            raise ValueError(f"kernel {name!r}: cannot compute the size {expr!r}")
