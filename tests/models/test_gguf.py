"""The GGUF reader: the same answer as the ``gguf`` package, and a message for every lie."""

import contextlib
import os
import struct
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxlab.models.gguf import GGUFError, GGUFFile, Strings
from tests.models import gguf_bytes as b

Q4_1_ROW = np.array([0.5, -1.0], "<f2").tobytes() + bytes(range(16))
METADATA = {
    "general.architecture": b.string("llama"),
    "llama.block_count": b.u32(2),
    "llama.rope.freq_base": b.f32(1e5),
    "tokenizer.ggml.add_bos_token": b.flag(False),
    "tokenizer.ggml.tokens": b.strings(["a", "", "Ġé", "語"]),
    "tokenizer.ggml.token_type": b.int32s([1, 3, 1, -1]),
}
TENSORS = {
    "w": b.Tensor([32, 2], 3, Q4_1_ROW * 2),
    "norm": b.Tensor([3], 0, np.array([1, 2, 3], "<f4").tobytes()),
}
GOOD = b.gguf(METADATA, TENSORS)


@pytest.fixture
def load(tmp_path):
    def load(data: bytes) -> GGUFFile:
        path = tmp_path / "x.gguf"
        path.write_bytes(data)
        return GGUFFile.open(path)

    return load


def test_reads_types_and_tensors(load):
    file = load(GOOD)
    assert file.version == 3
    meta = file.metadata
    assert meta["general.architecture"] == "llama"
    assert meta["llama.block_count"] == 2
    assert meta["llama.rope.freq_base"] == 1e5
    assert meta["tokenizer.ggml.add_bos_token"] is False
    assert list(meta["tokenizer.ggml.tokens"]) == ["a", "", "Ġé", "語"]
    assert meta["tokenizer.ggml.tokens"][-1] == "語"
    assert meta["tokenizer.ggml.tokens"][1:3] == ["", "Ġé"]
    assert repr(meta["tokenizer.ggml.tokens"]) == "Strings(4: 'a', '', 'Ġé', ...)"
    assert isinstance(meta["tokenizer.ggml.tokens"], Strings)
    assert meta["tokenizer.ggml.token_type"].tolist() == [1, 3, 1, -1]
    weight = file.tensors["w"]
    assert (weight.shape, weight.kind.name, weight.data.nbytes) == ((2, 32), "Q4_1", 40)
    assert weight.dequantise()[1, :3].tolist() == [-1.0, -0.5, 0.0]
    assert file.tensors["norm"].dequantise().tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(IndexError):
        meta["tokenizer.ggml.tokens"][4]
    with pytest.raises(ValueError, match="read-only"):
        weight.data[0] = 1


def test_equals_gguf_package(tmp_path):
    gguf = pytest.importorskip("gguf", reason="the oracle of this test is the gguf package")
    path = tmp_path / "x.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_uint8("t.u8", 200)
    writer.add_int8("t.i8", -3)
    writer.add_uint16("t.u16", 60_000)
    writer.add_int16("t.i16", -30_000)
    writer.add_int32("t.i32", -5)
    writer.add_uint64("t.u64", 2**63)
    writer.add_int64("t.i64", -(2**62))
    writer.add_float64("t.f64", 0.1)
    writer.add_bool("t.bool", True)
    writer.add_array("t.floats", [0.5, 1.5])
    writer.add_array("t.flags", [True, False, True])
    writer.add_token_list(["hello", "Ġwörld", ""])
    writer.add_tensor("f", np.arange(12, dtype=np.float32).reshape(3, 4))
    half = np.arange(6, dtype=np.float16).reshape(1, 2, 3)
    writer.add_tensor("h", half)
    values = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    for name in ("Q8_0", "Q4_0", "Q4_1", "BF16"):
        kind = gguf.GGMLQuantizationType[name]
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    ours, theirs = GGUFFile.open(path), gguf.GGUFReader(path)
    for key, entry in theirs.fields.items():
        if not key.startswith("GGUF."):
            value, expected = ours.metadata[key], entry.contents()
            assert (list(value) if isinstance(expected, list) else value) == expected, key
    assert len(ours.tensors) == len(theirs.tensors)
    for tensor in theirs.tensors:
        mine = ours.tensors[tensor.name]
        assert (mine.kind.name, mine.offset) == (tensor.tensor_type.name, tensor.data_offset)
        assert mine.shape == tuple(int(n) for n in tensor.shape[::-1])
        np.testing.assert_array_equal(
            mine.dequantise(), gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        )


