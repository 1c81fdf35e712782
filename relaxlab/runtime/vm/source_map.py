"""Which lines of the program an instruction runs, what it computes, and with which kernel.

A side table beside the bytecode: the code generator fills it, whoever shows a program reads it,
the machine does not know it. The bytes of an executable are the same with it and without it; a
saved library carries it as data. There is no TVM counterpart.

Examples
--------
>>> place = Place("demo.py", 3, 9, "y = R.add(x, x)")
>>> found = SourceMap({7: Origin("main", 7, (place,), "y = add(x, x)", "add")})
>>> print(found[7])
demo.py:3: y = R.add(x, x)
>>> found.at("demo.py", 3), found.kernels
((7,), {'add': (7,)})
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

from relaxlab.errors import InternalError

__all__ = ["Origin", "Place", "SourceMap"]

_MOST_PLACES: Final = 4096


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a text.

    Attributes
    ----------
    source
        Name of the text: a file, or ``<str>``.
    line, column
        Where it begins, counted from 1.
    text
        The line itself without indentation; empty when it is not known.
    """

    source: str
    line: int
    column: int
    text: str = ""

    def __str__(self) -> str:
        return f"{self.source}:{self.line}: {self.text}" if self.text else self.where

    @property
    def where(self) -> str:
        """File and line alone."""
        return f"{self.source}:{self.line}"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an instruction comes from.

    Attributes
    ----------
    function
        The bytecode function it is in.
    pc
        Its index.
    places
        The lines it runs: several for what fusion made of several, none when the program came
        from no text.
    binding
        What it computes, as the lowered program says.
    kernel
        The kernel it calls; None when it calls none.
    """

    function: str
    pc: int
    places: tuple[Place, ...]
    binding: str
    kernel: str | None = None

    @property
    def lines(self) -> tuple[int, ...]:
        """The line numbers, in order, each once."""
        return tuple(sorted({place.line for place in self.places}))

    def __str__(self) -> str:
        return " | ".join(map(str, self.places)) if self.places else self.binding


class SourceMap(Mapping[int, Origin]):
    """Origins by instruction index.

    Parameters
    ----------
    origins
        The origins, or functions that make them: their texts are made when first asked for.
    """

    def __init__(self, origins: Mapping[int, Origin | Callable[[], Origin]] | None = None) -> None:
        self._origins = dict(sorted((origins or {}).items()))

    def __getitem__(self, pc: int) -> Origin:
        found = self._origins[pc]
        if not isinstance(found, Origin):
            found = self._origins[pc] = found()
        return found

    def __iter__(self) -> Iterator[int]:
        return iter(self._origins)

    def __len__(self) -> int:
        return len(self._origins)

    def __contains__(self, pc: object) -> bool:
        return pc in self._origins

    def at(self, source: str, line: int) -> tuple[int, ...]:
        """Return the instructions that run a line of a text, in order."""
        return tuple(
            pc
            for pc, origin in self.items()
            if any(p.line == line and p.source == source for p in origin.places)
        )

    @property
    def kernels(self) -> dict[str, tuple[int, ...]]:
        """The instructions that call each kernel."""
        found: dict[str, list[int]] = {}
        for pc, origin in self.items():
            if origin.kernel is not None:
                found.setdefault(origin.kernel, []).append(pc)
        return {name: tuple(pcs) for name, pcs in found.items()}

    def places_of(self, kernel: str) -> tuple[Place, ...]:
        """Return the lines that a kernel runs, wherever it is called."""
        pcs = self.kernels.get(kernel, ())
        return tuple(dict.fromkeys(place for pc in pcs for place in self[pc].places))

    def __str__(self) -> str:
        """Return a table: instruction, lines, kernel, binding."""
        rows = [
            (
                str(pc),
                origin.function,
                ", ".join(dict.fromkeys(place.where for place in origin.places)) or "-",
                origin.kernel or "-",
                " ".join(origin.binding.split()),
            )
            for pc, origin in self.items()
        ]
        rows.insert(0, ("pc", "function", "line", "kernel", "binding"))
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        return "\n".join(
            "  ".join([row[0].rjust(widths[0]), *map(str.ljust, row[1:4], widths[1:]), row[4]])
            for row in rows
        )

    def __repr__(self) -> str:
        return f"SourceMap({len(self)} instructions)"

    # ---- as data ----------------------------------------------------------------------------

    def to_json(self) -> str:
        """Return the table as text; of a file's name its folder is left out."""
        places: dict[Place, int] = {}
        rows = [
            [
                pc,
                origin.function,
                [places.setdefault(place, len(places)) for place in origin.places],
                origin.binding,
                origin.kernel,
            ]
            for pc, origin in self.items()
        ]
        listed = [[PurePath(p.source).name, p.line, p.column, p.text] for p in places]
        return json.dumps({"places": listed, "instructions": rows}, separators=(",", ":")) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> "SourceMap":
        """Read what :meth:`to_json` returned.

        Raises
        ------
        InternalError
            If it is anything else; the message names the entry.
        """
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InternalError(f"the source map is not valid JSON: {error}") from None
        if not isinstance(found, dict):
            raise InternalError("the source map is not an object")
        places = [_place(i, entry) for i, entry in enumerate(_listed(found, "places"))]
        origins: dict[int, Origin | Callable[[], Origin]] = {}
        for i, entry in enumerate(_listed(found, "instructions")):
            origin = _origin(i, entry, places)
            origins[origin.pc] = origin
        return cls(origins)


def _listed(found: dict[str, Any], key: str) -> list[Any]:
    entries = found.get(key)
    if not isinstance(entries, list):
        raise InternalError(f"the source map has no list {key!r}")
    return entries


def _place(index: int, entry: Any) -> Place:
    match entry:
        case [str(source), int(line), int(column), str(text)]:
            return Place(source, line, column, text)
        case _:
            raise InternalError(
                f"place {index} of the source map: expected name, line, column and text"
            )


def _origin(index: int, entry: Any, places: list[Place]) -> Origin:
    match entry:
        case [int(pc), str(function), list(numbers), str(binding), str() | None as kernel] if (
            type(pc) is int and pc >= 0 and len(numbers) <= _MOST_PLACES
        ):
            if all(type(n) is int and 0 <= n < len(places) for n in numbers):
                return Origin(function, pc, tuple(places[n] for n in numbers), binding, kernel)
        case _:
            pass
    raise InternalError(
        f"instruction {index} of the source map: expected index, function, numbers of places, "
        "binding and kernel"
    )
