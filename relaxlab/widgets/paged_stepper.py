"""The stepper with the pages of a cache: each step moves the pages, and the pages move the steps.

The program is given a cache; whatever it calls on it (``vm.builtin.kv_state_begin_forward`` takes
pages, ``vm.builtin.kv_state_fork_sequence`` shares them) is one step of the machine and several
events of the pool. Both views stand on one clock. There is no TVM counterpart.

Examples
--------
>>> from relaxlab.relax.exec_builder import ExecBuilder
>>> from relaxlab.runtime.kv.cache_config import CacheConfig
>>> from relaxlab.runtime.kv.kernel_table import KernelTable
>>> sizes = CacheConfig(
...     reserved_num_seqs=4, total_token_capacity=64, prefill_chunk_size=32, page_size=4,
...     num_qo_heads=4, num_kv_heads=2, qk_head_dim=8,
... )
>>> def nothing(*arguments): ...
>>> kernels = KernelTable(
...     merge=(nothing,), split_rotary=nothing, copy_single_page=nothing,
...     debug_get_kv=nothing, compact_copy=nothing,
... )
>>> cache = PagedAttentionKVCache(sizes, kernels)
>>> ib = ExecBuilder()
>>> with ib.function("main", 1, ["cache"]):
...     ib.emit_call("vm.builtin.kv_state_add_sequence", [ib.r(0), ib.imm(3)])
...     ib.emit_ret(ib.r(0))
>>> view = PagedStepper(ib.get(), "main", cache)
>>> view
PagedStepper(main, step 0 of 2, event 0 of 3)
>>> view.step().event
3
"""

from typing import Any, ClassVar

import traitlets

from relaxlab.runtime.kv.paged_kv_cache import PagedAttentionKVCache
from relaxlab.runtime.vm import VirtualMachine, VMExecutable
from relaxlab.trace import DebugSession, PoolRecorder, PoolTimeline, render_pool
from relaxlab.widgets.bundle import bundle, stylesheet
from relaxlab.widgets.page_pool import packed, told
from relaxlab.widgets.view import STATIC
from relaxlab.widgets.vm_stepper import VMStepper

__all__ = ["PagedStepper"]


class PagedStepper(VMStepper):
    """A stepper of a program that is given a cache, and the pages of that cache.

    Parameters
    ----------
    program, function, args, limit
        As for :class:`VMStepper`. The first cache among the arguments is shown. If it is recorded
        (:meth:`relaxlab.trace.PoolRecorder.of`), what was recorded before is shown too; else it is
        recorded from here on, and must be new.

    Attributes
    ----------
    event : int
        How many events of the cache have happened; changing it moves the stepper to the
        instruction that makes the next one.

    Raises
    ------
    ValueError
        If no argument is a paged cache, or it was used already and nobody recorded that.
    """

    _esm = bundle(STATIC / "paged_stepper.js")
    _css = stylesheet(
        STATIC / "view.css",
        STATIC / "vm_stepper.css",
        STATIC / "page_pool.css",
        STATIC / "paged_stepper.css",
    )
    _frame_height: ClassVar[int] = 1000
    _exported: ClassVar[tuple[str, ...]] = (*VMStepper._exported, "pool", "event", "clock")

    pool = traitlets.Dict().tag(sync=True)
    event = traitlets.Int().tag(sync=True)
    clock: traitlets.List[Any] = traitlets.List().tag(sync=True)

    def __init__(
        self,
        program: DebugSession | VirtualMachine | VMExecutable,
        function: str | None = None,
        *args: Any,
        limit: int = 100_000,
    ) -> None:
        if not isinstance(program, DebugSession):
            _record_first(args)
        super().__init__(program, function, *args, limit=limit)
        if not self.session.pools:
            raise ValueError(
                "no cache of this run is recorded: give the program a PagedAttentionKVCache, and "
                "call PoolRecorder.of(cache) before DebugSession(..., cache)"
            )
        self._clock = self.session.pools[0].since(self.session.timeline.first_step)
        self.pages = PoolTimeline.of(self._clock.recorder)
        with self.hold_sync():
            run = packed(self._clock.recorder) | {"losses": told(self.pages)}
            self.pool = {"runs": [run]}
            self.clock = self._clock.to_data()
            self.event = self._clock.events_before(self.position)

    @traitlets.validate("event")
    def _happened(self, proposal: Any) -> int:
        event: int = proposal["value"]
        if not 0 <= event <= len(self.pages):
            raise traitlets.TraitError(
                f"no event {event}: the recording of the cache has 0 to {len(self.pages)}"
            )
        return event

    @traitlets.observe("position")
    def _move_pages(self, change: Any) -> None:
        """Let the pages stand where the step does, if they do not already."""
        if self.pool and not self._clock.agree(self.position, self.event):
            self.event = self._clock.events_before(self.position)

    @traitlets.observe("event")
    def _move_step(self, change: Any) -> None:
        """Go to the instruction that makes the next event, if the stepper stands elsewhere."""
        step = self._clock.step_of(self.event, near=self.position)
        if step != self.position:
            self.goto(step)

    @property
    def heading(self) -> str:
        """What an exported page is called."""
        return f"{super().heading}, and the pages of {self.pages.name}"

    def __str__(self) -> str:
        """Return what both views show, as text."""
        return f"{super().__str__()}\n\n{render_pool(self.pages, self.event)}"

    def __repr__(self) -> str:
        """Return function, step and event."""
        inner = super().__repr__().partition("(")[2].removesuffix(")")
        return f"PagedStepper({inner}, event {self.event} of {len(self.pages)})"


def _record_first(args: tuple[Any, ...]) -> None:
    """Record the first cache among the arguments, unless somebody does."""
    caches = [one for one in args if isinstance(one, PagedAttentionKVCache)]
    if not caches:
        raise ValueError("expected a PagedAttentionKVCache among the arguments, to show its pages")
    if caches[0].observer is None:
        PoolRecorder.of(caches[0])
