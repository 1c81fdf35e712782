"""Text to token numbers and back, as the model's own file defines them.

The vocabulary and merge rules come from GGUF metadata, the work is done by the ``tokenizers``
library (extra ``llm``), and decoding streams: a token may end inside a UTF-8 character, so bytes
are held back until they are text. Counterpart: MLC's tokenizer wrapper and its ``TextStreamer``.

Examples
--------
>>> from relaxlab.models.gguf import GGUFFile            # doctest: +SKIP
>>> file = GGUFFile.open("SmolLM2-135M-Instruct.Q4_1.gguf")   # doctest: +SKIP
>>> tokenizer_from_gguf(file).encode("The capital of France is")   # doctest: +SKIP
[504, 3575, 282, 4649, 314]
>>> ByteTokenizer().decode(ByteTokenizer().encode("día"))
'día'
"""

import codecs
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from relaxlab.models.gguf import GGUFError, GGUFFile, GGUFValue, Strings

if TYPE_CHECKING:
    import tokenizers

__all__ = [
    "BPETokenizer",
    "ByteTokenizer",
    "MissingExtraError",
    "TextStream",
    "Tokenizer",
    "tokenizer_from_gguf",
]

_CONTROL, _USER_DEFINED = 3, 4  # values of tokenizer.ggml.token_type
_PRE_TOKENIZERS = ("gpt-2", "smollm")


class MissingExtraError(ImportError):
    """An optional dependency is not installed; the message names the extra that brings it."""


class TextStream:
    """Turns tokens into text as they come.

    Bytes that may still become a character are held back; impossible ones become U+FFFD.

    Parameters
    ----------
    pieces
        The bytes of each token.
    """

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """Take one more token and return the text that is now certain, often several characters."""
        if not 0 <= token < len(self._pieces):
            raise ValueError(f"token must be from 0 to {len(self._pieces) - 1}, got {token}")
        return self._decoder.decode(self._pieces[token])

    def finish(self) -> str:
        """Return what was held back; the stream is then as new."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest


class Tokenizer(Protocol):
    """What generating text needs of a tokenizer."""

    @property
    def vocab(self) -> int:
        """Number of tokens."""
        ...

    @property
    def bos(self) -> int | None:
        """Token that every prompt starts with, if the model wants one."""
        ...

    @property
    def ends(self) -> frozenset[int]:
        """Tokens after which the model has nothing more to say."""
        ...

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Return the tokens of a text, `bos` first if there is one."""
        ...

    def decode(self, tokens: Iterable[int], *, special: bool = True) -> str:
        """Return the text of tokens; ``special=False`` leaves special tokens out."""
        ...

    def stream(self, *, special: bool = True) -> TextStream:
        """Return a new incremental decoder."""
        ...


class _Pieces:
    """Decoding, shared by the tokenizers: every token is a piece of bytes."""

    def __init__(self, pieces: Sequence[bytes], special: Iterable[int]) -> None:
        self._pieces = tuple(pieces)
        self.special = frozenset(special)
        self._plain = tuple(
            b"" if token in self.special else piece for token, piece in enumerate(self._pieces)
        )

    @property
    def vocab(self) -> int:
        """Number of tokens."""
        return len(self._pieces)

    def piece(self, token: int) -> bytes:
        """Return the bytes of one token, which need not be whole characters."""
        return self._pieces[token]

    def stream(self, *, special: bool = True) -> TextStream:
        """Return a new incremental decoder; ``special=False`` leaves special tokens out."""
        return TextStream(self._pieces if special else self._plain)

    def decode(self, tokens: Iterable[int], *, special: bool = True) -> str:
        """Return the text of tokens, with U+FFFD for bytes that are no UTF-8."""
        stream = self.stream(special=special)
        return "".join([*map(stream.push, tokens), stream.finish()])


class ByteTokenizer(_Pieces):
    """Every byte of the UTF-8 text is a token; byte 0 ends a text. Needs no library."""

    def __init__(self) -> None:
        super().__init__([bytes([byte]) for byte in range(256)], [0])
        self.bos: int | None = None
        self.ends = frozenset([0])

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Return the text's UTF-8 bytes, whatever ``special`` says."""
        return list(_utf8(text))

    def __repr__(self) -> str:
        return "ByteTokenizer()"


