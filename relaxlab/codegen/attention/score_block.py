"""The inner loop of compiled attention: scores of a block of keys for a tile of queries.

The products of a query and a key stay in a vector register of their own and are added up at the
end, by a tree of shuffles that leaves one score per lane: no lane is ever added to its neighbours
one by one.

Examples
--------
>>> print(scores(16, 16, 1, 64).finish().splitlines()[0])
define internal i32 @scores.64(ptr %k, ptr %next, ptr %q, ptr %out, i64 %pitch) noinline {
"""

from typing import Final

from relaxlab.codegen.llvm.builder import Builder, Value

__all__ = ["prefetch", "scores"]

_KEYS: Final = 4
"""Keys of which scores are computed at a time."""
_UNROLLED: Final = 8
"""Vectors of a key up to which there is no loop over them."""


def scores(dim: int, lanes: int, rows: int, stride: int) -> Builder:
    """Return the function of one block: all queries of a tile against ``lanes`` keys.

    Four keys at a time, so that a key is loaded once for all queries. (That is a loop, or the
    instructions of all keys would be mixed and fill more registers than there are.)
    """
    n = dim // lanes
    b = Builder(
        f"scores.{stride}",
        [("ptr", "k"), ("ptr", "next"), ("ptr", "q"), ("ptr", "out"), ("i64", "pitch")],
    )
    k, q, out = b.argument("k"), b.argument("q"), b.argument("out")
    kept = b.allocate("float", rows * lanes * lanes // _KEYS, 64, "kept")
    written = frozenset({"kept"})
    with b.loop(b.int64(0), b.int64(lanes // _KEYS), 1, writes=written) as four:
        tensors = (b.element(k, b.binary("mul", four.index, b.int64(_KEYS * stride)), "float"), q)
        soon = b.element(
            b.argument("next"), b.binary("mul", four.index, b.int64(_KEYS * stride)), "float"
        )
        starts = [key * stride for key in range(_KEYS)]
        for start in starts:
            prefetch(b, soon, start, dim)
        sums: list[Value] = []
        if n <= _UNROLLED:
            for d in range(n):
                at = b.int64(d * lanes)
                sums = _products(b, tensors, starts, dim, at, lanes, rows, sums)
        else:
            zero = [b.literal(0.0, "float", lanes)] * (rows * _KEYS)
            with b.loop(b.int64(0), b.int64(dim), lanes, carried=zero) as part:
                part.next = _products(
                    b, tensors, starts, dim, part.index, lanes, rows, part.carried
                )
            sums = part.results
        mine = b.element(kept, b.binary("mul", four.index, b.int64(lanes)), "float")
        for row in range(rows):
            one = _quartered(b, sums[row * _KEYS : (row + 1) * _KEYS])
            place = b.element(mine, b.int64(row * lanes * lanes // _KEYS), "float")
            b.store(one, place, 4, "kept")
    for row in range(rows):
        first = row * lanes * lanes // _KEYS
        vectors = [
            b.load(b.element(kept, b.int64(first + i * lanes), "float"), "float", lanes, 4, "kept")
            for i in range(lanes // _KEYS)
        ]
        place = b.element(out, b.binary("mul", b.int64(row), b.argument("pitch")), "float")
        b.store(_joined(b, vectors), place, 4, "out")
    return b


def _products(
    b: Builder,
    tensors: tuple[Value, Value],
    starts: list[int],
    dim: int,
    at: Value,
    lanes: int,
    rows: int,
    sums: list[Value],
) -> list[Value]:
    """Return, row by row and key by key, the sums with one more vector of features."""
    k, q = tensors
    keys = [_vector_at(b, k, b.binary("add", b.int64(start), at), lanes) for start in starts]
    out: list[Value] = []
    for row in range(rows):
        part = _vector_at(b, q, b.binary("add", b.int64(row * dim), at), lanes)
        for key in keys:
            if sums:
                out.append(b.fma(part, key, sums[len(out)]))
            else:
                out.append(b.binary("fmul", part, key))
    return out


def prefetch(b: Builder, base: Value, first: int, count: int) -> None:
    """Ask for floats that are needed soon: processors do not look across pages by themselves."""
    name = "llvm.prefetch.p0"
    b.declarations.setdefault(name, f"declare void @{name}(ptr, i32, i32, i32)")
    for offset in range(first, first + count, 16):
        pointer = b.fresh(f"getelementptr float, {base.typed}, i64 {offset}", "ptr")
        b.line(f"call void @{name}({pointer.typed}, i32 0, i32 3, i32 1)")


def _vector_at(b: Builder, base: Value, index: Value, lanes: int) -> Value:
    """Load here: hoisted, more vectors would be alive than there are registers."""
    pointer = b.element(base, index, "float")
    return b.fresh(f"load <{lanes} x float>, ptr {pointer.text}, align 4", "float", lanes)


def _merged(b: Builder, vectors: list[Value], left: list[int], right: list[int]) -> list[Value]:
    """Return, for each pair of vectors, what ``left`` picks of both plus what ``right`` picks."""
    pairs = zip(vectors[::2], vectors[1::2], strict=True)
    return [b.binary("fadd", _picked(b, x, y, left), _picked(b, x, y, right)) for x, y in pairs]


def _quartered(b: Builder, vectors: list[Value]) -> Value:
    """Return the sums of four vectors within each group of four lanes, one after the other."""
    lanes = vectors[0].lanes
    groups = range(0, lanes, 4)
    two = _merged(
        b,
        vectors,
        [i + o for i in groups for o in (0, lanes, 1, lanes + 1)],
        [i + o for i in groups for o in (2, lanes + 2, 3, lanes + 3)],
    )
    (one,) = _merged(
        b,
        two,
        [i + o for i in groups for o in (0, 1, lanes, lanes + 1)],
        [i + o for i in groups for o in (2, 3, lanes + 2, lanes + 3)],
    )
    return one


def _joined(b: Builder, vectors: list[Value]) -> Value:
    """Return the sums over groups of four lanes, of each vector in turn, as one vector."""
    lanes = vectors[0].lanes
    while len(vectors) > 1:
        groups = [range(i, i + 4) for i in range(0, 2 * lanes, 4)]
        even, odd = ([j for group in groups[o::2] for j in group] for o in (0, 1))
        vectors = _merged(b, vectors, even, odd)
    return vectors[0]


def _picked(b: Builder, x: Value, y: Value, order: list[int]) -> Value:
    picks = ", ".join(f"i32 {k}" for k in order)
    text = f"shufflevector {x.typed}, {y.typed}, <{len(order)} x i32> <{picks}>"
    return b.fresh(text, x.elem, len(order))
