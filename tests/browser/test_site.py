"""The course as a web site: every page, both themes, nothing fetched; views can be stepped."""

import pkgutil
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import relaxlab
from relaxlab.cli import main
from relaxlab.widgets import demos


@pytest.fixture(scope="module")
def site(chromium, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("site").resolve() / "public"
    assert main(["course", "site", str(out)]) == 0
    return out


def test_the_index_leads_to_every_notebook(site, open_page):
    page = open_page(site / "index.html")
    chapters = page.get_by_role("list", name="Chapters").locator("a")
    targets = [link.get_attribute("href") for link in chapters.all()]
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
        text = page.locator("body").inner_text()
        assert "SOLUTION" not in text
        assert path.stem == "index" or "# YOUR CODE HERE" in text
        for frame in page.locator("iframe").all():
            inside = frame.content_frame
            assert inside.locator(".rl-view").count() == 1


def test_a_view_steps_without_a_kernel(site, open_page):
    page = open_page(site / "00_tour.html")
    view = page.locator("iframe").first.content_frame
    view.get_by_role("button", name="Step", exact=True).click()
    assert view.get_by_label("Go to step").input_value() == "1"


def test_the_reference_is_dark_in_the_dark(site, open_page):
    colours = []
    for scheme in ("light", "dark"):
        page = open_page(site / "reference" / "relaxlab" / "serve.html", color_scheme=scheme)
        background, text, code = (
            f"getComputedStyle(document.querySelector('{selector}'))"
            for selector in ("body", "main p", ".pdoc-code .gp, .pdoc-code .kn")
        )
        colours += page.evaluate(f"[{background}.backgroundColor, {text}.color, {code}.color]")
    assert colours[0] == "rgb(255, 255, 255)"
    assert colours[3] == "rgb(17, 17, 17)"
    assert len(set(colours)) == len(colours)


def test_the_reference_names_the_public_names_and_fetches_nothing(site, open_page):
    page = open_page(site / "reference" / "relaxlab.html")
    text = page.locator("main").inner_text()
    assert "How a value travels" in text
    assert "Working on it" in text
    page = open_page(site / "reference" / "relaxlab" / "widgets.html")
    for name in ("VMStepper", "PagePool", "PassExplorer"):
        assert page.locator(f"#{name}").count() == 1


class Anchors(HTMLParser):
    """What can be linked to in a page, and what it links to."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.ids.add(named.get("id"))
        self.links += [named[key] for key in ("href", "src") if named.get(key)]


def test_every_link_leads_to_a_page_and_a_place_in_it(site):
    pages = {path: Anchors(path.read_text("utf-8")) for path in site.rglob("*.html")}
    lost, followed = [], 0
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                assert parts.scheme in ("https", "data"), link
                continue
            followed += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            known = pages[target].ids if target in pages else None
            if not target.exists() or (parts.fragment and unquote(parts.fragment) not in known):
                lost.append(f"{path.relative_to(site)}: {link}")
    assert lost == []
    assert followed > 10_000


def test_every_public_package_is_in_the_reference(site):
    index = Anchors((site / "index.html").read_text("utf-8"))
    for module in pkgutil.walk_packages(relaxlab.__path__, "relaxlab."):
        if "._" in module.name or not (module.ispkg or module.name.count(".") == 1):
            continue
        page = f"reference/{module.name.replace('.', '/')}.html"
        assert (site / page).exists(), page
        if module.name.count(".") == 1:
            assert page in index.links
    assert {f"demos/{name}.html" for name in demos.names()} <= set(index.links)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_demos_open(site, open_page, scheme):
    for name in demos.names():
        path = site / "demos" / f"{name}.html"
        assert path.stat().st_size < 8e6
        page = open_page(path, color_scheme=scheme)
        view = page.locator(".rl-view")
        assert view.count() == 1
        assert len(view.screenshot()) > 6_000
