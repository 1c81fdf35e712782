"""Every pane of every view has something in it, in both themes: measured in its picture.

The measure is loose on purpose: how many colours there are, and which share of the pane is not
background. Fonts may differ; a pane that stays empty cannot pass, which is tried for each of them.
"""

import base64
from functools import cache

import numpy as np
import pytest

from relaxlab.widgets import (
    ExecutableView,
    GraphReplay,
    MemoryPlan,
    PagedStepper,
    PagePool,
    PassExplorer,
    Profile,
    VMStepper,
)
from tests.browser.test_axe import full_stepper
from tests.trace.conftest import fact, memory  # noqa: F401
from tests.trace.engine_runs import crowded
from tests.trace.pool_runs import new_cache, paged_program, story
from tests.widgets.programs import executable, network
from tests.widgets.test_graph_and_profile import machine

EDGE = 3  # pixels: the border of a pane is there also when nothing else is
LEAST_COLOURS = 4
INK = (0.002, 0.75)  # share of the pane that is not its most frequent colour
MEASURE = """async (url) => {
  const image = new Image();
  image.src = url;
  await image.decode();
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width: image.width, height: image.height });
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const points = new Uint32Array(
    context.getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  const counts = new Map();
  for (const point of points) counts.set(point, (counts.get(point) ?? 0) + 1);
  return [counts.size, 1 - Math.max(...counts.values()) / points.length];
}"""

# of the same size as before, so that the view does not draw again
HIDE = """(node) => {
  node.style.color = "transparent";
  if (node.matches("canvas")) node.style.opacity = "0";
  for (const one of node.children) one.style.opacity = "0";
}"""
SHOW = """(node) => {
  node.style.color = node.style.opacity = "";
  for (const one of node.children) one.style.opacity = "";
}"""


def pictures(page):
    page.locator(".rl-stepper").press("t")


def choose_page(page):
    page.locator(".rl-grid").click(position={"x": 10, "y": 10})


def tab(name):
    return lambda page: page.get_by_role("tab", name=name).click()


def kernel(page):
    tab("Program")(page)
    page.get_by_role("button", name="b = R.nn.softmax(R.matmul(a, w1))").click()


def paged():
    return PagedStepper(paged_program(), "main", new_cache()).goto(9)


