"""Read a tokenizer with the `tokenizers` package. Imported only where one is configured.

A decoder is a chain of steps. Most look at one token at a time (and perhaps at whether it is the
first): what these make of each token is asked of the decoder itself, once, and kept as a table.
"""

from __future__ import annotations

import copy
import json
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from tokenpipe._core import (
    MAX_WORD,
    WORD_ADDED,
    WORD_BYTE,
    WORD_NONE,
    WORD_SPECIAL,
    Text,
    Vocab,
)
from tokenpipe.errors import ConfigError

from .detokenizer import wish_for
from .vocabulary import Vocabulary

_ONE_BY_ONE = {"Replace", "Metaspace", "WordPiece", "Strip"}
_BY_PLACE = {"Metaspace", "WordPiece"}  # the first token is not like the others

Step = dict[str, Any]


class NoTableError(ValueError):
    """The decoder does more than a table can say."""


def read(path: str | Path) -> Vocabulary:
    """Return the vocabulary of a tokenizer.json."""
    return vocabulary_of(_load(path))


def _load(path: str | Path) -> Tokenizer:
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # whatever the package raises, it is about this file
        raise ConfigError(f"tokenizer: {path} cannot be read: {error}") from None


class HuggingFaceEncoder:
    """An Encoder of a tokenizer.json."""

    def __init__(self, path: str | Path) -> None:
        self._tokenizer = _load(path)

    def encode(self, text: str, special_tokens: bool = True) -> list[int]:
        """Return the ids of a text, with the special tokens that its tokenizer adds, or not."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=special_tokens).ids
        return ids

    def token(self, token_id: int) -> str:
        """Return what one token reads as by itself."""
        text: str = self._tokenizer.decode([token_id], skip_special_tokens=False)
        return text


def vocabulary_of(tokenizer: Tokenizer) -> Vocabulary:
    """Return the vocabulary of a loaded tokenizer."""
    size = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1
    try:
        table = _table(tokenizer, size)
        if _agrees(tokenizer, table, size):
            return Vocabulary(size, table)
        why_not = "a table does not read as its decoder does"
    except NoTableError as error:
        why_not = str(error)
    foreign = partial(Slow, tokenizer)
    return Vocabulary(size, Vocab((b"", b""), b"", False, 0, foreign=foreign), why_not)


class Slow:
    """A sequence that the tokenizer itself decodes; `spaces` is for the decoder to say."""

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool, spaces: bool) -> None:
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        self._stream = DecodeStream(skip_special_tokens=skip_special_tokens)
        self._ids: list[int] = []
        self._given = 0  # characters

    def step(self, token: int) -> str:
        """Return what is complete with this token."""
        self._ids.append(token)
        text = self._stream.step(self._tokenizer, token) or ""
        self._given += len(text)
        return text

    def end(self) -> str:
        """Return what never became complete."""
        text: str = self._tokenizer.decode(self._ids, skip_special_tokens=self._skip)
        return text[self._given :]

    def copy(self) -> Slow:
        """Return another one that stands where this one does."""
        other = copy.copy(self)
        other._stream = copy.copy(self._stream)
        other._ids = list(self._ids)
        return other


def _steps(decoder: Any) -> list[Step]:
    if decoder is None:
        return []
    return _flat(json.loads(decoder.__getstate__()))


def _flat(step: Step) -> list[Step]:
    if step["type"] == "Sequence":
        return [inner for part in step["decoders"] for inner in _flat(part)]
    return [step]


def _table(tokenizer: Tokenizer, size: int) -> Vocab:
    tokens = [tokenizer.id_to_token(i) for i in range(size)]
    flags = bytearray(WORD_NONE if token is None else 0 for token in tokens)
    for i, added in tokenizer.get_added_tokens_decoder().items():
        flags[i] |= WORD_ADDED | (WORD_SPECIAL if added.special else 0)
    words = [token or "" for token in tokens]
    raw = [word.encode() for word in words]
    if tokenizer.decoder is None:
        spaced = [b" " + word for word in raw]
        return _vocab(spaced, flags, raw, raw)
    steps = _steps(tokenizer.decoder)
    if [step["type"] for step in steps] in (["ByteLevel"], ["ByteLevel", "Fuse"]):
        return _vocab([_byte_level(word) for word in words], flags, None, raw, bytewise=True)
    steps, strip = _split_off_strip(steps)
    fallback = bool(steps) and steps[-1]["type"] == "ByteFallback"
    if fallback:
        steps.pop()
    for step in steps:
        if step["type"] not in _ONE_BY_ONE or step.get("stop"):
            raise NoTableError(f"its decoder has a step {step['type']} that is no table")
    one, behind = _ask(steps)
    forms = [behind(word) for word in words]
    if fallback:
        for i, form in enumerate(forms):
            if (byte := _spelled_byte(form)) is not None and not flags[i] & WORD_NONE:
                flags[i] |= WORD_BYTE
                forms[i] = byte
    first = None
    if any(step["type"] in _BY_PLACE for step in steps):
        first = [form if flags[i] & WORD_BYTE else one(words[i]) for i, form in enumerate(forms)]
    return _vocab(forms, flags, first, raw, strip=strip)


def _split_off_strip(steps: list[Step]) -> tuple[list[Step], int]:
    """Take `Fuse` and a strip of the whole text off the end of the chain."""
    kinds = [step["type"] for step in steps]
    if kinds[-1:] == ["Fuse"]:
        return steps[:-1], 0
    if kinds[-2:] == ["Fuse", "Strip"]:
        strip = steps[-1]
        if strip["content"] != " " or strip["stop"] != 0 or not 0 <= strip["start"] <= 255:
            raise NoTableError("its decoder strips more than leading spaces")
        return steps[:-2], int(strip["start"])
    return list(steps), 0


def _ask(steps: list[Step]) -> tuple[Callable[[str], bytes], Callable[[str], bytes]]:
    """Return what these steps make of a token that is the first, and of another one."""
    if not steps:
        return str.encode, str.encode
    decoder = Tokenizer.from_str(
        json.dumps(
            {
                "model": {"type": "BPE", "vocab": {}, "merges": []},
                "decoder": {"type": "Sequence", "decoders": steps},
            }
        )
    ).decoder
    before = decoder.decode(["a"])

    def one(token: str) -> bytes:
        text: str = decoder.decode([token])
        return text.encode()

    def behind(token: str) -> bytes:
        text: str = decoder.decode(["a", token])
        if not text.startswith(before):
            raise NoTableError("its decoder joins a token to the one before it")
        return text[len(before) :].encode()

    return one, behind


def _spelled_byte(form: bytes) -> bytes | None:
    if len(form) == 6 and form.startswith(b"<0x") and form.endswith(b">"):
        try:
            return bytes([int(form[3:5], 16)])
        except ValueError:
            return None
    return None


def _letters() -> dict[str, int]:
    """Return the byte of each letter that a byte-level vocabulary is written in."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {chr(byte): byte for byte in shown}
    hidden = (byte for byte in range(256) if byte not in set(shown))
    return letters | {chr(256 + i): byte for i, byte in enumerate(hidden)}


