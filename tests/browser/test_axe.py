"""The exported page of every view, for readers who hear it or need contrast: axe has no complaint.

axe-core comes with the package ``axe-playwright-python``; nothing is fetched. Serious and critical
findings fail, contrast among them, in the light and in the dark theme.
"""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from relaxlab.runtime.tensor import tensor
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
from tests.browser.conftest import unavailable
from tests.trace.conftest import build, count_down, fact  # noqa: F401
from tests.trace.engine_runs import crowded
from tests.trace.pool_runs import new_cache, paged_program, story
from tests.widgets.programs import arguments, executable, network
from tests.widgets.test_graph_and_profile import machine

RUN = """async () => {
  const { violations } = await axe.run(document, { resultTypes: ["violations"] });
  return violations.filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, nodes }) => `${id}: ${nodes.slice(0, 5).map((one) =>
      `${one.html.slice(0, 160)} (${one.any.concat(one.all, one.none)
        .map(({ message }) => message)[0]})`).join(" · ")}`);
}"""


@pytest.fixture(scope="session")
def axe():
    """Return the text of axe-core."""
    spec = importlib.util.find_spec("axe_playwright_python")
    if spec is None or spec.origin is None:
        unavailable("axe-playwright-python is not installed: pip install 'relaxlab[test]'")
    return Path(spec.origin).with_name("axe.min.js").read_text("utf-8")


def full_stepper():
    """Return a stepper that shows everything it can show at once."""
    stepper = VMStepper(executable(), "main", *map(tensor, arguments()))
    stepper.display("x.max", "nobody").note("a note").note("another", 3)
    stepper.log_at("x is {x}", "main", 2)
    stepper.goto(len(stepper.trace["ops"]) // 2)
    stepper.inside = True
    stepper.breakpoints = [2]
    stepper.picture(0)
    return stepper


def failing():
    def body(ib):
        ib.emit_call("host.idiv", [ib.imm(1), ib.imm(0)], dst=1)
        ib.emit_ret(ib.r(1))

    return VMStepper(build(("main", 1, ["x"], body)), "main", 3).continue_()


VIEWS = {
    "stepper": full_stepper,
    "edited": lambda: VMStepper(build(("down", 1, ["n"], count_down)), "down", 3).step().fork(0, 1),
    "failed": failing,
    "pool": lambda: PagePool(story()),
    "engine": lambda: PagePool(crowded(48)[1]),
    "paged": lambda: PagedStepper(paged_program(), "main", new_cache()).goto(9),
    "two pools": lambda: PagePool(story(), story()),
    "passes": lambda: PassExplorer(network(), target="numpy"),
    "memory": lambda: MemoryPlan(executable()),
    "file": lambda: ExecutableView(executable()),
    "graphs": lambda: GraphReplay.of(machine(), "main", [(np.ones((2, 4), "float32"),)] * 4),
    "profile": lambda: Profile(machine(), "main", np.ones((2, 4), "float32")),
}


@pytest.mark.parametrize("name", VIEWS)
def test_axe_has_no_serious_finding(open_page, axe, name):
    view = VIEWS[name]()
    for scheme in ("light", "dark"):
        page = open_page(view, color_scheme=scheme, reduced_motion="reduce")
        root = page.locator(".rl-view").first
        root.focus()
        if name == "stepper":
            root.press("t")  # the pictures of tensors
            assert page.locator(".rl-cell").count() > 0
        root.press("?")
        page.evaluate(axe)
        assert page.evaluate(RUN) == [], scheme


def test_axe_would_find_a_fault(open_page, axe):
    page = open_page(VMStepper(build(("down", 1, ["n"], count_down)), "down", 3))
    page.evaluate(axe)
    page.evaluate(
        """() => { const style = document.querySelector(".rl-title").style;
          style.color = "#cccccc"; document.querySelector(".rl-slider").ariaLabel = ""; }"""
    )
    found = page.evaluate(RUN)
    assert any("color-contrast" in one for one in found)
    assert any("label" in one for one in found)
