"""Tensor cache folders: TVM's bytes, whole or not at all, and nothing from outside."""

import contextlib
import json

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxlab.errors import InternalError
from relaxlab.runtime import cpu, cuda, dump_tensor_cache, load_tensor_cache, tensor
from relaxlab.runtime.staged_files import StagedFiles
from relaxlab.runtime.tensor_cache import bfloat16_bits
from tests.golden_values import encode, recorded

RECORD = recorded("files")["tensor_cache"]
SAMPLE = recorded("files")["f32_to_bf16"]
A = np.arange(3, dtype="float32")
MB = 2**20


def content(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def shards(folder):
    """Return, for each shard, its size and the names and offsets of its weights."""
    index = json.loads((folder / "tensor-cache.json").read_text())
    return [
        (shard["nbytes"], [(one["name"], one["byteOffset"]) for one in shard["records"]])
        for shard in index["records"]
    ]


def source():
    return {
        name: np.frombuffer(bytes.fromhex(one["hex"]), one["dtype"]).reshape(one["shape"])
        for name, one in RECORD["source"].items()
    }


# ---- what TVM writes --------------------------------------------------------------------------


def test_bytes_are_those_of_tvm(tmp_path):
    dump_tensor_cache(source(), tmp_path, meta_data={"k": 1})
    wanted = {
        name: bytes.fromhex(one["hex"]) if isinstance(one, dict) else one.encode()
        for name, one in RECORD["files"].items()
    }
    assert content(tmp_path) == wanted
    params, metadata = load_tensor_cache(tmp_path)
    assert {name: encode(value) for name, value in params.items()} == RECORD["loaded"]
    assert metadata == {"k": 1}


def test_float32_is_rounded_as_recorded():
    bits = np.frombuffer(bytes.fromhex(SAMPLE["f32_hex"]), "<f4")
    assert bfloat16_bits(bits).tobytes().hex() == SAMPLE["bf16_hex"]
    assert bfloat16_bits(np.float32(1.5).reshape(())).shape == ()


@given(st.lists(st.floats(width=32), max_size=20))
def test_rounding_is_to_nearest_even_below_the_largest_finite_value(values):
    array = np.array(values, "float32")
    got = bfloat16_bits(array)
    small = np.abs(array) < np.uint32(0x7F7F0000).view("float32")
    np.testing.assert_array_equal(
        got[small], array[small].astype(ml_dtypes.bfloat16).view("uint16")
    )
    np.testing.assert_array_equal(got[~small], (array[~small].view("uint32") >> 16))


def test_large_weights_get_shards_of_their_own(tmp_path):
    sizes = {"a": 10, "b": MB, "c": 20, "d": MB // 2, "e": 3 * MB, "g": 0}
    params = {name: np.zeros(size, "uint8") for name, size in sizes.items()}
    dump_tensor_cache(params, tmp_path, "raw", shard_cap_mb=1)
    assert shards(tmp_path) == [
        (MB, [("b", 0)]),
        (3 * MB, [("e", 0)]),
        (MB // 2 + 30, [("a", 0), ("c", 10), ("d", 30), ("g", MB // 2 + 30)]),
    ]
    assert list(load_tensor_cache(tmp_path)[0]) == ["b", "e", "a", "c", "d", "g"]


def test_a_full_shard_is_closed_before_the_next_weight(tmp_path):
    sizes = {"a": MB // 2 - 1, "b": MB // 4, "c": MB // 4 + 1, "d": 10}
    params = ((name, np.zeros(size, "uint8")) for name, size in sizes.items())
    dump_tensor_cache(params, tmp_path, "raw", shard_cap_mb=1)
    assert [[name for name, _ in names] for _, names in shards(tmp_path)] == [
        ["a", "b"],
        ["c", "d"],
    ]
    assert not (tmp_path / "tensor-cache-b16.json").exists()


def test_formats_may_differ_by_name(tmp_path):
    dump_tensor_cache({"a": A, "b": A}, tmp_path, {"a": "raw", "b": "f32-to-bf16"})
    assert (tmp_path / "params_shard_0.bin").read_bytes() == A.tobytes() + bfloat16_bits(
        A
    ).tobytes()
    halves, _ = load_tensor_cache(tmp_path / "tensor-cache-b16.json")
    assert [str(one.dtype) for one in halves.values()] == ["float32", "bfloat16"]
    with pytest.raises(ValueError, match=r"for parameter 'b': expected 'raw' .*, got None"):
        dump_tensor_cache({"a": A, "b": A}, tmp_path, {"a": "raw"})


def test_every_element_type_comes_back(tmp_path):
    params = {
        "f16": np.ones(3, "float16"),
        "bf16": np.ones((2, 2), ml_dtypes.bfloat16),
        "f8": np.ones(3, ml_dtypes.float8_e4m3fn),
        "none": np.zeros((2, 0), "float32"),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "scalar": 3.5,
        "big": np.array([1, 2], ">i4"),
        "tensor": tensor([1, 2]),
    }
    dump_tensor_cache(params, tmp_path / "deep" / "folder", "raw", lambda: {"late": True})
    loaded, metadata = load_tensor_cache(str(tmp_path / "deep" / "folder"), cpu())
    assert metadata == {"late": True}
    for name, value in params.items():
        got = loaded[name].numpy()
        np.testing.assert_array_equal(got, value if name != "tensor" else [1, 2])
    dump_tensor_cache({"none": params["none"]}, tmp_path)  # TVM writes this, but cannot load it
    assert load_tensor_cache(tmp_path)[0]["none"].shape == (2, 0)


# ---- updates ----------------------------------------------------------------------------------


def test_an_update_overwrites_in_place_and_appends(tmp_path):
    dump_tensor_cache({"a": A, "b": A + 1}, tmp_path, meta_data={"v": 1})
    dump_tensor_cache({"b": A + 6, "c": A}, tmp_path, update_if_exists=True)
    assert shards(tmp_path) == [(12, [("a", 0), ("b", 6)]), (6, [("c", 0)])]
    params, metadata = load_tensor_cache(tmp_path)
    assert {name: one.numpy().tolist() for name, one in params.items()} == {
        "a": [0, 1, 2],
        "b": [6, 7, 8],
        "c": [0, 1, 2],
    }
    assert metadata == {"v": 1}
    index = json.loads((tmp_path / "tensor-cache.json").read_text())
    assert index["records"][0]["md5sum"] == "13a2ba5a4808b3a1febe2c549e11ef8b"  # as TVM's
    dump_tensor_cache({"a": A}, tmp_path, meta_data={"v": 2}, update_if_exists=True)
    assert load_tensor_cache(tmp_path)[1] == {"v": 2}


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (np.zeros(9, "float32"), "f32-to-bf16"),
        (np.zeros(3, "int16"), "raw"),  # of the same size: TVM writes it under the old type
        (np.zeros((3, 1), "float32"), "f32-to-bf16"),
        (A, "raw"),
    ],
)
def test_an_update_that_changes_a_weight_is_refused_and_changes_nothing(tmp_path, value, form):
    dump_tensor_cache({"a": A, "b": A}, tmp_path)
    before = content(tmp_path)
    with pytest.raises(ValueError, match="cannot update 'b' in place"):
        dump_tensor_cache(
            {"a": A + 1, "b": value},
            tmp_path,
            form if form != "raw" else {"a": "f32-to-bf16", "b": "raw"},
            update_if_exists=True,
        )
    assert content(tmp_path) == before


def test_a_shard_that_exists_is_never_overwritten_by_a_new_one(tmp_path):
    dump_tensor_cache({"a": A}, tmp_path, "raw")
    (tmp_path / "params_shard_0.bin").rename(tmp_path / "params_shard_1.bin")
    path = tmp_path / "tensor-cache.json"
    path.write_text(path.read_text().replace("shard_0", "shard_1"))
    dump_tensor_cache({"b": A + 1}, tmp_path, "raw", update_if_exists=True)
    params, _ = load_tensor_cache(tmp_path)
    assert {name: one.numpy().tolist() for name, one in params.items()} == {
        "a": [0, 1, 2],
        "b": [1, 2, 3],
    }


# ---- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ([("a", A), ("a", A)], ValueError, "two weights are called 'a'"),
        ([("a", A), (1, A)], TypeError, "name of a weight must be a string, got int"),
        ([("a", A), ("b", np.array(["x"]))], TypeError, "weight 'b'"),
        ([("a", A), ("b", np.zeros(2, complex))], TypeError, "weight 'b'"),
        ([("a", A), ("b", [[1], [1, 2]])], TypeError, "weight 'b'"),
    ],
)
def test_a_refused_dump_leaves_the_folder_as_it_was(tmp_path, params, error, message):
    dump_tensor_cache({"old": A}, tmp_path)
    before = content(tmp_path)
    with pytest.raises(error, match=message):
        dump_tensor_cache(iter(params), tmp_path, shard_cap_mb=0)
    assert content(tmp_path) == before
    with pytest.raises(
        ValueError, match="encode_format: expected 'raw' or 'f32-to-bf16', got 'zip'"
    ):
        dump_tensor_cache({}, tmp_path / "new", "zip")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda i: i.pop("records"), KeyError, "'records' is missing"),
        (lambda i: i.update(records={}), ValueError, "'records' must be list, got dict"),
        (lambda i: i.update(records=[3]), ValueError, "shard 0: expected a JSON object, got int"),
        (lambda i: i["records"][0].update(dataPath=3), ValueError, "'dataPath' must be str"),
        (lambda i: i["records"][0].update(nbytes=True), ValueError, "'nbytes' must be int"),
        (lambda i: i["records"][0].update(nbytes=24.0), ValueError, "'nbytes' must be int"),
        (lambda i: i["records"][0]["records"].append(None), ValueError, "got NoneType"),
        (lambda i: _first(i).update(shape=[-1]), ValueError, "an integer from 0, got -1"),
        (lambda i: _first(i).update(shape=[True]), ValueError, "an integer from 0, got True"),
        (lambda i: _first(i).update(shape="3"), ValueError, "'shape' must be list"),
        (lambda i: _first(i).update(dtype="nonsense"), InternalError, "x_0'.*nonsense"),
        (lambda i: _first(i).update(dtype="handle"), InternalError, "x_0'.*handle"),
        (lambda i: _first(i).update(byteOffset=-1), InternalError, "outside the shard"),
        (lambda i: _first(i).update(nbytes=-1), InternalError, "outside the shard"),
        (lambda i: _first(i).update(shape=[2**61, 2**61]), InternalError, "x_0"),
    ],
)
def test_a_bad_index_is_refused_with_the_place(tmp_path, change, error, message):
    dump_tensor_cache(source(), tmp_path)
    path = tmp_path / "tensor-cache.json"
    index = json.loads(path.read_text())
    change(index)
    path.write_text(json.dumps(index))
    with pytest.raises(error, match=message):
        load_tensor_cache(tmp_path)


