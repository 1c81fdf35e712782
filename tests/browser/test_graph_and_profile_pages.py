"""Captured graphs and a profile as HTML files."""

import numpy as np
import pytest

from relaxlab.widgets import GraphReplay, Profile
from tests.widgets.test_graph_and_profile import machine


@pytest.fixture(scope="module")
def vm():
    return machine()


def test_every_moment_of_the_history_says_what_the_twin_says(open_page, vm):
    view = GraphReplay.of(vm, "main", [(np.ones((2, 4), "float32"),)] * 3)
    page = open_page(view)
    page.locator(".rl-graph-replay").focus()
    page.keyboard.press("Home")
    for position in range(len(view.recorder.history) + 1):
        twin = str(view.goto(position)).splitlines()
        assert page.locator(".rl-graph-replay > p").first.inner_text() == twin[0]
        assert page.locator(".rl-graphs tbody tr").count() == len(view.recorder.summary(position))
        if position:
            assert page.locator(".rl-moment.rl-current").inner_text().endswith(twin[-1])
        page.keyboard.press("]")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_profile_can_be_sorted(open_page, vm, scheme):
    view = Profile(vm, "main", np.ones((2, 4), "float32"))
    page = open_page(view, color_scheme=scheme)
    page.set_viewport_size({"width": 700, "height": 800})
    times = [float(t) for t in page.locator("tbody tr td:nth-child(4)").all_text_contents()]
    assert times == sorted(times, reverse=True)
    page.get_by_role("button", name="name").click()
    names = page.locator("tbody th code").all_text_contents()
    assert names == sorted(row[0] for row in view.profile["kernels"])
    page.get_by_role("button", name="By instruction").click()
    assert page.locator("tbody tr").count() == len(view.report.instructions)
    assert page.locator(".rl-span").count() == len(view.profile["spans"])
    assert page.evaluate("document.documentElement.scrollWidth") <= 700


def look_for(page, text, key="Enter"):
    field = page.get_by_placeholder("find (/)")
    field.fill(text)
    field.press(key)


def test_a_moment_is_found_and_the_next_and_the_one_before(open_page, vm):
    view = GraphReplay.of(vm, "main", [(np.ones((2, 4), "float32"),)] * 3)
    words = [moment[4] for moment in view.graphs["history"]]
    replays = [at for at, moment in enumerate(view.graphs["history"]) if moment[1] == "replayed"]
    page = open_page(view)
    page.locator(".rl-graph-replay").focus()
    page.keyboard.press("Home")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.placeholder") == "find (/)"
    for at, key in (
        *((at, "Enter") for at in replays[:2]),
        (replays[0], "Shift+Enter"),
    ):
        look_for(page, "REPLAYED", key)
        assert page.locator(".rl-moment.rl-current").inner_text().endswith(words[at])
    look_for(page, "no such kernel")
    page.get_by_role("status").get_by_text('Nothing after this has "no such kernel".').wait_for()
    assert page.locator(".rl-moment.rl-current").inner_text().endswith(words[replays[0]])


def test_a_row_of_a_profile_is_found(open_page, vm):
    view = Profile(vm, "main", np.ones((2, 4), "float32"))
    page = open_page(view)
    names = page.locator("tbody th code").all_text_contents()
    page.locator(".rl-profile").focus()
    page.keyboard.press("/")
    look_for(page, names[-1])
    assert page.locator("tr.rl-current th").all_text_contents() == [names[-1]]
    page.get_by_role("button", name="By instruction").press("/")
    assert page.locator("tr.rl-current").count() == 1
    page.get_by_role("button", name="By instruction").click()
    assert page.locator("tr.rl-current").count() == 0  # other rows
