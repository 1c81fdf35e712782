"""Rows of the views: a large recording in a real browser, offline.

The recording is a real cache at work: 65,000 pages, a million events, 512 sequences that take a
token a round, and some that leave. It is exported as one page and opened in headless chromium,
which is where a reader would wait. ``scrub`` drags the slider over the whole recording, one new
place a frame; a browser draws at most 60 a second. Without chromium (or playwright, which drives
it) the rows name it and judge nothing. ``scrub_work`` is what a frame costs the page's thread: a
busy machine does not stretch it.

Examples
--------
>>> recording(pages=40, events=200, sequences=4)
PoolRecorder(216 events, 42 calls)
"""

import importlib.util
import itertools
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from relaxlab.cli.bench.rows import Bar, Row
from relaxlab.runtime.kv.cache_config import CacheConfig
from relaxlab.runtime.kv.kernel_table import KernelTable
from relaxlab.runtime.kv.paged_kv_cache import PagedAttentionKVCache
from relaxlab.trace.pool_recorder import PoolRecorder
from relaxlab.widgets.html import standalone
from relaxlab.widgets.page_pool import PagePool, packed

__all__ = ["recording", "rows"]

_PAGES: Final = 65_000
_EVENTS: Final = 1_000_000
_SEQUENCES: Final = 512
_PAGE_SIZE: Final = 16
_FRAMES: Final = 120
_ROUNDS: Final = 5
_OPTIONS: Final = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
_NAMES: Final = (
    ("views_open_1m_events", "s", Bar("<=", 3.0)),
    ("views_scrub_65k_pages", "frames/s", Bar(">=", 50.0)),
    ("views_scrub_work", "ms", None),
    ("views_memory_65k_pages", "MiB", None),
)

_SCRUB: Final = """async (count) => {
  const slider = document.querySelector(".rl-slider");
  const end = Number(slider.max);
  const next = () => new Promise((done) => requestAnimationFrame(done));
  const times = [];
  let last = await next();
  for (let index = 0; index < count; index++) {
    // forwards over the recording, and back
    const share = 1 - Math.abs(1 - (2 * index) / count);
    slider.value = String(Math.round(share * end));
    slider.dispatchEvent(new Event("input"));
    const now = await next();
    times.push(now - last);
    last = now;
  }
  slider.dispatchEvent(new Event("change"));
  return times;
}"""


def rows() -> Iterator[Row]:
    """Yield the rows of ``relaxlab bench views``."""
    missing = _missing()
    if missing is not None:
        for name, unit, bar in _NAMES:
            yield Row(name, unit, 0.0, missing, None, bar)
        return
    with tempfile.TemporaryDirectory() as folder:
        page = _page(recording(_PAGES, _EVENTS, _SEQUENCES), Path(folder) / "pool.html")
        figures = _browse(page)
    for (name, unit, bar), figure in zip(_NAMES, figures, strict=True):
        yield Row(name, unit, figure, None, None, bar)


def recording(pages: int, events: int, sequences: int) -> PoolRecorder:
    """Return a recording of at least so many events of a real cache whose kernels do nothing."""
    config = CacheConfig(
        reserved_num_seqs=sequences,
        total_token_capacity=(pages - 1) * _PAGE_SIZE,
        prefill_chunk_size=pages * _PAGE_SIZE,
        page_size=_PAGE_SIZE,
        num_qo_heads=2,
        num_kv_heads=1,
        qk_head_dim=4,
    )
    kernels = KernelTable(
        merge=(_nothing,),
        split_rotary=_nothing,
        copy_single_page=_nothing,
        debug_get_kv=_nothing,
        compact_copy=_nothing,
    )
    cache = PagedAttentionKVCache(config, kernels)
    recorder = PoolRecorder.of(cache, name="many pages")
    # a sequence lives for as many rounds as there are sequences: room for what it grows by
    prompt = _PAGE_SIZE * max(1, pages // sequences - 3 - sequences // _PAGE_SIZE)
    running = list(range(sequences))
    for seq_id in running:
        cache.add_sequence(seq_id)
    cache.begin_forward(running, [prompt + 7 * (one % 5) for one in running])
    cache.end_forward()
    fresh = itertools.count(sequences)
    while len(recorder.events) < events:
        # the oldest leaves, another comes with a prompt of its own
        old, new = running.pop(0), next(fresh)
        cache.remove_sequence(old)
        cache.add_sequence(new)
        running.append(new)
        cache.begin_forward(running, [1] * (sequences - 1) + [prompt])
        cache.end_forward()
    return recorder


def _nothing(*arguments: Any) -> None:
    """Compute nothing."""


def _page(recorder: PoolRecorder, path: Path) -> Path:
    """Write the page that ``PagePool(recorder).to_html`` writes, but for its text twin."""
    state = {"pool": {"runs": [packed(recorder)]}, "position": len(recorder.events)}
    page = standalone(
        title="many pages", esm=PagePool._esm, css=PagePool._css, state=state, text=""
    )
    path.write_text(page, "utf-8")
    return path


def _missing() -> str | None:
    if shutil.which("chromium") is None:
        return "chromium"
    return None if importlib.util.find_spec("playwright") else "playwright"


def _browse(page_file: Path) -> tuple[float, float, float, float]:
    """Return seconds to open, frames a second and milliseconds a frame of scrubbing, and MiB."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - an optional dependency

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), headless=True, args=_OPTIONS
        )
        try:
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.set_default_timeout(120_000)
            start = time.perf_counter()
            page.goto(page_file.as_uri())
            page.get_by_role("button", name="Step").wait_for()
            page.evaluate("() => new Promise((done) => requestAnimationFrame(done))")
            opened = time.perf_counter() - start
            page.evaluate(_SCRUB, 30)  # kept states and code are warm then, as for a reader
            session = page.context.new_cdp_session(page)
            session.send("Performance.enable", {"timeDomain": "threadTicks"})
            before = _metrics(session)["TaskDuration"]
            rounds = [page.evaluate(_SCRUB, _FRAMES) for _ in range(_ROUNDS)]
            work = _metrics(session)["TaskDuration"] - before
            session.send("HeapProfiler.collectGarbage")
            heap = _metrics(session)["JSHeapUsedSize"]
        finally:
            browser.close()
    # a frame that is missed counts, so a round's mean; of the rounds the best, as of any timing
    rate = max(1000 * _FRAMES / sum(times) for times in rounds)
    return opened, rate, 1000 * work / (_FRAMES * _ROUNDS), heap / 2**20


def _metrics(session: Any) -> dict[str, float]:
    found = session.send("Performance.getMetrics")["metrics"]
    return {one["name"]: one["value"] for one in found}