def _first(index):
    return index["records"][0]["records"][0]


@pytest.mark.parametrize(
    "name", ["../secret.bin", "/etc/passwd", "a/../../b", "C:\\x", "\\\\host\\x", "", "a\0b"]
)
def test_a_shard_outside_the_folder_is_refused(tmp_path, name):
    folder = tmp_path / "cache"
    dump_tensor_cache({"a": A}, folder, "raw")
    (folder / "params_shard_0.bin").rename(tmp_path / "secret.bin")
    path = folder / "tensor-cache.json"
    index = json.loads(path.read_text())
    index["records"][0]["dataPath"] = name
    path.write_text(json.dumps(index))
    with pytest.raises(ValueError, match="must be a file in the folder"):
        load_tensor_cache(folder)


def test_a_folder_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(InternalError, match=r"cannot read .*tensor-cache\.json"):
        load_tensor_cache(tmp_path / "nowhere")
    (tmp_path / "tensor-cache.json").write_text("[" * 100_000)
    with pytest.raises(InternalError, match="is not valid JSON"):
        load_tensor_cache(tmp_path)
    dump_tensor_cache({"a": A}, tmp_path)
    with pytest.raises(InternalError, match="cuda"):
        load_tensor_cache(tmp_path, cuda(9))


INDEX = RECORD["files"]["tensor-cache.json"].encode()


