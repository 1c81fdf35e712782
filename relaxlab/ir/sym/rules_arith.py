"""What the rewrite simplifier knows of ``+ - * // %`` and of truncating division.

Order matters: the first rule that applies wins. ``prove`` answers questions about bounds.
Counterpart: the rules of ``tvm.sym``'s rewrite simplifier, found by asking it.

Examples
--------
>>> len(ADD.rules) > 20
True
"""

from relaxlab.ir.sym.pattern import RuleTable, rules

__all__ = ["ADD", "DIV", "FLOOR_DIV", "FLOOR_MOD", "MOD", "MUL", "SUB"]


def _exact(c1: int, c2: int) -> bool:
    """Say whether the divisor ``c2`` divides ``c1``."""
    return c2 != 0 and c1 % c2 == 0


ADD = RuleTable(
    [
        # cancellation
        rules("(x - y) + y | y + (x - y)", "x"),
        rules("(x - y) + (y - z)", "x - z", again=True),
        rules("(x - y) + (z - x)", "z - y", again=True),
        # into min and max
        rules("min(x, y - z) + z", "min(x + z, y)"),
        rules("min(x - z, y) + z", "min(x, y + z)"),
        rules("max(x, y - z) + z", "max(x + z, y)"),
        rules("max(x - z, y) + z", "max(x, y + z)"),
        rules(
            "min(x, y + z*c1) + z*c2 | min(y + z*c1, x) + z*c2",
            "min(x + z*c2, y)",
            lambda c1, c2: c1 == -c2,
        ),
        rules(
            "max(x, y + z*c1) + z*c2 | max(y + z*c1, x) + z*c2",
            "max(x + z*c2, y)",
            lambda c1, c2: c1 == -c2,
        ),
        rules("max(x, y) + min(x, y) | min(x, y) + max(x, y)", "x + y"),
        rules("max(x, y) + min(y, x) | min(x, y) + max(y, x)", "x + y"),
        rules("min(x, y + c1) + c2", "min(x + c2, y)", lambda c1, c2: c1 == -c2),
        rules("min(x + c1, y) + c2", "min(x, y + c2)", lambda c1, c2: c1 == -c2),
        rules("max(x, y + c1) + c2", "max(x + c2, y)", lambda c1, c2: c1 == -c2),
        rules("max(x + c1, y) + c2", "max(x, y + c2)", lambda c1, c2: c1 == -c2),
        # a product and a term of it
        rules("x + x", "x * 2"),
        rules("x*c1 + x*c2", "x * (c1 + c2)"),
        rules("x*c1 + x | x + x*c1", "x * (c1 + 1)"),
        # quotient and remainder
        rules(
            "(x // y)*y + x % y | y*(x // y) + x % y | x % y + (x // y)*y | x % y + y*(x // y)",
            "x",
        ),
        rules("div(x, c1)*c1 + mod(x, c1) | mod(x, c1) + div(x, c1)*c1", "x"),
        rules("x // 2 + x % 2 | x % 2 + x // 2", "(x + 1) // 2"),
        # a common factor
        rules("x*y + x | y*x + x | x + x*y | x + y*x", "(y + 1) * x"),
        rules("y*x + x*z | x*y + x*z | y*x + z*x | x*y + z*x", "(y + z) * x"),
        # order: extrema first, literals last
        # (two extrema change places at each step, until the limit on steps stops it, as in TVM)
        rules("x + min(y, z)", "min(y, z) + x", again=True),
        rules("x + max(y, z)", "max(y, z) + x", again=True),
        rules("x + (c1 - y) | (c1 - y) + x", "(x - y) + c1", again=True),
        rules("(x + c1) + c2", "x + (c1 + c2)"),
        rules("x + (y + c1) | x + (c1 + y) | (x + c1) + y", "(x + y) + c1", again=True),
        rules("select(b, x, y) + select(b, s, t)", "select(b, x + s, y + t)"),
    ]
)

