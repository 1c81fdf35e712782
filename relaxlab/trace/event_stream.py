"""Events as a short stream of bytes, for a view that decodes them in the page.

Every event is a frozen dataclass of integers, booleans, texts and tuples of integers, so that one
description of the classes (:func:`schema_of`) is enough to write and to read them all: a page knows
the same classes by the same names, and nothing else is agreed. Integers are written in the
variable-length form of protocol buffers (zigzag, seven bits a byte): a million events of a page
pool take a few megabytes. There is no TVM counterpart.

======  =============================================================================
form    how a field is written
======  =============================================================================
``i``   an integer or a boolean
``s``   a text: its index in the table of texts
``I``   a tuple of integers: its length, then each
``P``   a tuple of pairs of integers: the number of pairs, then each number
``T``   a tuple of ((integer, integer), integer): their number, then each number
``o``   an integer or None: a tuple of one or none
======  =============================================================================

Examples
--------
>>> from relaxlab.runtime.kv.observer import PagesAllocated, SequenceAdded
>>> classes = (PagesAllocated, SequenceAdded)
>>> schema_of(classes)[0]
['PagesAllocated', [['block', 'i'], ['pages', 'I']]]
>>> stream, texts = encode([PagesAllocated(0, (5, 300)), SequenceAdded(-1, 0)], classes)
>>> stream.hex(), texts
('0000040ad804020100', [])
>>> decode(stream, texts, classes)
[PagesAllocated(block=0, pages=(5, 300)), SequenceAdded(seq_id=-1, block=0)]
"""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

__all__ = ["decode", "encode", "schema_of"]

_LAST: Final = 0x7F
_MORE: Final = 0x80
_LONGEST: Final = 63


def schema_of(classes: Sequence[type]) -> list[list[Any]]:
    """Return ``[name, [[field, form], ...]]`` for each class: what a reader must know.

    Raises
    ------
    TypeError
        If a class has a field of another kind.
    """
    return [[cls.__name__, [list(field) for field in _forms(cls)]] for cls in classes]


def encode(events: Iterable[Any], classes: Sequence[type]) -> tuple[bytes, list[str]]:
    """Return the events as bytes, and the table of their texts.

    Parameters
    ----------
    events
        Instances of ``classes``.
    classes
        In the order of the schema: an event begins with the index of its class.

    Raises
    ------
    TypeError
        If an event is of none of the classes.
    """
    opcodes = {known: index for index, known in enumerate(classes)}
    texts: dict[str, int] = {}
    out = bytearray()
    for event in events:
        cls: Any = type(event)
        opcode = opcodes.get(cls)
        if opcode is None:
            raise TypeError(f"no event of this stream: {event!r}")
        _write(out, opcode)
        for name, form in _forms(cls):
            value = getattr(event, name)
            match form:
                case "i":
                    _write(out, int(value))
                case "s":
                    _write(out, texts.setdefault(value, len(texts)))
                case "o":
                    _write_all(out, () if value is None else (value,), 1)
                case "I":
                    _write_all(out, value, 1)
                case "P":
                    _write_all(out, [one for pair in value for one in pair], 2)
                case _:
                    _write_all(out, [one for (a, b), c in value for one in (a, b, c)], 3)
    return bytes(out), list(texts)


def decode(stream: bytes, texts: Sequence[str], classes: Sequence[type]) -> list[Any]:
    """Return the events of a stream; what a page does, in Python.

    Raises
    ------
    ValueError
        If the stream is cut, or names a class or text that is not there.
    """
    reader = _Reader(stream)
    events = []
    while reader.at < len(stream):
        start = reader.at
        try:
            events.append(_read(reader, texts, classes))
        except IndexError:
            raise ValueError(f"not a stream of these events: wrong at byte {start}") from None
    return events


class _Reader:
    def __init__(self, stream: bytes) -> None:
        self.stream = stream
        self.at = 0

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.stream[self.at]
            self.at += 1
            value |= (byte & _LAST) << shift
            if byte < _MORE:
                return (value >> 1) ^ -(value & 1)
            shift += 7
            if shift > _LONGEST:
                raise IndexError(shift)

    def count(self) -> int:
        """Return a count; each of what is counted takes a byte at least."""
        value = self.number()
        if not 0 <= value <= len(self.stream) - self.at:
            raise IndexError(value)
        return value

    def index(self, size: int) -> int:
        """Return an index into a table of ``size`` entries."""
        value = self.number()
        if not 0 <= value < size:
            raise IndexError(value)
        return value


def _read(reader: _Reader, texts: Sequence[str], classes: Sequence[type]) -> Any:
    cls = classes[reader.index(len(classes))]
    hints = _hints(cls)
    values: list[Any] = []
    for name, form in _forms(cls):
        match form:
            case "i":
                number = reader.number()
                values.append(bool(number) if hints[name] is bool else number)
            case "s":
                values.append(texts[reader.index(len(texts))])
            case "o":
                found = [reader.number() for _ in range(reader.count())]
                values.append(found[0] if found else None)
            case "I":
                values.append(tuple(reader.number() for _ in range(reader.count())))
            case "P":
                pairs = range(reader.count())
                values.append(tuple((reader.number(), reader.number()) for _ in pairs))
            case _:
                triples = range(reader.count())
                one = reader.number
                values.append(tuple(((one(), one()), one()) for _ in triples))
    return cls(*values)


def _write_all(out: bytearray, numbers: Sequence[int], each: int) -> None:
    """Write how many groups of ``each`` numbers there are, and the numbers."""
    _write(out, len(numbers) // each)
    for number in numbers:
        _write(out, number)


def _write(out: bytearray, value: int) -> None:
    # zigzag: small negative numbers are short too
    value = value << 1 if value >= 0 else (-value << 1) - 1
    while value > _LAST:
        out.append(value & _LAST | _MORE)
        value >>= 7
    out.append(value)


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)


@cache
def _forms(cls: Any) -> tuple[tuple[str, str], ...]:
    hints = _hints(cls)
    return tuple((field.name, _form(cls, field.name, hints[field.name])) for field in fields(cls))


def _form(cls: type, name: str, hint: Any) -> str:
    if hint in (int, bool):
        return "i"
    if hint is str or (
        get_origin(hint) is Literal and all(isinstance(one, str) for one in get_args(hint))
    ):
        return "s"
    if hint == int | None:
        return "o"
    if hint in (tuple[int, ...], tuple[int, int]):
        return "I"
    if hint == tuple[tuple[int, int], ...]:
        return "P"
    if hint == tuple[tuple[tuple[int, int], int], ...]:
        return "T"
    raise TypeError(f"{cls.__name__}.{name} is of a kind that a stream cannot hold: {hint}")