def engine():
    view = PagePool(crowded(48)[1])
    return view.goto(view.end_of() // 2)


def graphs():
    return GraphReplay.of(machine(), "main", [(np.ones((2, 4), "float32"),)] * 4)


@cache
def explore():
    return PassExplorer(network(), target="numpy")


STEPPER = (
    *(".rl-toolbar", ".rl-scrubber", ".rl-said", ".rl-source", ".rl-phases", ".rl-watched"),
    *(".rl-logged", ".rl-code", ".rl-register-pane", ".rl-frames", ".rl-remarks", ".rl-notes"),
)
POOL = (
    *(".rl-toolbar", ".rl-scrubber", ".rl-counters", ".rl-curve", ".rl-said", ".rl-grid-pane"),
    *(".rl-detail", ".rl-sequence-pane", ".rl-free", ".rl-text-pane", ".rl-log-pane"),
)
# name: what makes the view, what to do with its page, panes
CASES = {
    "stepper": (full_stepper, pictures, (*STEPPER, ".rl-heat >> nth=0")),
    "console": ("fact", None, (".rl-console", ".rl-outcome")),
    "failed": ("memory", None, (".rl-code", ".rl-register-pane")),
    "pool": (lambda: PagePool(story()), choose_page, (*POOL, ".rl-tokens")),
    "two pools": (lambda: PagePool(story(), story()).goto(5), None, (".rl-run >> nth=1",)),
    "engine": (
        engine,
        None,
        (".rl-request-pane >> nth=0", ".rl-request-pane >> nth=1", ".rl-savings"),
    ),
    "paged": (paged, None, (".rl-code", ".rl-register-pane", ".rl-grid-pane", ".rl-log-pane")),
    "passes": (explore, None, (".rl-passes", ".rl-facts", ".rl-difference-pane")),
    "program": (
        explore,
        kernel,
        ("[aria-label='Lines of the program']", "[aria-label=Instructions]", "[aria-label=Kernel]"),
    ),
    "graph": (explore, tab("Graph"), (".rl-graph-pane",)),
    "memory": (
        lambda: MemoryPlan(executable()).goto(4),
        None,
        (".rl-toolbar", ".rl-summary", ".rl-step", ".rl-plan"),
    ),
    "file": (
        lambda: ExecutableView(executable()),
        None,
        (".rl-toolbar", ".rl-section-pane", ".rl-bytes", ".rl-chosen-field"),
    ),
    "graphs": (graphs, None, (".rl-graphs", ".rl-strip", ".rl-moment-pane")),
    "profile": (
        lambda: Profile(machine(), "main", np.ones((2, 4), "float32")),
        None,
        (".rl-spans", ".rl-profile-pane"),
    ),
}


@pytest.fixture(scope="package")
def ruler(browser):
    """Return a function that measures a picture: colours, and share that is not background."""
    page = browser.new_page()

    def measure(picture):
        return page.evaluate(MEASURE, f"data:image/png;base64,{base64.b64encode(picture).decode()}")

    yield measure
    page.close()


def inside(page, pane):
    """Return a picture of a pane without its border; None if it has no area."""
    if pane.count() == 0 or not pane.is_visible():
        return None
    pane.scroll_into_view_if_needed()
    box = pane.bounding_box()
    clip = {
        "x": box["x"] + EDGE,
        "y": box["y"] + EDGE,
        "width": box["width"] - 2 * EDGE,
        "height": box["height"] - 2 * EDGE,
    }
    size = page.viewport_size
    clip["width"] = min(clip["width"], size["width"] - clip["x"])
    clip["height"] = min(clip["height"], size["height"] - clip["y"])
    if clip["width"] < 8 or clip["height"] < 8:
        return None
    return page.screenshot(clip=clip)


def has_ink(measured):
    colours, ink = measured
    return colours >= LEAST_COLOURS and INK[0] <= ink <= INK[1]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", CASES)
def test_no_pane_is_empty(open_page, ruler, request, name, scheme):
    make, prepare, panes = CASES[name]
    if isinstance(make, str):  # a session
        view = VMStepper(request.getfixturevalue(make)).continue_()
    else:
        view = make()
    page = open_page(view, color_scheme=scheme, reduced_motion="reduce")
    page.set_viewport_size({"width": 1280, "height": 1400})
    if prepare is not None:
        prepare(page)
    page.wait_for_timeout(150)
    for selector in panes:
        pane = page.locator(selector).first
        picture = inside(page, pane)
        assert picture is not None, f"{selector} has no area"
        measured = ruler(picture)
        assert has_ink(measured), f"{selector}: {measured}"
    if scheme == "dark":
        return
    for selector in panes:  # without what is in it, each of them would have been found empty
        pane = page.locator(selector).first
        pane.evaluate(HIDE)
        assert not has_ink(ruler(inside(page, pane))), f"{selector} is empty and passes"
        pane.evaluate(SHOW)


COPIED = {
    "pool": "Page 0: block 2, shared by sequences 0, 2; 4 of 4 rows hold tokens 0 to 3.",
    "engine": "0.0 finished, ",
    "paged": "Registers of #1 decode",
    "passes": "6 * LegalizeOps",
    "memory": "%4: (2, 8) float32",
    "file": "the magic number: 0xd225de2f4214151e",
    "graphs": "call 1 (main): region 0 replayed",
    "profile": "relu kernel 1",
}


@pytest.mark.parametrize("name", COPIED)
def test_every_view_can_be_copied_as_text(open_page, name):
    make, prepare, _ = CASES[name]
    page = open_page(make())
    if prepare is not None:
        prepare(page)
    page.evaluate(
        """() => { window.copied = [];
          navigator.clipboard.writeText = async (text) => { copied.push(text); }; }"""
    )
    page.get_by_role("button", name="Copy", exact=True).first.click()
    (text,) = page.evaluate("() => copied")
    assert COPIED[name] in text
    assert len(text.splitlines()) > 5
