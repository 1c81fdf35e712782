"""The stepper's closer looks in the exported page: what is drawn is what the twin says."""

import re

import numpy as np
import pytest

from relaxlab.runtime.tensor import tensor
from relaxlab.widgets import VMStepper
from tests.browser.test_exported_page import button, shown, spoken
from tests.trace.conftest import build, count_down, fact  # noqa: F401
from tests.widgets.programs import arguments, executable


def down():
    return VMStepper(build(("down", 1, ["n"], count_down)), "down", 3)


def goto(page, step):
    page.get_by_role("spinbutton", name="Go to step").fill(str(step))
    page.keyboard.press("Enter")


def test_watched_expressions_and_log_lines_follow_the_cursor(open_page):
    stepper = down().display("r1 * 10", "step")
    stepper.log_at("n = {r1}", "down", 2)
    page = open_page(stepper)
    for step in (0, 3, 7, 12):
        goto(page, step)
        twin = str(stepper.goto(step))
        values = page.locator(".rl-watched dd").all_text_contents()
        found = re.findall(r"^  (?:r1 \* 10|step) = (.*)$", twin, re.MULTILINE)
        assert values == (found or ["(the program is over)"] * 2)
        lines = page.locator(".rl-logged li").all_text_contents()
        assert lines == [f"step {at}: {line}" for at, line in stepper.logs if at <= step]
    mark = page.locator("li[data-pc='2'] .rl-gutter")
    assert mark.get_attribute("aria-pressed") == "true"
    assert mark.get_attribute("title").startswith("log point 1 at down+2")
    button(page, "Restart").click()
    button(page, "Continue").click()
    assert shown(page)["position"] == 12  # it stopped nowhere


def test_the_phases_of_an_instruction_are_those_of_the_session(fact, open_page):  # noqa: F811
    stepper = VMStepper(fact)
    page = open_page(stepper)
    rows = page.locator(".rl-phases li")
    assert rows.count() == 0
    page.get_by_role("region", name="Virtual machine stepper").press("i")
    assert button(page, "Inside").get_attribute("aria-pressed") == "true"
    for step in range(0, 26, 3):
        goto(page, step)
        phases = fact.goto(step).phases()
        assert rows.all_text_contents() == [f"{name} {text}" for name, text in phases]
    button(page, "Inside").click()
    assert rows.count() == 0


def test_builtins_can_be_passed_by(open_page):
    stepper = VMStepper(executable(), "main", *map(tensor, arguments()))
    page = open_page(stepper)
    page.get_by_role("region", name="Virtual machine stepper").press("b")
    assert spoken(page).startswith("Skip builtins is on.")
    stepper.skip_builtins = True
    for command in ("Step", "Step", "Step", "Back", "Step"):
        button(page, command).click()
        getattr(stepper, command.lower())()
        assert shown(page)["position"] == stepper.position
    assert "vm.builtin" not in shown(page)["code"]


def test_lines_of_the_program_stand_beside_the_code(open_page):
    stepper = VMStepper(executable(), "main", *map(tensor, arguments()))
    pc = next(int(pc) for pc, (places, _, kernel) in stepper.sources.items() if places and kernel)
    step = stepper.session.timeline.visits(pc)[0]
    page = open_page(stepper)
    goto(page, step)
    places, binding, kernel = stepper.sources[str(pc)]
    told = page.get_by_role("group", name="Source").locator("code").all_text_contents()
    assert told == [*places[:3], f"IR: {binding}", f"kernel: {kernel}"]
    row = page.locator(f"li[data-pc='{pc}']")
    assert row.get_attribute("title").startswith(places[0])
    assert row.locator(".rl-beside").inner_text().strip("; ") in places[0]


def test_notes_are_kept_shown_and_added_by_keyboard(open_page):
    stepper = down().note("the loop begins", 1)
    page = open_page(stepper)
    page.get_by_role("button", name="step 1: the loop begins").click()
    assert shown(page)["position"] == 1
    goto(page, 4)
    field = page.get_by_role("textbox", name="Note on this step")
    field.click()
    page.keyboard.type("x[]cb? stays a text")
    assert shown(page)["position"] == 4
    page.keyboard.press("Enter")
    assert spoken(page) == "Noted at step 4."
    assert page.locator(".rl-note").all_text_contents() == [
        "step 1: the loop begins",
        "step 4: x[]cb? stays a text",
    ]
    assert field.input_value() == ""


def test_a_fragment_is_a_link_to_a_step(open_page):
    page = open_page(down())
    goto(page, 7)
    link = page.get_by_role("link", name="Link to this step")
    assert link.get_attribute("href") == "#step=7"
    page.evaluate("() => { location.hash = '#step=3'; }")
    page.wait_for_function("() => document.querySelector('.rl-slider').value === '3'")
    page.evaluate("() => { location.hash = '#step=5'; location.reload(); }")
    page.wait_for_function("() => document.querySelector('.rl-slider')?.value === '5'")
    page.evaluate("() => { location.hash = '#step=9999'; }")
    page.wait_for_function("() => document.querySelector('.rl-slider').value === '12'")


def test_a_fork_is_marked_as_edited(open_page):
    page = open_page(down().goto(5).fork(1, 1))
    assert page.locator("h1").inner_text() == "down: 9 steps, edited at step 5"
    assert page.locator(".rl-edited").inner_text().startswith("Edited at step 5, %1 of #0 was 2")
    assert "EDITED: %1 of down was set to 1." in page.locator(".rl-said").inner_text()


