"""Calling a compiled kernel without Python between the call and the kernel.

A kernel becomes a built-in function of the interpreter. The function, itself compiled by LLVM,
looks at the arguments where CPython and NumPy keep them: type, element type, rank, contiguity,
address. Whatever is not the usual case goes to the careful way of ``arguments.py``, so nothing
that is wrong is ever run. It leans on how CPython lays out objects; :func:`fast_callable` checks
every assumption on real objects first, and when one does not hold kernels are called the careful
way. Counterpart: TVM-FFI's C calling convention.

Examples
--------
>>> isinstance(is_possible(), bool)
True
"""

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np

from relaxlab.codegen.llvm.arguments import CompiledKernel
from relaxlab.codegen.llvm.kernel import (
    CALLBACK_SLOT,
    MISFIT,
    POOL_SLOT,
    RESULT_SLOT,
    Parameter,
    Plan,
)
from relaxlab.codegen.llvm.machine import Linked, machine
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.tensor import Tensor

__all__ = ["fast_callable", "is_possible"]

# where CPython and NumPy keep things, in bytes; every one is checked before use
_TYPE, _HEADER = 8, 16
_DATA, _RANK, _DIMS, _DESCR, _FLAGS = 16, 24, 32, 56, 64
# NumPy's flags
_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400

# the words of a context, which say everything about one kernel
_WORDS: Final = (
    "kernel",
    "slow",
    "fail",
    "count",
    "callback",
    "returns",
    "array_type",
    "tensor_type",
    "array_slot",
    "dtype_slot",
    "int_type",
    "float_type",
    "none",
    "owner",
    "check_overlap",
    "pool",
)
_AT: Final = {name: 8 * k for k, name in enumerate(_WORDS)}
# the words of a parameter
_PARAMETER: Final = (
    "kind",
    "numpy_dtype",
    "our_dtype",
    "rank",
    "flags",
    "size",
    "written",
    "plain",
)
_OF: Final = {name: 8 * k for k, name in enumerate(_PARAMETER)}
_KINDS: Final = {"buffer": 0, "int": 1, "float": 2}
#: More parameters, or dimensions, than this are passed the careful way.
_MOST: Final = 64
#: Bytes of arguments from which other threads may run meanwhile.
_LONG: Final = 1 << 20


