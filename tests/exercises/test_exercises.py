"""A wrong answer is explained without the right one; a right one passes."""

from pathlib import Path

import numpy as np
import pytest

from relaxlab import relax, runtime
from relaxlab.exercises import WrongAnswer, check, exercises, file
from relaxlab.runtime.vm.section_map import section_map
from relaxlab.script import from_source

RESIDUAL = """
@I.ir_module
class Residual:
    @R.function
    def main(x: R.Tensor((2, 4), "float32"), w: R.Tensor((4, 4), "float32")):
        y = {0}
        return y
"""


def residual(value, name="main"):
    return from_source(RESIDUAL.format(value).replace("main", name))


def machine(write, name="sum_to"):
    ib = relax.ExecBuilder()
    with ib.function(name, num_inputs=1, param_names=["n"]):
        ib.emit_call("vm.builtin.copy", [ib.imm(0)], dst=1)
        write(ib)
    return relax.VirtualMachine(ib.get(), runtime.cpu())


@pytest.fixture(autouse=True)
def _adding():
    runtime.register_global_func("demo.add", lambda a, b: a + b, override=True)


def right(ib):
    ib.emit_if(ib.r(0), 4)
    ib.emit_call("demo.add", [ib.r(1), ib.r(0)], dst=1)
    ib.emit_call("demo.add", [ib.r(0), ib.imm(-1)], dst=0)
    ib.emit_goto(-3)
    ib.emit_ret(ib.r(1))


def too_early(ib):
    ib.emit_ret(ib.r(1))


def endless(ib):
    ib.emit_goto(-1)
    ib.emit_ret(ib.r(1))


def failing(ib):
    ib.emit_call("demo.add", [ib.r(0), ib.convert_constant("x")], dst=1)
    ib.emit_ret(ib.r(1))


def test_right_answers_pass(capsys):
    assert check("00.q1", residual("R.add(x, R.nn.relu(R.matmul(x, w)))")) is True
    assert check("01.q1", machine(right)) is True
    assert capsys.readouterr().out == "00.q1 is right\n01.q1 is right\n"


@pytest.mark.parametrize(
    ("name", "answer", "expected", "got"),
    [
        ("00.q1", lambda: None, "an IRModule", "None (NoneType)"),
        ("00.q1", lambda: residual("x"), " at [", " there"),
        ("00.q1", lambda: residual("R.matmul(x, w)"), " at [", " there"),
        ("00.q1", lambda: residual("R.sum(x)"), "shape (2, 4)", "shape ()"),
        ("00.q1", lambda: residual("R.nn.relu(x)", "other"), "a function main", "other"),
        ("01.q1", lambda: 55, "a machine", "55 (int)"),
        ("01.q1", lambda: machine(right, "sums"), "a function sum_to", "sums"),
        ("01.q1", lambda: machine(too_early), "sum_to(1) = 1", "0 (int)"),
        ("01.q1", lambda: machine(endless), "an end", "still running"),
        ("01.q1", lambda: machine(failing), "an answer that can be run", "TypeError"),
    ],
)
def test_wrong_answers_are_explained(name, answer, expected, got):
    with pytest.raises(WrongAnswer) as caught:
        check(name, answer())
    assert isinstance(caught.value, AssertionError)
    found = caught.value.found
    assert expected in found.expected
    assert got in found.got
    assert found.where
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{name} is not solved yet."
    assert [line.partition(":")[0].strip() for line in lines[1:4]] == [
        "expected",
        "got",
        "where to look",
    ]