def test_a_tensor_opens_as_a_heat_map_that_says_what_is_missing(open_page):
    values = np.arange(100, dtype="float32")
    machine = build(("f", 1, ["x"], lambda ib: ib.emit_ret(ib.r(0))))
    stepper = VMStepper(machine, "f", tensor(values))
    page = open_page(stepper)
    assert page.locator(".rl-cell").count() == 0
    page.locator(".rl-register").first.click()
    assert page.locator(".rl-cell").all_text_contents() == [
        *("0.0", "1.0", "2.0", "3.0"),
        *("96.0", "97.0", "98.0", "99.0"),
    ]
    words = page.locator(".rl-heat-words").inner_text()
    assert words.startswith("8 of 100 elements were recorded; stepper.picture(0)")
    page.get_by_role("region", name="Virtual machine stepper").press("t")
    assert page.locator(".rl-cell").count() == 0
    stepper.picture(0)
    page = open_page(stepper)
    page.get_by_role("region", name="Virtual machine stepper").press("t")
    assert page.locator(".rl-cell").count() == 32
    assert page.locator(".rl-cell").nth(7).get_attribute("title") == "7.0"
    assert "32 of 100 columns" in page.locator(".rl-heat-words").inner_text()


def test_a_step_can_be_found_by_its_words(open_page):
    stepper = down()
    page = open_page(stepper)
    page.get_by_role("region", name="Virtual machine stepper").press("/")
    page.keyboard.type("%1 = 2")
    for key, backwards in (("Enter", False), ("Enter", False), ("Shift+Enter", True)):
        page.keyboard.press(key)
        stepper.find("%1 = 2", backwards=backwards)
        assert shown(page)["position"] == stepper.position > 0
    before = stepper.position
    page.keyboard.press("Control+a")
    page.keyboard.type("nowhere")
    page.keyboard.press("Enter")
    assert f'No step after {before} has "nowhere".' in spoken(page)
    assert shown(page)["position"] == before
    with pytest.raises(ValueError, match="no step after"):
        stepper.find("nowhere")


def test_what_is_shown_can_be_copied_as_text(fact, open_page):  # noqa: F811
    stepper = VMStepper(fact).goto(7)
    page = open_page(stepper)
    page.evaluate(
        """() => { window.copied = [];
          navigator.clipboard.writeText = async (text) => { copied.push(text); }; }"""
    )
    button(page, "Copy").click()
    (text,) = page.evaluate("() => copied")
    lines = text.splitlines()
    frame = stepper.session.frame
    current = f"=> {frame.pc} {' '.join(shown(page)['code'].split())}"
    assert [line for line in lines if line.startswith("=> ")] == [current]
    for _, label, value in shown(page)["registers"]:
        assert any(f"{label} {value}" in line for line in lines), label
    for one in shown(page)["frames"]:
        assert one in lines
    assert shown(page)["next"] in lines
    assert "Restart" not in text
    assert spoken(page) == f"Copied {len(lines)} lines."


def test_copying_works_where_a_page_may_not_write_to_the_clipboard(fact, open_page):  # noqa: F811
    page = open_page(VMStepper(fact))
    page.evaluate(
        """() => { window.copied = [];
          navigator.clipboard.writeText = async () => { throw new Error("refused"); };
          document.execCommand = () => copied.push(document.activeElement.value); }"""
    )
    button(page, "Copy").click()
    page.wait_for_function("() => copied.length === 1")
    assert "Registers of #0 fact" in page.evaluate("() => copied[0]")
    assert page.evaluate("() => document.activeElement.textContent") == "Copy"


def test_the_last_writer_of_a_register_is_told(fact, open_page):  # noqa: F811
    stepper = VMStepper(fact)
    page = open_page(stepper)
    page.get_by_role("region", name="Virtual machine stepper").press("t")
    for step in (1, 4, 14, 20):
        goto(page, step)
        stepper.goto(step)
        for register, row in enumerate(page.locator(".rl-register").all()):
            write = stepper.session.last_writer(register)
            by = (
                ""
                if write is None or write.cause == "argument"
                else f"written by step {write.step}"
            )
            assert row.locator(".rl-written").inner_text().strip() == by
            row.hover()
            assert (by in row.get_attribute("title")) or not by
    page.locator(".rl-register").first.click()
    assert page.locator(".rl-register").first.locator(".rl-written").inner_text() == ""


def test_the_speed_survives_a_restart(open_page):
    page = open_page(down())
    rate = page.get_by_role("spinbutton", name="Steps a second")
    rate.fill("77")
    button(page, "Play").click()
    button(page, "Restart").click()
    assert shown(page)["position"] == 0
    assert rate.input_value() == "77"


def test_every_row_has_decoded_operands_and_its_raw_words_on_hover(open_page):
    stepper = VMStepper(executable(), "main", *map(tensor, arguments()))
    page = open_page(stepper)
    code = stepper.trace["code"]
    rows = {int(row.get_attribute("data-pc")): row for row in page.locator("li[data-pc]").all()}
    assert len(rows) > 20
    for at, (pc, text) in enumerate(zip(code["pc"], code["text"], strict=True)):
        if pc not in rows:
            continue  # of another function
        assert rows[pc].locator("code").text_content() == text
        title = rows[pc].get_attribute("title")
        assert f"words {' '.join(f'0x{word}' for word in code['words'][at])}" in title
        for operand in code["operands"][at]:
            if operand.startswith("c["):
                constant = stepper.trace["constants"][operand[2:-1]]
                assert f"{operand} = {constant}" in title
