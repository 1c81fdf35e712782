"""The hand-written kernels of the real TVM's paged caches: read, printed and run alike.

They are what people write by hand: loops that depend on data, variables, pages found by index.
"""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from relaxlab import codegen
from relaxlab.script import from_source
from relaxlab.tirx import Interpreter

PROGRAM = Path(__file__).with_name("cache_kernel_programs.py")
NOT_RUN = ("prefill", "prefill_gpu", "merge_gpu", "compact_gpu", "copy_gpu")


def arguments():
    """Return arguments for each kernel: two sequences of seven and five tokens in pages of four."""
    random = np.random.default_rng(0)

    def floats(*shape):
        return random.standard_normal(shape).astype("float32")

    def ints(*values):
        return np.array(values, "int32")

    def zeros(*shape):
        return np.zeros(shape, "float32")

    pages = floats(8, 2, 2, 4, 16)
    rope = (floats(3, 8, 16), ints(4, 5, 9), zeros(3, 4, 16), zeros(3, 2, 16), zeros(3, 2, 16), 1)
    table = (pages, ints(0, 2, 4), ints(3, 1, 0, 6))
    lengths = np.array([[3, 1], [1, 0], [1, 0]], "int32")
    return {
        "decode": (
            *(floats(2, 4, 16), *table, lengths, ints(0, 0), ints(6, 4)),
            *(zeros(2, 4, 16), zeros(2, 4), 1, 1.0, 10000.0, 0.25),
        ),
        "ragged": (
            *(floats(5, 4, 16), ints(0, 3, 5), floats(9, 2, 16), floats(9, 2, 16), ints(0, 5, 9)),
            *(ints(2, 3, 4, 2, 3), ints(0, 0), zeros(5, 4, 16), zeros(5, 4)),
            *(1, 0, 1.0, 10000.0, 0.25),
        ),
        "merge": (floats(3, 4, 16), floats(3, 4), floats(3, 4, 16), floats(3, 4)),
        "compact": (pages, ints(0, 2, 3), np.array([[0, 5, 9], [1, 6, 10]], "int32"), 2),
        "copy": (pages, 2, 5, 3),
        "debug": (pages, ints(0, 5, 9, 31), zeros(3, 4, 2, 16), zeros(3, 4, 2, 16), 1),
        "append": (pages, floats(3, 2, 16), floats(3, 2, 16), ints(4, -1, 17)),
        "rope": rope,
        "rope_gptj": rope,
        "rope_llama3": rope,
    }


NAMES = (*arguments(), *NOT_RUN)


@pytest.fixture(scope="module")
def kernels(oracle_python, tmp_path_factory):
    def plain(value):
        is_array = isinstance(value, np.ndarray)
        return [str(value.dtype), value.shape, value.reshape(-1).tolist()] if is_array else value

    path = tmp_path_factory.mktemp("cache") / "arguments.json"
    path.write_text(
        json.dumps({k: [plain(v) for v in values] for k, values in arguments().items()})
    )
    done = subprocess.run(
        [oracle_python, PROGRAM, path], capture_output=True, text=True, check=True, timeout=300
    )
    return json.loads(done.stdout)


def test_every_kernel_is_compared(kernels):
    assert set(kernels) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_is_read_and_printed(kernels, name):
    script, _ = kernels[name]
    assert from_source(script).script().rstrip() == script.rstrip()


@pytest.mark.parametrize("how", ["interpreter", "numpy", "llvm"])
@pytest.mark.parametrize("name", arguments())
def test_a_kernel_computes_the_same(kernels, name, how):
    script, expected = kernels[name]
    func = from_source(script)["main"]
    given = [v.copy() if isinstance(v, np.ndarray) else v for v in arguments()[name]]
    if how == "interpreter":
        Interpreter(func, name)(*given)
    else:
        codegen.build(func, how)[func.attrs["global_symbol"]](*given)
    arrays = [v for v in given if isinstance(v, np.ndarray)]
    for actual, wanted in zip(arrays, expected, strict=True):
        np.testing.assert_allclose(actual.reshape(-1), wanted, 1e-4, 1e-4)


@pytest.mark.parametrize("how", ["interpreter", "numpy", "llvm"])
def test_a_kernel_that_reads_past_a_buffer_is_refused(kernels, how):
    """``scale_O`` has one element, and TVM's kernel reads all sixteen."""
    func = from_source(kernels["prefill"][0])["main"]
    decode = arguments()["decode"]
    queries, zeros = np.ones((5, 4, 16), "float32"), np.zeros((5, 4, 16), "float32")
    rows = np.array([0, 3, 5], "int32")
    positions, starts = np.array([4, 5, 6, 3, 4], "int32"), np.zeros(2, "int32")
    lengths = np.array([3, 1], "int32")
    given = (queries, rows, *decode[1:4], lengths, starts, positions, zeros, zeros[..., 0].copy())
    kernel = Interpreter(func, "prefill")
    if how != "interpreter":
        kernel = codegen.build(func, how)[func.attrs["global_symbol"]]
    with pytest.raises(IndexError, match="scale_O"):
        kernel(*given, 1, 1, 1.0, 10000.0, 0.25)
