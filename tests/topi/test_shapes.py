"""Shapes, names and refusals; what the kernels compute is tested through op_cases.json."""

import pytest

from relaxlab import te, topi
from relaxlab.ir import IntImm, Var, structural_equal


def tensor(*shape, dtype="float32", name="x"):
    return te.placeholder(
        [IntImm("int64", d) if isinstance(d, int) else d for d in shape], dtype, name
    )


def dims(t):
    return [d.value if isinstance(d, IntImm) else d for d in t.shape]


n, m = Var("n", "int64"), Var("m", "int64")


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((2, 3), (3,), [2, 3]),
        ((2, 1), (1, 3), [2, 3]),
        ((), (2,), [2]),
        ((4, 1, 3), (5, 3), [4, 5, 3]),
        ((n, 1), (m,), [n, m]),
        ((n, 4), (n, 4), [n, 4]),
        ((n,), (3,), [3]),
    ],
)
def test_broadcast(a, b, expected):
    out = topi.add(tensor(*a), tensor(*b))
    assert dims(out) == expected
    assert out.name == "T_add"


def test_broadcast_of_extents_that_are_equal_in_other_words():
    out = topi.add(tensor(n + 1), tensor(1 + n))
    assert structural_equal(out.shape[0], n + 1)


def test_extents_that_do_not_broadcast():
    with pytest.raises(ValueError, match="extents 2 and 3 do not broadcast"):
        topi.add(tensor(2), tensor(3))
    with pytest.raises(ValueError, match="extents 2 and 3 do not broadcast"):
        topi.broadcast_to(tensor(3), (IntImm("int64", 2),))
    with pytest.raises(ValueError, match="cannot broadcast a tensor of 2 dimensions"):
        topi.broadcast_to(tensor(2, 3), (3,))


def test_scalars_on_either_side_and_on_both():
    x = tensor(4)
    assert topi.subtract(x, 1.0).shape == x.shape
    assert topi.subtract(1.0, x).shape == x.shape
    assert topi.add(IntImm("int32", 1), 2).value == 3


@pytest.mark.parametrize(
    ("axis", "keepdims", "expected"),
    [
        (None, False, []),
        (1, False, [2, 4]),
        (-1, True, [2, 3, 1]),
        ([2, 0], False, [3]),
        ([0, -3], True, [1, 3, 4]),
        ([], False, [2, 3, 4]),
    ],
)
def test_reductions(axis, keepdims, expected):
    out = topi.sum(tensor(2, 3, 4), axis, keepdims)
    assert dims(out) == expected
    assert out.name == "x_red"


def test_an_axis_out_of_range():
    with pytest.raises(ValueError, match=r"axis 3 is out of range for 3 dimension\(s\)"):
        topi.sum(tensor(2, 3, 4), 3)


def test_positions_of_extremes_are_int64():
    out = topi.argmax(tensor(2, 3, dtype="float16"), 1, True)
    assert (dims(out), str(out.dtype)) == ([2, 1], "int64")
    assert dims(topi.argmin(tensor(2, 3))) == []


def test_moving_elements():
    x = tensor(2, 3, 4)
    assert dims(topi.transpose(x)) == [4, 3, 2]
    assert dims(topi.transpose(x, [-1, 0, 1])) == [4, 2, 3]
    assert dims(topi.reshape(x, (6, 4))) == [6, 4]
    assert dims(topi.expand_dims(x, [0, -1])) == [1, 2, 3, 4, 1]
    assert dims(topi.expand_dims(x, 1, 2)) == [2, 1, 1, 3, 4]
    assert dims(topi.squeeze(tensor(1, 3, 1))) == [3]
    assert dims(topi.squeeze(tensor(1, 3, 1), -1)) == [1, 3]
    assert dims(topi.concatenate([x, x], -1)) == [2, 3, 8]
    assert dims(topi.stack([x, x, x], -1)) == [2, 3, 4, 3]
    assert dims(topi.repeat(x, 2, 0)) == [4, 3, 4]
    assert dims(topi.repeat(x, 2)) == [48]
    assert dims(topi.tile(x, [2, 1])) == [2, 6, 4]
    assert dims(topi.flip(x, 1)) == [2, 3, 4]
    assert [dims(t) for t in topi.meshgrid([tensor(2), tensor(3)])] == [[2, 3], [2, 3]]
    assert [dims(t) for t in topi.meshgrid([tensor(2), tensor(3)], "xy")] == [[3, 2], [3, 2]]


