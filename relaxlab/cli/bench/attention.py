"""Rows of decode attention: one new token of one sequence over 512 cached ones.

The shape is that of a layer of SmolLM2: 9 query and 3 key/value heads of 64 features, pages of 16
tokens in a shuffled order. Both sides are timed as the fastest of many short rounds, since a
machine that does other things as well is slow, not wrong. ``relaxlab bench kv`` includes them.

Examples
--------
>>> from relaxlab.cli.bench.attention import rows
"""

import time
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from relaxlab.cli.bench.rows import Bar, Row
from relaxlab.cli.bench.tvm_peer import run_tvm
from relaxlab.codegen.attention import is_available
from relaxlab.runtime.kv.attention import Kernel, KernelSpec, pick

__all__ = ["rows"]

_HEADS, _KV_HEADS, _DIM, _PAGE, _CONTEXT = 9, 3, 64, 16, 512
_ROUNDS: Final = 500
_SECONDS: Final = 0.001

_TVM: Final = """
from tvm.relax.frontend.nn.llm import kv_cache
from tvm.s_tir import dlight
func = kv_cache._attention_decode_cpu(3, 9, 64, "float32", False, {}, page_size=16)
target = tvm.target.Target.from_device(tvm.cpu())
mod = tvm.IRModule({"main": func})
with target:
    mod = dlight.ApplyDefaultSchedule(dlight.gpu.Fallback())(mod)
kernel = tvm.tirx.build(mod["main"], target=target).main
rng = np.random.default_rng(0)
t = tvm.runtime.tensor
pages = t(rng.standard_normal((36, 2, 3, 16, 64)).astype("float32"))
values = t(rng.permutation(36)[:32].astype("int32"))
index = lambda *x: t(np.array(x, "int32"))
indptr, last, offset, position = index(0, 32), index(16), index(0), index(511)
q = t(rng.standard_normal((1, 9, 64)).astype("float32"))
o, lse = tvm.runtime.empty((1, 9, 64), "float32"), tvm.runtime.empty((1, 9), "float32")
run = lambda: kernel(
    q, pages, indptr, values, last, offset, position, o, lse, 0, 1.0, 1e4, 0.125)
result(min(measure(run, 1, SECONDS) for _ in range(ROUNDS)) * 1e6)
"""


def rows() -> Iterator[Row]:
    """Yield the rows of decode attention."""
    script = _TVM.replace("SECONDS", str(_SECONDS)).replace("ROUNDS", str(_ROUNDS))
    peer = run_tvm(script)
    for family, bar in (("numpy", 2.5), ("llvm", 15.0)):
        if family == "llvm" and not is_available():
            continue
        spec = KernelSpec(_HEADS, _KV_HEADS, _DIM, page_size=_PAGE)
        ours = _fastest(_decode(pick("paged_decode", spec, family))) * 1e6
        yield Row(f"decode_attention_512_{family}", "us", ours, "tvm", peer, Bar(">=", bar))


def _decode(kernel: Kernel) -> Callable[[], object]:
    rng = np.random.default_rng(0)
    count = _CONTEXT // _PAGE
    pages = _aligned((count + 4, 2, _KV_HEADS, _PAGE, _DIM))
    pages[...] = rng.standard_normal(pages.shape)
    values = rng.permutation(len(pages))[:count].astype(np.int32)
    indptr, last, offset, position = (
        np.array(x, np.int32) for x in ([0, count], [_PAGE], [0], [_CONTEXT - 1])
    )
    q = rng.standard_normal((1, _HEADS, _DIM)).astype(np.float32)
    out, lse = np.empty_like(q), np.empty((1, _HEADS), np.float32)

    def run() -> None:
        kernel(q, pages, indptr, values, last, offset, position, out, lse, 0, 1.0, 1e4, 0.125)

    return run


def _aligned(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return an array that begins with a cache line, as caches allocate their pages."""
    size = int(np.prod(shape)) * 4
    memory = np.empty(size + 64, np.uint8)
    start = -memory.__array_interface__["data"][0] % 64
    return memory[start : start + size].view(np.float32).reshape(shape)


def _fastest(function: Callable[[], object]) -> float:
    """Return the shortest mean time of a round, in seconds."""
    function()
    start = time.perf_counter()
    function()
    count = max(1, int(_SECONDS / max(time.perf_counter() - start, 1e-9)))
    best = float("inf")
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        for _ in range(count):
            function()
        best = min(best, (time.perf_counter() - start) / count)
    return best
