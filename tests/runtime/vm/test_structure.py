"""Jumps become branches and loops, or blocks."""

import pytest

from relaxlab.runtime.vm.linker import CALL, GOTO, IF, RET, TRAP
from relaxlab.runtime.vm.structure import Branch, Jump, Repeat, Step, blocks_of, structured

CALLS = (CALL, None, None, None)
RETURN = (RET, None, None, 0)


def goto(target):
    return (GOTO, target, None, None)


def branch(target):
    return (IF, target, None, 0)


def trap(led_here):
    return (TRAP, (ValueError, ""), None, led_here)


def nodes(*code, length=None):
    length = len(code) if length is None else length
    return structured([*code, *(trap(length - 1) for _ in range(length == len(code)))], 0, length)


def test_straight_code():
    assert nodes(CALLS, CALLS, RETURN) == [Step(0), Step(1), Step(2)]
    assert nodes(CALLS) == [Step(0), Step(1)]  # running on is a trap
    assert nodes(goto(2), CALLS, RETURN) == [Step(2)]


def test_branches_that_meet():
    code = (branch(3), CALLS, goto(4), CALLS, RETURN)
    assert nodes(*code) == [Branch(0, [Step(1)], [Step(3)]), Step(4)]
    assert nodes(branch(2), CALLS, RETURN) == [Branch(0, [Step(1)], []), Step(2)]
    assert nodes(branch(2), RETURN, CALLS, RETURN) == [Branch(0, [Step(1)], []), Step(2), Step(3)]


def test_branches_in_branches_that_meet_at_one_place():
    code = (branch(6), branch(4), CALLS, goto(7), CALLS, goto(7), CALLS, RETURN)
    inner = Branch(1, [Step(2)], [Step(4)])
    assert nodes(*code) == [Branch(0, [inner], [Step(6)]), Step(7)]


def test_loops():
    assert nodes(branch(3), CALLS, goto(0), RETURN) == [
        Repeat(0, [Branch(0, [], [Jump("break")]), Step(1)]),
        Step(3),
    ]
    # a loop in a loop, on one side of a branch
    code = (branch(7), branch(4), CALLS, goto(0), branch(6), goto(4), goto(0), RETURN)
    inner = Repeat(4, [Branch(4, [], [Jump("break")])])
    leave = Branch(0, [], [Jump("break")])
    assert nodes(*code) == [Repeat(0, [leave, Branch(1, [Step(2)], [inner])]), Step(7)]
    # back to the head from inside of a branch that goes on
    code = (CALLS, branch(6), branch(4), goto(0), CALLS, CALLS, CALLS, goto(0))
    again = Branch(2, [Jump("continue")], [])
    assert nodes(*code) == [
        Repeat(0, [Step(0), Branch(1, [again, Step(4), Step(5)], []), Step(6)]),
    ]
    assert nodes(goto(0)) == [Repeat(0, [])]


def test_traps_behind_the_code():
    code = [branch(3), RETURN, trap(1), trap(0)]
    assert structured(code, 0, 2) == [Branch(0, [], [Step(3)]), Step(1)]


@pytest.mark.parametrize(
    "code",
    [
        (branch(3), CALLS, branch(4), CALLS, goto(1), RETURN),  # into a loop
        (branch(4), branch(5), CALLS, goto(1), goto(1), branch(7), goto(0), RETURN),
        (goto(2), CALLS, branch(4), goto(1), RETURN),  # over what is reached from behind
    ],
)
def test_other_jumps_have_no_structure(code):
    assert nodes(*code) is None


def test_an_entry_in_the_middle_has_no_structure():
    assert structured([CALLS, RETURN, trap(1)], 1, 2) is None
    assert [(b.start, b.end) for b in blocks_of([CALLS, RETURN, trap(1)], 1)] == [(1, 2)]


def test_blocks_end_at_jumps_and_before_targets():
    code = [branch(3), CALLS, CALLS, CALLS, goto(1), RETURN, trap(5)]
    assert [(b.start, b.end) for b in blocks_of(code, 0)] == [(0, 1), (1, 3), (3, 5)]