def test_a_list_of_axes_that_is_no_permutation():
    with pytest.raises(ValueError, match="are no permutation of 2"):
        topi.transpose(tensor(2, 3), [0, 0])


def test_split():
    x = tensor(2, 7)
    assert [dims(t) for t in topi.split(x, 3, 1)] == [[2, 3], [2, 3], [2, 1]]
    assert [dims(t) for t in topi.split(x, [1, 4], 1)] == [[2, 1], [2, 3], [2, 3]]


def test_a_cut_beyond_the_end_leaves_nothing_behind_it():
    # TVM 0.27 makes a tensor of -2 columns
    assert [dims(t) for t in topi.split(tensor(2, 7), [5, 9], 1)] == [[2, 5], [2, 2], [2, 0]]


def test_take():
    x, i = tensor(4, 3), tensor(2, 5, dtype="int32", name="i")
    assert dims(topi.take(x, i, 0)) == [2, 5, 3]
    assert dims(topi.take(x, i, -1)) == [4, 2, 5]
    assert dims(topi.take(x, i)) == [2, 5]
    assert dims(topi.take(x, IntImm("int64", 1), 0)) == [3]
    with pytest.raises(ValueError, match="unknown mode 'nearest'"):
        topi.take(x, i, 0, "nearest")


@pytest.mark.parametrize(
    ("begin", "end", "stride", "expected"),
    [
        (0, 6, 1, 6),
        (1, 4, 1, 3),
        (1, 6, 2, 3),
        (-3, 100, 1, 3),
        (5, 0, -2, 3),
        (5, -100, -1, 6),
        (4, 2, 1, 0),
        (2, 2, 1, 0),
    ],
)
def test_strided_slice_has_the_length_of_pythons(begin, end, stride, expected):
    out = topi.strided_slice(tensor(6), [begin], [end], [stride])
    assert dims(out) == [expected]
    assert len(range(6)[begin:end:stride]) == expected


def test_a_stride_must_be_known_and_not_zero():
    with pytest.raises(ValueError, match="a literal other than 0"):
        topi.strided_slice(tensor(6), [0], [6], [0])
    with pytest.raises(ValueError, match="a literal other than 0"):
        topi.strided_slice(tensor(6), [0], [6], [n])


def test_matmul():
    assert dims(topi.matmul(tensor(2, 1, 3, 4), tensor(5, 4, 2))) == [2, 5, 3, 2]
    assert dims(topi.matmul(tensor(4), tensor(4, 2))) == [2]
    assert dims(topi.matmul(tensor(n, 4), tensor(4))) == [n]
    assert dims(topi.matmul(tensor(4), tensor(4))) == []
    wide = topi.matmul(tensor(2, 3, dtype="float16"), tensor(3, 4, dtype="float16"), "float32")
    assert str(wide.dtype) == "float32"
    with pytest.raises(ValueError, match="one or more dimensions"):
        topi.matmul(tensor(), tensor(2))


def test_creation():
    assert dims(topi.full((2, 3), "int32", 7)) == [2, 3]
    assert dims(topi.arange(0, 10, 3, "int64")) == [4]
    assert dims(topi.arange(10, 0, -3, "int64")) == [4]
    assert dims(topi.arange(0, 1.0, 0.25, "float32")) == [4]
    assert dims(topi.trilu(tensor(2, 3), 0, True)) == [2, 3]
    assert dims(topi.where(tensor(2, 1, dtype="bool"), tensor(3), tensor())) == [2, 3]


def test_sorting_and_scans():
    x = tensor(2, 5)
    values, indices = topi.topk(x, 3, 1, dtype="int64")
    assert (dims(values), dims(indices), str(indices.dtype)) == ([2, 3], [2, 3], "int64")
    assert dims(topi.topk(x, 2, 0, "values")) == [2, 5]
    assert dims(topi.cumsum(x)) == [10]
    assert str(topi.cumsum(x, 1, "float64").dtype) == "float64"
    assert dims(topi.searchsorted(tensor(3), x)) == [2, 5]
    with pytest.raises(ValueError, match="ret_type must be both, values or indices"):
        topi.topk(x, 1, 0, "all")
    with pytest.raises(ValueError, match="a sequence of one dimension, got 2"):
        topi.searchsorted(x, x)


def test_softmax_notes_its_axis():
    out = topi.nn.softmax(tensor(2, 3, 4), -2)
    assert out.op.attrs == {"axis": 1}
