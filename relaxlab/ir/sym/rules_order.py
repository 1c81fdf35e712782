"""What the rewrite simplifier knows of ``min``, ``max``, comparisons, logic and choice.

Counterpart: the rules of ``tvm.sym``'s rewrite simplifier, found by asking it.

Examples
--------
>>> len(MIN.rules) > 20
True
"""

from relaxlab.ir.sym.pattern import RuleTable, rules

__all__ = ["AND", "EQ", "LT", "MAX", "MIN", "NOT", "OR", "SELECT"]


def _extremum(name: str, other: str) -> RuleTable:
    """Make the rules of ``name`` (min or max); ``other`` is the opposite one.

    ``above`` and ``below`` compare as the extremum does, so that each rule is written once.
    """
    m, o = name, other
    smaller = name == "min"

    def first(c1: int, c2: int) -> bool:
        """Whether the extremum of two literals is the first."""
        return c1 <= c2 if smaller else c1 >= c2

    return RuleTable(
        [
            rules(f"{m}(x, x)", "x"),
            # against a neighbour
            rules(f"{m}(x + c1, x + c2)", "x + c1", lambda c1, c2: first(c1, c2)),
            rules(f"{m}(x + c1, x + c2)", "x + c2", lambda c1, c2: not first(c1, c2)),
            rules(f"{m}(x + c1, x) | {m}(x, x + c1)", "x + c1", lambda c1: first(c1, 0)),
            rules(f"{m}(x + c1, x) | {m}(x, x + c1)", "x", lambda c1: first(0, c1)),
            rules(f"{m}(c1 - x, c2 - x)", "c1 - x", lambda c1, c2: first(c1, c2)),
            rules(f"{m}(c1 - x, c2 - x)", "c2 - x", lambda c1, c2: not first(c1, c2)),
            # rounding up or down
            rules(
                f"{m}(((x + c1) // c2)*c2, x) | {m}(x, ((x + c1) // c2)*c2)",
                "x" if smaller else "((x + c1) // c2)*c2",
                lambda c1, c2: c2 > 0 and c1 + 1 == c2,
            ),
            rules(
                f"{m}((x // c1)*c1, x) | {m}(x, (x // c1)*c1)",
                "(x // c1)*c1" if smaller else "x",
                lambda c1: c1 > 0,
            ),
            rules(
                f"{m}({m}(x, y), x) | {m}({m}(x, y), y)",
                f"{m}(x, y)",
            ),
            rules(f"{m}(x, {m}(x, y)) | {m}(y, {m}(x, y))", f"{m}(x, y)"),
            rules(f"{m}({o}(x, y), x) | {m}(x, {o}(x, y))", "x"),
            rules(f"{m}({o}(x, y), y) | {m}(y, {o}(x, y))", "y"),
            rules(f"{m}({o}(x, y), {m}(x, y))", f"{m}(x, y)"),
            rules(f"{m}({o}(x, y), {m}(y, x))", f"{m}(x, y)"),
            rules(f"{m}({m}({m}(x, y), z), y)", f"{m}({m}(x, y), z)"),
            rules(f"{m}({m}({m}({m}(x, y), z), w), y)", f"{m}({m}({m}(x, y), z), w)"),
            rules(
                f"{m}({o}(x, y), {o}(x, z)) | {m}({o}(y, x), {o}(x, z)) | "
                f"{m}({o}(x, y), {o}(z, x)) | {m}({o}(y, x), {o}(z, x))",
                f"{o}({m}(y, z), x)",
            ),
            rules(
                f"{m}({m}(x, y), {m}(x, z)) | {m}({m}(y, x), {m}(x, z)) | "
                f"{m}({m}(x, y), {m}(z, x)) | {m}({m}(y, x), {m}(z, x))",
                f"{m}({m}(y, z), x)",
            ),
            rules(
                f"{m}(y + x, z + x) | {m}(y + x, x + z) | {m}(x + y, z + x) | {m}(x + y, x + z)",
                f"{m}(y, z) + x",
            ),
            rules(f"{m}(y - x, z - x)", f"{m}(y, z) - x"),
            rules(f"{m}(x - y, x - z)", f"x - {o}(y, z)"),
            rules(f"{m}({m}(x, c1), c2)", f"{m}(x, {m}(c1, c2))"),
            rules(f"{m}({m}(x, c1), y)", f"{m}({m}(x, y), c1)", again=True),
            # scaling by a literal
            rules(f"{m}(x // c1, y // c1)", f"{m}(x, y) // c1", lambda c1: c1 > 0),
            rules(f"{m}(x // c1, y // c1)", f"{o}(x, y) // c1", lambda c1: c1 < 0),
            rules(f"{m}(x*c1, y*c1)", f"{m}(x, y) * c1", lambda c1: c1 > 0),
            rules(f"{m}(x*c1, y*c1)", f"{o}(x, y) * c1", lambda c1: c1 < 0),
            rules(
                f"{m}(x*c1, c2)", f"{m}(x, c2 // c1) * c1", lambda c1, c2: c1 > 0 and c2 % c1 == 0
            ),
            rules(
                f"{m}(x*c1, c2)", f"{o}(x, c2 // c1) * c1", lambda c1, c2: c1 < 0 and c2 % c1 == 0
            ),
            rules(f"{m}(select(b, x, y), select(b, s, t))", f"select(b, {m}(x, s), {m}(y, t))"),
            rules(f"{m}(c1 - x, c2)", f"c1 - {o}(x, c1 - c2)", lambda c2: c2 != 0),
        ]
    )