def _wrapper_text() -> str:
    """Return the module of the one function that all kernels are called through."""
    at = {name: f"getelementptr i8, ptr %ctx, i64 {offset}" for name, offset in _AT.items()}
    loads = "".join(
        f"  %{name}.at = {place}\n  %{name} = load i64, ptr %{name}.at\n"
        for name, place in at.items()
    )
    of = "".join(
        f"  %{name}.at = getelementptr i8, ptr %spec, i64 {offset}\n"
        f"  %{name} = load i64, ptr %{name}.at\n"
        for name, offset in _OF.items()
    )
    return f"""
declare ptr @PyCapsule_GetPointer(ptr, ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)
declare double @PyFloat_AsDouble(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyBool_FromLong(i64)
declare ptr @PyObject_CallFunctionObjArgs(ptr, ...)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)

define void @drop(ptr %capsule) {{
  %ctx = call ptr @PyCapsule_GetPointer(ptr %capsule, ptr null)
  %owner.at = {at["owner"]}
  %owner = load ptr, ptr %owner.at
  call void @Py_DecRef(ptr %owner)
  ret void
}}

define ptr @call(ptr %self, ptr %args, i64 %n) {{
entry:
  %words = alloca i64, i64 {_MOST}
  %starts = alloca i64, i64 {_MOST}
  %ends = alloca i64, i64 {_MOST}
  %state = alloca i64, i64 {POOL_SLOT + 1}
  %overflow = alloca i32
  %ctx = call ptr @PyCapsule_GetPointer(ptr %self, ptr null)
{loads}  %specs = getelementptr i8, ptr %ctx, i64 {8 * len(_WORDS)}
  %right = icmp eq i64 %n, %count
  br i1 %right, label %next, label %careful
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %done ]
  %dim = phi i64 [ %count, %entry ], [ %dim.next, %done ]
  %total = phi i64 [ 0, %entry ], [ %total.next, %done ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %argument, label %checked
argument:
  %spec.offset = mul i64 %i, {8 * len(_PARAMETER)}
  %spec = getelementptr i8, ptr %specs, i64 %spec.offset
{of}  %object.at = getelementptr ptr, ptr %args, i64 %i
  %object = load ptr, ptr %object.at
  %type.at = getelementptr i8, ptr %object, i64 {_TYPE}
  %type = load i64, ptr %type.at
  %word.at = getelementptr i64, ptr %words, i64 %i
  %start.at = getelementptr i64, ptr %starts, i64 %i
  %end.at = getelementptr i64, ptr %ends, i64 %i
  switch i64 %kind, label %careful [
    i64 0, label %buffer
    i64 1, label %integer
    i64 2, label %number
  ]
buffer:
  %is.tensor = icmp eq i64 %type, %tensor_type
  br i1 %is.tensor, label %tensor, label %maybe.array
tensor:
  %dtype.at = getelementptr i8, ptr %object, i64 %dtype_slot
  %dtype = load i64, ptr %dtype.at
  %inner.at = getelementptr i8, ptr %object, i64 %array_slot
  %inner = load ptr, ptr %inner.at
  %inner.type.at = getelementptr i8, ptr %inner, i64 {_TYPE}
  %inner.type = load i64, ptr %inner.type.at
  %same.dtype = icmp eq i64 %dtype, %our_dtype
  %inner.array = icmp eq i64 %inner.type, %array_type
  %good.tensor = and i1 %same.dtype, %inner.array
  br i1 %good.tensor, label %array, label %careful
maybe.array:
  %is.array = icmp eq i64 %type, %array_type
  %may.be.plain = icmp ne i64 %plain, 0
  %good.array = and i1 %is.array, %may.be.plain
  br i1 %good.array, label %array, label %careful
array:
  %a = phi ptr [ %inner, %tensor ], [ %object, %maybe.array ]
  %descr.at = getelementptr i8, ptr %a, i64 {_DESCR}
  %descr = load i64, ptr %descr.at
  %nd.at = getelementptr i8, ptr %a, i64 {_RANK}
  %nd = load i32, ptr %nd.at
  %nd.wide = zext i32 %nd to i64
  %flag.at = getelementptr i8, ptr %a, i64 {_FLAGS}
  %flag = load i32, ptr %flag.at
  %flag.wide = zext i32 %flag to i64
  %flag.set = and i64 %flag.wide, %flags
  %data.at = getelementptr i8, ptr %a, i64 {_DATA}
  %data = load i64, ptr %data.at
  %dims.at = getelementptr i8, ptr %a, i64 {_DIMS}
  %dims = load ptr, ptr %dims.at
  %ok.descr = icmp eq i64 %descr, %numpy_dtype
  %ok.rank = icmp eq i64 %nd.wide, %rank
  %ok.flags = icmp eq i64 %flag.set, %flags
  %ok.2 = and i1 %ok.descr, %ok.rank
  %ok.3 = and i1 %ok.2, %ok.flags
  br i1 %ok.3, label %shape, label %careful
shape:
  %d = phi i64 [ 0, %array ], [ %d.next, %copy ]
  %size.now = phi i64 [ %size, %array ], [ %size.next, %copy ]
  %d.more = icmp slt i64 %d, %rank
  br i1 %d.more, label %copy, label %sized
copy:
  %extent.at = getelementptr i64, ptr %dims, i64 %d
  %extent = load i64, ptr %extent.at
  %size.next = mul i64 %size.now, %extent
  %slot = add i64 %dim, %d
  %slot.at = getelementptr i64, ptr %words, i64 %slot
  store i64 %extent, ptr %slot.at
  %d.next = add i64 %d, 1
  br label %shape
sized:
  %end = add i64 %data, %size.now
  store i64 %data, ptr %word.at
  store i64 %data, ptr %start.at
  store i64 %end, ptr %end.at
  %dim.buffer = add i64 %dim, %rank
  %total.buffer = add i64 %total, %size.now
  br label %done
integer:
  %is.int = icmp eq i64 %type, %int_type
  br i1 %is.int, label %read.int, label %careful
read.int:
  %int = call i64 @PyLong_AsLongLongAndOverflow(ptr %object, ptr %overflow)
  %lost = load i32, ptr %overflow
  %fits = icmp eq i32 %lost, 0
  store i64 %int, ptr %word.at
  store i64 0, ptr %start.at
  store i64 0, ptr %end.at
  br i1 %fits, label %done, label %careful
number:
  %is.float = icmp eq i64 %type, %float_type
  br i1 %is.float, label %read.float, label %careful
read.float:
  %float = call double @PyFloat_AsDouble(ptr %object)
  %float.word = bitcast double %float to i64
  store i64 %float.word, ptr %word.at
  store i64 0, ptr %start.at
  store i64 0, ptr %end.at
  br label %done
done:
  %dim.next = phi i64 [ %dim.buffer, %sized ], [ %dim, %read.int ], [ %dim, %read.float ]
  %total.next = phi i64 [ %total.buffer, %sized ], [ %total, %read.int ], [ %total, %read.float ]
  %i.next = add i64 %i, 1
  br label %next
checked:
  %ask.overlap = icmp ne i64 %check_overlap, 0
  br i1 %ask.overlap, label %outer, label %run
outer:
  %p = phi i64 [ 0, %checked ], [ %p.next, %outer.next ]
  %p.more = icmp slt i64 %p, %count
  br i1 %p.more, label %one, label %run
one:
  %p.offset = mul i64 %p, {8 * len(_PARAMETER)}
  %p.spec = getelementptr i8, ptr %specs, i64 %p.offset
  %p.written.at = getelementptr i8, ptr %p.spec, i64 {_OF["written"]}
  %p.written = load i64, ptr %p.written.at
  %p.start.at = getelementptr i64, ptr %starts, i64 %p
  %p.start = load i64, ptr %p.start.at
  %p.end.at = getelementptr i64, ptr %ends, i64 %p
  %p.end = load i64, ptr %p.end.at
  %is.written = icmp ne i64 %p.written, 0
  br i1 %is.written, label %inner.loop, label %outer.next
inner.loop:
  %q = phi i64 [ 0, %one ], [ %q.next, %two ]
  %q.more = icmp slt i64 %q, %count
  br i1 %q.more, label %two, label %outer.next
two:
  %q.start.at = getelementptr i64, ptr %starts, i64 %q
  %q.start = load i64, ptr %q.start.at
  %q.end.at = getelementptr i64, ptr %ends, i64 %q
  %q.end = load i64, ptr %q.end.at
  %same = icmp eq i64 %p, %q
  %below = icmp ult i64 %p.start, %q.end
  %above = icmp ult i64 %q.start, %p.end
  %touch = and i1 %below, %above
  %other = xor i1 %same, true
  %bad = and i1 %touch, %other
  %q.next = add i64 %q, 1
  br i1 %bad, label %careful, label %inner.loop
outer.next:
  %p.next = add i64 %p, 1
  br label %outer
run:
  %callback.slot = getelementptr i64, ptr %state, i64 {CALLBACK_SLOT}
  store i64 %callback, ptr %callback.slot
  %pool.slot = getelementptr i64, ptr %state, i64 {POOL_SLOT}
  store i64 %pool, ptr %pool.slot
  %kernel.ptr = inttoptr i64 %kernel to ptr
  %long = icmp sgt i64 %total, {_LONG}
  br i1 %long, label %run.long, label %run.short
run.short:
  %status.short = call i32 %kernel.ptr(ptr %words, ptr %state)
  br label %ran
run.long:
  %thread = call ptr @PyEval_SaveThread()
  %status.long = call i32 %kernel.ptr(ptr %words, ptr %state)
  call void @PyEval_RestoreThread(ptr %thread)
  br label %ran
ran:
  %status = phi i32 [ %status.short, %run.short ], [ %status.long, %run.long ]
  switch i32 %status, label %failed [ i32 0, label %good i32 {MISFIT}, label %careful ]
good:
  switch i64 %returns, label %nothing [ i64 1, label %give.int i64 2, label %give.bool ]
nothing:
  %none.ptr = inttoptr i64 %none to ptr
  call void @Py_IncRef(ptr %none.ptr)
  ret ptr %none.ptr
give.int:
  %result.at = getelementptr i64, ptr %state, i64 {RESULT_SLOT}
  %result = load i64, ptr %result.at
  %result.object = call ptr @PyLong_FromLongLong(i64 %result)
  ret ptr %result.object
give.bool:
  %truth.at = getelementptr i64, ptr %state, i64 {RESULT_SLOT}
  %truth = load i64, ptr %truth.at
  %truth.object = call ptr @PyBool_FromLong(i64 %truth)
  ret ptr %truth.object
failed:
  %status.wide = sext i32 %status to i64
  %state.word = ptrtoint ptr %state to i64
  %status.object = call ptr @PyLong_FromLongLong(i64 %status.wide)
  %state.object = call ptr @PyLong_FromLongLong(i64 %state.word)
  %fail.ptr = inttoptr i64 %fail to ptr
  %raised = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(
    ptr %fail.ptr, ptr %status.object, ptr %state.object, ptr null)
  call void @Py_DecRef(ptr %status.object)
  call void @Py_DecRef(ptr %state.object)
  ret ptr %raised
careful:
  %slow.ptr = inttoptr i64 %slow to ptr
  %answer = call ptr @PyObject_Vectorcall(ptr %slow.ptr, ptr %args, i64 %n, ptr null)
  ret ptr %answer
}}
"""


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_FASTCALL: Final = 0x80


