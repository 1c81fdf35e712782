"""Rows of kernels: machine code for one PrimFunc, beside TVM's for the same text, and NumPy.

Everything is called from Python with its result already allocated, on one thread, and timed by the
processor time of that thread, so that other programs lengthen nothing. Ours and NumPy take turns
in a process of their own, where NumPy's BLAS has one thread too. TVM compiles the PrimFunc that
we compile, from its script, as it does by default.

``gelu_1m`` is ``gelu(2 x + 1)``, by erf; NumPy, which has no erf, computes the form by tanh that is
usual there, written as one writes it, with its temporaries (a version that reuses two buffers takes
a fifth of its time). The weights of the ``gemv`` rows lie as in a checkpoint, a row per output;
``gemv_streamed`` goes through 40 such matrices, more than caches hold.

Examples
--------
>>> from relaxlab.cli.bench.kernels import rows
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from relaxlab import codegen, relax, te
from relaxlab.cli.bench.rows import Bar, Row
from relaxlab.cli.bench.tvm_peer import run_tvm
from relaxlab.ir import IRModule, Target
from relaxlab.script import from_source
from relaxlab.tirx import PrimFunc

__all__ = ["measure_here", "rows"]

Floats = NDArray[np.float32]

_MANY: Final = 1 << 20
_ROUNDS: Final = 15
_SECONDS: Final = 0.02
_ONE_THREAD: Final = dict.fromkeys(
    (
        "TVM_NUM_THREADS",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
    ),
    "1",
)
_MODULE: Final = """
@I.ir_module
class Module:
    @R.function
    def main({params}) -> R.Tensor({out}, "float32"):
        with R.dataflow():
            y = {value}
            R.output(y)
        return y
"""
_TVM: Final = """
from statistics import median
kernel = tvm.compile(tvm.script.from_source(TEXT), "llvm")["main"]
random = np.random.default_rng(0)
arrays = [tvm.runtime.tensor(random.standard_normal(s).astype("float32")) for s in SHAPES]
def once(count):
    start = time.thread_time()
    for _ in range(count):
        kernel(*arrays)
    return (time.thread_time() - start) / count
count = max(1, int(SECONDS / max(once(1), once(1), 1e-7)))
result(median(once(count) for _ in range(ROUNDS)) * 1e6)
"""


@dataclass(frozen=True, slots=True)
class _Work:
    """One row's work.

    Attributes
    ----------
    func
        The PrimFunc.
    shapes
        Of its arguments, the result last.
    plain
        The same in NumPy; given all arguments.
    bars
        By peer.
    sets
        How many weights to go through.
    """

    func: PrimFunc
    shapes: tuple[tuple[int, ...], ...]
    plain: Callable[..., Any]
    bars: dict[str, float]
    sets: int = 1


def rows() -> Iterator[Row]:
    """Yield the rows of ``relaxlab bench kernels``."""
    for name, make in _WORKS.items():
        ours, numpy = _in_another_process(name)
        work = make()
        for peer, bar in work.bars.items():
            value: float | None = numpy
            if peer == "tvm":
                text = work.func.with_attr("global_symbol", "main").script(show_meta=True)
                constants = f"SHAPES, SECONDS, ROUNDS = {work.shapes}, {_SECONDS}, {_ROUNDS}\n"
                value = run_tvm(constants + _TVM, text)
            yield Row(name, "us", ours, peer, value, Bar(">=", bar))


def measure_here(name: str) -> None:
    """Print what a call takes in microseconds, ours and NumPy's, as JSON."""
    work = _WORKS[name]()
    kernel = codegen.build(work.func, "llvm")["main"]
    random = np.random.default_rng(0)
    *inputs, out = (random.standard_normal(s).astype(np.float32) for s in work.shapes)
    expected = np.empty_like(out)
    weights = [inputs[-1], *(inputs[-1].copy() for _ in range(work.sets - 1))]

    def ours() -> None:
        for weight in weights:
            kernel(*inputs[:-1], weight, out)

    def plain() -> None:
        for weight in weights:
            work.plain(*inputs[:-1], weight, expected)

    ours()
    plain()
    # the two forms of gelu differ by 5e-4
    np.testing.assert_allclose(out, expected, 1e-3, 1e-3)
    times = _in_turn(ours, plain)
    print(json.dumps([t * 1e6 / work.sets for t in times]))  # read by the other side


def _in_turn(*functions: Callable[[], None]) -> list[float]:
    """Return the median processor time of one call of each function, in seconds."""
    clock = time.thread_time

    def timed(function: Callable[[], None], count: int) -> float:
        start = clock()
        for _ in range(count):
            function()
        return (clock() - start) / count

    counts = [max(1, int(_SECONDS / max(timed(f, 1), 1e-7))) for f in functions]
    found = [[timed(f, n) for f, n in zip(functions, counts, strict=True)] for _ in range(_ROUNDS)]
    return [median(times) for times in zip(*found, strict=True)]


