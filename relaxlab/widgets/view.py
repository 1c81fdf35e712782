"""What all views share: drawn by a file of JavaScript, told in text, saved as one HTML file.

A view is an ipywidget (through anywidget). Python records once and sends the whole trace; the page
replays it. So a saved notebook and the exported file show the same without a kernel. There is no
TVM counterpart.

Examples
--------
>>> View.__name__
'View'
"""

import html
import os
import secrets
from pathlib import Path
from typing import Any, ClassVar, Final

import anywidget

from relaxlab.widgets.html import standalone

__all__ = ["EXPORT_VIEWS", "STATIC", "View"]

EXPORT_VIEWS: Final = "RELAXLAB_EXPORT_VIEWS"
"""Environment variable of a kernel whose notebook becomes a web page: ``FOLDER`` and a prefix for
the names of the views' pages, with the path separator between them."""

STATIC: Final = Path(__file__).parent / "static"


class View(anywidget.AnyWidget):
    """Base of the views.

    A subclass sets ``_esm`` (made by :func:`relaxlab.widgets.bundle.bundle`), ``_css`` and
    ``_exported`` (names of the traits that the page needs), and says what it shows in ``__str__``.
    """

    _exported: ClassVar[tuple[str, ...]] = ()
    _frame_height: ClassVar[int] = 640

    @property
    def heading(self) -> str:
        """What an exported page is called."""
        return repr(self)

    def __str__(self) -> str:
        """Return the text twin: what the view shows, for a terminal or a screen reader."""
        raise TypeError(f"{type(self).__name__} has no text twin")

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """Show the widget, and where there is none, its one-line description."""
        bundle = super()._repr_mimebundle_(**kwargs)
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        if data is None:
            data = {}
        data["text/plain"] = repr(self)
        if place := os.environ.get(EXPORT_VIEWS):
            # a site has no kernel: there, the view is a page in a frame
            data.clear()
            data.update({"text/plain": repr(self), "text/html": self._as_frame(place)})
        return (data, bundle[1]) if isinstance(bundle, tuple) else data

    def _as_frame(self, place: str) -> str:
        """Write the view's page where :data:`EXPORT_VIEWS` says; return a frame that shows it."""
        folder, _, prefix = place.rpartition(os.pathsep)
        number = 1 + len(list(Path(folder).glob(f"{prefix}-*.html")))
        path = self.to_html(Path(folder) / f"{prefix}-{number}.html")
        title = html.escape(self.heading, quote=True)
        return (
            f'<iframe class="rl-frame-view" src="{path.parent.name}/{path.name}" '
            f'height="{self._frame_height}" title="{title}"></iframe>'
        )

    def to_html(self, path: str | os.PathLike[str], *, title: str | None = None) -> Path:
        """Write the view as one self-contained file that works offline and without a kernel.

        Parameters
        ----------
        path
            Where to; an existing file is replaced, and only by a whole one.
        title
            Title of the page; by default :attr:`heading`.

        Returns
        -------
        Path
            Where the file is.

        Raises
        ------
        OSError
            If the file cannot be written; nothing is left behind then.
        """
        target = Path(path)
        page = standalone(
            title=title or self.heading,
            esm=self._esm,
            css=self._css,
            state={name: getattr(self, name) for name in self._exported},
            text=str(self),
        )
        draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        try:
            # a program may print what UTF-8 cannot hold: one half of a surrogate pair
            draft.write_bytes(page.encode("utf-8", "replace"))
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
        return target
