"""The course as a web site: every notebook executed, its views working, nothing fetched.

Each notebook becomes a page, each view in it a page of its own inside a frame, so that stepping
works without a kernel and without a network. An index lists the chapters, and leads to the
reference, which is made from the docstrings.

Examples
--------
>>> links("see [the tour](00_tour.ipynb) and [a page](https://example.org/x.ipynb)")
'see [the tour](00_tour.html) and [a page](https://example.org/x.ipynb)'
"""

import base64
import hashlib
import html
import os
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
from pygments.formatters import HtmlFormatter

from relaxlab.cli import Mistake
from relaxlab.cli.course.new_folder import new_folder
from relaxlab.cli.lab.notebooks import find_notebooks
from relaxlab.widgets.view import EXPORT_VIEWS

__all__ = ["links", "write_site"]

_SECONDS: Final = 300
_READ: Final[Any] = nbformat.reads  # untyped, as is the next
_EXPORTER: Final[Any] = HTMLExporter
_LINK: Final = re.compile(r"\]\((?!\w+:)([^)#\s]+)\.ipynb(#[^)\s]*)?\)")
_STYLE: Final = (Path(__file__).parent / "site.css").read_text("utf-8")


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


def write_site(out: Path) -> list[Path]:
    """Execute all notebooks and write the site.

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
            chapters.append(_chapter(path, draft))
        _progress("")
        style = _STYLE + _colours()
        for at, chapter in enumerate(chapters):
            before = chapters[at - 1] if at else None
            after = chapters[at + 1] if at + 1 < len(chapters) else None
            page = _page(chapter.title, _around(before, after, chapter.body), style)
            (draft / f"{chapter.name}.html").write_text(page, encoding="utf-8")
        page = _page("relaxlab: the course", _index(chapters), style)
        (draft / "index.html").write_text(page, encoding="utf-8")
        _progress("reference")
        _reference(draft / "reference")
        _progress("")
    return sorted(out.iterdir())


def _chapter(path: Path, out: Path) -> _Chapter:
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


def _index(chapters: list[_Chapter]) -> str:
    items = "\n".join(
        f'<li><a href="{one.name}.html">{html.escape(one.title)}</a><br>{html.escape(one.about)}'
        "</li>"
        for one in chapters
    )
    return (
        f"<main><h1>relaxlab: the course</h1>\n<ul>{items}</ul>\n"
        '<p><a href="reference/relaxlab.html">Reference</a>: every public name, '
        "how the parts belong together, and how to work on them.</p></main>"
    )


def _reference(out: Path) -> None:
    """Write the reference, from the docstrings."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a docstring that cannot be read is a mistake
        pdoc.render.configure(docformat="numpy", show_source=False)
        pdoc.pdoc("relaxlab", output_directory=out)


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
    light, dark = (
        HtmlFormatter(style=style).get_style_defs(".highlight")
        for style in ("xcode", "github-dark")
    )
    return f"\n{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"


def _progress(text: str) -> None:
    """Show where the work is, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
