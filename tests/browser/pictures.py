"""Make the README's pictures: real views of real runs, as Chromium draws them.

``python -m tests.browser.pictures`` writes them into ``notebooks/pictures``, light and dark.
"""

import base64
import shutil
import struct
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright

from relaxlab.trace.pool_events import explain_pool_event
from relaxlab.widgets import VMStepper, demos
from relaxlab.widgets.view import View
from tests.browser.conftest import CHROMIUM_OPTIONS, REPOSITORY

FOLDER = REPOSITORY / "notebooks" / "pictures"
THEMES = ("light", "dark")
WIDTH = 1000
# Two dots of the picture for each of the page: sharp on any screen.
SCALE = 2


def stepper() -> tuple[View, int]:
    """Return the stepper of a small network, and the step at which its first layer is there."""
    view = demos.demo("stepper")
    assert isinstance(view, VMStepper)
    kernels = [int(pc) for pc, (_, _, kernel) in view.sources.items() if kernel]
    return view, view.session.timeline.visits(kernels[1])[0]


def pages() -> tuple[View, int]:
    """Return the pages of two users, and the event after which some were given up."""
    view = demos.two_users("tiny")
    events = view.timelines[0].events
    at = next(at for at, event in enumerate(events) if type(event).__name__ == "Evicted")
    assert "is evicted" in explain_pool_event(events[at])
    return view, at + 1


# Chromium writes a picture with all its colours, which is three times as large; it also reads one.
PIXELS = """async (encoded) => {
  const bytes = Uint8Array.from(atob(encoded), (character) => character.charCodeAt(0));
  const bitmap = await createImageBitmap(new Blob([bytes]));
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  const context = canvas.getContext("2d");
  context.drawImage(bitmap, 0, 0);
  const { data } = context.getImageData(0, 0, bitmap.width, bitmap.height);
  let text = "";
  for (let at = 0; at < data.length; at += 8192)
    text += String.fromCharCode(...data.subarray(at, at + 8192));
  return [bitmap.width, bitmap.height, btoa(text)];
}"""
COLOURS = 128


VIEWS: dict[str, Callable[[], tuple[View, int]]] = {"stepper": stepper, "pages": pages}


def draw(browser: Browser, name: str, folder: Path) -> Iterator[Path]:
    """Write one view's picture in each theme into a folder; yield their paths."""
    view, at = VIEWS[name]()
    with tempfile.TemporaryDirectory() as scratch:
        html = view.to_html(Path(scratch) / f"{name}.html")
        for theme in THEMES:
            with browser.new_context(
                viewport={"width": WIDTH, "height": 800},
                color_scheme=theme,
                device_scale_factor=SCALE,
            ) as context:
                page = context.new_page()
                page.goto(html.as_uri())
                go_to(page, at)
                path = folder / f"{name}-{theme}.png"
                picture = page.locator("#view").screenshot(animations="disabled")
                path.write_bytes(in_few_colours(page, picture))
                yield path


def go_to(page: Page, position: int) -> None:
    """Move the view, as its reader would, and let go of the control."""
    page.get_by_role("spinbutton").first.fill(str(position))
    page.keyboard.press("Enter")
    page.evaluate("document.activeElement.blur()")


def in_few_colours(page: Page, picture: bytes) -> bytes:
    """Return a PNG again, with a palette: a view has few colours, and the edges of its letters."""
    width, height, encoded = page.evaluate(PIXELS, base64.b64encode(picture).decode())
    pixels = np.frombuffer(base64.b64decode(encoded), np.uint8).reshape(height * width, 4)[:, :3]
    codes = pixels.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)
    counts = np.bincount(codes, minlength=1 << 24)
    found = np.flatnonzero(counts)
    channels = np.stack([found >> 16, found >> 8 & 255, found & 255], axis=1)
    for shift in range(8):
        _, group = np.unique(channels >> shift, axis=0, return_inverse=True)
        if group.max() < COLOURS:
            break
    group = group.reshape(-1)
    weights = np.bincount(group, counts[found])
    sums = [np.bincount(group, counts[found] * channels[:, one]) for one in range(3)]
    palette = np.rint(np.stack(sums, axis=1) / weights[:, None]).astype(np.uint8)
    index = np.zeros(1 << 24, np.uint8)
    index[found] = group
    rows = np.zeros((height, width + 1), np.uint8)  # each begins with its filter: none
    rows[:, 1:] = index[codes].reshape(height, width)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I4s", len(data), kind) + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in (
            (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            (b"PLTE", palette.tobytes()),
            (b"IDAT", zlib.compress(rows.tobytes(), 9)),
            (b"IEND", b""),
        )
    )


def main() -> None:
    """Write every picture."""
    FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=CHROMIUM_OPTIONS
        )
        for name in VIEWS:
            for path in draw(browser, name, FOLDER):
                print(f"{path}  {path.stat().st_size / 1000:.0f} kB", file=sys.stderr)
        browser.close()


if __name__ == "__main__":
    main()
