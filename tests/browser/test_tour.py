"""The tour in a real browser: every cell runs, and its steppers step by button and by key."""

import pytest

TOUR = "notebooks/00_tour.ipynb"


@pytest.fixture
def tour(open_notebook):
    """Return the tour, every cell run without an error."""
    notebook = open_notebook(TOUR)
    notebook.run_all()
    assert notebook.cell_errors() == []
    assert notebook.output(notebook.cells().count() - 1).inner_text().strip() == "all claims hold"
    return notebook


def steppers(tour):
    """Return the views, in order: the network, and one token of the language model."""
    views = tour.page.locator(".rl-stepper")
    views.nth(1).wait_for(state="attached")
    return views.nth(0), views.nth(1)


def current_line(view):
    """Return the text of the line that the machine will execute next."""
    return view.locator("[aria-current='step']").text_content()


def test_the_tour_runs_and_steps(tour):
    page = tour.page
    view, _ = steppers(tour)
    view.scroll_into_view_if_needed()
    start = current_line(view)
    assert "check_tensor_info" in start
    view.get_by_role("button", name="Step", exact=True).click()
    second = current_line(view)
    assert second != start
    page.keyboard.press("F11")
    assert current_line(view) not in (start, second)
    page.keyboard.press("[")
    assert current_line(view) == second
    page.keyboard.press("End")
    result = view.get_by_role("region", name="Result").inner_text()
    assert result == "float32[2, 3] s6 [14.0, 67.0, -5.0, 2.0, 14.0, 4.0]"
    page.keyboard.press("[")
    pictures = []
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        tour.theme(theme)
        pictures.append(view.screenshot())
    assert all(len(picture) > 5_000 for picture in pictures)
    assert pictures[0] != pictures[1]


def test_a_token_of_the_language_model_can_be_stepped(tour):
    _, view = steppers(tour)
    view.scroll_into_view_if_needed()
    view.get_by_role("button", name="Breakpoint at", exact=False).first.wait_for()
    view.get_by_role("button", name="Step", exact=True).click()
    tour.page.keyboard.press("c")
    assert view.get_by_role("region", name="Result").inner_text().startswith("(float32[1, 256] s")
    assert view.get_by_role("button", name="Step", exact=True).get_attribute("title") == (
        "Step: the program is over"
    )


def test_keys_of_the_view_do_not_reach_the_notebook(tour):
    page = tour.page
    cells = tour.cells().count()
    view, _ = steppers(tour)
    step = view.get_by_role("button", name="Step", exact=True)
    step.scroll_into_view_if_needed()
    for reach in (step.focus, step.click):
        reach()
        # In the notebook these delete a cell, insert one, and move.
        for key in ("x", "a", "b", "d", "d", "j", "k"):
            page.keyboard.press(key)
        page.wait_for_timeout(200)
        assert tour.cells().count() == cells


def test_the_tours_run_is_exported_as_it_is(tour, lab, browser):
    from tests.browser.driver import Complaints  # noqa: PLC0415 - needs playwright

    path = lab.root / "tour.html"
    tour.execute(f"token_stepper.to_html({str(path)!r})")
    context = browser.new_context()
    page = context.new_page()
    complaints = Complaints(file=path)
    complaints.watch(page)
    page.goto(path.as_uri())
    assert page.locator("h1").inner_text() == "decode: 406 steps"
    page.get_by_role("button", name="Step", exact=True).click()
    page.keyboard.press("]")
    assert page.locator(".rl-slider").input_value() == "2"
    context.close()
    complaints.assert_none()
