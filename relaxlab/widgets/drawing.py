"""DOT text to a picture, with whichever renderer is here, or none.

System Graphviz is used where there is one, else the renderer of the package ``graphviz-pure``;
without either the text itself is shown. There is no TVM counterpart.

Examples
--------
>>> picture = svg_of("digraph { a -> b }")
>>> picture is None or picture.startswith("<svg")
True
"""

import shutil
import sys
from pathlib import Path
from typing import Final

import graphviz

__all__ = ["renderer", "svg_of"]

_LONGEST: Final = 200_000


def renderer() -> str | None:
    """Return the path of a program that draws DOT text; None if there is none."""
    beside = str(Path(sys.executable).parent)
    return (
        shutil.which("dot")
        or shutil.which("graphviz-pure", path=beside)
        or shutil.which("graphviz-pure")
    )


def svg_of(dot: str) -> str | None:
    """Return a graph as the text of an SVG element, or None where it cannot be drawn.

    Lines and letters have the colours of what is around them.
    """
    program = renderer()
    if program is None or len(dot) > _LONGEST:
        return None
    source = graphviz.Source(dot)
    before = graphviz.backend.dot_command.DOT_BINARY
    graphviz.backend.dot_command.DOT_BINARY = Path(program)
    try:
        text: str = source.pipe(format="svg", encoding="utf-8")
    except (graphviz.ExecutableNotFound, graphviz.CalledProcessError):
        return None
    finally:
        graphviz.backend.dot_command.DOT_BINARY = before
    return text[text.index("<svg") :].strip()
