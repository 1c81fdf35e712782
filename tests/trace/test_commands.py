"""Commands as they are typed, and the terminal program."""

import sys

import numpy as np
import pytest

from relaxlab.cli import Mistake, main
from relaxlab.cli._program import parse_argument
from relaxlab.relax.exec_builder import ExecBuilder
from relaxlab.runtime.packed_func import remove_global_func
from relaxlab.trace.commands import COMMANDS, CommandError, Commands
from tests import golden_vm


def run(session, *lines):
    commands = Commands(session)
    return [commands.run(line) for line in lines]


def first_line(session, *lines):
    return run(session, *lines)[-1].splitlines()[0]


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        (["step"], "fact: step 1 of 1 so far; one step"),
        (["s 2"], "fact: step 2 of 2 so far; 2 steps"),
        (["into", ""], "fact: step 2 of 2 so far; one step"),
        (["n 3"], "fact: step 21 of 21 so far; step over"),
        (["s 4", "out"], "fact: step 21 of 21 so far; returned"),
        (["c"], "fact: step 25 of 25; finished with 6"),
        (["c 5"], "fact: step 5 of 5 so far; ran 5 steps"),
        (["c", "back", "b 2"], "fact: step 22 of 25; 2 steps back"),
        (["c", "bn", "bn", "bn", "bn", "bn"], "fact: step 2 of 25; back over"),
        (["s 8", "back-out"], "fact: step 5 of 8 so far; before the call"),
        (
            ["break fact+6", "c", "c", "rc"],
            "fact: step 11 of 15 so far; breakpoint 1 at fact+6, hit 1",
        ),
        (["goto 7"], "fact: step 7 of 7 so far; went to step 7"),
        (["c", "restart"], "fact: step 0 of 0 so far; before the first instruction"),
        (["break fact if n == 1", "c"], "fact: step 6 of 6 so far; breakpoint 1 at fact+0, hit 1"),
        (["break 5"], "breakpoint 1 at fact+5 (instruction 5)"),
        (["watch %3"], "watch 1 of %3 of fact"),
        (["watch s0"], "watch 1 of storage s0"),
        (["break fact", "delete 1", "points"], "no breakpoints, no watches"),
        (["break fact", "points"], "breakpoint 1 at fact+0 (instruction 0): 1 hits"),
        (["show # a remark"], "fact: step 0 of 0 so far; before the first instruction"),
        (["s 3", "where"], "  > #1 fact, instruction 0"),
        (["s 3", "up", "where"], "    #1 fact, instruction 0"),
        (["s 3", "up", "down", "bt"], "  > #1 fact, instruction 0"),
        (["s 3", "frame 0", "print n"], "3"),
        (["s 3", "p %0"], "2"),
        (["s 3", "p n + 1"], "3"),
        (["s 3", "writer %0"], "step 2, as an argument, when the function was entered: 2"),
        (["s 2", "w %1"], "step 1, as the result of a call: 2"),
        (["w %3"], "nothing wrote %3 in the steps that are kept"),
        (["w s0"], "no step before this wrote s0"),
        (["storages"], "no register reaches any memory"),
        (["list"], "@fact:"),
        (["help"], "step, s, into [N]   run one instruction (or N)"),
    ],
)
def test_commands(fact, lines, shown):
    assert first_line(fact, *lines) == shown


