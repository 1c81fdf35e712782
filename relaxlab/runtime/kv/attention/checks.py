"""Checks of what attention kernels are given, made once for each plan.

A kernel that follows a wrong page number reads memory that is not its own. TVM's kernels do; ours
look at the index arrays first. A plan is made once a round, so the layers do not pay for it.

Examples
--------
>>> index = lambda *x: np.array(x, "int32")
>>> check_page_table(index(0, 2), index(3, 9), index(1), pages=8, page_size=4)
Traceback (most recent call last):
relaxlab.errors.InternalError: attention kernel: page_values: expected pages from 0 to 7, got 9 \
at 1
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaxlab.errors import InternalError

__all__ = ["check_indptr", "check_page_table", "check_rows", "check_trees"]

Array = NDArray[Any]


def _refuse(what: str, expected: str, got: object) -> InternalError:
    return InternalError(f"attention kernel: {what}: expected {expected}, got {got}")


def check_indptr(name: str, indptr: Array, rows: int) -> None:
    """Refuse bounds that do not begin at 0, go down, or go beyond ``rows`` rows."""
    if not len(indptr) or indptr[0] != 0 or (np.diff(indptr) < 0).any():
        raise _refuse(name, "0 first, and nothing that goes down", indptr.tolist())
    if indptr[-1] > rows:
        raise _refuse(name, f"at most {rows} rows", int(indptr[-1]))


def check_page_table(
    indptr: Array, values: Array, info: Array, *, pages: int, page_size: int
) -> None:
    """Refuse a page table that leads outside of ``pages`` pages of ``page_size`` rows."""
    check_indptr("page_indptr", indptr, len(values))
    used = values[: indptr[-1]]
    wrong = np.flatnonzero((used < 0) | (used >= pages))
    if len(wrong):
        at = int(wrong[0])
        raise _refuse("page_values", f"pages from 0 to {pages - 1}", f"{used[at]} at {at}")
    counts = np.diff(indptr)
    if info.shape[-1] != len(counts) or (info.ndim == 2 and len(info) != 3):
        raise _refuse("length_info", f"({len(counts)},) or (3, {len(counts)})", info.shape)
    last = info if info.ndim == 1 else info[0]
    bad = (counts > 0) & ((last < 1) | (last > page_size))
    if bad.any():
        raise _refuse("last_page_len", f"1 to {page_size}", int(last[bad][0]))
    if info.ndim == 2:
        offset, sink = info[1], info[2]
        total = (counts - 1) * page_size + last
        bad = (counts > 0) & ((sink < 0) | (offset < sink) | (offset > total))
        if bad.any():
            chunk = int(np.flatnonzero(bad)[0])
            raise _refuse(
                "length_info",
                "0 <= sink <= offset <= rows",
                f"sink {sink[chunk]}, offset {offset[chunk]}, {total[chunk]} rows of chunk {chunk}",
            )


def check_rows(q: Array, dim: int, kv_heads: int, output: Array, lse: Array) -> None:
    """Refuse queries of another head size or grouping, and outputs of other sizes than theirs."""
    if q.ndim != 3 or q.shape[2] != dim or q.shape[1] % kv_heads:
        raise _refuse("q", f"[tokens, a multiple of {kv_heads}, {dim}]", q.shape)
    if output.shape[:2] != q.shape[:2] or lse.shape != q.shape[:2]:
        expected = f"{q.shape[:2]} first, as the queries have"
        raise _refuse("output and lse", expected, f"{output.shape} and {lse.shape}")


def check_trees(tokens: Array, keys: Array, order_indptr: Array, order: Array) -> None:
    """Refuse trees with fewer nodes than queries, or more than keys; no node at all is no tree."""
    check_indptr("tree_order_indptr", order_indptr, order.size // 2)
    sizes = np.diff(order_indptr)
    if len(sizes) != len(tokens):
        raise _refuse("tree_order_indptr", f"{len(tokens) + 1} bounds", len(order_indptr))
    bad = (sizes > 0) & ((sizes < tokens) | (sizes > keys))
    if bad.any():
        chunk = int(np.flatnonzero(bad)[0])
        expected = f"{tokens[chunk]} to {keys[chunk]} nodes in chunk {chunk}"
        raise _refuse("tree_order", expected, int(sizes[chunk]))
