"""safetensors: the reference library's bytes, and its refusals."""

import json

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxlab.errors import InternalError
from relaxlab.runtime import (
    DataType,
    load_safetensors,
    load_safetensors_from_file,
    safetensors_metadata,
    save_safetensors,
    save_safetensors_to_file,
    tensor,
)
from tests.golden_values import decode, encode
from tests.golden_vm import FOLDER

RECORD = json.loads((FOLDER.parent / "params" / "safetensors.json").read_text())
SAVED = RECORD["saved"]
PARAMS = {
    "w": np.arange(6, dtype="float32").reshape(2, 3),
    "b": np.ones(3, ml_dtypes.bfloat16),
    "n": np.array(7, "int64"),
}
DATA = save_safetensors(PARAMS)


def file(header, data=b""):
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


@pytest.mark.parametrize("case", SAVED)
def test_bytes_are_those_of_the_reference_library(case):
    params = {name: decode(value) for name, value in case["tensors"].items()}
    data = save_safetensors(params, case["metadata"])
    assert data.hex() == case["hex"]
    loaded = load_safetensors(data)
    assert {name: encode(value) for name, value in loaded.items()} == case["tensors"]
    assert safetensors_metadata(data) == (case["metadata"] or {})


@pytest.mark.parametrize("name", RECORD["files"])
def test_what_the_reference_library_refuses_is_refused(name):
    case = RECORD["files"][name]
    data = bytes.fromhex(case["hex"])
    if case["accepted"]:
        load_safetensors(data)
    else:
        with pytest.raises(InternalError, match=r"safetensors: .+"):
            load_safetensors(data)


def test_files_are_read_and_written(tmp_path):
    path = tmp_path / "model.safetensors"
    save_safetensors_to_file(PARAMS, path, {"format": "np"})
    loaded = load_safetensors_from_file(path)
    assert list(loaded) == ["n", "w", "b"]
    for name, value in PARAMS.items():
        np.testing.assert_array_equal(loaded[name].numpy(), value)
        assert loaded[name].dtype == DataType(str(value.dtype))
        loaded[name].array[...] = 0  # loaded weights can be written
    assert safetensors_metadata(path.read_bytes()) == {"format": "np"}
    with pytest.raises(InternalError, match=r"cannot read weights from .*nowhere"):
        load_safetensors_from_file(tmp_path / "nowhere")
    with pytest.raises(TypeError):
        save_safetensors_to_file({"x": tensor([1], dtype="int4")}, path)
    assert load_safetensors_from_file(path)["n"].numpy() == 7
    assert [one.name for one in tmp_path.iterdir()] == ["model.safetensors"]


def test_what_the_format_cannot_hold_is_named():
    for params, message in (
        ({"x": tensor([1], dtype="int4")}, "no element type int4, tensor 'x'"),
        ({"__metadata__": [1]}, "cannot be called '__metadata__'"),
        ({3: [1]}, "expected a string, got int 3"),
    ):
        with pytest.raises(TypeError, match=message):
            save_safetensors(params)
    with pytest.raises(TypeError, match="expected a string, got int 1"):
        save_safetensors({}, {"a": 1})
    with pytest.raises(TypeError, match="expected bytes, got str"):
        load_safetensors("abc")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected 8 bytes with the length of the header, got 0"),
        (b"\xff" * 8, "a header of 18446744073709551615 bytes, expected at most 0"),
        (DATA[:-1], "the file has"),
        (file({"a": 3}), "tensor 'a' needs 'dtype', 'shape' and 'data_offsets'"),
        (file({"a": {"dtype": [], "shape": [], "data_offsets": []}}), "has element type"),
        (
            file({"a": {"dtype": "U8", "shape": [True], "data_offsets": [0, 1]}}, b"a"),
            "tensor 'a' has no sound shape",
        ),
        (
            file({"a": {"dtype": "U8", "shape": [1] * 33, "data_offsets": [0, 1]}}, b"a"),
            "at most 32 numbers",
        ),
        (
            file({"a": {"dtype": "U8", "shape": [1], "data_offsets": [1, 0]}}, b"a"),
            "no sound 'data_offsets'",
        ),
        (
            file({"a": {"dtype": "U8", "shape": [2**61, 4], "data_offsets": [0, 1]}}, b"a"),
            "has 9223372036854775808 bytes, its offsets say 1",
        ),
        (len(b"[" * 10**5).to_bytes(8, "little") + b"[" * 10**5, "not valid JSON"),
    ],
)
def test_a_bad_file_says_what_is_wrong(data, message):
    with pytest.raises(InternalError, match=message):
        load_safetensors(data)


@given(st.integers(0, len(DATA) - 1), st.integers(0, 255))
def test_any_altered_byte_loads_or_is_refused_clearly(at, byte):
    data = bytearray(DATA)
    data[at] = byte
    try:
        load_safetensors(data)
    except InternalError as error:
        assert str(error).startswith("safetensors: ")  # noqa: PT017  # both outcomes are fine