def _in_another_process(name: str) -> tuple[float, float]:
    program = f"from relaxlab.cli.bench.kernels import measure_here\nmeasure_here({name!r})"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **_ONE_THREAD},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{name} could not be measured: {done.stderr.strip()[-500:]}")
    ours, numpy = json.loads(done.stdout)
    return ours, numpy


# ------------------------------------------------------------------ the work


def _compiled(value: str, out: tuple[int, ...], **params: tuple[int, ...]) -> PrimFunc:
    """Return the one kernel that an expression of Relax becomes."""
    listed = ", ".join(f'{n}: R.Tensor({s}, "float32")' for n, s in params.items())
    mod = from_source(_MODULE.format(params=listed, out=out, value=value))
    assert isinstance(mod, IRModule)
    with Target("llvm"):
        lowered = relax.get_pipeline("zero")(mod)
    kernels = [f for _, f in lowered.functions_items() if isinstance(f, PrimFunc)]
    (func,) = kernels
    func = func.without_attr("global_symbol")
    assert isinstance(func, PrimFunc)
    return func


def _gelu() -> _Work:
    value = "R.nn.gelu(R.add(R.multiply(x, R.const(2.0)), R.const(1.0)))"

    def plain(x: Floats, out: Floats) -> None:
        a = x * 2 + 1
        out[...] = 0.5 * a * (1 + np.tanh(0.7978845608 * (a + 0.044715 * a * a * a)))

    shape = (_MANY,)
    func = _compiled(value, shape, x=shape)
    return _Work(func, (shape, shape), plain, {"tvm": 30, "numpy": 6})


def _exp() -> _Work:
    shape = (_MANY,)
    func = _compiled("R.exp(x)", shape, x=shape)
    return _Work(func, (shape, shape), lambda x, out: np.exp(x, out=out), {"numpy": 2})


def _softmax() -> _Work:
    def plain(x: Floats, out: Floats) -> None:
        np.subtract(x, x.max(axis=-1, keepdims=True), out=out)
        np.exp(out, out=out)
        out /= out.sum(axis=-1, keepdims=True)

    shape = (32, 2048)
    func = _compiled("R.nn.softmax(x, axis=-1)", shape, x=shape)
    return _Work(func, (shape, shape), plain, {"tvm": 2, "numpy": 1})


def _layer_norm() -> _Work:
    def plain(x: Floats, gamma: Floats, beta: Floats, out: Floats) -> None:
        np.subtract(x, x.mean(axis=-1, keepdims=True), out=out)
        variance = np.mean(out * out, axis=-1, keepdims=True)
        out /= np.sqrt(variance + 1e-5)
        out *= gamma
        out += beta

    shape, row = (32, 2048), (2048,)
    value = "R.nn.layer_norm(x, gamma, beta, axes=[-1], epsilon=1e-5)"
    func = _compiled(value, shape, x=shape, gamma=row, beta=row)
    return _Work(func, (shape, row, row, shape), plain, {"tvm": 2, "numpy": 1})


def _rms_norm() -> _Work:
    def plain(x: Floats, weight: Floats, out: Floats) -> None:
        square = np.mean(x * x, axis=-1, keepdims=True)
        np.multiply(x / np.sqrt(square + 1e-5), weight, out=out)

    shape, row = (1, 576), (576,)
    value = "R.nn.rms_norm(x, weight, axes=[-1], epsilon=1e-5)"
    func = _compiled(value, shape, x=shape, weight=row)
    return _Work(func, (shape, row, shape), plain, {"tvm": 2, "numpy": 1})


def _matmul(size: int) -> _Work:
    shape = (size, size)
    func = _compiled("R.matmul(a, b)", shape, a=shape, b=shape)
    return _Work(func, (shape,) * 3, lambda a, b, out: np.matmul(a, b, out=out), {"numpy": 0.95})


def _gemv(bar: float, sets: int) -> _Work:
    inner, outputs = 576, 1536
    x = te.placeholder((1, inner), "float32", "x")
    weight = te.placeholder((outputs, inner), "float32", "weight")
    k = te.reduce_axis((0, inner), "k")
    y = te.compute((1, outputs), lambda i, j: te.sum(x[i, k] * weight[j, k], axis=k), name="y")
    func = te.create_prim_func([x, weight, y]).without_attr("global_symbol")
    shapes = ((1, inner), (outputs, inner), (1, outputs))

    def plain(x: Floats, weight: Floats, out: Floats) -> None:
        np.matmul(x, weight.T, out=out)

    return _Work(func, shapes, plain, {"numpy": bar}, sets)


_WORKS: Final[dict[str, Callable[[], _Work]]] = {
    "gelu_1m": _gelu,
    "exp_1m": _exp,
    "softmax_32x2048": _softmax,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "matmul_512": lambda: _matmul(512),
    "matmul_1024": lambda: _matmul(1024),
    "gemv_576x1536": lambda: _gemv(1, 1),
    "gemv_streamed": lambda: _gemv(1.6, 40),
}
