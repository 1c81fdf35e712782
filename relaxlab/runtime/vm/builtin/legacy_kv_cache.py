"""The legacy attention KV cache: one tensor that grows by doubling, or wraps around.

It is the simplest cache a compiled decoder can use: one sequence, rows appended at the end, and
optionally a window of rows of which the first few (the sinks) stay. Paged caches are elsewhere.
Counterpart: TVM's ``AttentionKVCacheLegacy``.

Examples
--------
>>> from relaxlab.runtime.tensor import tensor
>>> cache = create(tensor([[1.0], [2.0]]), ShapeTuple((2, 1)), -1)
>>> view(append(cache, tensor([[3.0]]))).numpy().tolist()
[[1.0], [2.0], [3.0]]
>>> cache
AttentionKVCacheLegacy(3 of 4 rows filled, window at 0)
"""

from collections.abc import Iterable
from typing import Any

from relaxlab.errors import InternalError
from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.tensor import Tensor, empty
from relaxlab.runtime.vm.builtin.table import (
    as_int,
    as_shape,
    as_tensor,
    as_tuple,
    builtin,
    refusal,
    shown,
)

__all__ = ["AttentionKVCacheLegacy"]


class AttentionKVCacheLegacy:
    """Rows of keys or values.

    Attributes
    ----------
    data
        All slots, ``[slots, ...]``.
    fill_count
        Rows that hold something.
    window_pos
        Where the next row of a wrapping window goes.
    """

    def __init__(self, data: Tensor) -> None:
        self.data = data
        self.fill_count = 0
        self.window_pos = 0

    def held_values(self) -> Iterable[Tensor]:
        """Yield the data: views of it change when rows are added."""
        yield self.data

    def reserve(self, rows: int) -> None:
        """Make room for ``rows`` rows, by doubling."""
        slots = self.data.shape[0]
        if rows <= slots:
            return
        while slots < rows:
            slots = max(1, slots * 2)
        grown = empty((slots, *self.data.shape[1:]), self.data.dtype, self.data.device)
        grown.array[: self.fill_count] = self.data.array[: self.fill_count]
        self.data = grown

    def __repr__(self) -> str:
        return (
            f"AttentionKVCacheLegacy({self.fill_count} of {self.data.shape[0]} rows filled, "
            f"window at {self.window_pos})"
        )


@builtin("vm.builtin.attention_kv_cache_create")
def create(init: Any, reserve_shape: Any, init_fill_count: Any, /) -> AttentionKVCacheLegacy:
    """Return a cache of the reserved shape that holds the rows of ``init``.

    A fill count >= 0 sets how many rows count as filled, and where the window stands.

    Parameters
    ----------
    init
        Rows to begin with.
    reserve_shape
        Shape of the memory; rows are like those of ``init``.
    init_fill_count
        How many rows count as filled; -1 for those of ``init``.

    Raises
    ------
    InternalError
        If the shapes do not fit.
    TypeError
        If an argument is of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.attention_kv_cache_create``.
    """
    me = "vm.builtin.attention_kv_cache_create"
    rows = as_tensor(init, me, "init")
    shape = as_shape(reserve_shape, me, "reserved shape")
    count = as_int(init_fill_count, me, "fill count")
    if not shape or rows.ndim != len(shape) or rows.shape[1:] != shape[1:]:
        raise InternalError(
            f"{me}: expected rows like those of the reserved shape {tuple(shape)}, "
            f"got {shown(rows)}"
        )
    cache = AttentionKVCacheLegacy(empty(shape, rows.dtype, rows.device))
    _append(cache, rows)
    if count >= 0:
        cache.reserve(count)
        cache.fill_count = cache.window_pos = count
    return cache


@builtin("vm.builtin.attention_kv_cache_append")
def append(cache: Any, value: Any, /) -> AttentionKVCacheLegacy:
    """Add rows at the end, growing if needed; return the same cache.

    Parameters
    ----------
    cache
        What ``attention_kv_cache_create`` returned.
    value
        Rows of the cache's shape and dtype.

    Raises
    ------
    InternalError
        If the rows are of another shape or dtype.
    TypeError
        If an argument is of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.attention_kv_cache_append``.
    """
    me = "vm.builtin.attention_kv_cache_append"
    found, rows = _cache_and_rows(cache, value, me)
    _append(found, rows)
    return found


@builtin("vm.builtin.attention_kv_cache_update")
def update(cache: Any, value: Any, /) -> AttentionKVCacheLegacy:
    """Overwrite all filled rows; return the same cache.

    Parameters
    ----------
    cache
        What ``attention_kv_cache_create`` returned.
    value
        As many rows as are filled.

    Raises
    ------
    InternalError
        If the rows are of another shape or dtype.
    TypeError
        If an argument is of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.attention_kv_cache_update``.
    """
    me = "vm.builtin.attention_kv_cache_update"
    found, rows = _cache_and_rows(cache, value, me)
    if rows.shape[0] != found.fill_count:
        raise InternalError(
            f"{me}: expected {found.fill_count} rows, one per filled row, got {rows.shape[0]}"
        )
    found.data.array[: found.fill_count] = rows.array
    return found


