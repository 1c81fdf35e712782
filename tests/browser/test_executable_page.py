"""The bytes of an executable as one HTML file: by mouse, by keys, and what it says."""

import pytest

from relaxlab.widgets import ExecutableView
from tests.trace.conftest import build, count_down


def pair(ib):
    ib.emit_call("vm.builtin.make_tuple", [ib.r(0), ib.r(0)], dst=1)
    ib.emit_ret(ib.r(1))


@pytest.fixture
def view():
    return ExecutableView(build(("down", 1, ["n"], count_down)), build(("down", 1, ["n"], pair)))


def chosen(page):
    """Return the chosen row: what it says, and whether it can be seen."""
    return page.evaluate(
        """() => {
          const row = document.querySelector("[aria-selected=true]");
          const pane = document.querySelector(".rl-bytes");
          const box = row.getBoundingClientRect(), view = pane.getBoundingClientRect();
          return {
            offset: Number(row.querySelector(".rl-offset").textContent),
            meaning: row.querySelector(".rl-meaning").textContent,
            visible: box.top >= view.top && box.bottom <= view.bottom,
            pointed: pane.getAttribute("aria-activedescendant") === row.id,
            sentence: document.querySelector(".rl-chosen-field").textContent,
          };
        }"""
    )


def expected(view):
    _, offset, _, _, meaning, _ = view.file["rows"][view.position]
    return offset, meaning


def agrees(page, view):
    found = chosen(page)
    assert (found["offset"], found["meaning"]) == expected(view)
    assert found["visible"]
    assert found["pointed"]
    assert found["meaning"] in found["sentence"]


def test_keys_choose_what_the_methods_choose(open_page, view):
    page = open_page(view)
    page.locator(".rl-bytes").focus()
    agrees(page, view)
    page.keyboard.press("End")
    view.position = len(view.file["rows"]) - 1
    agrees(page, view)
    page.keyboard.press("Home")
    for pc in range(view.executable.num_instructions):
        page.keyboard.press("]")
        agrees(page, view.instruction(pc))
    page.keyboard.press("[")
    agrees(page, view.instruction(view.executable.num_instructions - 2))
    page.keyboard.press("ArrowDown")
    view.position += 1
    agrees(page, view)
    page.keyboard.press("/")
    page.keyboard.type("goto")
    view.position = len(view.file["rows"]) - 1
    page.keyboard.press("Escape")
    page.keyboard.press("Home")
    page.keyboard.press("n")
    view.position = 0
    agrees(page, view.find("goto"))
    assert page.locator(".rl-found").inner_text().endswith(" found")


def test_the_mouse_reaches_sections_functions_and_rows(open_page, view):
    page = open_page(view)
    page.get_by_role("button", name="constants").click()
    agrees(page, view.section("constants"))
    page.get_by_label("Go to a function").select_option("down")
    agrees(page, view.instruction(0))
    page.get_by_role("option").nth(3).click()
    assert page.locator("[aria-selected=true]").count() == 1
    page.get_by_role("button", name="function down").click()
    agrees(page, view.instruction(0))
    assert page.locator(".rl-difference").first.inner_text().strip()


def test_only_rows_in_sight_are_elements(open_page):
    def long(ib):
        for register in range(1, 2000):
            ib.emit_call("vm.builtin.make_tuple", [ib.r(0)], dst=register)
        ib.emit_ret(ib.r(1))

    view = ExecutableView(build(("long", 1, ["x"], long)))
    page = open_page(view)
    page.locator(".rl-bytes").focus()
    page.keyboard.press("End")
    view.position = len(view.file["rows"]) - 1
    agrees(page, view)
    assert page.get_by_role("option").count() < 100


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [700, 1280])
def test_it_fits_its_page(open_page, view, scheme, width):
    page = open_page(view, color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".rl-byte-row").count() > 5
