"""Calling FlashInfer's kernels: planned once per round, then run with its own arguments.

FlashInfer splits a batch over the machine in a *plan*, made from host arrays, and reuses the plan
for every layer. This module knows its argument lists and nothing else; the functions themselves
come with the kernel table. Counterpart: kv.md 4.4 (from TVM's description of the calls; there is
no FlashInfer on a CPU, so tests use recording functions).

Examples
--------
A table with ``Backend("flashinfer", run, plan)`` as ``paged_decode`` makes each round call
``plan(...)`` once per depth that has pages and ``run(...)`` once per layer and depth.
"""

from typing import Any, Final

import numpy as np

from relaxlab.runtime.device import Device
from relaxlab.runtime.kv.aux_data import DepthTable, IndexArrays
from relaxlab.runtime.kv.cache_config import CacheConfig
from relaxlab.runtime.kv.forward_round import ForwardRound
from relaxlab.runtime.kv.kernel_table import Backend
from relaxlab.runtime.tensor import Tensor, empty, tensor

__all__ = ["Plans"]

_INT_BYTES: Final = 8 << 20
_FLOAT_BYTES: Final = 768 << 20
_NHD, _HND = 0, 1
_NO_WINDOW: Final = -1


class Plans:
    """Workspaces of one cache, and the plans of its current round."""

    def __init__(self, config: CacheConfig, device: Device) -> None:
        self._config = config
        self._float = empty((_FLOAT_BYTES,), "uint8", device)
        self._int = [empty((_INT_BYTES,), "uint8", device) for _ in range(3)]
        self._pinned = [empty((_INT_BYTES,), "uint8") for _ in range(3)]
        self._arrays: IndexArrays | None = None
        self._made: dict[tuple[str, int], Any] = {}

    def ragged(
        self,
        batch: ForwardRound,
        backend: Backend,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        o: Tensor,
        lse: Tensor,
        sm_scale: float,
    ) -> None:
        """Attend to the new tokens."""
        config = self._config
        indptr = batch.arrays.tensor("cur_append_length_indptr")
        own_sizes = backend.qk_head_dim > 0
        qk = backend.qk_head_dim or config.qk_head_dim
        v_size = backend.v_head_dim or config.v_head_dim
        plan = self._plan(batch, "ragged", 0)
        if plan is None:
            lengths = np.array([entry.tokens for entry in batch.entries], np.int32)
            plan = self._keep(
                ("ragged", 0),
                backend,
                self._spaces(0),
                (
                    indptr,
                    indptr,
                    tensor(lengths),
                    batch.total,
                    len(batch.entries),
                    config.num_qo_heads,
                    config.num_qo_heads if own_sizes else config.num_kv_heads,
                    1,
                    False,
                    qk,
                    v_size,
                    True,
                    _NO_WINDOW,
                    -1,
                    False,
                    0,
                ),
            )
        backend.run(
            *self._spaces(0)[:2],
            plan,
            q,
            k,
            v,
            indptr,
            indptr,
            o,
            lse,
            1,
            _NHD,
            _NO_WINDOW,
            False,
            sm_scale,
            1 / config.rotary_scale,
            1 / config.rotary_theta,
        )

    def prefill(
        self,
        batch: ForwardRound,
        backend: Backend,
        depth: int,
        q: Tensor,
        pages: Tensor,
        o: Tensor,
        lse: Tensor,
        sm_scale: float,
    ) -> None:
        """Attend to the pages of one depth."""
        config, arrays, table = self._config, batch.arrays, batch.tables[depth]
        rows = arrays.tensor(f"qo_indptr.{depth}")
        page_indptr = arrays.tensor(f"page_indptr.{depth}")
        plan = self._plan(batch, "prefill", depth)
        if plan is None:
            plan = self._keep(
                ("prefill", depth),
                backend,
                self._spaces(depth + 1),
                (
                    rows,
                    page_indptr,
                    tensor(self._lengths(table)),
                    batch.total,
                    len(table.last_page_len),
                    config.num_qo_heads,
                    config.num_kv_heads,
                    config.page_size,
                    False,
                    config.qk_head_dim,
                    config.v_head_dim,
                    False,
                    _NO_WINDOW,
                    -1,
                    False,
                    0,
                ),
            )
        backend.run(
            *self._spaces(depth + 1)[:2],
            plan,
            q,
            _half(pages, 0),
            _half(pages, 1),
            rows,
            page_indptr,
            arrays.tensor(f"page_indices.{depth}"),
            self._last_page_len(batch, depth),
            o,
            lse,
            0,
            _HND,
            _NO_WINDOW,
            False,
            sm_scale,
            1 / config.rotary_scale,
            1 / config.rotary_theta,
        )

    def decode(
        self,
        batch: ForwardRound,
        backend: Backend,
        depth: int,
        q: Tensor,
        pages: Tensor,
        o: Tensor,
        lse: Tensor,
        sm_scale: float,
    ) -> None:
        """Attend to the pages of one depth, one row per chunk."""
        config, arrays, table = self._config, batch.arrays, batch.tables[depth]
        page_indptr = arrays.tensor(f"page_indptr.{depth}")
        plan = self._plan(batch, "decode", depth)
        if plan is None:
            carrier = empty((0,), config.dtype)
            plan = self._keep(
                ("decode", depth),
                backend,
                self._spaces(depth + 1),
                (
                    page_indptr,
                    len(table.last_page_len),
                    config.num_qo_heads,
                    config.num_kv_heads,
                    config.page_size,
                    False,
                    _NO_WINDOW,
                    0,
                    config.qk_head_dim,
                    config.v_head_dim,
                    carrier,
                    carrier,
                ),
            )
        backend.run(
            *self._spaces(depth + 1)[:2],
            plan,
            q,
            _half(pages, 0),
            _half(pages, 1),
            page_indptr,
            arrays.tensor(f"page_indices.{depth}"),
            self._last_page_len(batch, depth),
            o,
            lse,
            _HND,
            _NO_WINDOW,
            False,
            sm_scale,
            1 / config.rotary_scale,
            1 / config.rotary_theta,
        )

    def latent(
        self,
        batch: ForwardRound,
        backend: Backend,
        depth: int,
        q: Tensor,
        pages: Tensor,
        o: Tensor,
        lse: Tensor,
        sm_scale: float,
    ) -> None:
        """Attend to the latent pages of one depth."""
        config, arrays, table = self._config, batch.arrays, batch.tables[depth]
        rows = arrays.tensor(f"qo_indptr.{depth}")
        page_indptr = arrays.tensor(f"page_indptr.{depth}")
        plan = self._plan(batch, "latent", depth)
        if plan is None:
            plan = self._keep(
                ("latent", depth),
                backend,
                self._spaces(depth + 1),
                (
                    rows,
                    page_indptr,
                    tensor(self._lengths(table)),
                    config.num_qo_heads,
                    config.v_head_dim,
                    False,
                ),
            )
        latent = config.v_head_dim
        backend.run(
            *self._spaces(depth + 1)[:2],
            plan,
            _columns(q, 0, latent),
            _columns(q, latent, config.qk_head_dim),
            _columns(pages, 0, latent),
            _columns(pages, latent, config.qk_head_dim),
            arrays.tensor(f"page_indices.{depth}"),
            o,
            lse,
            0,
            config.num_qo_heads,
            config.page_size,
            sm_scale,
            False,
        )

    def _spaces(self, index: int) -> tuple[Tensor, Tensor, Tensor]:
        return self._float, self._int[index], self._pinned[index]

    def _plan(self, batch: ForwardRound, kind: str, depth: int) -> Any:
        if self._arrays is not batch.arrays:  # a round is known by its arrays
            self._arrays, self._made = batch.arrays, {}
        return self._made.get((kind, depth))

    def _keep(
        self,
        key: tuple[str, int],
        backend: Backend,
        spaces: tuple[Tensor, ...],
        arguments: tuple[Any, ...],
    ) -> Any:
        assert backend.plan is not None  # Backend.parse asks for one
        made = self._made[key] = backend.plan(*spaces, *arguments)
        return made

    def _lengths(self, table: DepthTable) -> np.ndarray[Any, Any]:
        """Keys of each chunk."""
        pages = np.diff(np.array(table.page_indptr, np.int32))
        used = np.array(table.last_page_len, np.int32)
        lengths = np.where(pages > 0, (pages - 1) * self._config.page_size + used, 0)
        return lengths.astype(np.int32)

    def _last_page_len(self, batch: ForwardRound, depth: int) -> Tensor:
        return tensor(np.array(batch.tables[depth].last_page_len, np.int32))


def _half(pages: Tensor, which: int) -> Tensor:
    """Return the keys (0) or the values (1) of pages, as a strided view."""
    return Tensor(pages.array[:, which], pages.dtype, pages.device)


def _columns(rows: Tensor, start: int, stop: int) -> Tensor:
    """Return some features of the last axis, as a strided view."""
    return Tensor(rows.array[..., start:stop], rows.dtype, rows.device)
