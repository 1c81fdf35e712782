"""The living definition of a kernel: an interpreter that is slow, obvious and always right.

It walks the statements one by one, computes one element at a time, and checks every index. The
code generators must agree with it; where they do not, they are wrong. Counterpart: none; TVM
defines kernels by what its compilers make of them.

Examples
--------
>>> import numpy as np
>>> from relaxlab.ir import IntImm, TensorLoad, Var
>>> from relaxlab.tirx import BufferStore, For, ForKind, PrimFunc, decl_buffer
>>> x, y, i = decl_buffer((3,), name="x"), decl_buffer((3,), name="y"), Var("i", "int32")
>>> store = BufferStore(y, TensorLoad(x, (i,)) * 2.0, (i,))
>>> f = PrimFunc((x, y), For(i, IntImm("int32", 0), IntImm("int32", 3), ForKind.SERIAL, store))
>>> out = np.zeros(3, "float32")
>>> Interpreter(f)(np.ones(3, "float32"), out)
>>> out.tolist()
[2.0, 2.0, 2.0]
"""

import builtins
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from relaxlab import errors
from relaxlab.errors import InternalError
from relaxlab.ir.expr import Call, Expr, StringImm, Var
from relaxlab.ir.op import Op
from relaxlab.ir.prim import (
    And,
    BinaryExpr,
    Broadcast,
    Cast,
    CompareExpr,
    FloatImm,
    IntImm,
    Let,
    Not,
    Or,
    Ramp,
    Select,
    TensorLoad,
)
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.packed_func import GLOBAL_FUNCTIONS
from relaxlab.runtime.tensor import Tensor
from relaxlab.tirx import scalar
from relaxlab.tirx.buffer import BufferType, buffer_type
from relaxlab.tirx.function import PrimFunc
from relaxlab.tirx.signature import Signature
from relaxlab.tirx.stmt import (
    AllocBuffer,
    AssertStmt,
    AttrStmt,
    Bind,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    IterVarType,
    MatchBufferRegion,
    Return,
    SBlock,
    SBlockRealize,
    SeqStmt,
    Stmt,
    While,
)

__all__ = ["Frame", "Interpreter", "error_class"]

Array = NDArray[Any]


