"""A notebook in a real JupyterLab in a real browser, and whatever the browser complained about."""

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import ConsoleMessage, Error, Locator, Page, Request

from relaxlab.cli.lab.server import LabServer

READY = "() => window.jupyterapp?.shell?.currentWidget?.context?.isReady"
KERNEL = """async () => {
  const panel = jupyterapp.shell.currentWidget;
  await panel.sessionContext.ready;
  await panel.sessionContext.session.kernel.info;
}"""
COMMAND = "async ([name, args]) => { await jupyterapp.commands.execute(name, args); }"
EXECUTE = """async (code) => {
  const kernel = jupyterapp.shell.currentWidget.sessionContext.session.kernel;
  const request = kernel.requestExecute({code, store_history: false});
  let text = "";
  request.onIOPub = ({header, content}) => {
    if (header.msg_type === "stream") text += content.text;
    if (header.msg_type === "error") text += `${content.ename}: ${content.evalue}`;
  };
  await request.done;
  return text;
}"""
MILLISECONDS = 60_000


@dataclass
class Complaints:
    """Console errors, uncaught exceptions, and requests that left the machine.

    Expected are requests to ``server``, or for one ``file``.
    """

    server: LabServer | None = None
    file: Path | None = None
    errors: list[str] = field(default_factory=list)
    external: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        page.on("console", self._on_console)
        page.on("pageerror", self._on_page_error)
        page.on("request", self._on_request)
        page.on("websocket", lambda socket: self._on_url(socket.url))

    def assert_none(self) -> None:
        assert self.external == []
        assert self.errors == []

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(f"{message.text} ({message.location.get('url')})")

    def _on_page_error(self, error: Error) -> None:
        self.errors.append(f"uncaught: {error}")

    def _on_request(self, request: Request) -> None:
        self._on_url(request.url)

    def _on_url(self, url: str) -> None:
        parts = urlsplit(url)
        if self.server is not None:
            local = parts.hostname == "127.0.0.1" and parts.port == self.server.port
        else:
            # a page of a site holds frames of the same folder
            local = self.file is not None and url.startswith(f"{self.file.parent.as_uri()}/")
        if not local and parts.scheme not in {"about", "blob", "data"}:
            self.external.append(url)


@dataclass
class NotebookPage:
    """One open notebook."""

    page: Page
    server: LabServer

    def open(self, path: str) -> "NotebookPage":
        """Open the notebook at ``path``, relative to the server's root, with its kernel ready."""
        self.page.set_default_timeout(MILLISECONDS)
        self.page.goto(f"{self.server.url}/lab/tree/{path}?reset&token={self.server.token}")
        self.page.wait_for_function(READY)
        self.page.evaluate(KERNEL)
        return self

    def command(self, name: str, **args: object) -> None:
        """Execute one of Lab's commands and wait until it is done."""
        self.page.evaluate(COMMAND, [name, args])

    def run_all(self) -> None:
        """Run every cell and wait for the last."""
        self.command("notebook:run-all-cells")

    def execute(self, code: str) -> str:
        """Run code in the kernel, beside the notebook, and return what it printed or raised."""
        text: str = self.page.evaluate(EXECUTE, code)
        return text

    def theme(self, name: str) -> None:
        """Switch to ``JupyterLab Light`` or ``JupyterLab Dark``."""
        self.command("apputils:change-theme", theme=name)
        light = "true" if name.endswith("Light") else "false"
        self.page.wait_for_selector(f"body[data-jp-theme-light='{light}']", state="attached")
        # Lab draws over everything until the new style sheet is there
        self.page.wait_for_selector("#jupyterlab-splash", state="detached")

    def cells(self) -> Locator:
        """Every cell, in order."""
        return self.page.locator(".jp-Notebook-cell")

    def output(self, cell: int) -> Locator:
        """Return the output area of the cell with this number, from 0."""
        return self.cells().nth(cell).locator(".jp-OutputArea-output")

    def cell_errors(self) -> list[str]:
        """Return the text of every error that a cell shows."""
        selector = ".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.stderr']"
        return self.page.locator(selector).all_text_contents()
