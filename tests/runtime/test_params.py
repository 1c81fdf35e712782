"""Parameter dictionaries: TVM's bytes, and errors with section and offset."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxlab.errors import InternalError
from relaxlab.runtime import (
    load_param_dict,
    load_param_dict_from_file,
    save_param_dict,
    save_param_dict_to_file,
    tensor,
)
from tests.golden_values import decode, encode, recorded

RECORD = recorded("files")["save_param_dict"]
DATA = bytes.fromhex(RECORD["bytes_hex"])


def test_bytes_are_those_of_tvm():
    params = {name: decode(value) for name, value in RECORD["params"].items()}
    assert save_param_dict(params) == DATA


def test_tvms_bytes_load():
    loaded = load_param_dict(DATA)
    assert list(loaded) == list(RECORD["params"])
    assert {name: encode(value) for name, value in loaded.items()} == RECORD["params"]
    loaded["zeta"].array[0, 0] = 1  # loaded weights can be written


def test_arrays_lists_and_files(tmp_path):
    path = tmp_path / "params.bin"
    save_param_dict_to_file({"a": np.ones(2, "int8"), "b": [1.5], "c": 3}, path)
    loaded = load_param_dict_from_file(path)
    assert [(str(v.dtype), v.numpy().tolist()) for v in loaded.values()] == [
        ("int8", [1, 1]),
        ("float64", [1.5]),
        ("int64", 3),
    ]
    with pytest.raises(InternalError, match=r"cannot read parameters from .*nowhere"):
        load_param_dict_from_file(tmp_path / "nowhere")


def test_an_empty_dictionary_is_32_bytes():
    assert len(save_param_dict({})) == 32
    assert load_param_dict(save_param_dict({})) == {}
    assert load_param_dict(save_param_dict({}) + b"more") == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: b"\0" + d[1:], "section 'header', byte 0: unknown magic"),
        (lambda d: d[:12], "section 'header', byte 8: expected 8 bytes"),
        (lambda d: d[:30], "section 'names', byte 16"),
        (lambda d: d[:-1], "section 'tensors'"),
    ],
)
def test_altered_bytes_name_section_and_offset(change, message):
    with pytest.raises(InternalError, match=message):
        load_param_dict(change(DATA))


def test_a_wrong_number_of_tensors_is_named():
    data = bytearray(save_param_dict({"a": tensor([1])}))
    data[33] = 0
    with pytest.raises(InternalError, match="expected 1 tensors, one per name, got 0"):
        load_param_dict(data)


def test_text_is_no_bytes():
    with pytest.raises(TypeError, match="expected bytes, got str"):
        load_param_dict("abc")


@given(st.integers(0, len(DATA) - 1), st.integers(0, 255))
def test_any_altered_byte_loads_or_is_refused_clearly(at, byte):
    data = bytearray(DATA)
    data[at] = byte
    try:
        load_param_dict(data)
    except InternalError as error:
        assert "byte" in str(error)  # noqa: PT017  # both outcomes are fine
