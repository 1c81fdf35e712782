"""Tokenizers: SmolLM2's own, a small one made here, and text that arrives in pieces."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxlab.models.gguf import GGUFError, GGUFFile
from relaxlab.models.tokenizer import (
    BPETokenizer,
    ByteTokenizer,
    MissingExtraError,
    TextStream,
    tokenizer_from_gguf,
)
from tests.models import gguf_bytes as b

PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
LETTERS = [chr(n) for n in PRINTABLE] + [chr(0x100 + n) for n in range(256 - len(PRINTABLE))]
TOKENS = [*LETTERS, "th", "the", "Ġthe", "12", "<|end|>", "Ġ¡"]
MERGES = ["t h", "th e", "Ġ the", "1 2"]
END = TOKENS.index("<|end|>")
ODD = [
    "",
    " ",
    "\n\n\t ",
    "día 12345 ²½Ⅷ٣",
    "👩‍👩‍👧‍👦 🏳️‍🌈 e\u0301 \u200b\ufeff",
    "日本語テキスト",
    "العربية עברית",
    "\0\x01\x7f\x80\xad\u0100",
    "\U0010ffff\ufffd",
    "don't I'LL we'Ve",
    "    def f(x):\n        return x\r\n",
    "<|im_end|> <|endoftext|>",
]


@pytest.fixture(scope="module")
def small():
    pytest.importorskip("tokenizers", reason="byte-pair encoding needs relaxlab[llm]")
    return BPETokenizer(TOKENS, MERGES, special=[END], ends=[END])


def words(tokenizer, text):
    return [TOKENS[token] for token in tokenizer.encode(text)]


def test_merges_apply_in_their_order(small):
    assert words(small, "the then") == ["the", "Ġthe", "n"]
    assert words(small, "12 112") == ["12", "Ġ", "1", "12"]
    assert (small.vocab, small.bos, small.ends) == (len(TOKENS), None, {END})
    assert small.piece(TOKENS.index("Ġthe")) == b" the"


def test_digits_of_smollm_stand_alone():
    pytest.importorskip("tokenizers", reason="byte-pair encoding needs relaxlab[llm]")
    assert words(BPETokenizer(TOKENS, MERGES, digits=True), "12 the") == ["1", "2", "Ġthe"]


def test_special_tokens_come_only_when_asked_for(small):
    assert small.encode("a<|end|>", special=True) == [LETTERS.index("a"), END]
    assert END not in small.encode("a<|end|>")
    assert small.decode([LETTERS.index("a"), END]) == "a<|end|>"
    assert small.decode([LETTERS.index("a"), END], special=False) == "a"
    assert small.decode(small.encode("a<|end|>")) == "a<|end|>"


def test_bos_comes_first():
    pytest.importorskip("tokenizers", reason="byte-pair encoding needs relaxlab[llm]")
    assert BPETokenizer(TOKENS, MERGES, bos=END).encode("t") == [END, LETTERS.index("t")]


@given(st.text())
def test_round_trip(small, text):
    assert small.decode(small.encode(text)) == text
    bytewise = ByteTokenizer()
    assert bytewise.decode(bytewise.encode(text)) == text


@given(st.lists(st.integers(0, 255)))
def test_streaming_equals_decoding(tokens):
    tokenizer = ByteTokenizer()
    stream = tokenizer.stream()
    pieces = [*map(stream.push, tokens), stream.finish()]
    assert "".join(pieces) == tokenizer.decode(tokens) == bytes(tokens).decode(errors="replace")


def test_a_character_appears_when_its_last_byte_does():
    stream = TextStream([bytes([n]) for n in range(256)])
    assert [stream.push(n) for n in "a👋".encode()] == ["a", "", "", "", "👋"]
    assert stream.push(0xE6) == ""
    assert stream.finish() == "\ufffd"
    assert stream.push(ord("b")) == "b"
    with pytest.raises(ValueError, match="token must be from 0 to 255, got 256"):
        stream.push(256)
    with pytest.raises(ValueError, match="got -1"):
        stream.push(-1)


def test_bytes_of_unprintable_letters(small):
    assert small.decode([LETTERS.index("Ġ"), LETTERS.index("Ċ")]) == " \n"
    assert small.decode(small.encode("\0\xad")) == "\0\xad"


@pytest.mark.parametrize("tokenizer", [ByteTokenizer()])
def test_a_lone_surrogate_is_refused(tokenizer, small):
    for each in (tokenizer, small):
        with pytest.raises(ValueError, match=r"lone surrogate '\\ud800' at character 1"):
            each.encode("a\ud800")


def test_names_the_extra_when_the_library_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'relaxlab\[llm\]'"):
        BPETokenizer(TOKENS, MERGES)


def vocabulary(**changes):
    entries = {
        "model": b.string("gpt2"),
        "pre": b.string("smollm"),
        "tokens": b.strings(TOKENS),
        "merges": b.strings(MERGES),
        "token_type": b.int32s([3 if t == "<|end|>" else 1 for t in TOKENS]),
        "eos_token_id": b.u32(END),
        "bos_token_id": b.u32(0),
    } | changes
    return {f"tokenizer.ggml.{key}": value for key, value in entries.items() if value is not None}


def test_from_a_file(write_gguf):
    pytest.importorskip("tokenizers", reason="byte-pair encoding needs relaxlab[llm]")
    tokenizer = tokenizer_from_gguf(GGUFFile.open(write_gguf(vocabulary(), {})))
    assert words(tokenizer, "12 the") == ["1", "2", "Ġthe"]
    assert (tokenizer.special, tokenizer.ends, tokenizer.bos) == ({END}, {END}, None)
    asked = vocabulary(add_bos_token=b.flag(True), token_type=None, pre=b.string("gpt-2"))
    tokenizer = tokenizer_from_gguf(GGUFFile.open(write_gguf(asked, {})))
    assert (tokenizer.special, tokenizer.bos) == (frozenset(), 0)
    assert words(tokenizer, "12")[1:] == ["12"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": b.string("llama")}, r"tokenizer.ggml.model: expected 'gpt2', got 'llama'"),
        ({"model": None}, r"expected 'gpt2', got None"),
        (
            {"pre": b.string("qwen2")},
            r"tokenizer.ggml.pre: expected one of .*'smollm'.* got 'qwen2'",
        ),
        ({"tokens": b.u32(1)}, r"tokenizer.ggml.tokens: expected strings, got int"),
        ({"merges": None}, r"tokenizer.ggml.merges: expected strings, got NoneType"),
        ({"merges": b.strings(["t x"])}, r"merge 't x': expected 'left right' and their joining"),
        ({"merges": b.strings(["th"])}, r"merge 'th': expected"),
        ({"tokens": b.strings([*TOKENS[:-1], "the"])}, r"262 tokens expected, only 261 differ"),
        ({"token_type": b.int32s([1])}, r"token_type: expected 262 integers, got array"),
        ({"token_type": b.u32(1)}, r"token_type: expected 262 integers, got 1"),
        ({"eos_token_id": b.u32(262)}, r"eos_token_id: expected from 0 to 261, got 262"),
        ({"bos_token_id": b.string("0")}, r"bos_token_id: expected from 0 to 261, got '0'"),
    ],
)
def test_refuses(write_gguf, changes, message):
    pytest.importorskip("tokenizers", reason="byte-pair encoding needs relaxlab[llm]")
    with pytest.raises(GGUFError, match=message):
        tokenizer_from_gguf(GGUFFile.open(write_gguf(vocabulary(**changes), {})))


def test_smollm2(smollm2):
    tokenizer = smollm2.tokenizer
    assert tokenizer.encode("The capital of France is") == [504, 3575, 282, 4649, 314]
    assert (tokenizer.vocab, tokenizer.bos, tokenizer.ends) == (49_152, None, {2})
    assert tokenizer.encode("<|im_start|>user", special=True) == [1, 4093]
    assert 1 not in tokenizer.encode("<|im_start|>user")
    assert len(tokenizer.encode("2024")) == 4


@pytest.mark.parametrize("text", ODD)
def test_smollm2_round_trips_odd_text(smollm2, text):
    tokenizer = smollm2.tokenizer
    for special in (False, True):
        tokens = tokenizer.encode(text, special=special)
        assert tokenizer.decode(tokens) == text
        stream = tokenizer.stream()
        pieces = [stream.push(token) for token in tokens]
        assert "".join(pieces) == text
        assert stream.finish() == ""


@given(st.lists(st.integers(0, 49_151), max_size=30))
def test_smollm2_decodes_as_the_library_does(smollm2, tokens):
    decoders = pytest.importorskip("tokenizers.decoders", reason="the oracle of this test")

    plain = [token for token in tokens if token not in smollm2.tokenizer.special]
    names = [smollm2.tokenizer._backend.id_to_token(token) for token in plain]
    assert smollm2.tokenizer.decode(plain) == decoders.ByteLevel().decode(names)
