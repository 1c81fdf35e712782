"""The fixtures themselves: a notebook opens, runs, and its complaints are noticed."""

import json

import pytest

MARKDOWN = {"cell_type": "markdown", "id": "m0", "metadata": {}, "source": "# Small"}


def write_notebook(lab, name, *sources):
    cells = [
        {
            "cell_type": "code",
            "execution_count": None,
            "id": f"c{number}",
            "metadata": {},
            "outputs": [],
            "source": source,
        }
        for number, source in enumerate(sources)
    ]
    notebook = {
        "cells": [MARKDOWN, *cells],
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    (lab.root / name).write_text(json.dumps(notebook), encoding="utf-8")
    return name


def test_a_notebook_runs_and_a_control_answers(lab, open_notebook):
    name = write_notebook(
        lab,
        "small.ipynb",
        "import relaxlab\nprint(6 * 7, relaxlab.__version__)",
        "import ipywidgets\nbutton = ipywidgets.Button(description='Press')\n"
        "seen = ipywidgets.Label('not yet')\n"
        "button.on_click(lambda _: setattr(seen, 'value', 'pressed'))\n"
        "ipywidgets.VBox([button, seen])",
    )
    notebook = open_notebook(name)
    notebook.run_all()
    assert notebook.output(1).inner_text().startswith("42 ")
    assert notebook.cell_errors() == []
    notebook.page.get_by_text("not yet", exact=True).wait_for()
    notebook.page.get_by_role("button", name="Press", exact=True).click()
    notebook.page.get_by_text("pressed", exact=True).wait_for()
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        notebook.theme(theme)
        assert len(notebook.page.screenshot()) > 10_000


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("console.error('broken view')", "broken view"),
        ("setTimeout(() => { throw new Error('lost') }, 0)", "uncaught: lost"),
    ],
)
def test_a_complaint_of_the_page_is_noticed(lab, browser, script, complaint):
    from tests.browser.driver import Complaints  # noqa: PLC0415 - needs playwright

    complaints = Complaints(lab.server)
    context = browser.new_context()
    page = context.new_page()
    complaints.watch(page)
    page.goto("about:blank")
    page.evaluate(script)
    page.wait_for_timeout(100)
    context.close()
    assert len(complaints.errors) == 1
    assert complaints.errors[0].startswith(complaint)
    with pytest.raises(AssertionError):
        complaints.assert_none()


def test_a_request_that_leaves_the_machine_is_noticed(lab, browser):
    from tests.browser.driver import Complaints  # noqa: PLC0415 - needs playwright

    complaints = Complaints(lab.server)
    context = browser.new_context()
    # Nothing is sent: the request is answered here.
    context.route("http://cdn.invalid/**", lambda route: route.fulfill(body="// nothing"))
    page = context.new_page()
    complaints.watch(page)
    page.set_content("<script src='http://cdn.invalid/x.js'></script>")
    context.close()
    assert complaints.external == ["http://cdn.invalid/x.js"]
