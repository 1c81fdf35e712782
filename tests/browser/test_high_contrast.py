"""High contrast: where the system forces its colours, and where a reader asks for more contrast."""

import pytest

from relaxlab.widgets import PagePool, VMStepper
from tests.browser.test_axe import VIEWS
from tests.browser.test_pool_page import INK
from tests.trace.conftest import build, count_down
from tests.trace.pool_runs import story


def down():
    return VMStepper(build(("down", 1, ["n"], count_down)), "down", 3).step()


# The browser lays a ground of its own under words, unless it is told that they have one: what has
# another ground than the page must say so, or its words are dark on dark.
UNREADABLE = """() => {
  const root = document.querySelector(".rl-view");
  const ground = getComputedStyle(root).backgroundColor;
  return [...root.querySelectorAll("*")].filter((node) => {
    const { backgroundColor, forcedColorAdjust, visibility } = getComputedStyle(node);
    return node.checkVisibility() && visibility === "visible" && node.textContent.trim() &&
      backgroundColor !== ground && !/, 0\\)$/.test(backgroundColor) &&
      forcedColorAdjust !== "none";
  }).map((node) => `${node.tagName} ${node.className} ${getComputedStyle(node).backgroundColor}`);
}"""
RATIO = """(node) => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map((one) => Number(one) / 255)
      .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const style = getComputedStyle(node);
  const [low, high] = [light(style.color), light(style.backgroundColor)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["stepper", "pool", "engine", "passes", "memory", "file"])
def test_words_can_be_read_where_colours_are_forced(open_page, name, scheme):
    page = open_page(VIEWS[name](), color_scheme=scheme, forced_colors="active")
    root = page.locator(".rl-view")
    root.focus()
    root.press("?")
    assert page.evaluate("matchMedia('(forced-colors: active)').matches")
    assert page.evaluate(UNREADABLE) == []
    marked = page.locator(
        ":is(.rl-current, .rl-chosen, .rl-button[aria-pressed=true], [aria-expanded=true], "
        "[aria-selected=true], .rl-frame[aria-pressed=true]):visible"
    )
    assert marked.count() > 0
    for index in range(marked.count()):
        assert marked.nth(index).evaluate(RATIO) >= 4.5


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_can_be_read_also_where_colours_are_forced(open_page, scheme):
    page = open_page(PagePool(story()), color_scheme=scheme, forced_colors="active")
    for number in (0, 4):  # pages in use: words and rows on a ground
        assert page.evaluate(INK, [60 * number + 2, 2, 54, 38]) > 2


def test_what_changed_has_an_edge_where_colours_are_forced(open_page):
    page = open_page(down(), forced_colors="active")
    row = page.locator(".rl-changed").first
    assert row.evaluate("(node) => getComputedStyle(node).outlineStyle") == "solid"
    assert row.locator(".rl-mark").inner_text().strip()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_more_contrast_leaves_nothing_soft(open_page, scheme):
    look = """() => {
      const style = (selector) => getComputedStyle(document.querySelector(selector));
      return [style(".rl-title").color, style(".rl-word").color,
        style("[aria-current=step]").outlineStyle, style(".rl-changed").outlineStyle,
        style(".rl-code").borderTopColor, style(".rl-view").color];
    }"""
    plain = open_page(down(), color_scheme=scheme).evaluate(look)
    more = open_page(down(), color_scheme=scheme, contrast="more").evaluate(look)
    strongest = more[-1]
    assert plain[-1] == strongest
    assert more == [strongest, strongest, "solid", "solid", strongest, strongest]
    assert plain[0] != strongest
    assert plain[4] != strongest
