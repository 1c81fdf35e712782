"""The tour in a real browser: every cell runs, and the stepper steps by button and by key."""

import pytest

TOUR = "notebooks/00_tour.ipynb"


@pytest.fixture
def tour(open_notebook):
    """Return the tour, every cell run without an error."""
    notebook = open_notebook(TOUR)
    notebook.run_all()
    assert notebook.cell_errors() == []
    return notebook


def current_line(view):
    """Return the text of the line that the machine will execute next."""
    return view.locator("[aria-current='step']").first.inner_text()


def wait_for_another_line(view, page, before):
    """Wait until the current line is not ``before`` and return it."""
    for _ in range(100):
        if (line := current_line(view)) != before:
            return line
        page.wait_for_timeout(50)
    raise AssertionError(f"still at {before!r} after 5 s")


def test_the_tour_runs_and_steps(tour):
    page = tour.page
    step = page.get_by_role("button", name="Step", exact=True).first
    step.scroll_into_view_if_needed()
    # The view is the output that holds both the button and the listing.
    view = page.locator(".jp-OutputArea-output", has=step).last
    start = current_line(view)
    step.click()
    second = wait_for_another_line(view, page, start)
    page.keyboard.press("F11")
    wait_for_another_line(view, page, second)
    pictures = []
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        tour.theme(theme)
        page.wait_for_timeout(200)
        pictures.append(view.screenshot())
    assert all(len(picture) > 5_000 for picture in pictures)
    assert pictures[0] != pictures[1]


def test_keys_of_the_view_do_not_reach_the_notebook(tour):
    page = tour.page
    cells = tour.cells().count()
    step = page.get_by_role("button", name="Step", exact=True).first
    step.scroll_into_view_if_needed()
    step.focus()
    # In the notebook these delete a cell, insert one, and move.
    for key in ("x", "a", "b", "d", "d", "j", "k"):
        page.keyboard.press(key)
    page.wait_for_timeout(200)
    assert tour.cells().count() == cells