def test_memory_commands(memory):
    assert run(memory, "c 5", "storages", "writer s1", "writer %3", "p %2")[1:] == [
        "s0: %0 of #0\ns1, 4096 bytes: %1 of #0, %2 of #0, %3 of #0",
        "step 3",
        "step 3, by writing the memory that it shows: float32[2] s1+4 [7.0, 0.0]",
        "array([7., 7.], dtype=float32)",
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("fly", "unknown command 'fly'; try help"),
        ("step x", "expected a number, got 'x'"),
        ("goto 99", "no step 99: the program ended after 25"),
        ("break", "no Relax function ''"),
        ("break nothing", "no Relax function 'nothing': expected one of fact"),
        ("break fact if n +", "cannot read 'n +' as an expression"),
        ("watch x", "expected a register such as %3, got 'x'"),
        ("delete 7", "no breakpoint or watch 7; there are: none"),
        ("frame 3", "no frame 3: expected 0 to 0"),
        ("up", "no frame -1: expected 0 to 0"),
        ("print m", "unknown name 'm'"),
        ("writer %9", "no register %9 in fact: it has 4"),
    ],
)
def test_refused_commands(fact, line, message):
    with pytest.raises(CommandError) as caught:
        Commands(fact).run(line)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_empty_line_repeats_moves_only(fact):
    commands = Commands(fact)
    assert commands.run("") == ""
    commands.run("step")
    commands.run("")
    assert fact.position == 2
    commands.run("where")
    assert commands.run("") == ""
    assert fact.position == 2


def test_every_command_is_in_the_help_and_has_names_of_its_own(fact):
    names = [name for command in COMMANDS for name in command.names]
    assert len(names) == len(set(names))
    (text,) = run(fact, "help")
    for command in COMMANDS:
        assert command.names[0] in text
    assert max(map(len, text.splitlines())) <= 80


def test_quit(fact):
    commands = Commands(fact)
    assert commands.run("q") == ""
    assert commands.finished


# ---- relaxlab step --------------------------------------------------------------------------


class Script:
    """Standard input: lines, and whether it is a terminal."""

    def __init__(self, *lines, tty=False):
        self._lines, self._tty = lines, tty

    def isatty(self):
        return self._tty

    def __iter__(self):
        return iter(f"{line}\n" for line in self._lines)


@pytest.fixture
def program(tmp_path):
    """Return the path of a program without host functions."""
    ib = ExecBuilder()
    with ib.function("f", 2, ["x", "y"]):
        ib.emit_call("vm.builtin.make_tuple", [ib.r(0), ib.r(1)], dst=2)
        ib.emit_call("vm.builtin.tuple_getitem", [ib.r(2), ib.imm(0)], dst=3)
        ib.emit_ret(ib.r(3))
    path = tmp_path / "program.bin"
    ib.get().write_to_file(path)
    return str(path)


def step(monkeypatch, *words, script=()):
    monkeypatch.setattr(sys, "stdin", Script(*script))
    return main(["step", *words])


def test_a_script_of_commands(monkeypatch, capsys, program):
    code = step(
        monkeypatch, program, "f", "1", "'a'", script=["# a remark", "step", "", "continue"]
    )
    shown = capsys.readouterr()
    assert code == 0
    assert shown.err == ""
    assert shown.out.startswith("f: step 0 of 0 so far; before the first instruction\n")
    assert "\n(step) step\nf: step 1 of 1 so far; one step\n" in shown.out
    assert "\n(step) continue\nf: step " in shown.out


def test_a_script_can_quit(monkeypatch, capsys, program):
    assert step(monkeypatch, program, "f", "1", "2", script=["quit", "fly"]) == 0
    assert "fly" not in capsys.readouterr().out


def test_a_bad_line_of_a_script_ends_it(monkeypatch, capsys, program):
    assert step(monkeypatch, program, "f", "1", "2", script=["step", "fly", "step"]) == 2
    shown = capsys.readouterr()
    assert shown.err == "relaxlab: line 2: unknown command 'fly'; try help\n"
    assert shown.out.count("(step)") == 1


def test_a_program_that_fails_gives_exit_code_one(monkeypatch, capsys, tmp_path):
    path = tmp_path / "storage.bin"
    path.write_bytes(golden_vm.executable_bytes("eb_shapes"))
    assert step(monkeypatch, str(path), "f", "5", script=["continue"]) == 1
    assert "failed: TypeError" in capsys.readouterr().out


