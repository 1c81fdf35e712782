"""Every pair of colours can be read, light and dark (WCAG 2: 4.5 for text, 3 for edges)."""

import re

import pytest

from relaxlab.widgets.view import STATIC

CSS = (STATIC / "view.css").read_text("utf-8")
ALL = CSS + "".join(path.read_text("utf-8") for path in sorted(STATIC.glob("*.css")))
COLOURS = {
    name: (light, dark)
    for name, light, dark in re.findall(
        r"--(rl-[\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", CSS
    )
}
# What is drawn on what, beyond the pairs that have one name.
DRAWN = [
    ("rl-soft-fg", "rl-bg", 4.5),
    ("rl-stop-fg", "rl-bg", 3.0),
    ("rl-current-stop-fg", "rl-current-bg", 3.0),
    ("rl-button-soft-fg", "rl-button-bg", 4.5),
    ("rl-edge", "rl-bg", 3.0),
    ("rl-edge", "rl-button-bg", 3.0),
]
PAIRS = [
    (name, name.removesuffix("-fg") + "-bg", 4.5)
    for name in COLOURS
    if name.endswith("-fg") and name.removesuffix("-fg") + "-bg" in COLOURS
]


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_measure_itself():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("front", "back", "least"), [*PAIRS, *DRAWN])
def test_a_pair_can_be_read(front, back, least, theme):
    assert contrast(COLOURS[front][theme], COLOURS[back][theme]) >= least


def test_every_colour_is_measured():
    measured = {name for front, back, _ in [*PAIRS, *DRAWN] for name in (front, back)}
    assert measured == set(COLOURS)
    # and no rule has a colour of its own
    rules = re.sub(r"light-dark\([^)]*\)", "", ALL)
    assert re.findall(r"#[0-9a-fA-F]{3,8}\b", rules) == []
    assert re.findall(r"\b(?:rgb|hsl|oklch)a?\(", rules) == []


def test_nothing_moves_by_itself_for_those_who_do_not_want_it():
    still = re.sub(
        r"@media \(prefers-reduced-motion: no-preference\) \{.*?\n\}", "", ALL, flags=re.DOTALL
    )
    assert "transition" not in still
    assert "animation" not in still
    assert "smooth" not in still