@builtin("vm.builtin.attention_kv_cache_view")
def view(*args: Any) -> Tensor:
    """Return the filled rows as a view: (cache [, shape]).

    Parameters
    ----------
    args
        The cache, and perhaps the shape that is expected.

    Raises
    ------
    ValueError
        If there are not one or two arguments.
    InternalError
        If the shape is another.
    TypeError
        If an argument is of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.attention_kv_cache_view``.
    """
    me = "vm.builtin.attention_kv_cache_view"
    if not 1 <= len(args) <= 2:
        raise ValueError(f"{me}: expected a cache and perhaps a shape, got {len(args)} arguments")
    cache = _as_cache(args[0], me)
    shape = ShapeTuple((cache.fill_count, *cache.data.shape[1:]))
    if len(args) == 2:
        wanted = as_shape(args[1], me, "shape")
        if wanted != shape:
            raise InternalError(f"{me}: expected shape {tuple(shape)}, got {tuple(wanted)}")
    return cache.data.view(shape)


@builtin("vm.builtin.attention_kv_cache_array_popn")
def array_popn(caches: Any, count: Any, /) -> None:
    """Drop the last rows of every cache; refused as a whole if one has fewer.

    Parameters
    ----------
    caches
        A tuple of caches.
    count
        How many rows.

    Raises
    ------
    InternalError
        If a cache has fewer; then none is changed.
    TypeError
        If an argument is of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.attention_kv_cache_array_popn``. TVM changes the caches before
    the one that fails.
    """
    me = "vm.builtin.attention_kv_cache_array_popn"
    found = [_as_cache(cache, me) for cache in as_tuple(caches, me, "caches")]
    rows = as_int(count, me, "count")
    for cache in found:
        if not 0 <= rows <= cache.fill_count:
            raise InternalError(f"{me}: cannot drop {rows} of {cache.fill_count} rows")
    for cache in found:
        cache.fill_count -= rows


@builtin("vm.builtin.attention_kv_cache_array_clear")
def array_clear(caches: Any, /) -> None:
    """Drop all rows of every cache.

    Parameters
    ----------
    caches
        A tuple of caches.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.attention_kv_cache_array_clear``.
    """
    me = "vm.builtin.attention_kv_cache_array_clear"
    for cache in [_as_cache(cache, me) for cache in as_tuple(caches, me, "caches")]:
        cache.fill_count = cache.window_pos = 0


@builtin("vm.builtin.attention_kv_cache_window_override")
def window_override(cache: Any, value: Any, max_size: Any, /) -> AttentionKVCacheLegacy:
    """Add rows to a window of ``max_size`` rows, overwriting the oldest.

    Parameters
    ----------
    cache
        What ``attention_kv_cache_create`` returned.
    value
        Rows of the cache's shape and dtype.
    max_size
        Rows of the window.

    Raises
    ------
    InternalError
        If there are more rows than fit, or they are of another shape or dtype.
    TypeError
        If an argument is of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.attention_kv_cache_window_override``.
    """
    me = "vm.builtin.attention_kv_cache_window_override"
    return _override(cache, value, as_int(max_size, me, "window size"), 0, me)


@builtin("vm.builtin.attention_kv_cache_window_override_with_sinks")
def window_override_with_sinks(
    cache: Any, value: Any, max_size: Any, num_sinks: Any, /
) -> AttentionKVCacheLegacy:
    """Add rows to a window of ``max_size`` rows whose first ``num_sinks`` rows stay.

    Parameters
    ----------
    cache
        What ``attention_kv_cache_create`` returned.
    value
        Rows of the cache's shape and dtype.
    max_size
        Rows of the window.
    num_sinks
        Rows at its beginning that are never overwritten.

    Raises
    ------
    InternalError
        If there are more rows than fit, or they are of another shape or dtype.
    TypeError
        If an argument is of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.attention_kv_cache_window_override_with_sinks``.
    """
    me = "vm.builtin.attention_kv_cache_window_override_with_sinks"
    size, sinks = as_int(max_size, me, "window size"), as_int(num_sinks, me, "number of sinks")
    return _override(cache, value, size, sinks, me)


def _override(cache: Any, value: Any, size: int, sinks: int, me: str) -> AttentionKVCacheLegacy:
    found, rows = _cache_and_rows(cache, value, me)
    count = rows.shape[0]
    if not 0 <= count <= size - sinks or sinks < 0:
        raise InternalError(
            f"{me}: expected at most {size - sinks} rows (window {size}, sinks {sinks}), "
            f"got {count}"
        )
    if found.fill_count + count <= size:
        found.reserve(found.fill_count + count)
    else:
        found.reserve(size)
    first = min(count, size - found.window_pos)
    if first > 0:
        found.data.array[found.window_pos : found.window_pos + first] = rows.array[:first]
    found.fill_count = min(found.fill_count + count, size)
    found.window_pos = min(found.window_pos + count, size)
    if first < count:
        rest = count - first
        found.data.array[sinks : sinks + rest] = rows.array[first:]
        found.window_pos = sinks + rest
    return found


def _append(cache: AttentionKVCacheLegacy, rows: Tensor) -> None:
    end = cache.fill_count + rows.shape[0]
    cache.reserve(end)
    cache.data.array[cache.fill_count : end] = rows.array
    cache.fill_count = end


def _as_cache(value: Any, me: str) -> AttentionKVCacheLegacy:
    if not isinstance(value, AttentionKVCacheLegacy):
        raise refusal(value, me, "cache", "relax.vm.AttentionKVCacheLegacy")
    return value


def _cache_and_rows(cache: Any, value: Any, me: str) -> tuple[AttentionKVCacheLegacy, Tensor]:
    found, rows = _as_cache(cache, me), as_tensor(value, me, "value")
    data = found.data
    if rows.dtype != data.dtype or rows.ndim != data.ndim or rows.shape[1:] != data.shape[1:]:
        raise InternalError(
            f"{me}: expected rows of shape {tuple(data.shape[1:])} and dtype {str(data.dtype)!r}, "
            f"got {shown(rows)}"
        )
    return found, rows
