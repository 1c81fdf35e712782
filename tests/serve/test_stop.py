"""Stop strings, however the text is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxlab.serve.stop import StopText

TEXT = st.text("abc", max_size=30)
STOPS = st.lists(st.text("abc", min_size=1, max_size=4), max_size=3)


@given(TEXT, STOPS, st.lists(st.integers(1, 5)))
def test_cutting_the_text_differently_changes_nothing(text, strings, sizes):
    stop, out, at = StopText(strings), "", 0
    for size in [*sizes, len(text)]:
        out += stop.push(text[at : at + size])
        assert text.startswith(out)
        at += size
    out += stop.finish()
    ends = [(text.index(s), n) for n, s in enumerate(strings) if s in text]
    expected = text[: min(ends)[0]] if ends else text
    if stop.found is None:
        assert not ends
        assert out == expected
    else:  # the first that was complete, never text after its beginning
        assert stop.found in text
        assert out == text[: text.index(stop.found)]


def test_text_is_held_only_as_long_as_it_may_be_a_stop_string():
    stop = StopText(["</end>"])
    assert stop.push("x </e") == "x "
    assert stop.held == "</e"
    assert stop.push("m>") == "</em>"
    assert stop.finish() == ""


def test_nothing_comes_after_the_end():
    stop = StopText(["!", "?!"])
    assert stop.push("what?!") == "what"
    assert (stop.found, stop.push("more"), stop.finish()) == ("?!", "", "")


def test_an_empty_stop_string_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        StopText(["a", ""])
