"""The course as a web site: every notebook executed, its views working, nothing fetched.

Each notebook becomes a page, each view in it a page of its own inside a frame, so that stepping
works without a kernel and without a network. An index lists the chapters, the demos, and the
packages of the reference, which is made from the docstrings. Exercises come without solutions.

Examples
--------
>>> links("see [the tour](00_tour.ipynb) and [a page](https://example.org/x.ipynb)")
'see [the tour](00_tour.html) and [a page](https://example.org/x.ipynb)'
"""

import ast
import base64
import hashlib
import html
import importlib.util
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import nbformat
import pdoc
import pdoc.render
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbconvert import HTMLExporter
from pdoc.extract import walk_specs
from pygments.formatters import HtmlFormatter

import relaxlab
from relaxlab.cli import Mistake
from relaxlab.cli.course.new_folder import new_folder
from relaxlab.cli.course.release import without_solutions
from relaxlab.cli.lab.notebooks import find_notebooks
from relaxlab.widgets import demos
from relaxlab.widgets.view import EXPORT_VIEWS

__all__ = ["links", "write_site"]

_SECONDS: Final = 300
_READ: Final[Any] = nbformat.reads  # untyped, as is the next
_EXPORTER: Final[Any] = HTMLExporter
_LINK: Final = re.compile(r"\]\((?!\w+:)([^)#\s]+)\.ipynb(#[^)\s]*)?\)")
_INNER_LINK: Final = re.compile(r'<a(?: class="[^"]*")? href="#([^"]*)">(.*?)</a>', re.DOTALL)
_TOP: Final = 2  # parts in the name of a package or module right below `relaxlab`
_WITHOUT_DOOR: Final = ("interop", "serve")  # packages that are used by the module
_STYLE: Final = (Path(__file__).parent / "site.css").read_text("utf-8")
_REFERENCE_STYLE: Final = (Path(__file__).parent / "reference.css").read_text("utf-8")


@dataclass(frozen=True, slots=True)
class _Chapter:
    """One page of the site."""

    name: str
    title: str
    about: str
    body: str


def links(markdown: str) -> str:
    """Return a text in which links to other notebooks lead to their pages."""
    return _LINK.sub(lambda match: f"]({match[1]}.html{match[2] or ''})", markdown)


def write_site(out: Path, *, solutions: bool = False) -> list[Path]:
    """Execute all notebooks and write the site.

    Parameters
    ----------
    out
        A folder that does not exist yet.
    solutions
        Whether the pages show the solutions of exercises.

    Returns
    -------
    list of Path
        What was written.

    Raises
    ------
    Mistake
        If the folder exists or cannot be made, or a cell fails; nothing is left behind then.
    """
    notebooks = sorted(find_notebooks().glob("*.ipynb"))
    with new_folder(out) as draft:
        chapters = []
        for number, path in enumerate(notebooks, 1):
            _progress(f"{number} of {len(notebooks)}: {path.stem}")
            chapters.append(_chapter(path, draft, solutions))
        _progress("")
        style = _STYLE + _colours()
        for at, chapter in enumerate(chapters):
            before = chapters[at - 1] if at else None
            after = chapters[at + 1] if at + 1 < len(chapters) else None
            page = _page(chapter.title, _around(before, after, chapter.body), style)
            (draft / f"{chapter.name}.html").write_text(page, encoding="utf-8")
        _progress("demos")
        (draft / "demos").mkdir()
        for name in demos.names():
            demos.demo(name).to_html(draft / "demos" / f"{name}.html")
        _progress("reference")
        packages = _reference(draft / "reference")
        page = _page("relaxlab: the course", _index(chapters, packages), style)
        (draft / "index.html").write_text(page, encoding="utf-8")
        _progress("")
    return sorted(out.iterdir())


def _chapter(path: Path, out: Path, solutions: bool) -> _Chapter:
    notebook = _READ(path.read_text(encoding="utf-8"), as_version=4)
    views = out / "views"
    views.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch) / "notebooks"
        shutil.copytree(path.parent, work, ignore=shutil.ignore_patterns(".*"))
        client = NotebookClient(
            notebook,
            timeout=_SECONDS,
            kernel_name="python3",
            resources={"metadata": {"path": str(work)}},
        )
        # a view that is shown in such a kernel writes its page there, see relaxlab.widgets.view
        place = f"{views}{os.pathsep}{path.stem}"
        try:
            client.execute(env={**os.environ, EXPORT_VIEWS: place}, stderr=subprocess.DEVNULL)
        except CellExecutionError as error:
            raise Mistake(f"{path.name}: a cell failed: {error.ename}: {error.evalue}") from None
        except AssertionError:
            # nbclient takes Ctrl-C and SIGTERM for itself, ends its kernel, and trips over that
            if client.km is None:
                raise KeyboardInterrupt from None
            raise
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = links(cell.source)
        elif not solutions and (shown := without_solutions(cell.source)) != cell.source:
            cell.source, cell.outputs = shown, []  # who wants to see it solves it
    exporter = _EXPORTER(template_name="basic", exclude_anchor_links=True)
    body, _ = exporter.from_notebook_node(notebook)
    title, about = _head(notebook)
    return _Chapter(path.stem, title, about, body)


