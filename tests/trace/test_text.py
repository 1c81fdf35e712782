"""The text twin, to the letter: other views must say the same."""

import pytest

from relaxlab.runtime.vm.bytecode import Call, Goto, If, Ret, pack, unpack
from relaxlab.runtime.vm.observer import ScalarValue
from relaxlab.trace import DebugSession, explain_instruction
from relaxlab.trace.text import mark
from tests.trace.conftest import build


def lines(session):
    return str(session).splitlines()


def test_the_first_stop(fact):
    assert lines(fact) == [
        "fact: step 0 of 0 so far; before the first instruction",
        "frames",
        "  > #0 fact, instruction 0",
        "code of fact",
        "  => 0  If    %0, 5",
        "     1  call  host.iadd        in: %0, i-1      dst: %1",
        "     2  call  fact             in: %1           dst: %2",
        "     3  call  host.imul        in: %0, %2       dst: %3",
        "     4  goto  2",
        "     5  call  vm.builtin.copy  in: i1           dst: %3",
        "     6  call  host.say         in: %3           dst: %void",
        "     7  ret   %3",
        "registers of #0 fact",
        "    %0 n  3",
        "    %1    None",
        "    %2    None",
        "    %3    None",
        "next: %0 = 3, so go on with the next instruction.",
    ]


def test_a_stop_in_the_middle(fact):
    fact.break_at("fact", 3, condition="n == 2")
    fact.display("%2 + n")
    fact.display("%9")
    fact.continue_()
    assert lines(fact) == [
        "fact: step 17 of 17 so far; breakpoint 1 at fact+3, hit 1",
        "frames",
        "  > #1 fact, instruction 3",
        "    #0 fact, instruction 2",
        "code of fact",
        "     0  If    %0, 5",
        "     1  call  host.iadd        in: %0, i-1      dst: %1",
        "     2  call  fact             in: %1           dst: %2",
        " o=> 3  call  host.imul        in: %0, %2       dst: %3",
        "     4  goto  2",
        "     5  call  vm.builtin.copy  in: i1           dst: %3",
        "     6  call  host.say         in: %3           dst: %void",
        "     7  ret   %3",
        "registers of #1 fact",
        "    %0 n  2",
        "  + %1    1",
        "  + %2    1",
        "    %3    None",
        "displays",
        "  %2 + n = 3",
        "  %9 = ('%9' has no value here: no register %9: the frame has 4)",
        "printed",
        "  said 1",
        "  said 1",
        "done: fact gave %2 = 1.",
        "next: Call host.imul with %0 = 2 and %2 = 1; the result goes to %3.",
    ]


def test_changed_registers_say_what_they_were(countdown):
    countdown.step(2)
    text = lines(countdown.step())
    assert "  * %1    2   (was 3)" in text
    assert "  * %1    3   (was 2)" in lines(countdown.back())
    assert "  - %1    None   (was 3)" in lines(countdown.goto(0))


def test_the_last_stop_has_no_frames(fact):
    assert lines(fact.continue_()) == [
        "fact: step 25 of 25; finished with 6",
        "printed",
        "  said 1",
        "  said 1",
        "  said 2",
        "  said 6",
        "done: fact returned 6 to the host.",
    ]


def test_an_error_is_shown_where_it_happened(memory):
    text = lines(memory.continue_())
    assert text[0].startswith("main: step 6 of 6; failed: ZeroDivisionError: ")
    assert text[-1].startswith("done: ZeroDivisionError: ")


def test_deep_stacks_and_long_functions_are_cut():
    def body(ib):
        for number in range(40):
            ib.emit_call("host.iadd", [ib.r(0), ib.imm(number)], dst=1 + number)
        ib.emit_if(ib.r(0), 4)
        ib.emit_call("host.iadd", [ib.r(0), ib.imm(-1)], dst=41)
        ib.emit_call("f", [ib.r(41)], dst=41)
        ib.emit_goto(1)
        ib.emit_ret(ib.r(0))

    session = DebugSession(build(("f", 1, ["n"], body)), "f", 20)
    session.break_at("f", 20, condition="n == 0")
    text = lines(session.continue_())
    frames = text[2 : text.index("code of f")]
    assert frames[0] == "  > #20 f, instruction 20"
    assert frames[6] == "      … 13 more"
    assert frames[-2:] == ["    #1 f, instruction 42", "    #0 f, instruction 42"]
    assert len(frames) == 9
    code = text[text.index("code of f") + 1 : text.index("registers of #20 f")]
    assert len(code) == 13
    assert code[0] == code[-1] == "     …"
    registers = text[text.index("registers of #20 f") + 1 :]
    assert "    … 18 more" in registers
    selected = lines(session.select(10))
    assert "  > #10 f, instruction 42" in selected
    assert "registers of #10 f" in selected


def test_marks():
    none, one, two = ScalarValue("none", "None"), ScalarValue("int", "1"), ScalarValue("int", "2")
    assert [mark(*pair) for pair in ((one, one), (none, one), (one, none), (one, two))] == list(
        " +-*"
    )


def test_the_repr_is_short_and_stable(fact):
    assert repr(fact) == "<DebugSession of fact: step 0, before instruction 0 of fact>"
    assert repr(fact.timeline) == "Timeline(0 steps)"
    assert repr(fact.continue_().timeline) == "Timeline(25 steps)"


@pytest.mark.parametrize(
    ("instruction", "registers", "sentence"),
    [
        (Goto(-3), (), "Go back to instruction 4."),
        (Goto(2), (), "Go on to instruction 9."),
        (If(0, 3), (ScalarValue("bool", "False"),), "%0 = False, so go to instruction 10."),
        (
            If(0, 3),
            (ScalarValue("none", "None"),),
            "Go on if %0 = None is not 0, else go to instruction 10.",
        ),
        (Ret(0), (ScalarValue("int", "5"),), "Return %0 = 5 to the host."),
        (Ret(2**54), (), "Return nothing to the host."),
        (Ret(2**54 + 1), (), "Return the machine to the host."),
        (Call(2**54, 0, ()), (), "Call host.say."),
        (Call(1, 0, (unpack(pack(1, -4)),)), (), "Call host.say with -4; the result goes to %1."),
        (Call(1, 99, ()), (), "Call unknown_func_index(99); the result goes to %1."),
        (
            Call(1, 0, (unpack(pack(2, 99)),)),
            (),
            "Call host.say with c[99]; the result goes to %1.",
        ),
        (
            Call(2**54, 0, tuple(unpack(pack(3, n)) for n in (0, 1, 0))),
            (),
            "Call host.say with the function host.say, the function f and the function host.say.",
        ),
    ],
)
def test_sentences(instruction, registers, sentence):
    def body(ib):
        ib.emit_ret(ib.r(0))

    machine = build(("f", 1, ["n"], body))
    ex = machine.executable
    ex.func_table = [type(ex.func_table[0])(0, "host.say"), ex.func_table[0]]
    assert explain_instruction(ex, 7, instruction, registers) == sentence
