"""The small modules with TVM's names lead to one and the same objects."""

import numpy as np
import pytest

import relaxlab as tvm
from relaxlab.ir import target, transform


def test_doors_lead_to_the_objects_themselves():
    assert tvm.target.Target is target.Target
    for name in tvm.transform.__all__:
        assert getattr(tvm.transform, name) is getattr(transform, name)
    assert tvm.instrument.PassInstrument is transform.PassInstrument


def test_close_arrays_are_close():
    tvm.testing.assert_allclose(tvm.runtime.tensor(np.ones(3, "float32")), np.ones(3) + 1e-8)


@pytest.mark.parametrize(
    ("actual", "desired", "message"),
    [
        (np.ones(3), np.ones((3, 1)), r"shapes differ: expected \(3, 1\), got \(3,\)"),
        (np.ones(3), 1.0, r"shapes differ: expected \(\), got \(3,\)"),
        (np.ones(3), np.array([1, 1, 1.1]), "Mismatched elements: 1 / 3"),
        (np.array([np.nan]), np.array([0.0]), "nan location mismatch"),
    ],
)
def test_a_difference_is_explained(actual, desired, message):
    with pytest.raises(AssertionError, match=message):
        tvm.testing.assert_allclose(actual, desired)
