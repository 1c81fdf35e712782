"""The stepper in JupyterLab: page and kernel stay together, and keys stay in the view."""

import json

import pytest

from tests.browser.test_lab_in_browser import write_notebook

PROGRAM = """\
from relaxlab import relax, runtime
from relaxlab.widgets import VMStepper
add = runtime.register_global_func("lab.add", lambda a, b: a + b, override=True)
ib = relax.ExecBuilder()
with ib.function("down", num_inputs=1, param_names=["n"]):
    ib.emit_call("vm.builtin.copy", [ib.r(0)], dst=1)
    ib.emit_if(ib.r(1), 3)
    ib.emit_call("lab.add", [ib.r(1), ib.imm(-1)], dst=1)
    ib.emit_goto(-2)
    ib.emit_ret(ib.r(1))
stepper = VMStepper(ib.get(), "down", 100)
"""
# What the text twin marks, as [mark, register, value].
TWIN = """\
import json
text = str(stepper).partition("registers of")[2].splitlines()[1:]
marked = [line for line in text if line[2:3] in ("+", "-", "*")]
print(json.dumps([" ".join(line.partition("   (was")[0].split()) for line in marked]))"""


@pytest.fixture
def opened(lab, open_notebook):
    """Return a notebook with one stepper, shown twice, and something after it."""
    name = write_notebook(lab, "stepper.ipynb", PROGRAM + "stepper", "stepper", "1 + 1")
    notebook = open_notebook(name)
    notebook.run_all()
    assert notebook.cell_errors() == []
    notebook.page.locator(".rl-view").nth(1).wait_for()
    return notebook


def view(notebook, number=0):
    found = notebook.page.locator(".rl-view").nth(number)
    found.scroll_into_view_if_needed()
    return found


def position(notebook, number=0):
    return int(notebook.page.locator(".rl-slider").nth(number).input_value())


def kernel(notebook, code):
    return notebook.execute(code).strip()


def marks(notebook):
    """Return the registers that the first view marks, as the text twin writes them."""
    rows = notebook.page.locator(".rl-view").first.locator(".rl-changed")
    return rows.evaluate_all(
        """(rows) => rows.map((row) => [row.querySelector(".rl-mark span").textContent,
          row.querySelector("[role=rowheader]").textContent,
          row.querySelector(".rl-value").textContent].join(" "))"""
    )


def wait_for_kernel(notebook, expected):
    """Wait until the kernel heard of the last move: a page does not send while it is answered."""
    for _ in range(100):
        if kernel(notebook, "print(stepper.position)") == str(expected):
            return
        notebook.page.wait_for_timeout(50)
    raise AssertionError(f"the kernel did not hear of position {expected} in 5 s")


def wait_for_position(notebook, expected, number=0):
    for _ in range(100):
        if position(notebook, number) == expected:
            return
        notebook.page.wait_for_timeout(50)
    raise AssertionError(f"at {position(notebook, number)} after 5 s, expected {expected}")


def test_page_and_kernel_stay_together(opened):
    page = opened.page
    view(opened).get_by_role("button", name="Step", exact=True).click()
    page.keyboard.press("F11")
    page.keyboard.press("]")
    assert position(opened) == 3
    wait_for_kernel(opened, 3)
    assert marks(opened) == json.loads(kernel(opened, TWIN)) == ["* %1 99"]
    # the same run, shown a second time, follows
    wait_for_position(opened, 3, number=1)
    # breakpoints of the page are the kernel's, and moves of the kernel the page's
    view(opened).get_by_role("button", name="Breakpoint at 3", exact=True).click()
    for _ in range(100):  # a page does not send while it is answered
        if kernel(opened, "print(stepper.breakpoints)") == "[3]":
            break
        page.wait_for_timeout(50)
    moved = kernel(opened, "print(stepper.breakpoints, stepper.continue_().position)")
    assert moved == "[3] 6"
    wait_for_position(opened, 6)
    wait_for_position(opened, 6, number=1)
    assert marks(opened) == json.loads(kernel(opened, TWIN)) == ["* %1 98"]
    kernel(opened, "stepper.breakpoints = []; stepper.position = 200")
    wait_for_position(opened, 200)
    assert page.locator(".rl-gutter[aria-pressed=true]").count() == 0


def test_marks_agree_after_playing_and_scrubbing(opened):
    page = opened.page
    shown = view(opened)
    shown.get_by_role("spinbutton", name="Steps a second").fill("40")
    shown.get_by_role("button", name="Play", exact=True).click()
    page.wait_for_timeout(1_000)
    # while the kernel is busy the page goes on
    kernel(opened, "import time; time.sleep(1)")
    shown.get_by_role("button", name="Pause", exact=True).click()
    at = position(opened)
    assert at > 20
    wait_for_kernel(opened, at)
    assert marks(opened) == json.loads(kernel(opened, TWIN))
    slider = shown.get_by_role("slider")
    box = slider.bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * at / 303, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.8, middle, steps=20)
    page.mouse.up()
    assert position(opened) > 200
    wait_for_kernel(opened, position(opened))
    assert marks(opened) == json.loads(kernel(opened, TWIN)) != []


