"""A stepper and the pages of its cache in one exported page: each moves the other."""

import contextlib

import pytest

from relaxlab.widgets import PagedStepper
from tests.browser.test_exported_page import button
from tests.browser.test_exported_page import shown as shown_step
from tests.browser.test_pool_page import expected as expected_pages
from tests.browser.test_pool_page import shown as shown_pages
from tests.trace.pool_runs import new_cache, paged_program

ARRIVED = """(places) => ["stepper", "pool"].every((one, at) =>
  Number(document.querySelector(`.rl-${one} .rl-slider`).value) === places[at])"""


@pytest.fixture
def view():
    return PagedStepper(paged_program(), "main", new_cache())


def places(page):
    return page.evaluate(
        """() => ["stepper", "pool"].map((one) =>
          Number(document.querySelector(`.rl-${one} .rl-slider`).value))"""
    )


def same(page, view):
    """Assert that both views show the moment at which Python's stand, and what it says of it."""
    assert places(page) == [view.position, view.event]
    assert shown_pages(page) == expected_pages(view.pages, view.event)
    assert shown_step(page)["position"] == view.position


def settled(page, view):
    """Assert that both show the same once what a hand in a hurry left out is drawn."""
    for _ in range(50):
        with contextlib.suppress(AssertionError):
            return same(page, view)
        page.wait_for_timeout(100)
    return same(page, view)


def test_steps_forward_and_back_move_the_pages(open_page, view):
    page = open_page(view)
    for _ in range(view.session.timeline.end):
        button(page.locator(".rl-stepper"), "Step").click()
        view.step()
        same(page, view)
    for name, move in (("Back", view.back), ("Back", view.back), ("Restart", None)):
        button(page.locator(".rl-stepper"), name).click()
        move() if move else view.goto(0)
        same(page, view)
    button(page.locator(".rl-stepper"), "Continue").click()
    view.continue_()
    same(page, view)


def test_the_slider_of_one_drags_the_other(open_page, view):
    page = open_page(view)
    drag = """([where, to, last]) => new Promise((done) => {
      const slider = document.querySelector(`.rl-${where} .rl-slider`);
      slider.value = String(to);
      slider.dispatchEvent(new Event(last ? "change" : "input"));
      requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)));
    })"""
    for step in (3, 9, 14, 2):
        page.evaluate(drag, ["stepper", step, False])
        view.goto(step)
        assert places(page) == [step, view.event]
    page.evaluate(drag, ["stepper", 2, True])
    settled(page, view)
    for event in (30, 12, 5, len(view.pages)):
        page.evaluate(drag, ["pool", event, False])
        view.event = event
        assert places(page) == [view.position, event]
    settled(page, view)


def test_a_hand_that_is_faster_than_the_pictures_is_not_pulled_back(open_page, view):
    """What one sends the other to is drawn a frame later, when the first is elsewhere already."""
    page = open_page(view)
    drag = """([where, first, second]) => new Promise((done) => {
      const slider = document.querySelector(`.rl-${where} .rl-slider`);
      const to = (value) => {
        slider.value = String(value);
        slider.dispatchEvent(new Event("input"));
      };
      const frame = (then) => requestAnimationFrame(then);
      to(first);
      frame(() => { to(second); frame(() => frame(() => frame(() => setTimeout(done)))); });
    })"""
    for first, second in ((3, 9), (14, 2), (9, 3), (2, 14)):
        page.evaluate(drag, ["stepper", first, second])
        view.goto(second)
        assert places(page) == [second, view.event]
    for first, second in ((30, 12), (5, len(view.pages)), (12, 30)):
        page.evaluate(drag, ["pool", first, second])
        view.event = second
        assert places(page) == [view.position, second]


def test_the_controls_of_the_pages_move_the_stepper(open_page, view):
    page = open_page(view)
    pool = page.locator(".rl-pool")
    pool.focus()
    for key, events in (("]", 1), ("]", 2), ("]", 3), ("End", len(view.pages)), ("[", -1)):
        page.keyboard.press(key)
        view.event = events if events > 0 else view.event - 1
        same(page, view)
    pool.get_by_role("button", name="Restart").click()
    view.event = 0
    for at in view.pages.calls[1:5]:
        pool.get_by_role("button", name="Next call").click()
        view.event = at
        same(page, view)
        # the instruction that makes the next event is the current one
        if view._clock.events_before(view.position + 1) > at:
            called = view.pages.call(at + 1).call.partition("(")[0]
            assert f"kv_state_{called.replace('_sequence', '')}" in shown_step(page)["code"]


def test_playing_one_takes_the_other_along(open_page, view):
    page = open_page(view)
    page.locator(".rl-stepper").get_by_label("Steps a second").fill("200")
    button(page.locator(".rl-stepper"), "Play").click()
    end = [view.session.timeline.end, len(view.pages)]
    page.wait_for_function(ARRIVED, arg=end)
    button(page.locator(".rl-pool"), "Restart").click()
    assert places(page)[1] == 0
    page.locator(".rl-pool").get_by_label("events a second").fill("300")
    button(page.locator(".rl-pool"), "Play").click()
    # the first moment at which all events have happened: the machine still has to return
    page.wait_for_function(ARRIVED, arg=[view._clock.step_of(end[1], near=0), end[1]])


@pytest.mark.parametrize("width", [1280, 700])
def test_both_are_seen_and_the_page_fits(open_page, view, width):
    page = open_page(view.goto(9))
    page.set_viewport_size({"width": width, "height": 800})
    page.wait_for_timeout(150)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if width == 1280:  # the current line and the grid, without scrolling
        for part in ("[aria-current=step]", ".rl-grid"):
            box = page.locator(part).bounding_box()
            assert box["y"] > 0
            assert box["y"] + box["height"] <= 800, part


def test_the_page_opens_where_a_link_says(open_page, view, tmp_path):
    path = view.to_html(tmp_path / "linked.html")
    page = open_page(path)
    page.evaluate("() => { location.hash = '#step=9'; }")
    page.wait_for_function("() => document.querySelector('.rl-slider').value === '9'")
    view.goto(9)
    same(page, view)
