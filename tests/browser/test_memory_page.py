"""The memory plan as one HTML file: bars where the lifetimes are, the sentence at every step."""

import pytest

from relaxlab.widgets import MemoryPlan
from tests.widgets.programs import executable


@pytest.fixture
def plan():
    return MemoryPlan(executable())


def sentence(page):
    return page.locator(".rl-step").inner_text()


def test_every_step_says_what_the_twin_says(open_page, plan):
    page = open_page(plan)
    page.locator(".rl-memory").focus()
    memory = plan.memory
    for step in range(memory.first_step, memory.first_step + len(memory.steps) + 1):
        assert sentence(page) == plan.goto(step).sentence
        page.keyboard.press("ArrowRight")
    page.keyboard.press("p")
    assert sentence(page) == plan.goto(memory.peak_step).sentence
    page.keyboard.press("Home")
    assert sentence(page) == plan.goto(memory.first_step).sentence


def test_a_bar_is_as_long_as_its_tensor_lives_and_has_words(open_page, plan):
    page = open_page(plan)
    found = page.evaluate(
        """() => [...document.querySelectorAll(".rl-tensor")].map((bar) => {
          const box = bar.querySelector("rect");
          return [bar.getAttribute("aria-label"), Number(box.getAttribute("x")),
            Number(box.getAttribute("width"))];
        })"""
    )
    memory = plan.memory
    assert len(found) == len(memory.tensors)
    by_name = {words.partition(":")[0]: (left, width) for words, left, width in found}
    first = memory.tensors[0]
    left, width = by_name[first.name]
    step = width / (first.last - first.first + 1)
    for tensor in memory.tensors:
        assert by_name[tensor.name][0] == pytest.approx(left + (tensor.first - first.first) * step)
        assert by_name[tensor.name][1] == pytest.approx((tensor.last - tensor.first + 1) * step)
    page.locator(".rl-tensor").first.focus()
    assert page.locator(".rl-detail").inner_text().startswith(f"{first.name}: ")


def test_another_function_can_be_shown(open_page, plan):
    page = open_page(plan)
    page.get_by_label("Function to show").select_option("twice")
    plan.function = "twice"
    assert sentence(page) == plan.sentence
    assert page.locator(".rl-tensor").count() == len(plan.memory.tensors)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_page_is_not_wider(open_page, plan, scheme):
    page = open_page(plan, color_scheme=scheme)
    page.set_viewport_size({"width": 700, "height": 800})
    page.wait_for_timeout(100)
    assert page.evaluate("document.documentElement.scrollWidth") <= 700


def test_a_tensor_and_an_instruction_are_found(open_page, plan):
    page = open_page(plan)
    memory = plan.memory
    last = memory.tensors[-1]
    page.locator(".rl-memory").focus()
    page.keyboard.press("Home")
    page.keyboard.press("/")
    field = page.get_by_placeholder("find (/)")
    field.fill(last.name)
    field.press("Enter")
    assert sentence(page) == plan.goto(last.first).sentence
    text = memory.steps[0].partition(" ")[0]
    same = [at for at, one in enumerate(memory.steps) if text in one]
    field.fill(text)
    before = [at for at in same if memory.first_step + at < last.first]
    field.press("Shift+Enter")
    assert sentence(page) == plan.goto(memory.first_step + before[-1]).sentence
    field.fill("p")  # a key of the view, but not here
    assert sentence(page) == plan.goto(memory.first_step + before[-1]).sentence