def test_keys_stay_in_the_view_after_a_click(opened):
    page = opened.page
    cells = opened.cells().count()
    sources = opened.cells().all_inner_texts()
    step = view(opened).get_by_role("button", name="Step", exact=True)
    for control in (
        step,
        page.locator(".rl-gutter").nth(2),
        page.locator(".rl-frame").first,
        page.locator(".rl-register").first,
        page.locator(".rl-said").first,
    ):
        control.click()
        for key in ("x", "a", "b", "d", "d", "j", "k", "m", "y", "z", "v", "ArrowDown", "Escape"):
            page.keyboard.press(key)
        assert opened.cells().count() == cells
    step.click()
    before = position(opened)
    page.keyboard.press("]")
    assert position(opened) == before + 1
    assert len(opened.cells().all_inner_texts()) == len(sources)


def test_saving_is_still_the_notebooks(opened):
    page = opened.page
    view(opened).get_by_role("button", name="Step", exact=True).click()
    page.evaluate(
        """() => { window.saved = false;
          jupyterapp.shell.currentWidget.context.saveState.connect((_, state) => {
            if (state === "completed") saved = true; }); }"""
    )
    page.keyboard.press("Control+s")
    page.wait_for_function("() => window.saved")


def test_a_view_that_was_scrolled_away_shows_its_line_again(lab, open_notebook):
    end = "    ib.emit_ret(ib.r(1))\n"
    call = '    for _ in range(200): ib.emit_call("lab.add", [ib.r(1), ib.imm(1)], dst=1)\n'
    program = PROGRAM.replace(end, call + end) + "stepper.goto(450)"
    name = write_notebook(lab, "long.ipynb", program)
    opened = open_notebook(name)
    opened.run_all()
    current = opened.page.locator("[aria-current=step]")
    current.wait_for()
    inside = """(row) => { const pane = row.closest(".rl-scroll").getBoundingClientRect();
      const box = row.getBoundingClientRect();
      return box.top >= pane.top && box.bottom <= pane.bottom; }"""
    assert current.evaluate(inside)


def test_both_themes_are_drawn(opened):
    pictures = []
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        opened.theme(theme)
        shown = view(opened)
        pictures.append(shown.screenshot())
        style = "(node) => getComputedStyle(node).backgroundColor"
        colour = shown.evaluate(style)
        assert colour == ("rgb(255, 255, 255)" if theme.endswith("Light") else "rgb(27, 27, 27)")
    opened.theme("JupyterLab Light")
    assert pictures[0] != pictures[1]
    assert all(len(picture) > 5_000 for picture in pictures)


PAGED = """\
from relaxlab.widgets import PagedStepper
from relaxlab import relax
from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.kv.cache_config import CacheConfig
from relaxlab.runtime.kv.kernel_table import KernelTable
from relaxlab.runtime.kv.paged_kv_cache import PagedAttentionKVCache
ib = relax.ExecBuilder()
one = ib.convert_constant(ShapeTuple([0]))
with ib.function("main", num_inputs=1, param_names=["cache"]):
    ib.emit_call("vm.builtin.kv_state_add_sequence", [ib.r(0), ib.imm(0)])
    for _ in range(20):
        ib.emit_call("vm.builtin.kv_state_begin_forward",
                     [ib.r(0), one, ib.convert_constant(ShapeTuple([3]))])
        ib.emit_call("vm.builtin.kv_state_end_forward", [ib.r(0)])
    ib.emit_ret(ib.r(0))
def nothing(*arguments): ...
sizes = CacheConfig(
    reserved_num_seqs=4, total_token_capacity=76, prefill_chunk_size=32, page_size=4,
    num_qo_heads=4, num_kv_heads=2, qk_head_dim=8,
)
kernels = KernelTable(
    merge=(nothing,), split_rotary=nothing, copy_single_page=nothing,
    debug_get_kv=nothing, compact_copy=nothing,
)
stepper = PagedStepper(ib.get(), "main", PagedAttentionKVCache(sizes, kernels))
stepper"""


def test_a_stepper_and_its_pages_stay_together_in_page_and_kernel(lab, open_notebook):
    opened = open_notebook(write_notebook(lab, "paged.ipynb", PAGED))
    opened.run_all()
    assert opened.cell_errors() == []
    page = opened.page
    page.locator(".rl-pool").wait_for()
    sliders = "(all) => all.map((one) => Number(one.value))"
    say = "at = stepper.position, stepper.event; print(*at, stepper._clock.agree(*at))"

    def settled():
        """Wait until page and kernel say the same; return it."""
        for _ in range(100):
            shown = page.locator(".rl-slider").evaluate_all(sliders)
            step, event, agree = kernel(opened, say).split()
            if shown == [int(step), int(event)]:
                assert agree == "True"
                return shown
            page.wait_for_timeout(50)
        raise AssertionError(f"the page is at {shown}, the kernel at {step}, {event}")

    view(opened).focus()
    for _ in range(15):  # faster than the kernel answers
        page.keyboard.press("]")
    step, _ = settled()
    assert step == 15
    page.locator(".rl-pool").focus()
    for _ in range(10):
        page.keyboard.press("[")
    assert settled()[0] < 15
    assert kernel(opened, "print(stepper.goto(30).event)") == str(settled()[1])
    assert settled()[0] == 30
    kernel(opened, "stepper.event = 4")
    assert settled() == [1, 4]
    page.locator(".rl-stepper").get_by_label("Steps a second").fill("60")
    page.locator(".rl-stepper").get_by_role("button", name="Play", exact=True).click()
    page.wait_for_function(
        "() => { const one = document.querySelector('.rl-slider'); return one.value === one.max; }"
    )
    assert settled()[0] == 42
