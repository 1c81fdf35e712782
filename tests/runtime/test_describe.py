"""What is written down about a value."""

import json
from dataclasses import asdict

import numpy as np
import pytest

from relaxlab.runtime import Array, ShapeTuple, Tensor, cpu, tensor
from relaxlab.runtime.describe import Describer, ScalarValue
from relaxlab.runtime.storage import NaiveAllocator, PooledAllocator
from relaxlab.runtime.vm import Closure
from relaxlab.runtime.vm.frame import LinkedFunction


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, "none", "None"),
        (True, "bool", "True"),
        (-3, "int", "-3"),
        (float("nan"), "float", "nan"),
        ("a'b", "str", '"a\'b"'),
        (b"\0", "bytes", "b'\\x00'"),
        (cpu(), "device", "cpu:0"),
        (ShapeTuple((2, 3)), "shape", "(2, 3)"),
        ([1, ["x"]], "tuple", "(1, ('x'))"),
        ({}, "map", "map of 0 entries"),
        (len, "function", "function len"),
        (Closure(LinkedFunction("f", 2, 2), (1,)), "closure", "closure f with (1)"),
        (object(), "object", "object"),
    ],
)
def test_kinds_and_texts(value, kind, text):
    described = Describer().describe(value)
    assert (described.kind, described.text) == (kind, text)


def test_not_a_number_is_equal_to_itself_and_fits_json():
    values = np.array([np.nan, 1, -np.inf], "float32")
    first, second = Describer().describe(Tensor(values)), Describer().describe(tensor(values))
    assert first == second
    assert first.head == ("nan", 1.0, "-inf")
    assert (first.minimum, first.maximum, first.nan_count) == ("-inf", 1.0, 1)
    assert json.loads(json.dumps(asdict(first), allow_nan=False))["head"] == ["nan", 1.0, "-inf"]
    nans = Describer().describe(Tensor(values[:1]))
    assert (nans.minimum, nans.maximum, nans.nan_count) == (None, None, 1)


def test_long_tensors_show_their_edges_and_a_change_in_the_middle():
    array = np.arange(100)
    before = Describer().describe(Tensor(array))
    assert (before.head, before.tail) == ((0, 1, 2, 3), (96, 97, 98, 99))
    assert before.text == "int64[100] s0 [0, 1, 2, 3, …, 96, 97, 98, 99]"
    array[50] = 51
    assert Describer().describe(Tensor(array)) != before


def test_narrow_floats_read_as_they_were_written():
    values = [0.1, 1e-7, 16777216, 3.4028235e38, -0.0, 1 / 3, np.nan, np.inf]
    text = Describer().describe(tensor(np.array(values, "float32"))).text
    assert text == (
        "float32[8] s0 [0.1, 1e-07, 16777216.0, 3.4028235e+38, -0.0, 0.33333334, nan, inf] 1 NaN"
    )
    random = np.random.default_rng(0).integers(0, 2**32, 2000, dtype="uint32").view("float32")
    for value in random[np.isfinite(random)]:
        text = Describer().describe(tensor(np.array([value]))).text
        assert np.float32(text.partition(" [")[2].rstrip("]")) == value
    # elements stay what they are, and a wide float is not shortened
    assert Describer().describe(tensor(np.array([0.1], "float32"))).head == (
        float(np.float32(0.1)),
    )
    wide = np.array([float(np.float32(0.1))])
    assert Describer().describe(tensor(wide)).text == "float64[1] s0 [0.10000000149011612]"


def test_tensors_over_the_limit_get_no_statistics():
    described = Describer(stats_limit=10).describe(tensor(np.zeros(11)))
    assert (described.minimum, described.nan_count, described.checksum) == (None, None, None)


def test_views_share_a_number_and_have_their_own_offset():
    describer = Describer()
    array = np.zeros((4, 4), "int32")
    numbers = [
        describer.describe(Tensor(view)) for view in (array, array[1:], array.T, array[:, 2])
    ]
    assert [(d.storage, d.offset) for d in numbers] == [(0, 0), (0, 16), (0, 0), (0, 8)]
    assert describer.describe(tensor([1])).storage == 1


def test_a_storage_and_its_tensors_have_one_number():
    describer = Describer()
    storage = NaiveAllocator(cpu()).storage(64)
    described = describer.describe(storage)
    x = storage.tensor(ShapeTuple((2,)), tensor([1.0]).dtype, 16)
    assert describer.describe(x).storage == described.storage
    assert describer.describe(x).offset == 16
    assert described.text == "storage s0 (block 0, 64 bytes, cpu:0)"


def test_numbers_of_storages_are_new_and_of_blocks_come_again():
    describer, pool = Describer(), PooledAllocator(cpu())
    seen = [describer.describe(pool.storage(1)) for _ in range(3)]
    assert [(d.storage, d.block) for d in seen] == [(0, 0), (1, 0), (2, 0)]


def test_deep_and_long_values_are_cut():
    deep: object = 1
    for _ in range(100_000):
        deep = Array([deep])
    assert Describer().describe(deep).text == "(((((1 elements)))))"
    many = Describer().describe(Array(range(1000)))
    assert len(many.items) == 64
    assert many.length == 1000
    assert len(many.text) <= 200
    assert Describer().owners(deep)


def test_no_address_is_ever_shown():
    class Own:
        def __call__(self):
            """Make it a function."""

    for value in (object(), Own(), Own, lambda: 0, Array([object()])):
        assert "0x" not in Describer().describe(value).text
    assert isinstance(Describer().describe(3), ScalarValue)
