"""The README's table of differences names tests that exist."""

import re

from tests.project.test_repository import README, REPOSITORY


def _rows():
    table = README.split("## Where relaxlab differs", 1)[1].split("\n## ", 1)[0]
    return [line for line in table.splitlines() if line.startswith("| ")][1:]


def test_every_difference_has_a_test_that_exists():
    rows = _rows()
    assert len(rows) > 20
    for row in rows:
        named = re.findall(r"`([\w/]+\.py)`", row)
        assert named, row
        for name in named:
            assert (REPOSITORY / "tests" / name).is_file(), name


def test_every_row_has_four_cells():
    for row in _rows():
        assert row.count(" | ") == 3, row
