"""200 random programs and 200 random caches, drawn by a browser at every step.

What a page shows is compared with the text twin and with the state that the machine or the cache
had; that the recorded state is theirs is tested in tests/trace. All runs are drawn in one page, by
the script of the exported file, each in an element of its own.
"""

import contextlib
import io
import json

from hypothesis import HealthCheck, Phase, assume, given, settings

from relaxlab.trace import DebugSession, render_pool
from relaxlab.widgets import PagePool, VMStepper
from relaxlab.widgets.bundle import VIEW, as_script
from tests.browser.test_exported_page import expected as expected_step
from tests.browser.test_pool_page import expected as expected_pages
from tests.strategies import programs
from tests.trace.pool_runs import random_run

RUNS = 200
LONGEST = 60  # steps; longer programs do nothing else, only more often
DRAW = """async ([states, read]) => {
  const found = [];
  for (const state of states) {
    const el = document.createElement("div");
    document.body.replaceChildren(el);
    const model = {
      get: (name) => state[name], set: (name, value) => { state[name] = value; },
      save_changes() {}, on() {}, off() {},
    };
    const stop = window.view.render({ model, el });
    const slider = el.querySelector(".rl-slider");
    const look = new Function("return " + read)();
    const shown = [];
    for (let at = Number(slider.min); at <= Number(slider.max); at++) {
      slider.value = String(at);
      slider.dispatchEvent(new Event("change"));
      shown.push(look(el));
    }
    found.push(shown);
    stop();
  }
  return found;
}"""
STEP = """(el) => {
  const text = (node) => node?.textContent ?? "";
  const current = el.querySelector("[aria-current=step]");
  return {
    position: Number(el.querySelector(".rl-slider").value),
    line: current ? text(current.querySelector(".rl-pc")) : "",
    code: current ? text(current.querySelector("code")) : "",
    registers: [...el.querySelectorAll(".rl-register")].map((row) => [
      text(row.querySelector(".rl-mark span")), text(row.querySelector("[role=rowheader]")),
      text(row.querySelector(".rl-value"))]),
    frames: [...el.querySelectorAll(".rl-frame")].map(text),
    next: el.querySelector(".rl-said p:last-child").textContent,
  };
}"""
PAGES = """(el) => ({
  counters: el.querySelector(".rl-counters").textContent,
  free: el.querySelector(".rl-free").textContent,
  sequences: [...el.querySelectorAll(".rl-sequences li")].map((item) => [
    item.querySelector(".rl-swatch")?.textContent ?? "none",
    item.querySelector(".rl-length")?.textContent ?? "",
    [...item.querySelectorAll(".rl-chip")].map((chip) => chip.textContent)]),
})"""


def drawn(browser, view, states, read):
    """Return what a page shows of each of several runs, at every position."""
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    try:
        page.add_style_tag(content=view._css)
        page.add_script_tag(content=f"{as_script(view._esm)}\nwindow.view = {VIEW};")
        return page.evaluate(DRAW, [json.loads(json.dumps(states)), read])
    finally:
        page.close()


def test_200_programs_are_drawn_as_their_twins_tell_them(browser):
    sessions = []

    @settings(
        max_examples=RUNS,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(programs())
    def collect(program):
        with contextlib.redirect_stdout(io.StringIO()):
            session = DebugSession(program.machine(), "main", *program.arguments()).record()
        assume(session.timeline.end <= LONGEST)
        sessions.append(session)

    collect()
    steppers = [VMStepper(session) for session in sessions]
    states = [{name: getattr(one, name) for name in one._exported} for one in steppers]
    found = drawn(browser, steppers[0], states, STEP)
    assert len(found) == len(sessions) >= RUNS
    for session, stepper, shown in zip(sessions, steppers, found, strict=True):
        assert len(shown) == session.timeline.end + 1
        for position, one in enumerate(shown):
            session.goto(position)
            twin = str(session)
            if session.error is None or not session.at_end:
                assert one == expected_step(session, stepper.trace), twin
            else:
                assert one["next"].startswith(f"Failed: {type(session.error).__name__}"), twin
            if len(one["registers"]) <= 24:  # a larger frame is cut in the twin
                for sign, label, _ in one["registers"]:
                    assert f"{sign or ' '} {label}" in twin


def test_200_caches_are_drawn_as_their_twins_tell_them(browser):
    views = [PagePool(random_run(seed, operations=9)[1]) for seed in range(RUNS)]
    states = [{"pool": view.pool, "position": view.position} for view in views]
    found = drawn(browser, views[0], states, PAGES)
    assert len(found) == RUNS
    for view, shown in zip(views, found, strict=True):
        timeline = view.timelines[0]
        assert len(shown) == len(timeline) + 1
        for position, one in enumerate(shown):
            assert one == expected_pages(timeline, position)
        # the twin of a whole recording takes long; at its end it is told in full
        twin = render_pool(timeline, len(timeline))
        assert one["counters"] in twin
        assert f"free stack, next page first: {one['free']}" in twin
        for name, words, pages in one["sequences"]:
            if name != "none":
                line = next(row for row in twin.splitlines() if row.startswith(f"  {name}  "))
                assert words in line
                table = line.partition("|")[2].replace("|", " ").split()
                assert [word for word in table if not word.startswith("×")] == pages
