"""Real vocabularies, made of data that PyPI packages contain.

`mistral-common` has a byte-level vocabulary of 131,072 entries (tekken), and one of SentencePiece
with byte fallback. A third one, in the form of GPT-2's, is trained on Python's own documentation.
All are for decoding: those of mistral-common have no merges, and `encode` takes the longest word
that fits.
"""

from __future__ import annotations

import base64
import json
import pydoc_data.topics
from collections.abc import Iterator
from pathlib import Path

import mistral_common
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

DATA = Path(mistral_common.__file__).parent / "data"
TEKKEN_SPECIAL = 1000
SP_NORMAL, SP_UNKNOWN, SP_BYTE = 1, 2, 6

# ruff: noqa: RUF001
TEXT = """\
The quick brown fox jumps over the lazy dog. Größe, naïve façade, coöperate - 100 % "fertig".
Мама мыла раму; Ще не вмерла. Η γρήγορη αλεπού. שלום עולם. مرحبا بالعالم، كيف الحال؟
नमस्ते दुनिया, สวัสดีชาวโลก, 안녕하세요 세계, こんにちは世界、吾輩は猫である。你好，世界！漢字と仮名。
Emoji: 😀 👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 e\u0301 \u00e9 \U00010348 \u200b\ufeff and a tab\tor\r\nline breaks\n\n
    code_like(x) = {"a": [1, 2]};
"""


def tekken() -> Tokenizer:
    """Return a byte-level vocabulary of 131,072 entries, 1,000 of them special."""
    data = json.loads((DATA / "tekken_240911.json").read_text(encoding="utf-8"))
    size = data["config"]["default_vocab_size"]
    vocab = {f"<SPECIAL_{i}>": i for i in range(TEKKEN_SPECIAL)}
    letters = {byte: letter for letter, byte in _byte_letters()}
    for entry in data["vocab"][: size - TEKKEN_SPECIAL]:
        word = base64.b64decode(entry["token_bytes"])
        vocab["".join(letters[byte] for byte in word)] = TEKKEN_SPECIAL + entry["rank"]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([f"<SPECIAL_{i}>" for i in range(TEKKEN_SPECIAL)])
    return tokenizer


def sentencepiece() -> Tokenizer:
    """Return a SentencePiece vocabulary with byte fallback, and the decoder of Llama 2."""
    vocab, special = {}, []
    pieces = _pieces((DATA / "tokenizer.model.v1").read_bytes())
    for i, (piece, kind) in enumerate(pieces):
        vocab[piece] = i
        if kind not in (SP_NORMAL, SP_BYTE):
            special.append(piece)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1),
        ]
    )
    tokenizer.add_special_tokens(special)
    return tokenizer


def gpt2_style(size: int = 4000) -> Tokenizer:
    """Return a byte-level BPE vocabulary, trained on Python's own documentation."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*pydoc_data.topics.topics.values(), TEXT], trainer)
    tokenizer.add_tokens(["<tool call>"])
    return tokenizer


def words_of(tokenizer: Tokenizer) -> dict[bytes, int]:
    """Return the token id of each word, by its bytes. Added tokens are left out."""
    letters = dict(_byte_letters())
    level = "ByteLevel" in tokenizer.decoder.__getstate__().decode()
    added = tokenizer.get_added_tokens_decoder()
    words = {}
    for token, i in tokenizer.get_vocab().items():
        if i in added:
            continue
        if level:
            words[bytes(letters[letter] for letter in token)] = i
        elif len(token) == 6 and token.startswith("<0x"):
            words.setdefault(bytes([int(token[3:5], 16)]), i)
        else:
            words[token.replace("\u2581", " ").encode()] = i
    return words


def encode(words: dict[bytes, int], text: str) -> list[int]:
    """Return token ids of the text: at each place the longest word. ValueError if none fits."""
    raw, at, ids = text.encode(), 0, []
    longest = max(map(len, words))
    while at < len(raw):
        for size in range(min(longest, len(raw) - at), 0, -1):
            found = words.get(raw[at : at + size])
            if found is not None:
                ids.append(found)
                at += size
                break
        else:
            raise ValueError(f"no word for byte {raw[at]:#x}")
    return ids


def _byte_letters() -> Iterator[tuple[str, int]]:
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    yield from ((chr(byte), byte) for byte in shown)
    hidden = [byte for byte in range(256) if byte not in shown]
    yield from ((chr(256 + i), byte) for i, byte in enumerate(hidden))


def _pieces(model: bytes) -> Iterator[tuple[str, int]]:
    """Yield (piece, type) of a SentencePiece model: the repeated field 1 of its protobuf."""
    for field, value in _fields(model):
        if field == 1:
            assert isinstance(value, bytes)
            inner = dict(_fields(value))
            piece, kind = inner[1], inner.get(3, SP_NORMAL)
            assert isinstance(piece, bytes) and isinstance(kind, int)
            yield piece.decode(), kind


def _fields(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        wire = tag & 7
        if wire == 0:
            value, at = _varint(raw, at)
            yield tag >> 3, value
            continue
        size, at = _varint(raw, at) if wire == 2 else ({1: 8, 5: 4}[wire], at)
        yield tag >> 3, raw[at : at + size]
        at += size


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