class _Owner:
    """Keeps alive what a built-in function points to."""

    __slots__ = ("keep",)

    def __init__(self, *keep: Any) -> None:
        self.keep = keep


def fast_callable(kernel: CompiledKernel) -> Callable[..., Any]:
    """Return a kernel as a built-in function, or the kernel itself where that is not possible."""
    if not is_possible() or not _fits(kernel.plan):
        return kernel
    return _built_in(
        kernel.plan,
        kernel.linked.addresses["kernel"],
        kernel,
        kernel.fail_at,
        callback=kernel.callbacks.address,
        check_overlap=kernel.minds_overlap,
        pool=kernel.pool,
    )


def _fits(plan: Plan) -> bool:
    words = len(plan.parameters) + sum(p.rank for p in plan.parameters)
    if words > _MOST or any(p.kind == "handle" for p in plan.parameters):
        return False
    # float results are NumPy scalars of their own dtype, which only Python makes
    returns = None if plan.returns is None else DataType(plan.returns)
    return returns is None or returns.is_bool or returns.is_int


@cache
def is_possible() -> bool:
    """Say whether kernels can be called the fast way here: tried once, on real objects."""
    if sys.implementation.name != "cpython" or object.__basicsize__ != _HEADER:
        return False
    if ctypes.sizeof(ctypes.c_void_p) != 8 or sys.byteorder != "little":
        return False
    try:
        return _layout_is_known() and _calls_work()
    except (AttributeError, OSError, RuntimeError, TypeError, ValueError):
        return False


