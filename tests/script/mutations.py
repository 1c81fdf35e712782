"""Texts that are almost programs: recorded scripts with a few tokens changed.

As a program, ``python -m tests.script.mutations SEED COUNT`` says how many of COUNT texts are
accepted and refused, and which failures are not the parser's own error.
"""

import collections
import io
import random
import sys
import tokenize
import traceback
from collections.abc import Iterator

from relaxlab.errors import DiagnosticError
from relaxlab.script import from_source
from tests.golden_compiler import cases, document, source

KINDS = (tokenize.NAME, tokenize.NUMBER, tokenize.STRING, tokenize.OP)
#: What a program may hold anywhere else: values of every kind.
STRANGERS = [
    "None",
    "True",
    "-1",
    "0",
    "1.5",
    '"a"',
    '"n"',
    '"float32"',
    "()",
    "[]",
    "{}",
    "(1,)",
    "x",
    "R",
    "T",
    "I",
    "R.Tensor",
    "T.Buffer",
    "T.handle",
    'R.str("a")',
    "R.shape([2])",
    'R.dtype("int8")',
    "R.prim_value(1)",
    "R.const(1)",
    "R.tuple()",
    "T.float32(1)",
    "T.int64",
    "n",
    "cls",
    "Module",
    'float("nan")',
    "1e400",
    "10**30",
    "-9223372036854775809",
    "b'a'",
    "1j",
    "*x",
    "**x",
    "x.ty",
    "x[0]",
    "x[0:1]",
    "x()",
    "T.axis.remap",
    "R.dataflow()",
    "R.macro",
    "T.grid(2)",
    'T.sblock("b")',
    "T.reads()",
    "R.output(x)",
    "slice",
    "len",
    "lambda:0",
    "...",
    "R.Any",
]


def bases() -> list[str]:
    """Return the recorded scripts that are not too long."""
    texts = [source(name) for name in cases()]
    texts += [case["source"] for case in document("misc_cases")["parse"]]
    for case in document("pass_examples")["cases"]:
        texts += [case["before"], case["after"]]
    texts += [case["script"] for case in document("op_legalized")["cases"]]
    return [text for text in texts if len(text) < 9000]


class Mutations:
    """An endless supply of texts; the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.bases = [(text, tokens) for text in bases() if (tokens := tokens_of(text))]
        self.pool = sorted({t[0] for _, found in self.bases for t in found if len(t[0]) < 60})

    def __iter__(self) -> Iterator[str]:
        while True:
            text, tokens = self.random.choice(self.bases)
            text = self.changed(text, tokens)
            if self.random.random() < 0.2:
                text = self.changed(text, tokens_of(text) or tokens)
            if self.random.random() < 0.5:
                head = "@I.ir_module(check_well_formed=False)"
                text = text.replace("@I.ir_module", head, 1)
            yield text

    def changed(self, text: str, tokens: list[tuple[str, int, int]]) -> str:
        pick, kind = self.random.choice, self.random.random()
        _, start, end = pick(tokens)
        if kind < 0.2:
            return text[:start] + text[end:]
        if kind < 0.45:
            return text[:start] + pick(self.pool) + text[end:]
        if kind < 0.65:
            return text[:start] + pick(STRANGERS) + text[end:]
        if kind < 0.75:
            return f"{text[:end]} {pick(self.pool + STRANGERS)} {text[end:]}"
        if kind < 0.9:
            return text[:start] + pick(tokens)[0] + text[end:]
        lines = text.split("\n")
        line = lines.pop(self.random.randrange(len(lines)))
        if kind < 0.95:
            lines.insert(self.random.randrange(len(lines) + 1), line)
        return "\n".join(lines)


def tokens_of(text: str) -> list[tuple[str, int, int]]:
    """Return the tokens of a text with their offsets; nothing if Python cannot split it."""
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    found = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in KINDS:
                (row, column), (last, end) = token.start, token.end
                found.append((token.string, starts[row - 1] + column, starts[last - 1] + end))
    except (tokenize.TokenError, SyntaxError):
        return []
    return found


def outcome(text: str) -> str:
    """Return "accepted", "refused", or what is wrong with the way in which it is refused."""
    try:
        from_source(text).script()
    except DiagnosticError as error:
        shown = "-->" in str(error) and "^" in str(error)
        return "refused" if shown else f"no place: {error}"
    except Exception as error:  # noqa: BLE001  # what it is, is the answer
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} at {last.filename}:{last.lineno}: {error}"
    return "accepted"


if __name__ == "__main__":
    seed, count = map(int, sys.argv[1:])
    supply = iter(Mutations(seed))
    for result, times in collections.Counter(outcome(next(supply)) for _ in range(count)).items():
        print(times, result)
