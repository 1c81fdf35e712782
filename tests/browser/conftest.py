"""A JupyterLab, a browser and a page for each test.

Without chromium these tests skip and say so; RELAXLAB_REQUIRE_BROWSER=1 makes that a failure.
"""

import asyncio
import importlib.util
import json
import os
import queue
import shutil
import threading
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from relaxlab.cli.lab.server import LabServer, running_server

REPOSITORY = Path(__file__).resolve().parents[2]
START_SECONDS = 60
CHROMIUM_OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass(frozen=True)
class Lab:
    """A running JupyterLab, and the folder it serves, which holds a copy of the notebooks."""

    server: LabServer
    root: Path


def unavailable(reason: str) -> None:
    if os.environ.get("RELAXLAB_REQUIRE_BROWSER") == "1":
        pytest.fail(f"RELAXLAB_REQUIRE_BROWSER=1, but {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Return the path of Debian's chromium."""
    path = shutil.which("chromium")
    if path is None:
        unavailable("there is no chromium on the path: apt-get install chromium")
    if importlib.util.find_spec("playwright") is None:
        unavailable("playwright is not installed: python -m pip install 'relaxlab[test]'")
    assert path is not None
    return path


@pytest.fixture(scope="package")
def browser(chromium):
    """Return a headless browser.

    It ends with the last browser test: while it runs, Playwright keeps an event loop running in
    this thread, and no other test could start one.
    """
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - the fixture above may skip

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, headless=True, args=CHROMIUM_OPTIONS
        )
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def lab(chromium, tmp_path_factory) -> Iterator[Lab]:
    """Run a JupyterLab on a copy of the notebooks, with a configuration of its own."""
    scratch = tmp_path_factory.mktemp("lab")
    root = tmp_path_factory.mktemp("root")
    shutil.copytree(
        REPOSITORY / "notebooks", root / "notebooks", ignore=shutil.ignore_patterns(".*")
    )
    ready: queue.Queue[LabServer | BaseException] = queue.Queue()
    finished = threading.Event()

    async def serve() -> None:
        try:
            async with running_server(root, scratch) as server:
                ready.put(server)
                await asyncio.to_thread(finished.wait)
        except BaseException as error:
            ready.put(error)
            raise

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        server = ready.get(timeout=START_SECONDS)
        if isinstance(server, BaseException):
            raise server
        yield Lab(server, root)
    finally:
        finished.set()
        thread.join()


@pytest.fixture
def open_notebook(browser, lab) -> Iterator[Callable[[str], object]]:
    """Return a function which opens a notebook of the lab's root.

    When the test is over, any console error or request that left the machine fails it.
    """
    from tests.browser.driver import Complaints, NotebookPage  # noqa: PLC0415 - needs playwright

    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    complaints = Complaints(lab.server)

    def open_(path: str) -> NotebookPage:
        page = context.new_page()
        complaints.watch(page)
        return NotebookPage(page, lab.server).open(path)

    try:
        yield open_
    finally:
        context.close()
        end_kernels(lab.server)
    complaints.assert_none()


@pytest.fixture
def open_page(browser, tmp_path):
    """Return a function which exports a view and opens the file; complaints fail the test."""
    from tests.browser.driver import Complaints  # noqa: PLC0415 - needs playwright

    watched, contexts = [], []

    def open_(view, **options):
        path = view if isinstance(view, Path) else view.to_html(tmp_path / "page.html")
        complaints = Complaints(file=path)
        context = browser.new_context(viewport={"width": 1280, "height": 800}, **options)
        page = context.new_page()
        page.set_default_timeout(20_000)
        complaints.watch(page)
        page.on("dialog", lambda dialog: complaints.errors.append(f"dialog {dialog.message}"))
        page.goto(path.as_uri())
        watched.append(complaints)
        contexts.append(context)
        return page

    yield open_
    for context in contexts:
        context.close()
    for complaints in watched:
        complaints.assert_none()


def end_kernels(server: LabServer) -> None:
    """End every session, so that the kernels of one test do not slow down the next."""
    headers = {"Authorization": f"token {server.token}"}
    sessions = urllib.request.Request(f"{server.url}/api/sessions", headers=headers)
    with urllib.request.urlopen(sessions, timeout=START_SECONDS) as response:
        found = json.load(response)
    for session in found:
        end = urllib.request.Request(
            f"{server.url}/api/sessions/{session['id']}", headers=headers, method="DELETE"
        )
        urllib.request.urlopen(end, timeout=START_SECONDS).close()
