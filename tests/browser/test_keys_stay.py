"""Keys of a view stay in it, also where a page listens for keys before the view does.

JupyterLab listens for keys that nobody stopped (tests/browser/test_stepper_in_lab.py uses a real
one). Notebook 7 listens first, as a capturing listener: from the target up it looks for an element
that a command is for, as long as none forbids it; that listener is here in place of it.
"""

import pytest

from tests.browser.test_axe import VIEWS

NOTEBOOK_7 = """() => {
  window.taken = [];
  document.addEventListener("keydown", (event) => {
    let node = event.target;
    while (node && !node.hasAttribute("data-lm-suppress-shortcuts")) {
      if (node.matches(":focus, body")) { taken.push(event.key); break; }
      node = node.parentElement;
    }
  }, true);
}"""
LISTENED = """() => {
  window.bubbled = [];
  document.addEventListener("keydown", (event) => bubbled.push(event.key));
}"""
COMMANDS = ["x", "a", "b", "d", "d", "j", "k", "m", "y", "z", "v", "Enter", "Escape", "ArrowDown"]


@pytest.mark.parametrize(
    "name", ["stepper", "pool", "passes", "memory", "file", "graphs", "profile"]
)
def test_no_command_of_the_notebook_is_called(open_page, name):
    page = open_page(VIEWS[name]())
    page.evaluate(NOTEBOOK_7)
    page.evaluate(LISTENED)
    root = page.locator(".rl-view")
    for focus in (root, root.locator(".rl-button").first, root.locator("[tabindex='0']").last):
        focus.focus()
        for key in COMMANDS:
            page.keyboard.press(key)
            if not root.evaluate("(root) => root.contains(document.activeElement)"):
                focus.focus()
    assert page.evaluate("taken") == []
    assert page.evaluate("bubbled") == []
    # what is the notebook's stays with it
    root.focus()
    page.keyboard.press("Control+s")
    page.keyboard.press("Control+c")
    assert [key for key in page.evaluate("taken") if key != "Control"] == ["s"]
    # and so does every key outside of the view
    page.evaluate("() => document.activeElement.blur()")
    page.keyboard.press("x")
    assert page.evaluate("taken").count("x") == 1