BIG = 2**63
REFUSED = {
    "empty": (b"", r"header at byte 0: expected at least 24 bytes, got a file of 0 bytes"),
    "magic": (
        b.gguf({}, {}, magic=b"GGML"),
        r"header at byte 0: expected the magic .* got b'GGML'",
    ),
    "version 1": (b.gguf({}, {}, version=1), r"byte 4: expected version 2 or 3, got 1$"),
    "big endian": (b.gguf({}, {}, version=3 << 24), r"version 2 or 3, got \d+ \(a big-endian file"),
    "tensor count": (b.gguf({}, {}, tensor_count=BIG), r"byte 8: expected at most \d+ tensors"),
    "metadata count": (
        b.gguf({}, {}, metadata_count=BIG),
        r"byte 16: expected at most \d+ metadata",
    ),
    "many entries": (
        b.gguf({}, {}, metadata_count=70_000) + bytes(1_000_000),
        r"byte 16: expected at most 65536 metadata entries, got 70000",
    ),
    "key length": (
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, BIG) + bytes(32),
        r"metadata entry 0 of 1 at byte 32: expected 9223372036854775808 more bytes, got \d+ ",
    ),
    "value type": (
        b.gguf({"k": struct.pack("<I", 13)}, {}),
        r"metadata entry 0 of 1 \('k'\) at byte 33: expected a value type from 0 to 12, got 13",
    ),
    "array length": (
        b.gguf({"k": struct.pack("<IIQ", 9, 6, BIG)}, {}),
        r"\('k'\) at byte 41: expected at most \d+ values in the \d+ bytes left",
    ),
    "string count": (
        b.gguf({"k": struct.pack("<IIQ", 9, 8, BIG)}, {}),
        r"at byte 41: expected at most \d+ strings",
    ),
    "string in array": (
        b.gguf({"k": struct.pack("<IIQQ", 9, 8, 1, BIG)}, {}),
        r"\('k'\) at byte 49: expected a string within the file, got one that ends at byte",
    ),
    "nested": (
        b.gguf({"k": struct.pack("<IIQ", 9, 9, 1) + bytes(64)}, {}),
        r"expected an array of numbers or strings, got an array of arrays",
    ),
    "utf-8": (
        b.gguf({"k": struct.pack("<I", 8) + b.text(b"ab\xff")}, {}),
        r"\('k'\) at byte 47: expected UTF-8 text, got b'ab\\xff'",
    ),
    "alignment": (
        b.gguf({"general.alignment": b.u32(3)}, {}),
        r"expected general.alignment to be a multiple of 8",
    ),
    "alignment type": (b.gguf({"general.alignment": b.string("8")}, {}), r"alignment .* got '8'"),
    "rank": (
        b.gguf({}, {"w": b.Tensor([1] * 5, 0, bytes(4))}),
        r"tensor entry 0 of 1 \('w'\) at byte 33: expected 1 to 4 dimensions, got 5",
    ),
    "kind": (
        b.gguf({}, {"w": b.Tensor([1], 99, b"")}),
        r"expected a tensor kind \(0 F32, .* got 99",
    ),
    "zero": (
        b.gguf({}, {"w": b.Tensor([4, 0], 0, b"")}),
        r"dimensions of at least 1, got \[4, 0\]",
    ),
    "row": (b.gguf({}, {"w": b.Tensor([33], 3, bytes(40))}), r"rows of Q4_1 .* 32 values, got 33"),
    "huge": (
        b.gguf({}, {"w": b.Tensor([BIG, BIG, BIG, BIG], 0, bytes(32))}),
        r"data offset of tensor 'w' at byte \d+: expected \d+ bytes of F32\[.*a file that ends",
    ),
    "offset": (b.gguf({}, {"w": b.Tensor([8], 0, bytes(32), 4)}), r"a multiple of 32, got 4"),
    "far": (b.gguf({}, {"w": b.Tensor([8], 0, bytes(32), 64)}), r"32 bytes of F32\[8\] from byte"),
    "overlap": (
        b.gguf({}, {"v": b.Tensor([16], 0, bytes(64)), "w": b.Tensor([8], 0, bytes(32), 32)}),
        r"tensor 'w' at byte (\d+): expected data after 'v', from byte \d+ on, got \1",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses(load, case):
    data, message = REFUSED[case]
    with pytest.raises(GGUFError, match=message):
        load(data)


def test_refuses_repeated_names(load):
    entry = b.text("k") + b.u32(1)
    twice = b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + entry * 2
    with pytest.raises(
        GGUFError, match=r"entry 1 of 2 \('k'\) at byte \d+: expected each key once"
    ):
        load(twice)
    info = b.text("w") + struct.pack("<IQIQ", 1, 1, 0, 0)
    with pytest.raises(GGUFError, match=r"expected each tensor name once, got a second one"):
        load(b"GGUF" + struct.pack("<IQQ", 3, 2, 0) + info * 2 + bytes(64))


def test_bad_text_in_an_array_is_found_when_it_is_read(load):
    names = load(b.gguf({"k": b.strings(["fine", b"\xff"])}, {})).metadata["k"]
    assert names[0] == "fine"
    with pytest.raises(GGUFError, match=r"\('k'\) at byte 69: expected UTF-8 text"):
        list(names)


def test_a_kind_without_decoder_opens_but_names_itself(load):
    file = load(b.gguf({}, {"w": b.Tensor([256], 14, bytes(210))}))
    with pytest.raises(GGUFError, match=r"tensor 'w' at byte \d+: cannot decode Q6_K; kinds"):
        file.tensors["w"].dequantise()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_pipes_and_folders_do_not_hang(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(GGUFError, match="got the pipe"):
        GGUFFile.open(tmp_path / "pipe")
    with pytest.raises(OSError, match=str(tmp_path)):
        GGUFFile.open(tmp_path)


def test_every_truncation_is_refused(load):
    for length in range(len(GOOD) - 32):  # the last tensor has 20 bytes of padding behind it
        with pytest.raises(GGUFError, match=r" at byte \d+: expected .*, got "):
            load(GOOD[:length])


@given(
    st.lists(
        st.tuples(
            st.integers(0, len(GOOD) - 1),
            st.one_of(
                st.binary(min_size=1, max_size=9),
                st.sampled_from([b"\xff" * 8, b"\0" * 8, struct.pack("<Q", 2**62)]),
            ),
        ),
        min_size=1,
        max_size=6,
    ),
    st.integers(0, len(GOOD)),
)
@settings(max_examples=400, deadline=2000)
def test_mutated_bytes_read_or_refuse(tmp_path_factory, patches, cut):
    data = bytearray(GOOD)
    for at, patch in patches:
        data[at : at + len(patch)] = patch
    if cut % 4 == 0:
        del data[cut:]
    path = tmp_path_factory.getbasetemp() / "mutated.gguf"
    path.write_bytes(data)
    with contextlib.suppress(GGUFError), np.errstate(all="ignore"):
        file = GGUFFile.open(path)
        for value in file.metadata.values():
            if isinstance(value, Strings):
                list(value)
        for tensor in file.tensors.values():
            assert tensor.dequantise().size == np.prod(tensor.shape)


def test_smollm2_opens_quickly_and_whole(smollm2_path):
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        file = GGUFFile.open(smollm2_path)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.06
    kinds = [tensor.kind.name for tensor in file.tensors.values()]
    assert {k: kinds.count(k) for k in set(kinds)} == {"Q4_1": 210, "F32": 61, "Q8_0": 1}
    assert len(file.metadata) == 33
    assert len(file.metadata["tokenizer.ggml.tokens"]) == 49_152
    assert file.tensors["token_embd.weight"].shape == (49_152, 576)