class BPETokenizer(_Pieces):
    """Byte-level byte-pair encoding, the scheme of GPT-2 and its descendants.

    Parameters
    ----------
    tokens
        The vocabulary, in GPT-2's byte alphabet (a space is ``Ġ``); its index is the token.
    merges
        Rules ``"left right"``, the strongest first.
    special
        Tokens that stand for themselves and never come from plain text.
    digits
        Every digit is a token of its own (pre-tokenizer ``smollm``).
    bos, ends
        See `Tokenizer`.

    Raises
    ------
    MissingExtraError
        The ``tokenizers`` library is not installed.
    ValueError
        The vocabulary and the merges do not fit together.
    """

    def __init__(
        self,
        tokens: Sequence[str],
        merges: Iterable[str],
        *,
        special: Iterable[int] = (),
        digits: bool = False,
        bos: int | None = None,
        ends: Iterable[int] = (),
    ) -> None:
        tokens, special = list(tokens), sorted(special)
        byte_of = _byte_alphabet()
        marked = set(special)
        super().__init__(
            [
                token.encode() if index in marked else _bytes_of(token, byte_of)
                for index, token in enumerate(tokens)
            ],
            special,
        )
        self.bos = bos
        self.ends = frozenset(ends)
        self._backend = _backend(tokens, merges, [tokens[index] for index in special], digits)

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Return the tokens of a text.

        With ``special=False`` the text is only text: ``"<|im_end|>"`` in it becomes ordinary
        tokens. With ``special=True``, for prompts made by a template, it is the special token.
        """
        _utf8(text)
        self._backend.encode_special_tokens = not special
        tokens: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        return tokens if self.bos is None else [self.bos, *tokens]

    def __repr__(self) -> str:
        return f"BPETokenizer({self.vocab} tokens)"


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"text has a lone surrogate {text[error.start]!r} at character {error.start}: it is no "
            f"text in UTF-8"
        ) from None


def _byte_alphabet() -> Mapping[str, int]:
    """GPT-2 writes bytes as characters: printable ones as themselves, the others from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(0x100 + index): byte for index, byte in enumerate(others)})
    return table


def _bytes_of(token: str, byte_of: Mapping[str, int]) -> bytes:
    try:
        return bytes([byte_of[letter] for letter in token])
    except KeyError:  # an added token outside the alphabet is its own text
        return token.encode()


def _backend(
    tokens: Sequence[str], merges: Iterable[str], special: Sequence[str], digits: bool
) -> "tokenizers.Tokenizer":
    try:
        import tokenizers  # noqa: PLC0415 (an optional dependency)
        from tokenizers import models, pre_tokenizers  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError(
            "this model's tokenizer needs the tokenizers library: "
            "python -m pip install 'relaxlab[llm]'"
        ) from error

    vocabulary = {token: index for index, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise ValueError(f"{len(tokens)} tokens expected, only {len(vocabulary)} differ")
    pairs = []
    for merge in merges:
        left, _, right = merge.partition(" ")
        if left not in vocabulary or right not in vocabulary or left + right not in vocabulary:
            raise ValueError(f"merge {merge!r}: expected 'left right' and their joining as tokens")
        pairs.append((left, right))
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, pairs))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    backend.pre_tokenizer = (
        pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
        if digits
        else byte_level
    )
    backend.add_special_tokens([tokenizers.AddedToken(t, special=True) for t in special])
    return backend


def tokenizer_from_gguf(file: GGUFFile) -> BPETokenizer:
    """Build the tokenizer that a GGUF file describes.

    Raises
    ------
    GGUFError
        A missing or mistyped key, or a kind of tokenizer other than gpt2 byte-pair encoding with
        pre-tokenizer ``smollm`` or ``gpt-2``.
    MissingExtraError
        The ``tokenizers`` library is not installed.
    """
    meta = file.metadata
    model, pre = meta.get("tokenizer.ggml.model"), meta.get("tokenizer.ggml.pre", "gpt-2")
    if model != "gpt2":
        raise GGUFError(f"tokenizer.ggml.model: expected 'gpt2', got {model!r}")
    if pre not in _PRE_TOKENIZERS:
        raise GGUFError(f"tokenizer.ggml.pre: expected one of {_PRE_TOKENIZERS}, got {pre!r}")
    tokens, merges = _strings(meta, "tokens"), _strings(meta, "merges")
    kinds = _kinds(meta, len(tokens))
    end = _token(meta, "eos_token_id", len(tokens))
    bos = _token(meta, "bos_token_id", len(tokens))
    turn_end = _token(meta, "eot_token_id", len(tokens))
    try:
        return BPETokenizer(
            tokens,
            merges,
            special=[i for i, kind in enumerate(kinds) if kind in (_CONTROL, _USER_DEFINED)],
            digits=pre == "smollm",
            bos=bos if meta.get("tokenizer.ggml.add_bos_token") is True else None,
            ends=[token for token in (end, turn_end) if token is not None],
        )
    except GGUFError:
        raise
    except ValueError as error:
        raise GGUFError(f"tokenizer of {file.path}: {error}") from None


def _strings(meta: Mapping[str, GGUFValue], key: str) -> Strings:
    value = meta.get(f"tokenizer.ggml.{key}")
    if not isinstance(value, Strings):
        raise GGUFError(f"tokenizer.ggml.{key}: expected strings, got {type(value).__name__}")
    return value


def _kinds(meta: Mapping[str, GGUFValue], vocab: int) -> list[int]:
    value = meta.get("tokenizer.ggml.token_type")
    if value is None:
        return [1] * vocab
    if isinstance(value, int | float | str | Strings) or value.shape != (vocab,):
        raise GGUFError(f"tokenizer.ggml.token_type: expected {vocab} integers, got {value!r:.80}")
    kinds: list[int] = value.tolist()
    return kinds


def _token(meta: Mapping[str, GGUFValue], key: str, vocab: int) -> int | None:
    value = meta.get(f"tokenizer.ggml.{key}")
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < vocab:
        raise GGUFError(f"tokenizer.ggml.{key}: expected from 0 to {vocab - 1}, got {value!r:.80}")
    return value
