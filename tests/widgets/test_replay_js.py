"""The page's replay equals Python's, on random programs: states, texts, moves and marks.

Python makes the cases, Node compares: see tests/js/replay.test.mjs.
"""

import contextlib
import io
import json
import shutil
import subprocess
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from relaxlab.relax.exec_builder import ExecBuilder
from relaxlab.runtime.describe import TensorValue
from relaxlab.runtime.tensor import tensor
from relaxlab.trace import DebugSession
from relaxlab.trace.explain import explain_events, explain_next
from relaxlab.trace.phases import phases_of
from relaxlab.trace.text import mark
from relaxlab.widgets import VMStepper
from tests.strategies import programs
from tests.trace.conftest import build

REPOSITORY = Path(__file__).resolve().parents[2]
CASES = 200
FLOATS = [
    *(0.0, -0.0, 1.0, 0.1, 1 / 3, 123456789.0, 1e15, 1e16, 123456789012345680.0, 1e21, 1.5e22),
    *(1e-4, 1e-5, 0.00012345, 1.2345e-5, 5e-324, 1.7976931348623157e308, -2.5e-10, 1e100),
    float(np.float32(0.1)),
]


def narrow_floats():
    """Return float32 values of all sizes, powers of two (uneven neighbours) among them."""
    random = np.random.default_rng(0)
    bits = random.integers(0, 2**32, 3000, dtype="uint32").view("float32")
    values = [*bits[np.isfinite(bits)], *(np.float32(2.0) ** np.arange(-149, 128, dtype="float32"))]
    return [*map(float, values), 0.0, -0.0, 1.0, 16777216.0, -1762400.25, float(np.float32(1e-5))]


def narrow_text(value):
    text = TensorValue("float32", (1,), "cpu:0", 0, 0, (value,), (), None, None, None, None).text
    return text.partition("[1] s0 [")[2].rstrip("]")


@pytest.fixture(scope="module")
def node():
    path = shutil.which("node")
    if path is None:
        pytest.skip("node is not here: apt-get install nodejs")
    return path


