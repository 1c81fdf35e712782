"""Events survive the way through bytes, whatever they hold; damaged bytes are refused."""

from dataclasses import dataclass
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxlab.runtime.kv import observer
from relaxlab.serve import events as events_of_engine
from relaxlab.trace.event_stream import decode, encode, schema_of

CLASSES = (*get_args(observer.Event), *get_args(events_of_engine.Event))
NUMBERS = st.integers(-(2**40), 2**40)
FORMS = {
    "i": NUMBERS,
    "s": st.text(max_size=5),
    "I": st.lists(NUMBERS, max_size=5).map(tuple),
    "P": st.lists(st.tuples(NUMBERS, NUMBERS), max_size=3).map(tuple),
    "T": st.lists(st.tuples(st.tuples(NUMBERS, NUMBERS), NUMBERS), max_size=3).map(tuple),
    "o": st.none() | NUMBERS,
}


@st.composite
def events(draw):
    cls = draw(st.sampled_from(CLASSES))
    _, fields = next(entry for entry in schema_of(CLASSES) if entry[0] == cls.__name__)
    hints = cls.__annotations__
    return cls(
        *(draw(st.booleans() if hints[name] is bool else FORMS[form]) for name, form in fields)
    )


def test_every_event_of_a_cache_can_be_written():
    assert [name for name, _ in schema_of(CLASSES)] == [cls.__name__ for cls in CLASSES]


@given(st.lists(events(), max_size=20))
def test_reading_gives_back_what_was_written(written):
    stream, texts = encode(written, CLASSES)
    assert decode(stream, texts, CLASSES) == written
    assert len(set(texts)) == len(texts)


@given(st.lists(events(), min_size=1, max_size=5), st.data())
def test_damaged_bytes_are_refused_or_read_as_other_events(written, data):
    stream, texts = encode(written, CLASSES)
    at = data.draw(st.integers(0, len(stream) - 1))
    damaged = stream[:at] + bytes([data.draw(st.integers(0, 255))]) + stream[at + 1 :]
    for bad in (damaged, stream[:at]):
        try:
            found = decode(bad, texts, CLASSES)
        except ValueError:
            with pytest.raises(ValueError, match="wrong at byte"):
                decode(bad, texts, CLASSES)
        else:
            assert all(type(event) in CLASSES for event in found)


def test_what_a_stream_cannot_hold_is_named():
    @dataclass(frozen=True)
    class Odd:
        weight: float

    with pytest.raises(TypeError, match=r"Odd\.weight.*float"):
        schema_of([Odd])
    with pytest.raises(TypeError, match="no event of this stream"):
        encode([Odd(1.0)], CLASSES)