def test_a_sum_that_is_looked_up_is_no_loop():
    runtime.register_global_func("demo.sum_to", lambda n: n * (n + 1) // 2, override=True)

    def direct(ib):
        ib.emit_call("demo.sum_to", [ib.r(0)], dst=1)
        ib.emit_ret(ib.r(1))

    with pytest.raises(WrongAnswer, match="a loop"):
        check("01.q1", machine(direct))


def test_an_unknown_exercise_names_its_neighbours():
    with pytest.raises(KeyError, match=r"00\.q1"):
        check("00.q2", None)
    assert exercises() == sorted(exercises())


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        (
            "03.q1",
            "StaticPlanBlockMemory",
            [
                (None, "None (NoneType)"),
                ("", "an empty text"),
                ("Nope", "Nope"),
                ("_pipeline", "which runs"),
                ("LegalizeOps", "after which it does not"),
                ("KillAfterLastUse", "before which it did already"),
            ],
        ),
        ("05.q1", 128, [("128", "128"), (640, "all tensors"), (384, "the peak"), (1, "1 (int)")]),
        (
            "06.q1",
            None,
            [
                (None, "None (NoneType)"),
                (10**6, "1000000 (int)"),
                (0, "0 (int)"),
            ],
        ),
        (
            "07.q1",
            23019,
            [
                (0, "in front of the executable"),
                (23018, "'memory scopes'"),
                (30000, "'instruction data'"),
                (True, "True (bool)"),
            ],
        ),
        ("09.q1", 4, [(3, "as before the fork"), (6, "nothing were shared"), (9, "9 (int)")]),
        ("11.q1", None, [(7, "7 (int)"), ("two", "two")]),
        ("13.q1", 3, [(6, "all kernels"), (5, "one capture served"), (0, "0 (int)")]),
        (
            "15.q1",
            6958080,
            [
                (7004160, "the last token"),
                (9169920, "nothing were there"),
                (9216000, "the whole prompt"),
                (3479040, "one of the two"),
                (1739520, "how many numbers"),
                (151, "151 (int)"),
                (6958080.0, "6958080.0 (float)"),
            ],
        ),
    ],
)
def test_the_answers_of_a_chapter_are_judged(name, right, wrong):
    if right is not None:
        assert check(name, right) is True
    for answer, got in wrong:
        with pytest.raises(WrongAnswer) as caught:
            check(name, answer)
        assert got in caught.value.found.got
        # an explanation gives nothing away
        if right is not None:
            explained = f"{caught.value.found.expected} {caught.value.found.where}"
            assert str(right) not in explained.split()


def rms(x, out):
    values = x.numpy()
    out.copyfrom(values / np.sqrt((values * values).mean(axis=1, keepdims=True) + 1e-6))


def rms_of_all(x, out):
    values = x.numpy()
    out.copyfrom(values / np.sqrt((values * values).mean() + 1e-6))


def changes_x(x, out):
    rms(x, out)
    x.copyfrom(x.numpy() + 1)


def merged(results, lses):
    weights = np.exp(np.array(lses) - max(lses))
    return sum(w * one for w, one in zip(weights, results, strict=True)) / weights.sum()


def overflowing(results, lses):
    with np.errstate(all="ignore"):
        weights = np.exp(np.array(lses))
        return sum(w * one for w, one in zip(weights, results, strict=True)) / weights.sum()


def rowed(value):
    return from_source(
        "@I.ir_module\nclass M:\n    @R.function\n"
        f'    def main(x: R.Tensor(({value}, 3), "float32")):\n'
        "        y = R.nn.relu(x)\n        z = R.multiply(y, y)\n        return z\n"
    )


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        (
            "02.q1",
            lambda: rowed('"n"'),
            [(lambda: 1, "1 (int)"), (lambda: rowed("2"), "shape"), (lambda: residual("x"), "")],
        ),
        (
            "04.q1",
            lambda: rms,
            [
                (lambda: "f", "f"),
                (lambda: lambda x, out: None, "untouched"),
                (lambda: rms_of_all, "mean squares"),
                (lambda: changes_x, "changed x"),
            ],
        ),
        (
            "10.q1",
            lambda: merged,
            [
                (lambda: 0, "0 (int)"),
                (lambda: lambda results, lses: results[0], "another average"),
                (lambda: overflowing, "infinite"),
                (lambda: lambda results, lses: results, "shape"),
            ],
        ),
        ("12.q1", lambda: 4, [(lambda: 6, "taken back"), (lambda: 1.5, "1.5"), (lambda: "x", "x")]),
        ("14.q1", lambda: 3, [(lambda: 9, "of its own"), (lambda: 1, "1 (int)")]),
    ],
)
def test_programs_and_functions_are_judged(name, right, wrong):
    assert check(name, right()) is True
    for answer, got in wrong:
        with pytest.raises(WrongAnswer) as caught:
            check(name, answer())
        assert got in caught.value.found.got


def test_an_executable_is_judged_in_both_modes():
    for wrong, got in ((3, "3 (int)"), (machine(right, "other").executable, "other")):
        with pytest.raises(WrongAnswer) as caught:
            check("08.q1", wrong)
        assert got in caught.value.found.got
    with pytest.raises(WrongAnswer, match=r"collatz\(2\) = 1"):
        check("08.q1", machine(too_early, "collatz").executable)


def test_the_recorded_library_of_the_course_is_where_its_exercise_says():
    path = Path(__file__).resolve().parents[2] / "notebooks" / "tvm_library.so"
    found = {one.name: one.offset for one in section_map(path.read_bytes(), path.name)}
    assert {name: found[name] for name in file.SECTIONS} == file.SECTIONS
