"""Every chapter in a real JupyterLab: all cells run, and the main view is there in both themes.

Console errors and requests that leave the machine fail a test, see ``open_notebook``. The tour is
opened in ``test_tour``.
"""

from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
CHAPTERS = sorted(path for path in NOTEBOOKS.glob("*.ipynb") if path.stem != "00_tour")

# The one chapter whose picture is text: which output it is, and which else.
PICTURE = {"12_rnn": "[4.0]"}
SMALLEST = {"width": 400, "height": 100}
VISIBLE_ROWS = """(pane) => {
  const { top, bottom } = pane.getBoundingClientRect();
  const inside = (row) => row.getBoundingClientRect().bottom > top
    && row.getBoundingClientRect().top < bottom;
  return [...pane.querySelectorAll(".rl-byte-row")].filter(inside).length;
}"""
EMPTY = 6_000  # bytes: a screenshot of an empty view of any size has fewer


def main_view(notebook, name):
    """Return what the chapter is about: its first view, or the text that draws it."""
    if name in PICTURE:
        text = notebook.page.locator(".jp-OutputArea-output", has_text=PICTURE[name])
        return text.first
    view = notebook.page.locator(".rl-view").first
    view.wait_for(state="attached")
    return view


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_runs_and_shows_its_main_view_in_both_themes(path, open_notebook):
    notebook = open_notebook(f"notebooks/{path.name}")
    notebook.run_all()
    assert notebook.cell_errors() == []
    assert notebook.output(notebook.cells().count() - 1).inner_text().strip() == "all claims hold"
    view = main_view(notebook, path.stem)
    view.scroll_into_view_if_needed()
    pictures = []
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        notebook.theme(theme)
        pictures.append(view.screenshot())
        if path.stem == "07_file":  # whose rows are made as they come into view
            assert view.locator(".rl-bytes").evaluate(VISIBLE_ROWS) > 10
    assert pictures[0] != pictures[1]
    if path.stem in PICTURE:
        return
    box = view.bounding_box()
    assert all(box[side] >= least for side, least in SMALLEST.items()), box
    assert all(len(picture) > EMPTY for picture in pictures), list(map(len, pictures))