SUB = RuleTable(
    [
        rules("(x + y) - y", "x"),
        rules("(x + y) - x", "y"),
        rules("x - (y + x) | x - (x + y)", "0 - y"),
        rules("min(x, y) - x", "min(0, y - x)"),
        rules("min(x, y) - y", "min(x - y, 0)"),
        rules("max(x, y) - x", "max(0, y - x)"),
        rules("max(x, y) - y", "max(x - y, 0)"),
        rules("x - max(x, y)", "min(0, x - y)"),
        rules("y - max(x, y)", "min(y - x, 0)"),
        rules("x - min(x, y)", "max(0, x - y)"),
        rules("y - min(x, y)", "max(y - x, 0)"),
        rules("x - x", "0"),
        rules("x*c1 - x*c2", "x * (c1 - c2)"),
        rules("x*y - x | y*x - x", "(y - 1) * x"),
        rules("x - y*x | x - x*y", "(1 - y) * x"),
        rules("x*y - x*z | y*x - x*z | x*y - z*x | y*x - z*x", "(y - z) * x"),
        # cancellation two levels deep
        rules(
            "(x + y) - (x + z) | (y + x) - (x + z) | (x + y) - (z + x) | (y + x) - (z + x)", "y - z"
        ),
        rules("min(x + y, z) - x | min(y + x, z) - x", "min(y, z - x)"),
        rules("min(z, x + y) - x | min(z, y + x) - x", "min(z - x, y)"),
        rules("max(x + y, z) - x | max(y + x, z) - x", "max(y, z - x)"),
        rules("max(z, x + y) - x | max(z, y + x) - x", "max(z - x, y)"),
        rules("x - min(x + y, z) | x - min(y + x, z)", "max(0 - y, x - z)"),
        rules("x - min(z, x + y) | x - min(z, y + x)", "max(x - z, 0 - y)"),
        rules("x - max(x + y, z) | x - max(y + x, z)", "min(0 - y, x - z)"),
        rules("x - max(z, x + y) | x - max(z, y + x)", "min(x - z, 0 - y)"),
        rules("min(x, y) - min(y, x) | max(x, y) - max(y, x)", "0"),
        rules(
            "min(x, y) - min(s, t) | max(x, y) - max(s, t)",
            "x - s",
            lambda x, y, s, t, prove: prove.equal_differences(x, y, s, t),
        ),
        rules(
            "min(x, y) - min(t, s) | max(x, y) - max(t, s)",
            "x - s",
            lambda x, y, s, t, prove: prove.equal_differences(x, y, s, t),
        ),
        # quotient and remainder
        rules("x - (x // y)*y | x - y*(x // y)", "x % y"),
        rules("(x // y)*y - x | y*(x // y) - x", "0 - x % y"),
        rules("x - div(x, c1)*c1", "mod(x, c1)"),
        rules("div(x, c1)*c1 - x", "0 - mod(x, c1)"),
        rules("x - ((x + y) // c1)*c1", "(x + y) % c1 - y", lambda c1: c1 != 0, again=True),
        rules("((x + y) // c1)*c1 - x", "y - (x + y) % c1", lambda c1: c1 != 0, again=True),
        rules("x - ((x - y) // c1)*c1", "(x - y) % c1 + y", lambda c1: c1 != 0, again=True),
        rules("((x - y) // c1)*c1 - x", "0 - (x - y) % c1 - y", lambda c1: c1 != 0, again=True),
        rules("x*c2 - (x // c1)*c3", "(x % c1) * c2", lambda c1, c2, c3: c1 != 0 and c3 == c1 * c2),
        rules(
            "(x // c1)*c3 - x*c2",
            "0 - (x % c1) * c2",
            lambda c1, c2, c3: c1 != 0 and c3 == c1 * c2,
        ),
        rules(
            "x*c2 - ((x + y) // c1)*c3",
            "((x + y) % c1 - y) * c2",
            lambda c1, c2, c3: c1 != 0 and c3 == c1 * c2,
        ),
        rules(
            "((x + y) // c1)*c3 - x*c2",
            "(y - (x + y) % c1) * c2",
            lambda c1, c2, c3: c1 != 0 and c3 == c1 * c2,
        ),
        rules(
            "x*c2 - ((x - y) // c1)*c3",
            "((x - y) % c1 + y) * c2",
            lambda c1, c2, c3: c1 != 0 and c3 == c1 * c2,
        ),
        rules(
            "((x - y) // c1)*c3 - x*c2",
            "(0 - (x - y) % c1 - y) * c2",
            lambda c1, c2, c3: c1 != 0 and c3 == c1 * c2,
        ),
        rules("(x + 1) // 2 - x // 2", "x % 2"),
        rules(
            "(x + c1) // c3 - (x + c2) // c3",
            "((x + c2 % c3) % c3 + (c1 - c2)) // c3",
            lambda c3: c3 > 0,
            again=True,
        ),
        rules("(x + c1) // c2 - x // c2", "(x % c2 + c1) // c2", lambda c2: c2 > 0, again=True),
        # order: literals last
        rules("x - (y - z)", "(x + z) - y", again=True),
        rules("(x + c1) - c2", "x + (c1 - c2)"),
        rules("x - c1", "x + (0 - c1)"),
        rules("(x + c1) - y", "(x - y) + c1", again=True),
        rules("x - (y + c1)", "(x - y) + (0 - c1)", again=True),
        rules("x - y*c1", "x + y*(0 - c1)", lambda c1: True, again=True),
        rules("select(b, x, y) - select(b, s, t)", "select(b, x - s, y - t)"),
        rules(
            "select(b, x, y) - z",
            "select(b, x - z, y - z)",
            lambda x, y, z, prove: prove.either_zero(x, y, z),
            again=True,
        ),
    ]
)

