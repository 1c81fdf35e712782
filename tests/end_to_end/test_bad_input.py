"""Wrong input to a compiled program: the message says expected, got and where; nothing breaks."""

import numpy as np
import pytest

from relaxlab import relax, runtime
from relaxlab.errors import InternalError
from relaxlab.script import from_source

PROGRAM = """
@I.ir_module
class Module:
    @R.function
    def main(
        x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("n",), "float32"), s: R.Shape(["m", 2])
    ) -> R.Tensor(("n", 4), "float32"):
        with R.dataflow():
            z = R.exp(x)
            R.output(z)
        return z
"""
GOOD = (np.zeros((3, 4), np.float32), np.ones(3, np.float32), runtime.ShapeTuple((5, 2)))


@pytest.fixture(scope="module")
def vm():
    return relax.VirtualMachine(relax.build(from_source(PROGRAM), "numpy"), runtime.cpu())


def _replaced(position, value):
    return tuple(value if i == position else good for i, good in enumerate(GOOD))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (GOOD[:2], InternalError, ["main", "3", "2"]),
        ((*GOOD, 1), InternalError, ["main", "3", "4"]),
        (_replaced(0, np.zeros(3, np.float32)), ValueError, ["x", "ndim", "2", "1"]),
        (_replaced(0, np.zeros((3, 4))), ValueError, ["x", "dtype", "float32", "float64"]),
        (_replaced(0, np.zeros((3, 5), np.float32)), RuntimeError, ["x", "4", "5", "match_cast"]),
        (_replaced(0, 3), TypeError, ["x", "Tensor"]),
        (_replaced(0, None), TypeError, ["x", "Tensor"]),
        # n was bound to 3 by x; y says 2
        (_replaced(1, np.ones(2, np.float32)), RuntimeError, ["y", "n", "3", "2", "x"]),
        (_replaced(2, runtime.ShapeTuple((5, 3))), RuntimeError, ["s", "2", "3"]),
        (_replaced(2, runtime.ShapeTuple((5,))), ValueError, ["s", "ndim", "2", "1"]),
        (_replaced(2, GOOD[0]), TypeError, ["s", "Shape"]),
    ],
    ids=str,
)
def test_a_wrong_argument_is_named_and_the_machine_goes_on(vm, arguments, error, words):
    with pytest.raises(error) as caught:
        vm["main"](*arguments)
    for word in words:
        assert word in str(caught.value), (word, str(caught.value))
    assert vm["main"](*GOOD).numpy().tolist() == [[1.0] * 4] * 3


def test_an_unknown_function_is_named_with_what_there_is(vm):
    with pytest.raises(AttributeError, match=r"(?s)mian.*main"):
        vm["mian"]


def test_a_missing_packed_function_is_named():
    text = PROGRAM.replace(
        "z = R.exp(x)",
        'z = R.call_pure_packed("no.such", x, ty_args=R.Tensor(("n", 4), "float32"))',
    )
    text = text.replace('ty_args=R.Tensor(("n", 4)', "ty_args=R.Tensor((n, 4)").replace(
        "        with R.dataflow", "        n = T.int64()\n        with R.dataflow"
    )
    ex = relax.build(from_source(text), "numpy")
    with pytest.raises(InternalError, match=r"no\.such"):
        relax.VirtualMachine(ex, runtime.cpu())


@pytest.fixture(scope="module")
def saved():
    return relax.build(from_source(PROGRAM), "numpy").save_to_bytes()


def test_a_wrong_version_says_found_and_expected(saved):
    with pytest.raises(InternalError, match=r"(?s)0\.99.*0\.14|0\.14.*0\.99"):
        relax.VMExecutable.load_from_bytes(saved.replace(b"0.14", b"0.99", 1))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.4, 0.7, 0.99])
def test_a_truncated_file_names_section_and_offset(saved, share):
    with pytest.raises(InternalError, match=r"(?i)byte|offset"):
        relax.VMExecutable.load_from_bytes(saved[: int(len(saved) * share)])
