"""The course as a web site: every page, both themes, nothing fetched; views can be stepped."""

import re
from pathlib import Path

import pytest

from relaxlab.cli import main


@pytest.fixture(scope="module")
def site(chromium, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("site") / "public"
    assert main(["course", "site", str(out)]) == 0
    return out


def test_the_index_leads_to_every_notebook(site, open_page):
    page = open_page(site / "index.html")
    targets = [link.get_attribute("href") for link in page.locator("main li a").all()]
    notebooks = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
    assert targets == [f"{path.stem}.html" for path in notebooks]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_opens_and_its_links_lead_somewhere(site, open_page, scheme):
    for path in sorted(site.glob("*.html")):
        page = open_page(path, color_scheme=scheme)
        assert page.title()
        for link in page.locator("a").all():
            target = link.get_attribute("href").partition("#")[0]
            assert not target or re.match(r"https?:", target) or (site / target).exists(), target
        for frame in page.locator("iframe").all():
            inside = frame.content_frame
            assert inside.locator(".rl-view").count() == 1


def test_a_view_steps_without_a_kernel(site, open_page):
    page = open_page(site / "00_tour.html")
    view = page.locator("iframe").first.content_frame
    view.get_by_role("button", name="Step", exact=True).click()
    assert view.get_by_label("Go to step").input_value() == "1"


def test_the_reference_names_the_public_names_and_fetches_nothing(site, open_page):
    page = open_page(site / "reference" / "relaxlab.html")
    text = page.locator("main").inner_text()
    assert "How a value travels" in text
    assert "Working on it" in text
    page = open_page(site / "reference" / "relaxlab" / "widgets.html")
    for name in ("VMStepper", "PagePool", "PassExplorer"):
        assert page.locator(f"#{name}").count() == 1
