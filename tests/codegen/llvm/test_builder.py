"""Where instructions are put, and that the text is valid."""

import pytest

from relaxlab.codegen.llvm.builder import Builder
from relaxlab.codegen.llvm.machine import machine


def started() -> Builder:
    return Builder("f", [("ptr", "x"), ("i64", "n"), ("i64", "m"), ("ptr", "state")])


def compiles(text: str) -> str:
    machine().compile(text)
    return text


def block(text: str, label: str) -> str:
    """Return the instructions of a block."""
    return text.split(f"\n{label}:\n")[1].split(":\n")[0]


def test_what_does_not_change_stands_before_the_loop() -> None:
    b = started()
    n, m = b.argument("n"), b.argument("m")
    with b.loop(b.int64(0), n, 1) as outer, b.loop(b.int64(0), m, 1) as inner:
        twice = b.binary("mul", n, b.int64(2))
        row = b.binary("mul", outer.index, m)
        b.line(
            f"store i64 {b.binary('add', b.binary('add', twice, row), inner.index).text}, ptr %x"
        )
    text = compiles(b.finish())
    assert "mul i64 %n, 2" in block(text, "entry")
    assert "mul i64 %i0, %m" in block(text, "loop.0")
    assert "mul" not in block(text, "loop.1")


def test_nothing_is_computed_twice() -> None:
    b = started()
    n = b.argument("n")
    first = b.binary("add", n, b.int64(7))
    with b.loop(b.int64(0), n, 1):
        assert b.binary("add", n, b.int64(7)) is first
    assert compiles(b.finish()).count("add i64 %n, 7") == 1


def test_a_branch_keeps_its_work_to_itself() -> None:
    b = started()
    n = b.argument("n")
    test = b.compare("icmp sgt", n, b.int64(3))
    (result,) = b.branch(test, lambda: [b.binary("mul", n, n)], lambda: [n])
    b.line(f"store i64 {result.text}, ptr %x")
    text = compiles(b.finish())
    assert "mul" in block(text, "then.0")
    assert "mul" not in block(text, "entry")


def test_reads_leave_loops_that_do_not_write() -> None:
    b = started()
    x, n = b.argument("x"), b.argument("n")
    with b.loop(b.int64(0), n, 1, writes=frozenset({"y"})):
        b.load(x, "i64", 0, 8, "x")
    with b.loop(b.int64(0), n, 1, writes=frozenset({"x"})):
        again = b.load(x, "i64", 0, 8, "x")
        b.store(again, x, 8, "x")
        b.load(x, "i64", 0, 8, "x")
    text = compiles(b.finish())
    assert block(text, "entry").count("load") == 1
    assert block(text, "loop.1").count("load") == 2


def test_a_pinned_read_stays_in_a_loop_that_may_not_run() -> None:
    b = started()
    x, n = b.argument("x"), b.argument("n")
    with b.loop(b.int64(0), n, 1), b.loop(b.int64(0), b.int64(4), 1):
        b.load(x, "i64", 0, 8, "x", pinned=True)
    text = compiles(b.finish())
    assert "load" in block(text, "loop.0")
    assert "load" not in block(text, "loop.1")


def test_a_failure_is_tested_outside_but_only_if_the_loop_runs() -> None:
    b = started()
    n, m, state = b.argument("n"), b.argument("m"), b.argument("state")
    bad = b.compare("icmp eq", m, b.int64(0))
    with b.loop(b.int64(0), n, 1):
        b.fail_if(bad, 5, [m], state)
        b.fail_if(bad, 5, [m], state)
    text = compiles(b.finish())
    assert text.count("store i32 5") == 1
    assert "and i1" in block(text, "entry")
    assert "fail" in block(text, "entry")


def test_values_carried_through_a_loop() -> None:
    b = started()
    x, n = b.argument("x"), b.argument("n")
    with b.loop(b.int64(0), n, 1, carried=[b.int64(1)]) as loop:
        loop.next = [b.binary("mul", loop.carried[0], b.int64(3))]
    b.line(f"store i64 {loop.results[0].text}, ptr {x.text}")
    text = compiles(b.finish())
    assert text.count("phi i64 [ 1,") == 2  # in the loop and after it


def test_jumps_leave_what_follows_in_a_block_of_its_own() -> None:
    b = started()
    with b.loop(b.int64(0), b.argument("n"), 1, jumps=True) as loop:
        test = b.compare("icmp eq", loop.index, b.argument("m"))

        def leave() -> list[object]:
            b.jump("break")
            return []

        b.branch(test, leave)  # type: ignore[arg-type]  # it gives nothing
        b.jump("continue")
    compiles(b.finish())


@pytest.mark.parametrize("value", [1.5, float("inf"), -0.0, 1e39, 3.4e38])
def test_float_literals_are_exact(value: float) -> None:
    b = Builder("f", [], result="float")
    compiles(b.finish(b.literal(value, "float")))