MUL = RuleTable(
    [
        rules("min(x, y)*max(x, y) | max(x, y)*min(x, y)", "x * y"),
        rules("min(x, y)*max(y, x) | max(x, y)*min(y, x)", "x * y"),
        rules("(x*c1)*c2", "x * (c1 * c2)"),
        rules("c1*x", "x * c1", again=True),
        # (x + 1)*c stays: that is how x*c + c is written when it has a common factor
        rules("(x + c1)*c2", "x*c2 + c1*c2"),
        rules("(x - y)*c1", "(y - x) * (0 - c1)", lambda c1: c1 < 0),
    ]
)

DIV = RuleTable(
    [
        rules("div(x, x)", "1"),
        rules("div(div(x, c1), c2)", "div(x, c1 * c2)", lambda c1, c2: c1 > 0 and c2 > 0),
        rules("div(x*c1, c2)", "x * div(c1, c2)", lambda c1, c2: c2 > 0 and c1 % c2 == 0),
        rules(
            "div(x*c1, c2)",
            "div(x, div(c2, c1))",
            lambda c1, c2: c1 > 0 and c2 > 0 and c2 % c1 == 0,
        ),
        rules(
            "div(x*c1 + y, c2) | div(y + x*c1, c2)",
            "x * div(c1, c2) + div(y, c2)",
            lambda x, y, c1, c2, prove: (
                c1 >= 0
                and c2 > 0
                and c1 % c2 == 0
                and prove.at_least(x, 0)
                and prove.at_least(y, 0)
            ),
        ),
        rules(
            "div(x + c1, c2)",
            "div(x, c2) + div(c1, c2)",
            lambda x, c1, c2, prove: c1 > 0 and c2 > 0 and c1 % c2 == 0 and prove.at_least(x, 0),
        ),
    ]
)

MOD = RuleTable(
    [
        rules("mod(x, c1)", "mod(x, 0 - c1)", lambda c1: c1 < 0),
        rules("mod(x*c1, c2)", "0", lambda c1, c2: c2 != 0 and c1 % c2 == 0),
        rules(
            "mod(x*c1 + y, c2) | mod(y + x*c1, c2)",
            "mod(y, c2)",
            lambda x, y, c1, c2, prove: (
                c2 > 0 and c1 % c2 == 0 and prove.at_least(x * c1, 0) and prove.at_least(y, 0)
            ),
        ),
        rules(
            "mod(x + c1, c2)",
            "mod(x, c2)",
            lambda x, c1, c2, prove: c2 > 0 and c1 >= 0 and c1 % c2 == 0 and prove.at_least(x, 0),
        ),
    ]
)