@given(st.integers(0, len(INDEX) - 1), st.binary(min_size=1, max_size=3))
def test_any_altered_index_loads_or_is_refused_clearly(tmp_path_factory, at, raw):
    folder = tmp_path_factory.getbasetemp() / "altered"
    folder.mkdir(exist_ok=True)
    shard = bytes.fromhex(RECORD["files"]["params_shard_0.bin"]["hex"])
    (folder / "params_shard_0.bin").write_bytes(shard)
    (folder / "tensor-cache.json").write_bytes(INDEX[:at] + raw + INDEX[at + len(raw) :])
    try:
        load_tensor_cache(folder)
    except (InternalError, KeyError, ValueError) as error:
        assert "tensor-cache.json" in str(error) or "shard" in str(error)  # noqa: PT017


# ---- files that appear together ---------------------------------------------------------------


def test_staged_files_appear_together_or_not_at_all(tmp_path):
    (tmp_path / "a").write_text("old")
    with contextlib.suppress(KeyError), StagedFiles() as files:
        files.write(tmp_path / "a", b"new")
        files.write(tmp_path / "b", b"new")
        raise KeyError
    assert content(tmp_path) == {"a": b"old"}
    with StagedFiles() as files:
        files.write(tmp_path / "a", b"new")
        files.write(tmp_path / "b", b"1")
        files.write(tmp_path / "b", b"2")
        assert (tmp_path / "a").read_text() == "old"
    assert content(tmp_path) == {"a": b"new", "b": b"2"}