class _ReturnSignal(Exception):  # noqa: N818  # control flow, no error
    """Control leaves the kernel with a value."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class _BreakSignal(Exception):  # noqa: N818  # control flow, no error
    """Control leaves the innermost loop."""


class _ContinueSignal(Exception):  # noqa: N818  # control flow, no error
    """Control goes to the next iteration of the innermost loop."""


class Frame:
    """What is known while a kernel runs: memory by buffer, values by variable.

    Parameters
    ----------
    arrays
        Memory of each buffer.
    values
        Value of each scalar variable (or pointer).
    """

    def __init__(self, arrays: dict[Var, Array], values: dict[Var, Any]) -> None:
        self.arrays = arrays
        self.values = values


class Interpreter:
    """Runs one kernel.

    Parameters
    ----------
    func
        The kernel.
    name
        What messages call it; its ``global_symbol`` when omitted.
    """

    def __init__(self, func: PrimFunc, name: str | None = None) -> None:
        self.func = func
        self.name = name or str(func.func_attrs.get("global_symbol", "kernel"))
        self.signature = Signature(func, self.name)

    def __call__(self, *args: Any) -> Any:
        """Run with tensors, arrays and numbers; results are written into the output arguments.

        Returns
        -------
        None, or the number a ``return`` statement gives

        Raises
        ------
        TypeError, ValueError
            If an argument does not fit.
        IndexError
            If an index is out of bounds; the message names buffer, index and extent.
        """
        bound = self.signature.bind(args)
        return self.execute(self.func.body, Frame(bound.arrays, bound.sizes))

    def execute(self, stmt: Stmt, frame: Frame) -> Any:
        """Run a statement in a frame and return what it returns."""
        with np.errstate(all="ignore"):
            try:
                self.run(stmt, frame)
            except _ReturnSignal as signal:
                return signal.value
        return None

    # ------------------------------------------------------------ statements

    def run(self, stmt: Any, frame: Frame) -> None:
        """Run one statement.

        Raises
        ------
        InternalError
            If the statement has no meaning in a kernel.
        """
        match stmt:
            case SeqStmt(seq=statements):
                for statement in statements:
                    self.run(statement, frame)
            case For():
                self._run_for(stmt, frame)
            case SBlockRealize():
                self._run_block(stmt, frame)
            case SBlock():
                self._run_block_body(stmt, frame, first=True)
            case BufferStore(buffer=buffer, value=value, indices=indices):
                self._store(buffer, indices, self.value(value, frame), frame)
            case IfThenElse(condition=condition, then_case=then_case, else_case=else_case):
                if self.value(condition, frame):
                    self.run(then_case, frame)
                elif else_case is not None:
                    self.run(else_case, frame)
            case Bind(var=var, value=value):
                frame.values[var] = self.value(value, frame)
            case AllocBuffer(buffer=buffer):
                frame.arrays[buffer] = self._allocate(buffer, frame)
            case DeclBuffer(buffer=buffer, data=data):
                frame.arrays[buffer] = self._declare(buffer, data, frame)
            case AssertStmt(condition=condition):
                if not self.value(condition, frame):
                    raise error_class(stmt.error_kind)("".join(stmt.message_parts))
            case AttrStmt(body=body):
                self.run(body, frame)
            case While(condition=condition, body=body):
                while self.value(condition, frame):
                    try:
                        self.run(body, frame)
                    except _BreakSignal:
                        break
                    except _ContinueSignal:
                        continue
            case Evaluate(value=value):
                self.value(value, frame)
            case Return(value=value):
                raise _ReturnSignal(self.value(value, frame))
            case _:
                raise InternalError(
                    f"kernel {self.name!r}: no meaning for a {type(stmt).__name__} statement"
                )

    def _run_for(self, loop: For, frame: Frame) -> None:
        # parallel, vectorized, unrolled and thread-bound loops mean the same as serial ones
        start, extent = self.value(loop.min, frame), self.value(loop.extent, frame)
        for index in range(start, start + extent):
            frame.values[loop.loop_var] = index
            try:
                self.run(loop.body, frame)
            except _BreakSignal:
                break
            except _ContinueSignal:
                continue

    def _run_block(self, realize: SBlockRealize, frame: Frame) -> None:
        if not self.value(realize.predicate, frame):
            return
        block, first = realize.block, True
        for iter_var, given in zip(block.iter_vars, realize.iter_values, strict=True):
            index = self.value(given, frame)
            frame.values[iter_var.var] = index
            is_reduction = iter_var.iter_type == IterVarType.COMM_REDUCE
            if is_reduction and index != self.value(iter_var.dom.min, frame):
                first = False
        self._run_block_body(block, frame, first)

    def _run_block_body(self, block: SBlock, frame: Frame, first: bool) -> None:
        for buffer in block.alloc_buffers:
            frame.arrays[buffer] = self._allocate(buffer, frame)
        for match_region in block.match_buffers:
            self._match(match_region, frame)
        if block.init is not None and first:
            self.run(block.init, frame)
        self.run(block.body, frame)

    def _match(self, region: MatchBufferRegion, frame: Frame) -> None:
        array = frame.arrays[region.source.buffer]
        box = tuple(
            slice(low := self.value(r.min, frame), low + self.value(r.extent, frame))
            for r in region.source.region
        )
        view = array[box]
        shape = buffer_type(region.buffer).shape
        # dimensions of size one in front may be left out
        frame.arrays[region.buffer] = view.reshape(view.shape[view.ndim - len(shape) :])
        for dim, size in zip(shape, frame.arrays[region.buffer].shape, strict=True):
            if isinstance(dim, Var):
                frame.values.setdefault(dim, size)

    # ------------------------------------------------------------ memory

    def _allocate(self, buffer: Var, frame: Frame) -> Array:
        ty = buffer_type(buffer)
        shape = [self.value(dim, frame) for dim in ty.shape]
        element = ty.dtype.with_lanes(1)
        if ty.dtype.lanes != 1:
            shape.append(ty.dtype.lanes)
        array = np.zeros(shape, element.numpy())
        if element.is_float:
            # a value that is read before it is written shows in the result
            array[...] = np.nan
        return array

    def _declare(self, buffer: Var, data: Expr | None, frame: Frame) -> Array:
        if data is None:
            return self._allocate(buffer, frame)
        ty = buffer_type(buffer)
        shape = tuple(self.value(dim, frame) for dim in ty.shape)
        memory = self.value(data, frame)
        if not isinstance(memory, np.ndarray):
            raise InternalError(
                f"kernel {self.name!r}: buffer {buffer.name!r} is declared over a null pointer"
            )
        start = 0 if ty.elem_offset is None else self.value(ty.elem_offset, frame)
        flat = memory.reshape(-1).view(ty.dtype.numpy())
        count = int(np.prod(shape, dtype=np.int64))
        if start + count > flat.size:
            raise IndexError(
                f"kernel {self.name!r}: buffer {buffer.name!r} of shape {shape} at offset {start} "
                f"needs {start + count} elements, its memory has {flat.size}"
            )
        return flat[start : start + count].reshape(shape)

    def _position(
        self, buffer: Var, indices: tuple[Expr, ...], frame: Frame, verb: str
    ) -> list[tuple[int, ...]] | tuple[int, ...]:
        """Return the checked index; a list of them for a vector index."""
        position = [self.value(index, frame) for index in indices]
        if position and isinstance(position[-1], list):
            return [
                self._checked(buffer, (*position[:-1], lane), frame, verb) for lane in position[-1]
            ]
        return self._checked(buffer, tuple(position), frame, verb)

    def _checked(
        self, buffer: Var, position: tuple[int, ...], frame: Frame, verb: str
    ) -> tuple[int, ...]:
        array = frame.arrays.get(buffer)
        if array is None:
            raise InternalError(f"kernel {self.name!r}: buffer {buffer.name!r} has no memory")
        rank = array.ndim - (buffer_type(buffer).dtype.lanes != 1)
        if len(position) != rank:
            raise IndexError(
                f"kernel {self.name!r} {verb} {buffer.name} with {len(position)} indices, "
                f"but it has {rank} dimensions"
            )
        for axis, index in enumerate(position):
            extent = array.shape[axis]
            if not 0 <= index < extent:
                where = ", ".join(map(str, position))
                raise IndexError(
                    f"kernel {self.name!r} {verb} {buffer.name}[{where}]: index {index} of "
                    f"dimension {axis} is outside [0, {extent})"
                )
        return position

    def _load(self, buffer: Var, indices: tuple[Expr, ...], frame: Frame) -> Any:
        position = self._position(buffer, indices, frame, "reads")
        array = frame.arrays[buffer]
        dtype = buffer_type(buffer).dtype
        if isinstance(position, list):
            return [_element(array[at], dtype) for at in position]
        if dtype.lanes != 1:
            return [_element(lane, dtype.with_lanes(1)) for lane in array[position]]
        return _element(array[position], dtype)

    def _store(self, buffer: Var, indices: tuple[Expr, ...], value: Any, frame: Frame) -> None:
        position = self._position(buffer, indices, frame, "writes")
        array = frame.arrays[buffer]
        element = buffer_type(buffer).dtype.with_lanes(1)
        if isinstance(position, list):
            for at, lane in zip(position, _lanes(value, len(position)), strict=True):
                array[at] = scalar.cast(lane, element)
        elif isinstance(value, list):
            array[position] = [scalar.cast(lane, element) for lane in value]
        else:
            array[position] = scalar.cast(value, element)

    # ------------------------------------------------------------ expressions

    def value(self, expr: Any, frame: Frame) -> Any:
        """Compute an expression; a vector is a list of its lanes.

        Raises
        ------
        InternalError
            If the expression has no meaning in a kernel.
        """
        match expr:
            case IntImm(dtype=dtype, value=value) | FloatImm(dtype=dtype, value=value):
                return scalar.literal(value, dtype)
            case Var():
                return self._variable(expr, frame)
            case TensorLoad(buffer=buffer, indices=indices):
                return self._load(buffer, indices, frame)
            case And(a=a, b=b):
                return _lift2(
                    lambda x, y: x and y, self.value(a, frame), lambda: self.value(b, frame)
                )
            case Or(a=a, b=b):
                return _lift2(
                    lambda x, y: x or y, self.value(a, frame), lambda: self.value(b, frame)
                )
            case BinaryExpr(a=a, b=b) | CompareExpr(a=a, b=b):
                name, dtype = type(expr).__name__, a.dtype.with_lanes(1)
                return _lift(
                    lambda x, y: scalar.binary(name, x, y, dtype),
                    self.value(a, frame),
                    self.value(b, frame),
                )
            case Not(a=a):
                return _lift(lambda x: not x, self.value(a, frame))
            case Cast(dtype=dtype, value=inner):
                element = dtype.with_lanes(1)
                return _lift(lambda x: scalar.cast(x, element), self.value(inner, frame))
            case Select(condition=condition, true_value=yes, false_value=no):
                return self._choose(condition, yes, no, frame)
            case Let(var=var, value=given, body=body):
                frame.values[var] = self.value(given, frame)
                return self.value(body, frame)
            case Ramp(base=base, stride=stride, lanes=lanes):
                start, step = self.value(base, frame), self.value(stride, frame)
                return [start + step * lane for lane in range(lanes)]
            case Broadcast(value=inner, lanes=lanes):
                return [self.value(inner, frame)] * lanes
            case StringImm(value=text):
                return text
            case Call():
                return self._call(expr, frame)
            case _:
                raise InternalError(
                    f"kernel {self.name!r}: no meaning for a {type(expr).__name__} expression"
                )

    def _variable(self, var: Var, frame: Frame) -> Any:
        if isinstance(var.ty, BufferType):
            return frame.arrays[var]
        try:
            return frame.values[var]
        except KeyError:
            raise InternalError(
                f"kernel {self.name!r}: variable {var.name!r} has no value here"
            ) from None

    def _choose(self, condition: Expr, yes: Expr, no: Expr, frame: Frame) -> Any:
        # only the chosen side is computed: the other may read out of bounds
        chosen = self.value(condition, frame)
        if isinstance(chosen, list):
            sides = (self.value(yes, frame), self.value(no, frame))
            lanes = (_lanes(side, len(chosen)) for side in sides)
            return [x if c else y for c, x, y in zip(chosen, *lanes, strict=True)]
        return self.value(yes if chosen else no, frame)

    def _call(self, call: Call, frame: Frame) -> Any:
        name = call.op.name.removeprefix("tirx.") if isinstance(call.op, Op) else ""
        if name == "if_then_else":
            condition, yes, no = call.args
            return self._choose(condition, yes, no, frame)
        if scalar.is_known_call(name):
            dtype = call.dtype.with_lanes(1)
            source = call.args[0].dtype.with_lanes(1)
            values = [self.value(arg, frame) for arg in call.args]
            return _lift(lambda *xs: scalar.call(name, list(xs), dtype, source), *values)
        special = _SPECIAL_CALLS.get(name)
        if special is None:
            raise InternalError(f"kernel {self.name!r}: no meaning for a call of {call.op!r}")
        return special(self, call, frame)

    # ------------------------------------------------------------ calls with effects

    def _call_packed(self, call: Call, frame: Frame) -> Any:
        name, *args = (self.value(arg, frame) for arg in call.args)
        function = GLOBAL_FUNCTIONS.find(name)
        if function is None:
            raise InternalError(
                f"kernel {self.name!r} calls the packed function {name!r}, which is not "
                "registered; register it with register_global_func"
            )
        result = function(*args)
        return 0 if result is None else result

    def _make_array(self, call: Call, frame: Frame) -> Tensor:
        memory, shape = self.value(call.args[0], frame), self.value(call.args[1], frame)
        like, offset = call.args[4], self.value(call.args[5], frame)
        flat = memory.reshape(-1)
        count = int(np.prod(shape, dtype=np.int64))
        # the element offset is that of a view into the buffer's own memory
        return Tensor(flat[offset : offset + count].reshape(shape), like.dtype)

    def _make_shape(self, call: Call, frame: Frame) -> tuple[int, ...]:
        return tuple(self.value(arg, frame) for arg in call.args)

    def _buffer_data(self, call: Call, frame: Frame) -> Array:
        array = frame.arrays[call.args[0]]  # type: ignore[index]  # a buffer variable
        if not array.flags.c_contiguous:
            raise InternalError(
                f"kernel {self.name!r} passes the memory of {call.args[0]!r} on, which must be "
                "contiguous"
            )
        return array

    def _address_of(self, call: Call, frame: Frame) -> Array:
        (load,) = call.args
        if not isinstance(load, TensorLoad):
            raise InternalError(f"kernel {self.name!r}: only an element has an address")
        array = frame.arrays[load.buffer]
        position = self._position(load.buffer, load.indices, frame, "points into")
        return array.reshape(-1)[int(np.ravel_multi_index(position, array.shape)) :]

    def _struct_get(self, call: Call, frame: Frame) -> Any:
        tensor, _, field = (self.value(arg, frame) for arg in call.args[:3])
        if not isinstance(tensor, Tensor):
            tensor = Tensor(np.asarray(tensor))
        match field:
            case 1:
                return tensor.array
            case 2:
                return np.array(tensor.shape, np.int64)
            case 3:
                return np.array(tensor.strides, np.int64)
            case 4:
                return tensor.ndim
            case 5:
                return tensor.dtype.code
            case 6:
                return tensor.dtype.bits
            case 7:
                return tensor.dtype.lanes
            case 8:
                return tensor.byte_offset
            case _:
                raise InternalError(f"kernel {self.name!r}: a tensor has no field number {field}")

    def _is_null(self, call: Call, frame: Frame) -> bool:
        return self.value(call.args[0], frame) is None

    def _break(self, call: Call, frame: Frame) -> Any:
        raise _BreakSignal

    def _continue(self, call: Call, frame: Frame) -> Any:
        raise _ContinueSignal

    def _nothing(self, call: Call, frame: Frame) -> int:
        return 0


_SPECIAL_CALLS: Final[dict[str, Callable[[Interpreter, Call, Frame], Any]]] = {
    "address_of": Interpreter._address_of,
    "assume": Interpreter._nothing,
    "break_loop": Interpreter._break,
    "buffer_data": Interpreter._buffer_data,
    "call_extern": Interpreter._call_packed,
    "call_pure_extern": Interpreter._call_packed,
    "continue_loop": Interpreter._continue,
    "isnullptr": Interpreter._is_null,
    "tvm_call_cpacked": Interpreter._call_packed,
    "tvm_call_packed": Interpreter._call_packed,
    "tvm_stack_make_array": Interpreter._make_array,
    "tvm_stack_make_shape": Interpreter._make_shape,
    "tvm_struct_get": Interpreter._struct_get,
    "undef": Interpreter._nothing,
}


def _element(value: Any, dtype: DataType) -> Any:
    if dtype.is_float:
        return value
    return bool(value) if dtype.is_bool else int(value)


def _lanes(value: Any, count: int) -> list[Any]:
    return value if isinstance(value, list) else [value] * count


def _lift(function: Callable[..., Any], *values: Any) -> Any:
    """Apply to elements, or lane by lane where an operand is a vector."""
    for value in values:
        if isinstance(value, list):
            count = len(value)
            return [function(*xs) for xs in zip(*(_lanes(v, count) for v in values), strict=True)]
    return function(*values)


def _lift2(function: Callable[[Any, Any], Any], a: Any, later: Callable[[], Any]) -> Any:
    """Apply a short-circuit operator; the second operand is computed only when it is needed."""
    if isinstance(a, list):
        return _lift(function, a, later())
    if function(a, None) is None:
        return later()
    return a


def error_class(kind: str) -> type[Exception]:
    """Return the exception class that an assertion names; InternalError for an unknown one."""
    found = getattr(errors, kind, None) or getattr(builtins, kind, None)
    if isinstance(found, type) and issubclass(found, Exception):
        return found
    return InternalError
