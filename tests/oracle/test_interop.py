"""Programs move between the two systems and compute the same."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from relaxlab import relax
from relaxlab.runtime import VirtualMachine, cpu
from relaxlab.script import from_source
from tests import golden_compiler, golden_vm

REPOSITORY = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
MODULES = ("attention_sym", "if_else", "layer_norm", "recursion")
RUNS = golden_vm.case("library")["runs"]
HEX = [run["result"]["hex"] for run in RUNS]
native = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine != "x86_64",
    reason="the recorded library is for x86-64 Linux",
)


def run(python, step, folder):
    runner = HERE / ("ffi_programs.py" if step.startswith("ffi") else "interop_programs.py")
    done = subprocess.run(
        [python, runner, step, folder],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@native
def test_real_kernels_run_under_our_machine_with_the_small_package_alone(oracle_python):
    results = run(oracle_python, "ffi", golden_vm.FOLDER)
    assert results == [*HEX, *HEX, True, None]


@native
def test_tvm_can_be_imported_afterwards(oracle_python):
    results = run(oracle_python, "ffi_then_tvm", golden_vm.FOLDER)
    assert results[-2:] == [HEX[1], "relax.VMExecutable"]


@native
def test_step_calls_the_real_kernels(oracle_python):
    done = subprocess.run(
        [oracle_python, "-m", "relaxlab", "step", golden_vm.library("so"), "wide", str([1.0] * 64)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        input="break wide+4\ncontinue\nstep\ncontinue\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "finished with float32[64]" in done.stdout
    assert "[8.0, 8.0, 8.0" in done.stdout


@native
def test_step_shows_what_goes_into_a_real_kernel_and_what_comes_out(oracle_python):
    done = subprocess.run(
        [oracle_python, "-m", "relaxlab", "step", golden_vm.library("so"), "wide", str([1.0] * 64)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        input="break wide+5\ncontinue\nstep\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    before, after = done.stdout.split("(step) continue")[1].split("(step) step")
    assert "next: Call spread with %0 (float32[64]) and %2 (float32[64])." in before
    assert "%0 x  float32[64] s0 [1.0, 1.0, 1.0" in before
    assert "done: spread changed what %2 shows." in after
    assert "* %2    float32[64] s1 [2.0, 2.0, 2.0" in after


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Return a folder with the recorded modules: text, our library, and inputs."""
    folder = tmp_path_factory.mktemp("programs")
    for name in MODULES:
        document = golden_compiler.document(name)
        module = from_source(golden_compiler.source(name))
        (folder / f"{name}.txt").write_text(module.script(show_meta=True))
        built = relax.build(module, "numpy")
        built.export_library(folder / f"{name}.rlx")
        run = document["runs"][0]
        arrays = [golden_compiler.decode(one) for one in run["args"]]
        np.savez(folder / f"{name}.npz", **{f"{i:02}": a for i, a in enumerate(arrays)})
    return folder


def close(one, two):
    if one["t"] == "tuple":
        assert len(one["v"]) == len(two["v"])
        return all(map(close, one["v"], two["v"]))
    assert {**one, "v": 0} == {**two, "v": 0}
    return np.allclose(one["v"], two["v"], rtol=1e-5, atol=1e-5)


def test_our_programs_run_on_both_machines(oracle_python, programs):
    rows = run(oracle_python, "ours", programs)
    assert [row[0] for row in rows] == sorted(MODULES)
    for name, ours, theirs, back, same_bytes in rows:
        assert close(ours, theirs), name
        assert back == theirs, name  # the same kernels, to the bit
        assert same_bytes, name


def test_their_programs_run_on_our_machine(oracle_python, programs):
    rows = run(oracle_python, "theirs", programs)
    assert [row[0] for row in rows] == sorted(MODULES)
    for name, expected, *results, same_text in rows:
        assert results == [expected] * 3, name
        assert same_text, name
    for name in MODULES:  # and without anything of TVM, up to the kernels
        ex = relax.VMExecutable.load_from_file(programs / f"{name}.so")
        assert VirtualMachine(ex, cpu())


def test_functions_are_lent_in_both_directions(oracle_python, tmp_path):
    kinds = ["Tensor", "ShapeTuple", "DataType", "str", "int", "NoneType", "Array"]
    rows = run(oracle_python, "lent", tmp_path)
    assert rows[:2] == [kinds, [7]]
    assert rows[2] == ["Tensor", "Shape", "dtype", "String", "int", "NoneType", "Array"]
    assert rows[3] == "of a function that is lent"
    assert "expected a tvm.relax.VMExecutable or its module, got int" in rows[4]