FLOOR_DIV = RuleTable(
    [
        rules(
            "(x // c1 + c2) // c3",
            "(x + c1*c2) // (c1*c3)",
            lambda c1, c3: c1 > 0 and c3 > 0,
            again=True,
        ),
        rules("(x // c1) // c2", "x // (c1 * c2)", lambda c1, c2: c1 > 0 and c2 > 0),
        rules("(x*c1) // c2", "x * (c1 // c2)", _exact),
        rules("(x*c1) // c2", "x // (c2 // c1)", lambda c1, c2: c1 > 0 and c2 > 0 and c2 % c1 == 0),
        rules("x // x", "1"),
        rules("(x*c1) // x | (c1*x) // x", "c1"),
        rules(
            "(x*c1 + y) // c2 | (y + x*c1) // c2",
            "x * (c1 // c2)",
            lambda c1, c2, y, prove: (
                c2 > 0 and c1 % c2 == 0 and prove.at_least(y, 0) and prove.below(y, c2)
            ),
        ),
        rules(
            "(x*c1 + y) // c2 | (y + x*c1) // c2",
            "x // (c2 // c1)",
            lambda c1, c2, y, prove: (
                0 < c1 < c2 and c2 % c1 == 0 and prove.at_least(y, 0) and prove.below(y, c1)
            ),
            again=True,
        ),
        rules(
            "(x*c1 + y) // c2 | (y + x*c1) // c2",
            "x * (c1 // c2) + y // c2",
            _exact,
            again=True,
        ),
        *(
            rules(
                pattern.replace("min", name),
                result.replace("min", name),
                lambda c1, c2: c2 > 0 and c1 % c2 == 0,
            )
            for name in ("min", "max")
            for pattern, result in (
                ("min(x*c1, y) // c2", "min(x * (c1 // c2), y // c2)"),
                ("min(x, y*c1) // c2", "min(x // c2, y * (c1 // c2))"),
            )
        ),
        rules(
            "(x*c1 + y + z) // c2 | (y + x*c1 + z) // c2",
            "x * (c1 // c2) + (y + z) // c2",
            _exact,
            again=True,
        ),
        rules(
            "(x + c1) // c2 | (c1 + x) // c2",
            "x // c2 + c1 // c2",
            lambda c1, c2: c2 > 0 and c1 % c2 == 0,
        ),
        rules("(x % 2 + 1) // 2", "x % 2"),
        rules(
            "(x + y) // x | (y + x) // x",
            "y // x + 1",
            lambda x, prove: prove.at_least(x, 0),
        ),
        rules(
            "(x*z + y) // x | (z*x + y) // x | (y + x*z) // x | (y + z*x) // x",
            "z + y // x",
            lambda x, prove: prove.at_least(x, 0),
        ),
    ]
)

FLOOR_MOD = RuleTable(
    [
        rules(
            "(x*c1) % c2",
            "(x * (c1 % c2)) % c2",
            lambda c1, c2: c2 != 0 and c1 % c2 != c1,
            again=True,
        ),
        rules("(x*c1 + y) % c2 | (y + x*c1) % c2", "y % c2", _exact, again=True),
        rules(
            "(x*c1 + y) % c2 | (y + x*c1) % c2",
            "(x % (c2 // c1))*c1 + y",
            lambda c1, c2, y, prove: (
                0 < c1 < c2 and c2 % c1 == 0 and prove.at_least(y, 0) and prove.below(y, c1)
            ),
            again=True,
        ),
        rules(
            "(x + c1) % c2",
            "(x + c1 % c2) % c2",
            lambda c1, c2: c2 > 0 and not 0 < c1 < c2,
        ),
        rules("(x*y) % y | (y*x) % y", "0"),
    ]
)
