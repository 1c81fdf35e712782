"""The legacy KV cache against a NumPy model, and the tensor cache with its files."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxlab.errors import InternalError
from relaxlab.runtime import ShapeTuple, get_global_func, tensor
from relaxlab.runtime.describe import Describer
from tests.golden_values import encode, recorded


def kv(name, *args):
    return get_global_func(f"vm.builtin.attention_kv_cache_{name}")(*args)


def rows(*values):
    return np.array(values, "float32").reshape(-1, 1)


def shown(cache):
    return kv("view", cache).numpy().ravel().tolist()


# ---- legacy KV cache -------------------------------------------------------------------------


@given(st.lists(st.integers(0, 5), max_size=8))
def test_appended_rows_come_back_in_order(counts):
    cache = kv("create", rows(0), ShapeTuple((2, 1)), -1)
    expected = [0.0]
    for count in counts:
        new = np.arange(len(expected), len(expected) + count)
        assert kv("append", cache, rows(*new)) is cache
        expected += new.tolist()
        assert shown(cache) == expected
    slots = cache.data.shape[0]
    assert slots >= len(expected)
    assert slots & (slots - 1) == 0, "capacity doubles"


@given(st.lists(st.integers(1, 3), min_size=1, max_size=10), st.integers(0, 2))
def test_a_window_keeps_sinks_and_the_newest_rows(counts, sinks):
    size = 5
    cache = kv("create", rows(), ShapeTuple((2, 1)), 0)
    seen = []
    for count in counts:
        new = list(range(len(seen), len(seen) + count))
        seen += new
        kv("window_override_with_sinks", cache, rows(*new), size, sinks)
        kept = seen if len(seen) <= size else seen[:sinks] + seen[len(seen) - (size - sinks) :]
        assert sorted(shown(cache)) == kept


def test_a_window_without_sinks_is_the_same_with_none():
    caches = [kv("create", rows(), ShapeTuple((1, 1)), 0) for _ in range(2)]
    for at in range(0, 12, 3):
        new = rows(at, at + 1, at + 2)
        kv("window_override", caches[0], new, 4)
        kv("window_override_with_sinks", caches[1], new, 4, 0)
        assert shown(caches[0]) == shown(caches[1])


def test_update_popn_clear_and_fill_count():
    cache = kv("create", rows(1, 2, 3), ShapeTuple((4, 1)), -1)
    other = kv("create", rows(1), ShapeTuple((4, 1)), -1)
    kv("update", cache, rows(4, 5, 6))
    assert shown(cache) == [4, 5, 6]
    with pytest.raises(InternalError, match="cannot drop 2 of 1 rows"):
        kv("array_popn", [cache, other], 2)
    assert shown(cache) == [4, 5, 6], "a refusal changes no cache"
    with pytest.raises(InternalError, match="cannot drop -1"):
        kv("array_popn", [cache], -1)
    kv("array_popn", [cache, other], 1)
    assert (shown(cache), shown(other)) == ([4, 5], [])
    kv("array_clear", [cache])
    assert shown(cache) == []
    assert repr(cache) == "AttentionKVCacheLegacy(0 of 4 rows filled, window at 0)"
    assert kv("create", rows(1, 2), ShapeTuple((4, 1)), 1).fill_count == 1


def test_wrong_rows_are_refused():
    cache = kv("create", rows(1), ShapeTuple((4, 1)), -1)
    with pytest.raises(InternalError, match=r"rows of shape \(1,\) and dtype 'float32', got"):
        kv("append", cache, np.zeros((1, 2), "float32"))
    with pytest.raises(InternalError, match=r"'float32', got .*'float64'"):
        kv("append", cache, np.zeros((1, 1)))
    with pytest.raises(InternalError, match="expected 1 rows"):
        kv("update", cache, rows(1, 2))
    with pytest.raises(InternalError, match="at most 1 rows"):
        kv("window_override_with_sinks", cache, rows(1, 2), 3, 2)
    with pytest.raises(InternalError, match="rows like those of the reserved shape"):
        kv("create", rows(1), ShapeTuple((4, 2)), -1)
    with pytest.raises(TypeError, match=r"expected relax\.vm\.AttentionKVCacheLegacy, got"):
        kv("append", None, rows(1))
    with pytest.raises(ValueError, match="got 3 arguments"):
        kv("view", cache, 1, 2)
    with pytest.raises(InternalError, match=r"expected shape \(1, 1\), got \(2, 1\)"):
        kv("view", cache, ShapeTuple((2, 1)))
    assert shown(cache) == [1]


def test_a_view_and_its_cache_are_known_to_share_memory():
    cache = kv("create", rows(1), ShapeTuple((4, 1)), -1)
    describer = Describer()
    assert describer.owners(cache) & describer.owners(kv("view", cache))


# ---- tensor cache ----------------------------------------------------------------------------


def tc(name, *args):
    return get_global_func(f"vm.builtin.tensor_cache.{name}")(*args)


def params(name, *args):
    return get_global_func(f"vm.builtin.param_{name}")(*args)


@pytest.fixture(autouse=True)
def _empty_cache():
    tc("clear")
    yield
    tc("clear")


@pytest.fixture
def folder(tmp_path):
    for name, content in recorded("files")["tensor_cache"]["files"].items():
        if "hex" in content:
            (tmp_path / name).write_bytes(bytes.fromhex(content["hex"]))
        else:
            (tmp_path / name).write_text(content if isinstance(content, str) else content["text"])
    return tmp_path


def test_get_update_remove():
    assert tc("get", "a") is None
    x = tensor([1])
    tc("update", "a", x)
    assert tc("get", "a") is x
    with pytest.raises(InternalError, match="'a' is already registered"):
        tc("update", "a", tensor([2]))
    with pytest.raises(InternalError, match="'a' is already registered"):
        tc("update", "a", tensor([2]), False)
    tc("update", "a", np.array([2]), True)
    assert tc("get", "a").numpy().tolist() == [2]
    tc("remove", "a")
    tc("remove", "a")
    with pytest.raises(InternalError, match="got 1 arguments"):
        tc("update", "a")


def test_arrays_of_parameters():
    for index in range(3):
        tc("update", f"p_{index}", tensor([index]))
    assert [x.numpy().item() for x in params("array_from_cache", "p", -1)] == [0, 1, 2]
    assert len(params("array_from_cache", "p", 2)) == 2
    assert params("array_from_cache", "q", -1) == ()
    with pytest.raises(InternalError, match="expected 4 tensors, but p_3 is not in the cache"):
        params("array_from_cache", "p", 4)
    by_name = params("array_from_cache_by_name", ["p_2", "p_0"])
    assert by_name == params("array_from_cache_by_name_unpacked", "p_2", "p_0")
    with pytest.raises(ValueError, match="'zz' is not in the cache"):
        params("array_from_cache_by_name", ["p_0", "zz"])
    with pytest.raises(ValueError, match="argument 1: expected string, got int 3"):
        params("array_from_cache_by_name_unpacked", "p_0", 3)
    module = params("module_from_cache_by_name", ["p_1"])
    assert module.kind == "param_module"
    assert module["get_params"]()[0].numpy().item() == 1
    with pytest.raises(AttributeError, match="no function 'main'"):
        module["main"]


def test_a_folder_of_tvm_loads_as_it_does_there(folder):
    record = recorded("files")["tensor_cache"]
    tc("load", str(folder), 1, 0)
    for name, value in record["loaded"].items():
        got = encode(tc("get", name))
        assert (got["dtype"], got["shape"], got["hex"]) == (
            value["dtype"],
            value["shape"],
            value["hex"],
        )


def test_bfloat16_samples_widen_to_the_recorded_bits():
    sample = recorded("files")["f32_to_bf16"]
    halves = np.frombuffer(bytes.fromhex(sample["bf16_hex"]), "<u2")
    wide = (halves.astype("<u4") << 16).view("<f4")
    source = np.frombuffer(bytes.fromhex(sample["f32_hex"]), "<f4")
    finite = np.isfinite(source) & np.isfinite(wide)
    assert np.allclose(wide[finite], source[finite], rtol=2**-8)


def edit(folder, change):
    path = folder / "tensor-cache.json"
    index = json.loads(path.read_text())
    change(index)
    path.write_text(json.dumps(index))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda i: i["records"][0].update(nbytes=23), ValueError, "expected 23 bytes as stated"),
        (lambda i: i["records"][0].update(format="zip"), ValueError, "'raw-shard', got 'zip'"),
        (lambda i: i["records"][0].pop("records"), KeyError, "'records' is missing"),
        (lambda i: i["records"][0].update(dataPath="gone"), InternalError, "cannot read shard"),
        (lambda i: i["records"][0]["records"][0].pop("shape"), KeyError, "'shape' is missing"),
        (
            lambda i: i["records"][0]["records"][0].update(shape=[4]),
            InternalError,
            "parameter 'x_0'.* bytes",
        ),
        (
            lambda i: i["records"][0]["records"][0].update(byteOffset=1000),
            InternalError,
            "outside the shard",
        ),
    ],
)
def test_a_bad_folder_is_refused_as_a_whole(folder, change, error, message):
    edit(folder, change)
    with pytest.raises(error, match=message):
        tc("load", str(folder), 1, 0)
    assert all(tc("get", name) is None for name in ("x_0", "x_1", "s", "b"))


def test_bad_indexes(tmp_path):
    with pytest.raises(InternalError, match="cannot read"):
        tc("load", str(tmp_path), 1, 0)
    (tmp_path / "tensor-cache.json").write_text("{")
    with pytest.raises(InternalError, match="is not valid JSON"):
        tc("load", str(tmp_path), 1, 0)
    (tmp_path / "tensor-cache.json").write_text("[]")
    with pytest.raises(ValueError, match="expected a JSON object, got list"):
        tc("load", str(tmp_path), 1, 0)
    with pytest.raises(InternalError, match="cannot allocate on cuda:9"):
        tc("load", str(tmp_path), 2, 9)