def _words_of(value: Any, size: int) -> list[int]:
    return list((ctypes.c_int64 * (size // 8)).from_address(id(value)))


@cache
def _tensor_slots() -> tuple[int, int] | None:
    """Return where a tensor keeps its array and its dtype, found by looking for them."""
    found: list[tuple[int, int]] = []
    for name in ("float32", "int64"):
        sample = Tensor(np.zeros(3, name))
        words = _words_of(sample, Tensor.__basicsize__)
        if words.count(id(sample.array)) != 1 or words.count(id(sample.dtype)) != 1:
            return None
        found.append((8 * words.index(id(sample.array)), 8 * words.index(id(sample.dtype))))
    return found[0] if found[0] == found[1] else None


def _layout_is_known() -> bool:
    if _tensor_slots() is None:
        return False
    frozen = np.arange(4.0)
    frozen.setflags(write=False)
    samples = [
        np.zeros((2, 3, 5), "float32"),
        np.zeros((), "int8"),
        np.zeros((4, 6), "float64").T,
        np.zeros(7, "bool")[2:],
        np.zeros((3, 0), "uint16"),
        frozen,
    ]
    for sample in samples:
        address = id(sample)

        def read(kind: Any, offset: int, address: int = address) -> int:
            value: int = kind.from_address(address + offset).value
            return value

        flags = read(ctypes.c_int32, _FLAGS)
        dims = read(ctypes.c_int64, _DIMS)
        shape = [ctypes.c_int64.from_address(dims + 8 * k).value for k in range(sample.ndim)]
        correct = (
            read(ctypes.c_int64, _TYPE) == id(np.ndarray)
            and read(ctypes.c_int64, _DATA) == sample.__array_interface__["data"][0]
            and read(ctypes.c_int32, _RANK) == sample.ndim
            and read(ctypes.c_int64, _DESCR) == id(sample.dtype)
            and shape == list(sample.shape)
            and bool(flags & _CONTIGUOUS) == sample.flags.c_contiguous
            and bool(flags & _ALIGNED) == sample.flags.aligned
            and bool(flags & _WRITEABLE) == sample.flags.writeable
        )
        if not correct:
            return False
    return True


@cache
def _wrapper() -> Linked:
    compiler = machine()
    return compiler.link(compiler.compile(_wrapper_text()), ("call", "drop"))


def _python_api(name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(ctypes.pythonapi, name)
    address = ctypes.cast(function, ctypes.c_void_p).value or 0
    return ctypes.PYFUNCTYPE(result, *arguments)(address)


def _built_in(
    plan: Plan,
    address: int,
    slow: Callable[..., Any],
    fail: Callable[[int, int], Any],
    *,
    callback: int = 0,
    check_overlap: bool = True,
    pool: int = 0,
) -> Callable[..., Any]:
    """Return a built-in function that calls machine code.

    Parameters
    ----------
    plan
        What the kernel takes and returns.
    address
        The machine code.
    slow
        Called instead with arguments that are out of the ordinary.
    fail
        Called with the status of a kernel that failed and the address of its details.
    callback
        What the kernel may call.
    check_overlap
        Whether arguments that overlap are out of the ordinary.
    pool
        Address of the threads that the kernel may ask for help.
    """
    slots = _tensor_slots()
    if slots is None:
        raise RuntimeError("the layout of tensors is not known")
    code = _wrapper().addresses
    definition = _MethodDef(plan.name.encode(), code["call"], _FASTCALL, None)
    words = {
        "kernel": address,
        "slow": id(slow),
        "fail": id(fail),
        "count": len(plan.parameters),
        "callback": callback,
        "returns": _returns(plan),
        "array_type": id(np.ndarray),
        "tensor_type": id(Tensor),
        "array_slot": slots[0],
        "dtype_slot": slots[1],
        "int_type": id(int),
        "float_type": id(float),
        "none": id(None),
        "check_overlap": int(check_overlap),
        "pool": pool,
    }
    keep: list[Any] = [slow, fail, definition]
    parameters: list[int] = []
    for spec in plan.parameters:
        dtype = DataType(spec.dtype)
        element = dtype.with_lanes(1).numpy()
        keep.extend((dtype, element))
        kind = "buffer" if spec.kind == "buffer" else "float" if dtype.is_float else "int"
        parameters += [
            _KINDS[kind],
            id(element),
            id(dtype),
            spec.rank,
            _CONTIGUOUS | _ALIGNED | (_WRITEABLE if spec.written else 0),
            element.itemsize,
            int(spec.written),
            int(dtype.lanes == 1),
        ]
    values = [words.get(name, 0) for name in _WORDS]
    context = (ctypes.c_int64 * (len(_WORDS) + len(parameters)))(*values, *parameters)
    owner = _Owner(context, *keep)
    context[_WORDS.index("owner")] = id(owner)
    pointer, thing = ctypes.c_void_p, ctypes.py_object
    new_capsule = _python_api("PyCapsule_New", thing, pointer, pointer, pointer)
    new_function = _python_api("PyCFunction_NewEx", thing, pointer, thing, pointer)
    # the capsule gives this reference back when the function goes
    _python_api("Py_IncRef", None, thing)(owner)
    capsule = new_capsule(ctypes.addressof(context), None, code["drop"])
    function: Callable[..., Any] = new_function(ctypes.addressof(definition), capsule, None)
    return function


def _returns(plan: Plan) -> int:
    if plan.returns is None:
        return 0
    return 2 if DataType(plan.returns).is_bool else 1


# a kernel that shows the words it is given, and fails when asked to
_SELF_CHECK: Final = """
define i32 @kernel(ptr %words, ptr %state) {
entry:
  %out = load ptr, ptr %words
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
  %from = getelementptr i64, ptr %words, i64 %i
  %word = load i64, ptr %from
  %to = getelementptr i64, ptr %out, i64 %i
  store i64 %word, ptr %to
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, 7
  br i1 %more, label %loop, label %end
end:
  %asked.at = getelementptr i64, ptr %words, i64 2
  %asked = load i64, ptr %asked.at
  %status = trunc i64 %asked to i32
  ret i32 %status
}
"""


def _calls_work() -> bool:
    """Call a small function with good and bad arguments and see that each goes its way."""
    compiler = machine()
    linked = compiler.link(compiler.compile(_SELF_CHECK), ("kernel",))
    plan = Plan(
        "self_check",
        "",
        [
            Parameter("buffer", "out", "int64", 1, written=True),
            Parameter("buffer", "x", "float32", 2),
            Parameter("number", "n", "int64"),
            Parameter("number", "t", "float32"),
        ],
    )
    came: list[str] = []
    failed: list[int] = []
    function = _built_in(
        plan,
        linked.addresses["kernel"],
        lambda *args: came.append(type(args[0]).__name__),
        lambda status, state: failed.append(status),
    )
    out, x = np.zeros(9, np.int64), np.zeros((2, 3), np.float32)
    addresses = [a.__array_interface__["data"][0] for a in (out, x)]
    right = function(out, Tensor(x), 0, 1.5) is None
    right = right and out.tolist() == [*addresses, 0, 0x3FF8000000000000, 9, 2, 3, 0, 0]
    function(out, x, 5, 0.0)
    right = right and failed == [5] and not came
    strange: list[tuple[Any, ...]] = [
        (out, x, 0),
        (out, x.astype(np.float64), 0, 1.5),
        (out, x[:, ::2], 0, 1.5),
        (out, x[0], 0, 1.5),
        (out, x, 2**70, 1.5),
        (out, x, 0, 1),
        (out, None, 0, 1.5),
        (out, out.view(np.float32)[:6].reshape(2, 3), 0, 1.5),
        (np.arange(9)[::-1], x, 0, 1.5),
    ]
    for arguments in strange:
        function(*arguments)
    return right and len(came) == len(strange) and failed == [5]
