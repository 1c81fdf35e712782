"""What an exercise is, and how an answer is judged.

A judge looks at an answer and raises :class:`Wrong` at the first thing that is not as asked. An
error that the answer itself raises is explained as well: a reader's mistake never shows as a
traceback through this package.

Examples
--------
>>> wrong = Wrong("an even number", "3", "what is left over by 2?")
>>> wrong.expected
'an even number'
"""

from collections.abc import Callable
from typing import Any, Final

from relaxlab.ir import IRModule
from relaxlab.registry import Registry
from relaxlab.script import from_source

__all__ = ["Wrong", "WrongAnswer", "check", "exercise", "exercises", "program", "shown"]

_SHOWN: Final = 200

Judge = Callable[[Any], None]


class Wrong(Exception):  # noqa: N818 - what a judge found, not what went wrong in it
    """What a judge found.

    Attributes
    ----------
    expected, got
        In words.
    where
        Where to look next; it must not give the answer away.
    """

    def __init__(self, expected: str, got: str, where: str) -> None:
        super().__init__(expected, got, where)
        self.expected = expected
        self.got = got
        self.where = where


class WrongAnswer(AssertionError):  # noqa: N818 - what it is called in a notebook
    """An answer is not right; the message says what was expected, what came, where to look.

    Attributes
    ----------
    name
        The exercise.
    found
        What its judge found.
    """

    def __init__(self, name: str, found: Wrong) -> None:
        super().__init__(
            f"{name} is not solved yet.\n"
            f"  expected: {found.expected}\n  got: {found.got}\n  where to look: {found.where}"
        )
        self.name = name
        self.found = found


_EXERCISES: Registry[Judge] = Registry("exercise", KeyError)


def exercise(name: str) -> Callable[[Judge], Judge]:
    """Register a judge under the name of its exercise."""
    return _EXERCISES.registered(name)


def exercises() -> list[str]:
    """Return the names of all exercises, sorted."""
    return sorted(_EXERCISES.names())


def check(name: str, answer: Any) -> bool:
    """Judge an answer.

    Parameters
    ----------
    name
        Of the exercise, such as ``"01.q1"``.
    answer
        What the exercise asks for.

    Returns
    -------
    bool
        True; a line says that it is right.

    Raises
    ------
    WrongAnswer
        If it is not right.
    KeyError
        If there is no such exercise.
    """
    judge = _EXERCISES.get(name)
    try:
        judge(answer)
    except Wrong as found:
        raise WrongAnswer(name, found) from None
    except Exception as error:
        reason = Wrong(
            "an answer that can be run",
            f"{type(error).__name__}: {shown(str(error) or 'no message')}",
            "run the answer by itself in a new cell: the error comes from it",
        )
        raise WrongAnswer(name, reason) from error
    print(f"{name} is right")  # noqa: T201 - a reader waits for it
    return True


def program(text: str) -> IRModule:
    """Return the module that a chapter talks about."""
    mod = from_source(text)
    assert isinstance(mod, IRModule)
    return mod


def shown(value: Any) -> str:
    """Return a value in one short line, with its type where the text does not tell it."""
    text = value if isinstance(value, str) else f"{value!r} ({type(value).__name__})"
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