def _head(notebook: Any) -> tuple[str, str]:
    """Return a notebook's title, and its first paragraph without marks."""
    first = notebook.cells[0].source
    title, _, rest = first.partition("\n")
    about = rest.strip().split("\n\n")[0]
    return title.lstrip("# ").strip(), re.sub(r"[*_`]|\]\([^)]*\)|\[", "", about)


def _around(before: _Chapter | None, after: _Chapter | None, body: str) -> str:
    words = ['<a href="index.html">All chapters</a>']
    if before is not None:
        words.append(f'<a rel="prev" href="{before.name}.html">← {html.escape(before.title)}</a>')
    if after is not None:
        words.append(f'<a rel="next" href="{after.name}.html">{html.escape(after.title)} →</a>')
    line = " · ".join(words)
    return (
        f'<nav aria-label="Chapters, above">{line}</nav>\n<main>{body}</main>\n'
        f'<nav aria-label="Chapters, below">{line}</nav>'
    )


def _index(chapters: list[_Chapter], packages: dict[str, str]) -> str:
    items = "\n".join(
        f'<li><a href="{one.name}.html">{html.escape(one.title)}</a><br>{html.escape(one.about)}'
        "</li>"
        for one in chapters
    )
    shown = "\n".join(
        f'<li><a href="demos/{name}.html">{html.escape(demos.title(name))}</a></li>'
        for name in demos.names()
    )
    reference = "\n".join(
        f'<li><a href="reference/{name.replace(".", "/")}.html">{name}</a><br>{html.escape(about)}'
        "</li>"
        for name, about in packages.items()
    )
    return f"""<main><h1>relaxlab: the course</h1>
<ul aria-label="Chapters">{items}</ul>
<h2>Demos</h2>
<p>Each is one file that works by itself, to be sent or put anywhere.</p>
<ul aria-label="Demos">{shown}</ul>
<h2>Reference</h2>
<p><a href="reference/relaxlab.html">relaxlab</a> says how a value travels through all parts, and
how to work on them. The parts, with every public name:</p>
<ul aria-label="Packages">{reference}</ul></main>"""


def _reference(out: Path) -> dict[str, str]:
    """Write the reference, from the docstrings; return the packages and what they are about."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a docstring that cannot be read is a mistake
        pdoc.render.configure(docformat="numpy", show_source=False)
        pdoc.pdoc(*_documented(), output_directory=out)
    (out / "index.html").unlink()  # it only leads on, which no link of ours needs
    colours = f"<style>{_REFERENCE_STYLE}{_dark_code('.pdoc-code')}</style></head>"
    for page in out.rglob("*.html"):
        text = _without_dead_links(page.read_text(encoding="utf-8"))
        page.write_text(text.replace("</head>", colours, 1), encoding="utf-8")
    parts = (one.name for one in pkgutil.iter_modules(relaxlab.__path__, "relaxlab."))
    return {name: _says(name) for name in parts if "._" not in name}


def _documented() -> list[str]:
    """Return what pdoc is to start from, so that it reaches every package.

    It follows ``__all__``, which names what a user takes from a package, not what the package is
    made of.
    """
    starts, reached = ["relaxlab"], set(walk_specs(["relaxlab"]))
    for module in pkgutil.walk_packages(relaxlab.__path__, "relaxlab."):
        parts = module.name.split(".")
        if module.name in reached or any(part.startswith("_") for part in parts):
            continue
        if module.ispkg or len(parts) == _TOP or parts[1] in _WITHOUT_DOOR:
            starts.append(module.name)
            reached |= set(walk_specs([module.name]))
    return starts


def _says(name: str) -> str:
    """Return the first line of a module's docstring, read without importing the module."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    docstring = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8")))
    return (docstring or "").partition("\n")[0].replace("``", "")


def _without_dead_links(page: str) -> str:
    """Return a page of pdoc without links to what it leaves out (private bases, their members)."""
    here = set(re.findall(r'\bid="([^"]+)"', page))
    return _INNER_LINK.sub(lambda link: link[0] if link[1] in here else link[2], page)


def _page(title: str, body: str, style: str) -> str:
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    # inline styles: pandas-like tables and ANSI colours that nbconvert writes
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; style-src-attr 'unsafe-inline'; "
        "img-src data:; frame-src 'self' file:; base-uri 'none'; form-action 'none'"
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def _colours() -> str:
    """Return the colours of code, light and dark."""
    light = HtmlFormatter(style="xcode").get_style_defs(".highlight")
    return f"\n{light}\n{_dark_code('.highlight')}"


def _dark_code(selector: str) -> str:
    """Return the colours of code in the dark."""
    dark = HtmlFormatter(style="github-dark").get_style_defs(selector)
    return f"@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"


def _progress(text: str) -> None:
    """Show where the work is, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
