"""What attention is, without pages: the formula all kernel families are compared with."""

import math
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
TOLERANCE = {"float32": 2e-5, "float16": 2e-3, "bfloat16": 1.6e-2}


def dense(q, k, v, seen, sm_scale):
    """Return output [rows, heads, Dv] and base-2 LSE [rows, heads], in float64.

    q [rows, heads, D], k and v [keys, kv heads, D], seen [rows, keys]. Rows that see nothing give
    zeros and -5e4.
    """
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x.astype(np.float64), group, 1) for x in (k, v))
    scores = np.einsum("qhd,khd->hqk", q.astype(np.float64), k) * sm_scale
    scores = np.where(seen[None], scores, -np.inf)
    weights = np.exp(scores)
    total = weights.sum(-1)
    blind = total == 0
    out = np.einsum("hqk,khd->qhd", weights / np.where(blind, 1, total)[..., None], v)
    with np.errstate(divide="ignore"):
        lse = np.where(blind, -5e4, np.log2(total))
    return out, lse.T


def causal(rows, keys):
    return np.arange(keys) <= keys - rows + np.arange(rows)[:, None]


def ancestors(parents):
    """Return who sees whom in a tree of parent indices, and its order as kernels get it."""
    seen = np.eye(len(parents), dtype=bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            seen[node] |= seen[parent]
    children = {}
    for node, parent in enumerate(parents):
        children.setdefault(parent, []).append(node)
    order, count = np.zeros((len(parents), 2), "int32"), 0

    def visit(node):
        nonlocal count
        order[node, 0] = count
        count += 1
        for child in children.get(node, []):
            visit(child)
        order[node, 1] = count

    for root in children.get(-1, []):
        visit(root)
    return seen, order


@dataclass
class Pool:
    """Pages that are NaN wherever nothing was stored, handed out in a random order."""

    rng: np.random.Generator
    heads: int
    dim: int
    page_size: int
    dtype: str = "float32"
    pages_in_all: int = 64
    indptr: list = field(default_factory=lambda: [0])
    values: list = field(default_factory=list)
    info: list = field(default_factory=list)

    def __post_init__(self):
        shape = (self.pages_in_all, 2, self.heads, self.page_size, self.dim)
        self.pages = np.full(shape, np.nan, DTYPES[self.dtype])
        self.free = list(self.rng.permutation(self.pages_in_all))

    def random(self, *shape):
        return self.rng.standard_normal(shape).astype(DTYPES[self.dtype])

    def add(self, count, sink=0, offset=0):
        """Store ``count`` random tokens as a chunk; return its keys and values."""
        size = self.page_size
        k, v = (self.random(count, self.heads, self.dim) for _ in range(2))
        places = np.arange(count)
        places = np.where(places < sink, places, places - sink + offset)
        number = -(-(int(places[-1]) + 1) // size) if count else 0
        ids = [self.free.pop() for _ in range(number)]
        for i, place in enumerate(places.tolist()):
            self.pages[ids[place // size], 0, :, place % size] = k[i]
            self.pages[ids[place // size], 1, :, place % size] = v[i]
        self.values += ids
        self.indptr.append(len(self.values))
        last = (int(places[-1]) % size) + 1 if count else 0
        self.info.append((last, offset, sink) if count else (0, 0, 0))
        return k, v

    def tables(self, sliding=False):
        info = np.array(self.info, "int32").T
        return (
            np.array(self.indptr, "int32"),
            np.array(self.values, "int32"),
            np.ascontiguousarray(info if sliding else info[0]),
        )


def outputs(q, value_dim=None):
    """Return an output and an LSE to fill, full of NaN."""
    shape = (*q.shape[:2], value_dim or q.shape[2])
    return np.full(shape, np.nan, q.dtype), np.full(q.shape[:2], np.nan, np.float32)


def agree(got, expected, dtype="float32"):
    (out, lse), (want, want_lse) = got, expected
    bound = TOLERANCE[dtype]
    np.testing.assert_allclose(out.astype(np.float64), want, rtol=bound, atol=bound)
    np.testing.assert_allclose(lse, want_lse, rtol=2e-5, atol=max(bound / 4, 2e-5))


def index(*values):
    return np.array(values, "int32")


def scale_of(dim):
    return 1 / math.sqrt(dim)