def run_node(node, cases, path):
    examples = {
        "cases": cases,
        "floats": [[value, repr(value)] for value in FLOATS],
        "narrow": [[value, narrow_text(value)] for value in narrow_floats()],
    }
    path.write_text(json.dumps(examples, allow_nan=False), encoding="utf-8")
    done = subprocess.run(
        [node, "--test", "tests/js/replay.test.mjs"],
        cwd=REPOSITORY,
        env={"PATH": "", "RELAXLAB_CASES": str(path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr
    return done.stdout


def place_of(stepper):
    session = stepper.session
    frame = session.frame
    marks = []
    if frame is not None:
        for index, (before, now) in enumerate(
            zip(session.previous_registers, frame.registers, strict=True)
        ):
            if mark(before, now) != " ":
                marks.append([index, mark(before, now), before.text])
    return {
        "position": session.position,
        "depth": session.depth,
        "pc": -1 if frame is None else frame.pc,
        "marks": marks,
    }


def states_of(session):
    timeline = session.timeline
    for position in range(timeline.first_step, timeline.end + 1):
        over = position == timeline.end
        events = () if position == timeline.first_step else timeline.events_of(position - 1)
        ending = explain_events((timeline.last_event,)) if over else ""
        yield {
            "frames": [
                [
                    frame.function,
                    frame.pc,
                    -1 if frame.return_register is None else frame.return_register,
                    [value.text for value in frame.registers],
                ]
                for frame in timeline.state(position).frames
            ],
            "printed": "".join(
                text for step, text in timeline.console if timeline.first_step <= step < position
            ),
            "next": ending or explain_next(session.vm.executable, timeline.top(position)),
            "done": explain_events(events),
            "phases": list(map(list, phases_of(session.vm.executable, timeline, position))),
        }


COMMANDS = {  # of the page, and of Python
    "step": "step",
    "back": "back",
    "over": "over",
    "out": "out",
    "resume": "continue_",
    "reverse": "reverse_continue",
}


WORDS = ["make_tuple", "ret", "IF", "%1", "goto", "host.", "no such thing", "return", "tensor"]


def moves_of(stepper, random):
    """Move a stepper at random, and yield what the page must do and show."""
    session = stepper.session
    first, end = session.timeline.first_step, session.timeline.end
    pcs = sorted({session.timeline.instruction(step).pc for step in range(first, end)})
    kinds = [*COMMANDS, *COMMANDS, "goto", "select", "toggle", "halts", "watch", "remove", "skip"]
    kinds += ["find", "find"]
    for kind in random.choices(kinds, k=40):
        arguments = []
        match kind:
            case "goto":
                arguments = [random.randint(first, end)]
                stepper.goto(*arguments)
            case "find":
                arguments = [random.choice(WORDS), random.random() < 0.5]
                with contextlib.suppress(ValueError):
                    stepper.find(arguments[0], backwards=arguments[1])
            case "select" if session.top is not None:
                arguments = [random.randint(0, session.top.depth)]
                stepper.select(*arguments)
            case "toggle" if pcs:
                arguments = [random.choice(pcs)]
                stepper.breakpoints = sorted({*stepper.breakpoints} ^ {*arguments})
            case "halts" if pcs:
                pc, ignore = random.choice(pcs), random.randint(1, 2)
                stepper.break_at(pc=pc, ignore=ignore, condition=f"step % {ignore + 1} == 0")
            case "watch" if session.frame is not None and session.frame.registers:
                stepper.watch(random.randrange(len(session.frame.registers)))
            case "remove" if stepper.halts:
                special = [n for n, point in session.breakpoints.items() if point.condition]
                stepper.remove(random.choice([*session.watches, *special]))
            case "skip":
                stepper.skip_builtins = not stepper.skip_builtins
                arguments = stepper.skip_builtins
            case "select" | "toggle" | "halts" | "watch" | "remove":
                continue
            case _:
                getattr(stepper, COMMANDS[kind])()
        if kind in ("halts", "watch", "remove"):
            kind, arguments = "halts", stepper.halts
        yield [
            kind,
            arguments,
            {"place": place_of(stepper), "visits": json.loads(json.dumps(stepper.visits))},
        ]


def case_of(stepper, moves, program):
    session = stepper.session
    return {
        "program": program,
        "trace": stepper.trace,
        "start": {
            "breakpoints": stepper.breakpoints,
            "halts": stepper.halts,
            "visits": stepper.visits,
        },
        "states": list(states_of(session)),
        "outcome": type(session.error).__name__
        if session.error is not None
        else session.timeline.last_event.result.text,
        "moves": moves(stepper),
    }


def test_the_page_shows_and_moves_as_python_does(node, tmp_path):
    cases = []

    @settings(
        max_examples=CASES,
        derandomize=True,  # how many of them drop steps or fail is counted below
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(programs(), st.sampled_from([None, None, 4, 9]), st.integers(0, 2**32))
    def collect(program, limit, seed):
        with contextlib.redirect_stdout(io.StringIO()):
            session = DebugSession(program.machine(), "main", *program.arguments(), limit=limit)
            stepper = VMStepper(session)
            cases.append(
                case_of(stepper, lambda view: list(moves_of(view, Random(seed))), repr(program))
            )

    collect()
    assert sum(bool(case["trace"]["first_step"]) for case in cases) > 3
    assert sum("error" in case["trace"]["outcome"] for case in cases) > 1
    shown = run_node(node, cases, tmp_path / "cases.json")
    assert f"pass {2 * len(cases) + 9}" in shown


def identity(ib: ExecBuilder):
    ib.emit_call("vm.builtin.make_tuple", [ib.r(0), ib.r(1)], dst=2)
    ib.emit_ret(ib.r(2))


VALUES = [
    *(np.array(values, "float32") for values in ([1.0, 0.1, np.nan, np.inf, -np.inf, -0.0], [], 3)),
    np.arange(100, dtype="float64") * 1e15,
    np.array([1e-7, 1e16, 1e22], "float64"),
    np.array([2**60 + 1, -(2**60)], "int64"),
    np.array([2**64 - 1, 0], "uint64"),
    np.array([True, False]),
    np.full((2, 3), 0.1, "float16"),
    0.1,
    1e22,
    "quote ' \" \u2028 </script><!-- \U0001f600 \x00",
    "\U0001f600" * 300,
    b"\xff\x00",
    None,
    (1, (2.0, "x"), (), [np.zeros(2, "int8")]),
    tuple(range(100)),
]


def test_values_of_every_kind_read_the_same(node, tmp_path):
    machine = build(("f", 2, ["x", "y"], identity))
    cases = []
    for value in VALUES:
        argument = tensor(value) if isinstance(value, np.ndarray) else value
        stepper = VMStepper(machine, "f", argument, 1)
        cases.append(case_of(stepper, lambda _: [], repr(value)))
    run_node(node, cases, tmp_path / "cases.json")