def test_a_terminal(monkeypatch, capsys, program):
    answers = iter(["step", "fly", "", KeyboardInterrupt(), "quit"])

    def answer(prompt):
        assert prompt == "(step) "
        line = next(answers)
        if isinstance(line, BaseException):
            raise line
        return line

    monkeypatch.setattr("builtins.input", answer)
    monkeypatch.setattr(sys, "stdin", Script(tty=True))
    assert main(["step", program, "f", "1", "2"]) == 0
    out = capsys.readouterr().out
    assert "type help for the commands" in out
    assert "unknown command 'fly'" in out
    assert "f: step 2 of 2 so far; one step" in out


def test_the_end_of_input_leaves(monkeypatch, program):
    def answer(prompt):
        raise EOFError

    monkeypatch.setattr("builtins.input", answer)
    monkeypatch.setattr(sys, "stdin", Script(tty=True))
    assert main(["step", program, "f", "1", "2"]) == 0


def test_packed_functions_come_from_an_imported_module(monkeypatch, capsys, tmp_path):
    path = tmp_path / "loop.bin"
    path.write_bytes(golden_vm.executable_bytes("eb_loop"))
    assert step(monkeypatch, str(path), "sum", "3") == 1
    assert "golden.iadd" in capsys.readouterr().err
    (tmp_path / "step_test_kernels.py").write_text(
        "from relaxlab.runtime.packed_func import register_global_func\n"
        "register_global_func('golden.iadd', lambda a, b: a + b, override=True)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    words = [str(path), "sum", "3", "--import", "step_test_kernels"]
    try:
        assert step(monkeypatch, *words, script=["continue"]) == 0
        assert "finished with 6" in capsys.readouterr().out
    finally:
        remove_global_func("golden.iadd")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing.bin", "f"], "No such file or directory: nothing.bin"),
        (["PROGRAM", "g"], "no function 'g'"),
        (["PROGRAM", "f", "1"], "expects 2 arguments"),
        (["PROGRAM", "f", "1", "import os"], "argument 2: expected a Python literal"),
        (["PROGRAM", "f", "1", "x.npy"], "argument 2: cannot read x.npy"),
        (["PROGRAM", "f", "1", "2", "--limit", "0"], "--limit must be at least 1"),
        (["PROGRAM", "f", "1", "2", "--import", "no_such_module"], "no_such_module"),
    ],
)
def test_mistakes_are_one_line(monkeypatch, capsys, program, words, message):
    code = step(monkeypatch, *(program if word == "PROGRAM" else word for word in words))
    shown = capsys.readouterr()
    assert code != 0
    assert message in shown.err
    assert shown.err.count("\n") == 1
    assert shown.out == ""


@pytest.mark.parametrize(
    ("text", "dtype", "values"),
    [
        ("[1, 2]", "int64", [1, 2]),
        ("[[1.5], [2]]", "float32", [[1.5], [2]]),
        ("[True]", "bool", [True]),
        ("[]", "float32", []),
    ],
)
def test_lists_are_tensors(text, dtype, values):
    value = parse_argument(text)
    assert str(value.dtype) == dtype
    np.testing.assert_array_equal(value.numpy(), np.array(values, dtype))


def test_other_literals_are_themselves_and_files_are_tensors(tmp_path):
    assert [parse_argument(text) for text in ("-3", "2.5", "True", "None", "'a b'")] == [
        -3,
        2.5,
        True,
        None,
        "a b",
    ]
    number, array = parse_argument("(1, [2.0])")
    assert number == 1
    assert array.shape == (1,)
    np.save(tmp_path / "x.npy", np.arange(3, dtype="int8"))
    assert str(parse_argument(str(tmp_path / "x.npy")).dtype) == "int8"
    np.save(tmp_path / "bad.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(Mistake, match="cannot read"):
        parse_argument(str(tmp_path / "bad.npy"))


@pytest.mark.parametrize("text", ["{1: 2}", "b'x'", "1j", "['a']", "[[1], [2, 3]]", "(", "[" * 999])
def test_other_texts_are_no_arguments(text):
    with pytest.raises(Mistake, match="argument 7: expected a Python literal"):
        parse_argument(text, 7)