MIN = _extremum("min", "max")
MAX = _extremum("max", "min")

EQ = RuleTable(
    [
        rules("c1 == x", "x == c1", again=True),
        rules("x + c1 == c2", "x == c2 - c1", again=True),
        rules("c1 - x == c2", "x == c1 - c2", again=True),
        rules("x*y == 0", "x == 0 or y == 0", again=True),
    ]
)

LT = RuleTable(
    [
        # cancellation
        rules("x + y < x + z | x + y < z + x | y + x < x + z | y + x < z + x", "y < z"),
        rules("y - x < z - x", "y < z"),
        rules("x - y < x - z", "z < y"),
        rules("x < x + z | x < z + x", "0 < z"),
        rules("x < x - z", "z < 0"),
        # scaling by a literal
        rules("x*c1 < y*c1", "x < y", lambda c1: c1 > 0),
        rules("x*c1 < y*c1", "y < x", lambda c1: c1 < 0),
        rules("x*c2 < c1", "x < (c1 - 1) // c2 + 1", lambda c2: c2 > 0),
        rules("c1 < x*c2", "c1 // c2 < x", lambda c2: c2 > 0),
        rules("x*c2 < c1", "c1 // c2 < x", lambda c2: c2 < 0),
        rules("c1 < x*c2", "x < (0 - c1 - 1) // (0 - c2) + 1", lambda c2: c2 < 0),
        rules("x // c1 < c2", "x < c1*c2", lambda c1: c1 > 0),
        rules("c1 < x // c2", "(c1 + 1)*c2 - 1 < x", lambda c2: c2 > 0),
        # of extrema
        rules("min(x, y) < z", "x < z or y < z", again=True),
        rules("max(x, y) < z", "x < z and y < z", again=True),
        rules("z < min(x, y)", "z < x and z < y", again=True),
        rules("z < max(x, y)", "z < x or z < y", again=True),
        # literals to one side
        rules("x + c1 < c2", "x < c2 - c1", again=True),
        rules("c1 < x + c2", "c1 - c2 < x", again=True),
        rules("c1 - x < c2", "c1 - c2 < x", again=True),
        rules("c1 < c2 - x", "x < c2 - c1", again=True),
        rules("c1 - x < y", "c1 < y + x", again=True),
        rules("x < c1 - y", "x + y < c1", again=True),
        rules("x + c1 < y + c2", "x < y + (c2 - c1)", lambda c1, c2: c1 < c2, again=True),
        rules("x + c1 < y + c2", "x + (c1 - c2) < y", lambda c1, c2: c1 >= c2, again=True),
        rules("x < y + 1 | x + -1 < y", "x <= y"),
        rules("x < y + c1", "x + (0 - c1) < y", lambda c1: c1 < 0, again=True),
        rules("x + c1 < y", "x < y + (0 - c1)", lambda c1: c1 < 0, again=True),
    ]
)

NOT = RuleTable(
    [
        rules("not (not x)", "x"),
        rules("not (x <= y)", "y < x"),
        rules("not (x < y)", "y <= x"),
        rules("not (x >= y)", "x < y"),
        rules("not (x > y)", "x <= y"),
        rules("not (x == y)", "x != y"),
        rules("not (x != y)", "x == y"),
        rules("not (x or y)", "not x and not y", again=True),
        rules("not (x and y)", "not x or not y", again=True),
    ]
)

AND = RuleTable(
    [
        rules("x == y and x != y | x != y and x == y", "False"),
        rules("x and not x | not x and x", "False"),
        rules("x <= y and y < x | y < x and x <= y", "False"),
        rules("x < c1 and c2 < x | c2 < x and x < c1", "False", lambda c1, c2: c2 + 1 >= c1),
        rules("x <= c1 and c2 < x | c2 < x and x <= c1", "False", lambda c1, c2: c2 >= c1),
        rules("x < c1 and c2 <= x | c2 <= x and x < c1", "False", lambda c1, c2: c2 >= c1),
        rules("x <= c1 and c2 <= x | c2 <= x and x <= c1", "False", lambda c1, c2: c2 > c1),
        rules("x == c1 and x != c2 | x != c2 and x == c1", "x == c1", lambda c1, c2: c1 != c2),
        rules("x == c1 and x == c2", "False", lambda c1, c2: c1 != c2),
        rules("x and (y and z)", "(x and y) and z", again=True),
    ]
)

OR = RuleTable(
    [
        rules("x == y or x != y | x != y or x == y", "True"),
        rules("x or not x | not x or x", "True"),
        rules("x <= y or y < x | y < x or x <= y", "True"),
        rules("x < c1 or c2 < x | c2 < x or x < c1", "True", lambda c1, c2: c2 < c1),
        rules("x <= c1 or c2 < x | c2 < x or x <= c1", "True", lambda c1, c2: c2 <= c1),
        rules("x < c1 or c2 <= x | c2 <= x or x < c1", "True", lambda c1, c2: c2 <= c1),
        rules("x <= c1 or c2 <= x | c2 <= x or x <= c1", "True", lambda c1, c2: c2 <= c1 + 1),
        rules("x or (y or z)", "(x or y) or z", again=True),
    ]
)

SELECT = RuleTable(
    [
        rules("select(b, x, x)", "x"),
    ]
)
