"""The view that ``relax.memory.view`` becomes."""

import numpy as np
import pytest

from relaxlab.runtime import ShapeTuple, get_global_func, tensor

VIEW = get_global_func("runtime.TVMTensorCreateView")


@pytest.mark.parametrize(
    ("shape", "dtype", "offset", "expected"),
    [
        ((2, 3), "float32", 0, [[0, 1, 2], [3, 4, 5]]),
        ((2,), "float32", 8, [2, 3]),
        ((3,), "int32", 12, [0x40400000, 0x40800000, 0x40A00000]),
        ((), "float32", 20, 5),
    ],
)
def test_a_view_sees_the_same_memory(shape, dtype, offset, expected):
    x = tensor(np.arange(6, dtype="float32"))
    view = VIEW(x, ShapeTuple(shape), dtype, offset)
    assert view.numpy().tolist() == expected
    assert np.shares_memory(view.array, x.array)
    assert view.byte_offset == offset


@pytest.mark.parametrize("offset", [20, -4])  # TVM reads before the start (run)
def test_a_view_stays_inside(offset):
    x = tensor(np.arange(6, dtype="float32"))
    with pytest.raises(ValueError, match=f"needs 8 bytes at offset {offset}, but the memory has"):
        VIEW(x, ShapeTuple((2,)), "float32", offset)
