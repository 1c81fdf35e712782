"""The rows of the views: what is opened is a whole recording, and a missing browser is named."""

import json
import re

from relaxlab.cli.bench import views
from relaxlab.trace.pool_timeline import PoolTimeline


def test_the_recording_is_a_cache_at_work():
    recorder = views.recording(pages=60, events=2_000, sequences=4)
    timeline = PoolTimeline.of(recorder)
    assert len(timeline) >= 2_000
    state = timeline.state(len(timeline))
    assert len(state.sequences) == 4
    assert state.available < 60
    assert not any(call.refusal for call in timeline.events if type(call).__name__ == "Called")


def test_the_page_holds_it(tmp_path):
    recorder = views.recording(pages=40, events=300, sequences=4)
    page = views._page(recorder, tmp_path / "x.html").read_text("utf-8")
    state = json.loads(re.search(r'id="state">(.*?)</script>', page)[1])
    assert state["position"] == len(recorder.events)
    assert state["pool"]["runs"][0]["num_pages"] == 40


def test_a_browser_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(views, "_missing", lambda: "chromium")
    rows = list(views.rows())
    assert [row.name for row in rows] == [name for name, _, _ in views._NAMES]
    assert all(row.peer == "chromium" and row.peer_value is None for row in rows)
    assert all(row.ok is None for row in rows)
