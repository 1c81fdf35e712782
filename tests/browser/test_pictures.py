"""The script that makes the README's pictures makes them again."""

import struct

import pytest

from tests.browser import pictures


@pytest.mark.parametrize("name", pictures.VIEWS)
def test_a_picture_is_made_again_in_both_themes(browser, name, tmp_path):
    made = list(pictures.draw(browser, name, tmp_path))
    assert [path.name for path in made] == [f"{name}-{theme}.png" for theme in pictures.THEMES]
    for path in made:
        committed = pictures.FOLDER / path.name
        # Other fonts make other pixels, and other line breaks: only the width is the same.
        (width, height), (old_width, old_height) = size(path), size(committed)
        assert width == old_width
        assert 0.7 < height / old_height < 1.4
        assert path.stat().st_size < 200_000
    light, dark = (darkness(browser, path) for path in made)
    assert light < 0.4
    assert dark > 0.6


def size(path):
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", data[16:24])


def darkness(browser, path):
    """Return the mean darkness of what a browser shows of the file, from 0 to 1."""
    page = browser.new_page()
    try:
        page.goto(path.as_uri())
        return page.evaluate(
            """() => {
              const image = document.querySelector("img");
              const canvas = new OffscreenCanvas(image.naturalWidth, image.naturalHeight);
              const context = canvas.getContext("2d");
              context.drawImage(image, 0, 0);
              const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
              let sum = 0;
              for (let at = 0; at < data.length; at += 4) sum += data[at];
              return 1 - sum / (data.length / 4) / 255;
            }"""
        )
    finally:
        page.close()
