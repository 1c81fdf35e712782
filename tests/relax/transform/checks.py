"""What is asked of every pass: the expected text, an untouched input, nothing to do twice."""

import difflib
import textwrap

from relaxlab.script import from_source


def module(functions):
    """Return the module that holds these functions; the text is indented as it likes."""
    body = textwrap.indent(textwrap.dedent(functions).strip("\n"), "    ")
    return from_source(f"@I.ir_module(check_well_formed=False)\nclass Module:\n{body}\n")


def assert_becomes(pass_, before, after, *, once=False):
    """Check Before and Expected; ``once`` for passes that add something on every run."""
    mod = module(before)
    text = mod.script()
    result = pass_(mod)
    assert_same_text(result.script(), module(after).script())
    assert mod.script() == text, "the input was changed"
    if not once:
        assert pass_(result) is result, "twice is not once"
    return result


def assert_same_text(got, want):
    """Compare two scripts and show where they differ."""
    lines = difflib.unified_diff(want.splitlines(), got.splitlines(), "wanted", "got", lineterm="")
    assert got == want, "\n".join(lines)


def assert_unchanged(pass_, functions):
    """Check that the pass hands back the very module it was given."""
    mod = module(functions)
    assert pass_(mod) is mod
