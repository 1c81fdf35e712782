"""The same bytes and the same calls, here and with the real TVM: the same results."""

import contextlib
import io
import json
import subprocess
from pathlib import Path

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from relaxlab.errors import InternalError
from relaxlab.runtime import VirtualMachine, cpu, get_global_func, tensor
from relaxlab.runtime.vm import VMExecutable
from tests.golden_values import encode
from tests.runtime.vm.programs import executables
from tests.strategies import programs

RUNNER = Path(__file__).with_name("run_programs.py")
FAILING = Path(__file__).with_name("failing_programs.py")
KEPT = (AttributeError, AssertionError, IndexError, KeyError, TypeError, ValueError)


def with_tvm(python, cases, runner=RUNNER):
    command = [str(python), str(runner)]
    done = subprocess.run(
        command, input=json.dumps(cases), capture_output=True, text=True, check=True, timeout=120
    )
    return json.loads(done.stdout)


def test_random_programs_give_the_same_results(oracle_python):
    cases, ours = [], []

    @settings(max_examples=200, database=None, phases=[Phase.generate], derandomize=True)
    @given(executables(), st.integers(0, 2))
    def collect(executable, n):
        x = tensor(np.array([1, 2, 3, 4], "float32"))
        result = VirtualMachine(executable, cpu())["main"](x, n)
        cases.append({"hex": executable.save_to_bytes().hex(), "n": n})
        ours.append([encode(result), encode(x)])

    collect()
    assert len(cases) >= 150
    assert with_tvm(oracle_python, cases) == ours


def simple(value):
    """Return a value as the runner writes it: closures and the like are not compared."""
    record = encode(value)
    match record["t"]:
        case "tuple":
            return {"t": "tuple", "v": [simple(item) for item in value]}
        case "bool":
            return {"t": "int", "v": int(value)}
        case "none" | "int" | "tensor" | "shape":
            return record
        case _:
            return {"t": "object"}


def outcome(program):
    """Return result and argument, or the class of the error as TVM hands it on."""
    number, array = program.arguments()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            result = program.machine()["main"](number, array)
    except InternalError as error:
        return type(error).__name__
    except KEPT as error:
        return type(error).__name__
    except Exception:  # noqa: BLE001  # any class at all
        return "RuntimeError"  # what TVM makes of any other class that a host function raises
    return [simple(result), simple(array)]


def test_random_programs_fail_with_the_same_errors(oracle_python):
    cases, ours = [], []

    @settings(max_examples=200, database=None, phases=[Phase.generate], derandomize=True)
    @given(programs())
    def collect(program):
        data = program.executable.save_to_bytes().hex()
        cases.append({"hex": data, "number": program.number, "array": list(program.array)})
        ours.append(outcome(program))

    collect()
    theirs = with_tvm(oracle_python, cases, FAILING)
    for case, mine, other in zip(cases, ours, theirs, strict=True):
        assert mine == other, VMExecutable.load_from_bytes(bytes.fromhex(case["hex"])).as_text()
    errors = {one for one in ours if isinstance(one, str)}
    assert len(errors) >= 3
    assert len([one for one in ours if not isinstance(one, str)]) >= 80


def test_sampling_picks_the_same_tokens(oracle_python):
    rng = np.random.default_rng(7)
    cases, ours = [], []
    for index in range(300):
        row = (3 * rng.normal(size=rng.integers(1, 9))).astype("float32")
        uniform, top_p = float(rng.uniform(0, 0.99)), float(rng.uniform(0.05, 1))
        temperature = float(rng.uniform(0, 2)) if index % 5 else 0.0
        prob = np.exp(row) / np.exp(row).sum()
        name = "vm.builtin.sample_top_p_from_"
        cases += [
            {
                "builtin": f"{name}logits",
                "row": row.tolist(),
                "args": [temperature, top_p, uniform],
            },
            {"builtin": f"{name}prob", "row": prob.tolist(), "args": [top_p, uniform]},
        ]
    for case in cases:
        row = np.array([case["row"]], "float32")
        try:
            ours.append(get_global_func(case["builtin"])(row, *case["args"]))
        except InternalError as error:
            ours.append(type(error).__name__)
    assert with_tvm(oracle_python, cases) == ours