_LETTERS = _letters()


def _byte_level(token: str) -> bytes:
    try:
        return bytes([_LETTERS[letter] for letter in token])
    except KeyError:  # an added token with other letters stands for itself
        return token.encode()


def _vocab(
    forms: Sequence[bytes],
    flags: bytearray,
    first: Sequence[bytes] | None,
    raw: Sequence[bytes],
    *,
    bytewise: bool = False,
    strip: int = 0,
) -> Vocab:
    own = [raw[i] if flags[i] & WORD_ADDED else form for i, form in enumerate(forms)]
    more: dict[str, Any] = {}
    if first is not None and first != forms:
        more["first"] = _joined(first)
    if own != forms:
        more["raw"] = _joined(own)
    return Vocab(_joined(forms), bytes(flags), bytewise, strip, **more)


def _joined(forms: Sequence[bytes]) -> tuple[bytes, bytes]:
    if max(map(len, forms), default=0) > MAX_WORD:
        raise NoTableError(f"it has a token of more than {MAX_WORD} bytes")
    return b"".join(forms), array("H", map(len, forms)).tobytes()


def _agrees(tokenizer: Tokenizer, table: Vocab, size: int) -> bool:
    """Compare the table with the decoder on a few sequences, each of valid UTF-8 or byte-level."""
    steps = _steps(tokenizer.decoder)
    spelled = any(step["type"] == "ByteFallback" for step in steps)
    number = 1
    for length in (1, 2, 3, 5, 8, 40, 200):
        for skip in (False, True):
            ids: list[int] = []
            while len(ids) < length and size > 0:
                number = number * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
                token = (number >> 33) % size
                text = tokenizer.id_to_token(token) or ""
                if not (spelled and text.startswith("<0x")):
                    ids.append(token)
                elif size <= 512:
                    length -= 1  # a vocabulary of little else
            found = Text(table, wish_for(skip_special_tokens=skip))
            if found.feed(ids)[0] + found.end() != tokenizer.decode(ids, skip_special_tokens=skip):
                return False
    return True
