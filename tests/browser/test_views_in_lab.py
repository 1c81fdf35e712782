"""What the views are for, in a real JupyterLab: stops, writers, frames, pages, passes."""

import pytest

from tests.browser.test_lab_in_browser import write_notebook

STEPPER = """\
from relaxlab import relax, runtime
from relaxlab.widgets import PassExplorer, VMStepper, demos
runtime.register_global_func("lab.iadd", lambda a, b: a + b, override=True)
runtime.register_global_func("lab.imul", lambda a, b: a * b, override=True)
ib = relax.ExecBuilder()
with ib.function("fact", num_inputs=1, param_names=["n"]):
    ib.emit_if(ib.r(0), 5)
    ib.emit_call("lab.iadd", [ib.r(0), ib.imm(-1)], dst=1)
    ib.emit_call("fact", [ib.r(1)], dst=2)
    ib.emit_call("lab.imul", [ib.r(0), ib.r(2)], dst=3)
    ib.emit_goto(2)
    ib.emit_call("vm.builtin.copy", [ib.imm(1)], dst=3)
    ib.emit_ret(ib.r(3))
stepper = VMStepper(ib.get(), "fact", 4)
point = stepper.break_at("fact", 3, condition="n == 3")
stepper"""
POOL = 'pool = demos.two_users("tiny")\npool'
PASSES = 'PassExplorer(demos.network(), target="numpy")'


@pytest.fixture(scope="module")
def name(lab):
    return write_notebook(lab, "views.ipynb", STEPPER, POOL, PASSES)


@pytest.fixture
def opened(name, open_notebook):
    notebook = open_notebook(name)
    notebook.run_all()
    assert notebook.cell_errors() == []
    return notebook


def test_the_views_answer_in_lab(opened):
    page = opened.page
    # a conditional breakpoint, a frame in the recursion, the last writer of a register
    stepper = page.locator(".rl-stepper")
    stepper.scroll_into_view_if_needed()
    stepper.get_by_role("button", name="Continue", exact=True).click()
    assert "Stopped: breakpoint 1 at fact+3" in stepper.locator(".rl-said").inner_text()
    assert stepper.locator(".rl-value").first.inner_text() == "3"
    frames = stepper.locator(".rl-frame")
    assert frames.all_text_contents() == ["#1 fact, instruction 3", "#0 fact, instruction 2"]
    frames.nth(1).click()
    assert stepper.locator(".rl-value").first.inner_text() == "4"
    stepper.press("t")
    step = opened.execute("print(stepper.session.last_writer(1).step)").strip()
    written = stepper.locator(".rl-register").nth(1).locator(".rl-written").inner_text()
    assert written.strip() == f"written by step {step}"
    # back, and reverse to the beginning
    position = int(stepper.locator(".rl-slider").input_value())
    stepper.get_by_role("button", name="Back", exact=True).click()
    assert int(stepper.locator(".rl-slider").input_value()) == position - 1
    stepper.get_by_role("button", name="Reverse", exact=True).click()
    assert stepper.locator(".rl-slider").input_value() == "0"
    # a page, its tokens and its places in page tables; which pages were evicted, and why
    pool = page.locator(".rl-pool")
    pool.scroll_into_view_if_needed()
    loss = pool.locator(".rl-loss").first
    assert "were evicted. Why: lru: not used for" in loss.inner_text()
    loss.click()
    assert "is evicted: lru: not used for" in pool.locator(".rl-said").inner_text()
    token = pool.locator(".rl-word-at").nth(5)
    token.hover()
    number = token.get_attribute("data-page")
    assert pool.locator(".rl-detail").inner_text().startswith(f"Page {number}: ")
    marked = pool.locator(".rl-chip.rl-marked").all_text_contents()
    assert set(marked) == {number}
    pool.locator(".rl-chip").first.hover()
    first = pool.locator(".rl-chip").first.inner_text()
    pages = pool.locator(".rl-word-at.rl-marked").evaluate_all(
        "(all) => all.map((one) => one.dataset.page)"
    )
    assert set(pages) == {first}
    pool.locator(".rl-slider").evaluate(
        """(slider) => { slider.value = "200"; slider.dispatchEvent(new Event("input"));
          slider.dispatchEvent(new Event("change")); }"""
    )
    for _ in range(100):
        if opened.execute("print(pool.position)").strip() == "200":
            break
        page.wait_for_timeout(50)
    assert opened.execute("print(pool.position)").strip() == "200"
    # a pass, by its words
    explorer = page.locator(".rl-explorer")
    explorer.scroll_into_view_if_needed()
    explorer.locator(".rl-passes").press("/")
    page.keyboard.type("kill_tensor")
    assert explorer.locator(".rl-found").inner_text() not in ("", "0 found")
    # no key of all these reached the notebook, in either theme
    opened.theme("JupyterLab Dark")
    for one in (stepper, pool, explorer):
        one.scroll_into_view_if_needed()
        one.focus()
        for key in ("x", "d", "d", "a", "b", "m"):
            page.keyboard.press(key)
        assert one.evaluate("(node) => getComputedStyle(node).backgroundColor") == "rgb(27, 27, 27)"
    assert opened.cells().count() == 4
    opened.theme("JupyterLab Light")
