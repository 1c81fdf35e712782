"""The rows of kernels do the same work on both sides, and bear the promised names."""

import json

import numpy as np
import pytest

from relaxlab.cli.bench import kernels
from relaxlab.cli.bench.tvm_peer import run_tvm
from relaxlab.codegen import GENERATORS

pytestmark = pytest.mark.skipif("llvm" not in GENERATORS, reason="llvmlite is not installed")

PROMISED = {
    "gelu_1m": {"tvm", "numpy"},
    "exp_1m": {"numpy"},
    "softmax_32x2048": {"tvm", "numpy"},
    "layer_norm": {"tvm", "numpy"},
    "rms_norm": {"tvm", "numpy"},
    "matmul_512": {"numpy"},
    "matmul_1024": {"numpy"},
    "gemv_576x1536": {"numpy"},
    "gemv_streamed": {"numpy"},
}


def test_the_promised_rows_are_there():
    assert {name: set(make().bars) for name, make in kernels._WORKS.items()} == PROMISED


@pytest.mark.parametrize("name", sorted(PROMISED))
def test_both_sides_give_the_same(name, capsys, monkeypatch):
    monkeypatch.setattr(kernels, "_ROUNDS", 1)
    monkeypatch.setattr(kernels, "_SECONDS", 0.0)
    kernels.measure_here(name)
    ours, numpy = json.loads(capsys.readouterr().out)
    assert ours > 0
    assert numpy > 0


def test_a_difference_is_not_timed(monkeypatch):
    work = kernels._WORKS["exp_1m"]()
    wrong = kernels._Work(
        work.func, work.shapes, lambda x, out: np.exp2(x, out=out), work.bars, work.sets
    )
    monkeypatch.setitem(kernels._WORKS, "exp_1m", lambda: wrong)
    with pytest.raises(AssertionError, match="Not equal"):
        kernels.measure_here("exp_1m")


def test_the_peer_is_the_python_that_is_named(monkeypatch, tmp_path):
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho 'RESULT 2.5'\n")
    other.chmod(0o755)
    monkeypatch.setenv("RELAXLAB_ORACLE", str(other))
    assert run_tvm("") == 2.5
    other.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'tvm'\" >&2; exit 1\n")
    assert run_tvm("") is None
