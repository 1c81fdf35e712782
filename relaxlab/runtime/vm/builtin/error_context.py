"""What an error context says: which parameter is checked, and how its sizes are called.

Checks get one string from the compiler, such as ``ErrorContext(fn=main, loc=param[0], param=x,
annotation=R.Tensor((n, 4), dtype="float32")) ``, and bytecode knows sizes only as slots of a
heap. Reading the string gives the names back, so that an error can say that ``n`` is 3 already,
and who said so. TVM prints the string and stops there.

Examples
--------
>>> ctx = 'ErrorContext(fn=main, loc=param[1], param=y, annotation=R.Tensor((n, n * 2))) '
>>> size_name(ctx, 2, 1), place(ctx)
('n * 2', "parameter 'y' of main")
"""

import re
from typing import Final

__all__ = ["place", "prefix", "size_name"]

_FUNCTION: Final = re.compile(
    r"ErrorContext\(fn=(?P<fn>.*?), loc=(?P<loc>param\[(?P<index>\d+)\]|return)"
    r"(?:, param=(?P<param>.*?))?, annotation=(?P<type>.*)\)\s*",
    re.DOTALL,
)
_MATCH_CAST: Final = re.compile(r"ErrorContext\(match_cast, ty=(?P<type>.*)\)\s*", re.DOTALL)
_SHAPED: Final = re.compile(r"\b(?:Tensor|Shape)\(")
_PRIM: Final = re.compile(r"\bPrim\(.*?value\s*=\s*(['\"]?)(?P<value>[^'\",)]+)\1", re.DOTALL)
_OPEN: Final = {"(": ")", "[": "]"}


def prefix(ctx: object) -> str:
    """Return the context as the beginning of a message: empty, or ending in ``": "``."""
    # bytecode that no compiler made may pass anything in its place
    return f"{ctx.strip()}: " if isinstance(ctx, str) and ctx.strip() else ""


def place(ctx: str | None) -> str:
    """Return in words what the context is about."""
    ctx = ctx or ""
    found = _FUNCTION.fullmatch(ctx)
    if found:
        if found["loc"] == "return":
            return f"the result of {found['fn']}"
        name = repr(found["param"]) if found["param"] else found["index"]
        return f"parameter {name} of {found['fn']}"
    if _MATCH_CAST.fullmatch(ctx):
        return "an earlier match_cast"
    return f"the check {ctx.strip()!r}" if ctx.strip() else "an earlier check"


def size_name(ctx: str | None, rank: int, dimension: int) -> str | None:
    """Return how the annotation calls one size, such as ``"n"``; None if it does not tell.

    A tuple's annotation holds several shapes; the name is returned if all of that rank agree.
    """
    found = _FUNCTION.fullmatch(ctx or "") or _MATCH_CAST.fullmatch(ctx or "")
    if not found:
        return None
    names = {dims[dimension] for dims in _shapes(found["type"]) if len(dims) == rank}
    if not names and rank == 1:
        names = {match["value"].strip() for match in _PRIM.finditer(found["type"])}
    return names.pop() if len(names) == 1 else None


def _shapes(annotation: str) -> list[list[str]]:
    """Return the size expressions of every tensor and shape type in an annotation."""
    shapes = []
    for match in _SHAPED.finditer(annotation):
        rest = annotation[match.end() :].lstrip()
        rest = rest.removeprefix("shape=")
        if rest[:1] in _OPEN:
            shapes.append(_split(rest))
    return shapes


def _split(text: str) -> list[str]:
    """Split ``"(n, f(a, b)) …"`` into the items of its first bracket."""
    items, depth, item = [], 0, ""
    for char in text:
        if char in _OPEN:
            depth += 1
            if depth == 1:
                continue
        elif char in _OPEN.values():
            depth -= 1
            if depth == 0:
                break
        if char == "," and depth == 1:
            items.append(item)
            item = ""
        else:
            item += char
    items.append(item)
    return [item.strip().strip("\"'") for item in items if item.strip()]
