"""The explorer of passes as one HTML file: list, differences, links from line to kernel, graphs."""

import pytest

from relaxlab.widgets import PassExplorer
from tests.widgets.programs import network


@pytest.fixture(scope="module")
def view():
    return PassExplorer(network(), target="numpy")


def chosen(page):
    return page.locator(".rl-pass[aria-selected=true] .rl-pass-name").inner_text()


def changed_lines(page):
    return page.evaluate(
        """() => [...document.querySelectorAll(".rl-texts tr")].flatMap((row) => {
          const cells = [...row.querySelectorAll("td")];
          if (cells.length < 6) return [];
          return [["-", cells[2]], ["+", cells[5]]]
            .filter(([sign, cell]) => cell.className === "rl-differs")
            .map(([sign, cell]) => sign + cell.textContent);
        })"""
    )


def test_every_pass_shows_its_difference(open_page, view):
    page = open_page(view)
    page.locator(".rl-passes").focus()
    page.keyboard.press("Home")
    for index, record in enumerate(view.recorder.passes):
        assert chosen(page) == record.name
        facts = page.locator(".rl-facts").inner_text()
        assert facts.startswith(f"{index} {record.name} ")
        found = sorted(changed_lines(page))
        twin = view.recorder.diff(index, context=0).splitlines()[2:]
        if record.change != "changed":
            assert found == []
        else:  # both ways of telling agree on how much is new
            added = sum(line.startswith("+") for line in twin)
            removed = sum(line.startswith("-") for line in twin)
            signs = [line[0] for line in found]
            assert signs.count("+") - signs.count("-") == added - removed
            assert 0 < len(found) <= added + removed
        page.keyboard.press("ArrowDown")


def test_searching_and_hiding(open_page, view):
    page = open_page(view)
    page.locator(".rl-passes").focus()
    page.keyboard.press("/")
    page.keyboard.type("kill_tensor")
    hits = view.recorder.search("kill_tensor")
    assert page.locator(".rl-found").inner_text() == f"{len(hits)} found"
    assert chosen(page) in {view.recorder.passes[index].name for index in hits}
    page.keyboard.press("Escape")
    page.keyboard.press("u")
    shown = page.locator(".rl-pass:visible").count()
    changed = [one for one in view.recorder.passes if one.change == "changed"]
    assert shown == len(changed)
    page.keyboard.press("Home")
    page.keyboard.press("]")
    assert chosen(page) in {one.name for one in changed}


def test_two_stages_that_are_not_neighbours(open_page, view):
    page = open_page(view)
    page.locator(".rl-pass").last.click()
    page.get_by_label("Compare with").select_option(label="the program as written")
    lines = changed_lines(page)
    assert any(line.startswith("-") and "R.nn.softmax" in line for line in lines)
    assert any(line.startswith("+") and "vm.builtin" in line for line in lines)


def test_a_line_leads_to_its_kernel_and_back(open_page, view):
    page = open_page(view)
    page.get_by_role("tab", name="Program").click()
    page.get_by_role("button", name="b = R.nn.softmax(R.matmul(a, w1))").click()
    kernel = page.get_by_label("Kernel", exact=True)
    name = kernel.locator("b").inner_text()
    assert name in ("matmul", "softmax")
    assert "T.prim_func" in kernel.locator("pre").inner_text()
    kernel.get_by_role("button", name="numpy").click()
    assert "def " in kernel.locator("pre").inner_text()
    instructions = page.get_by_label("Instructions", exact=True)
    instructions.locator("button", has_text="softmax").click()
    lines = page.get_by_label("Lines of the program", exact=True)
    assert "softmax" in lines.locator("[aria-pressed=true]").inner_text()


def test_lines_instructions_and_kernels_are_linked_by_keyboard_too(open_page, view):
    page = open_page(view)
    focused = """() => document.activeElement.matches("button")
      ? document.activeElement.textContent : ''"""
    page.get_by_role("tab", name="Program").focus()
    page.keyboard.press("Enter")
    for _ in range(40):  # from control to control, as far as the line
        page.keyboard.press("Tab")
        if "b = R.nn.softmax" in page.evaluate(focused):
            break
    page.keyboard.press("Enter")
    lines = page.get_by_label("Lines of the program", exact=True)
    instructions = page.get_by_label("Instructions", exact=True)
    kernel = page.get_by_label("Kernel", exact=True)
    assert "softmax" in lines.locator("[aria-pressed=true]").inner_text()
    assert instructions.locator("[aria-pressed=true]").count() == 1
    assert "T.prim_func" in kernel.locator("pre").inner_text()
    for _ in range(120):  # on to an instruction, which leads back to its line
        page.keyboard.press("Tab")
        if "call relu" in " ".join(page.evaluate(focused).split()):
            break
    page.keyboard.press("Space")
    assert "relu" in instructions.locator("[aria-pressed=true]").inner_text()
    assert "R.nn.relu" in lines.locator("[aria-pressed=true]").inner_text()
    assert kernel.locator("b").inner_text() == "relu"


def test_graphs_are_drawn_or_told(open_page, view):
    page = open_page(view)
    page.get_by_role("tab", name="Graph").click()
    picture = page.locator(".rl-graph")
    if view.record["graphs"][0]["svg"] is None:
        assert "digraph" in picture.inner_text()
        return
    assert picture.locator("svg").get_attribute("aria-label") == "values of main"
    assert picture.locator("svg text", has_text="nn.softmax").count() == 1
    page.get_by_label("Graph to show").select_option(label="calls between functions")
    assert picture.locator("svg text", has_text="softmax").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_page_is_not_wider(open_page, view, scheme):
    page = open_page(view, color_scheme=scheme)
    page.set_viewport_size({"width": 700, "height": 800})
    for tab in ("Program", "Graph", "Difference"):
        page.get_by_role("tab", name=tab).click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 700
