"""Splitting and rotating fused queries, keys and values, in machine code.

Sines and cosines come as tables, made once a round; a vector of features is multiplied by its
cosines, and its partners by signed sines are added. Counterpart: TVM's fused rotary kernel.

Examples
--------
>>> from relaxlab.runtime.kv.attention import KernelSpec, pick
>>> split = pick("split_rotary", KernelSpec(1, 1, 16), "llvm")
>>> qkv = np.arange(48, dtype="float32").reshape(1, 3, 16)
>>> q, k, v = (np.empty((1, 1, 16), "float32") for _ in range(3))
>>> split(qkv, np.array([0], "int32"), q, k, v, 1)
>>> k[0, 0, :3].tolist(), v[0, 0, :3].tolist()
([16.0, 17.0, 18.0], [32.0, 33.0, 34.0])
"""

from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from relaxlab.codegen.attention.entry import Compiled, compile_entry
from relaxlab.codegen.llvm.builder import Builder, Value
from relaxlab.codegen.llvm.machine import machine
from relaxlab.runtime.kv.attention import KernelSpec
from relaxlab.runtime.kv.attention.plans import RecentPlans
from relaxlab.runtime.kv.attention.spec import array
from relaxlab.runtime.kv.attention.split_rotary import SplitRotary as PortableSplitRotary
from relaxlab.runtime.kv.exact import is_exact
from relaxlab.runtime.kv.rope import Rope

__all__ = ["CompiledSplitRotary", "lanes_for"]

Array = NDArray[Any]

_FLOAT32: Final = np.dtype(np.float32)
_PARAMETERS: Final = "ppppppi"


def lanes_for(dim: int, features: int) -> int:
    """Return the width of vectors: what fills a register and divides a head and half a rotation."""
    lanes = machine().host.lanes(32)
    while lanes > 1 and (dim % lanes or (features // 2) % lanes):
        lanes //= 2
    return lanes


@cache
def _split(heads: int, kv_heads: int, dim: int, features: int, interleaved: bool) -> Compiled:
    """Return the function: addresses of qkv, cosines, signed sines, q, k, v; number of tokens."""
    names = ("qkv", "cos", "sin", "q", "k", "v")
    b = Builder("split", [*(("ptr", name) for name in names), ("i64", "tokens")], export=True)
    n = b.int64
    writes = frozenset({"q", "k", "v"})
    with b.loop(n(0), b.argument("tokens"), 1, writes=writes) as token:
        first = b.binary("mul", token.index, n((heads + 2 * kv_heads) * dim))
        rows = b.element(b.argument("qkv"), first, "float")
        at = b.binary("mul", token.index, n(features))
        cos, sin = (b.element(b.argument(name), at, "float") for name in ("cos", "sin"))
        done = 0
        for name, count, turns in (
            ("q", heads, True),
            ("k", kv_heads, True),
            ("v", kv_heads, False),
        ):
            own = b.binary("mul", token.index, n(count * dim))
            target = b.element(b.argument(name), own, "float")
            with b.loop(n(0), n(count), 1, writes=writes) as head:
                step = b.binary("mul", head.index, n(dim))
                row = b.element(b.element(rows, n(done * dim), "float"), step, "float")
                out = b.element(target, step, "float")
                _row(b, row, out, (cos, sin), name, dim, features if turns else 0, interleaved)
            done += count
    return compile_entry(b.finish() + _declared(b), "split", _PARAMETERS)


def _declared(b: Builder) -> str:
    return "".join(f"{line}\n" for line in b.declarations.values())


def _row(
    b: Builder,
    row: Value,
    out: Value,
    tables: tuple[Value, Value],
    buffer: str,
    dim: int,
    features: int,
    interleaved: bool,
) -> None:
    """Copy a row, its leading features turned."""
    lanes, half = lanes_for(dim, features), features // 2

    def load(base: Value, at: int, name: str) -> Value:
        return b.load(b.element(base, b.int64(at), "float"), "float", lanes, 4, name)

    for d in range(0, dim, lanes):
        x = load(row, d, "qkv")
        if d < features:
            if interleaved:
                partner = b.shuffle(x, [lane ^ 1 for lane in range(lanes)])
            else:
                partner = load(row, d + half if d < half else d - half, "qkv")
            cos, sin = load(tables[0], d, "cos"), load(tables[1], d, "sin")
            x = b.fma(x, cos, b.binary("fmul", partner, sin))
        b.store(x, b.element(out, b.int64(d), "float"), 4, buffer)


class CompiledSplitRotary:
    """The kernel; what is not float32, or not rotated, goes to the numpy family."""

    def __init__(self, spec: KernelSpec) -> None:
        self.rope = spec.rope or Rope(spec.qk_head_dim)
        self._portable = PortableSplitRotary(spec)
        self._tables = RecentPlans()

    def __call__(
        self, qkv: Any, position_map: Any, q: Any, k: Any, v: Any, apply_rope: Any
    ) -> None:
        """Split ``qkv`` ``[tokens, heads of q, k and v, dim]`` into ``q``, ``k`` and ``v``."""
        qkv, q, k, v = array(qkv), array(q), array(k), array(v)
        if isinstance(apply_rope, int) and apply_rope and self._fits(qkv, q, k, v):
            cos, sin = self._angles(array(position_map))
            tokens, _, dim = qkv.shape
            if len(cos) == tokens:
                function = _split(
                    q.shape[1], k.shape[1], dim, self.rope.features, self.rope.interleaved()
                )
                function(qkv, cos, sin, q, k, v, tokens)
                return
        self._portable(qkv, position_map, q, k, v, apply_rope)

    def _fits(self, qkv: Array, q: Array, k: Array, v: Array) -> bool:
        """Whether these are the arrays that the compiled function reads and writes."""
        if not all(a.dtype is _FLOAT32 and a.flags.c_contiguous for a in (qkv, q, k, v)):
            return False
        tokens, heads, dim = qkv.shape
        whole = q.shape[1] + 2 * k.shape[1] == heads and v.shape == k.shape
        return (
            whole
            and dim == self.rope.head_dim
            and q.shape == (tokens, q.shape[1], dim)
            and k.shape == (tokens, k.shape[1], dim)
        )

    def _angles(self, positions: Array) -> tuple[Array, Array]:
        """Return cosines, and sines with the sign that a feature's partner has."""

        def make() -> tuple[Array, Array]:
            cos, sin = self.rope.angles(positions)
            if self.rope.interleaved():
                sin[:, ::2] *= -1
            else:
                sin[:, : self.rope.features // 2] *= -1
            return np.ascontiguousarray(cos), np.ascontiguousarray(sin)

        found: tuple[Array, Array] = self._tables.get(make, (positions,), (is_exact(),))
        return found
