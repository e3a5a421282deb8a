"""Write a tokenizer's decoder as a table: the text of each token id.

A decoder is a chain of steps. Most steps look at one token at a time, and perhaps at whether the
token is the first. Such a decoder is asked once for the text of each token.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from tokenizers import Tokenizer

from tokenpipe._core import MAX_WORD, WORD_ADDED, WORD_BYTE, WORD_NONE, WORD_SPECIAL, Vocab

_ONE_TOKEN_STEPS = {"Replace", "Metaspace", "WordPiece", "Strip"}
_FIRST_DIFFERS = {"Metaspace", "WordPiece"}  # they treat the first token in another way

Step = dict[str, Any]


class NoTableError(ValueError):
    """The decoder cannot be written as a table; the text says why."""


def decoder_table(tokenizer: Tokenizer, size: int) -> Vocab:
    """Return the table of a tokenizer with ids below `size`. Raises NoTableError."""
    tokens = [tokenizer.id_to_token(i) for i in range(size)]
    flags = _flags_of(tokenizer, tokens)
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
        if step["type"] not in _ONE_TOKEN_STEPS or step.get("stop"):
            raise NoTableError(f"its decoder has a step {step['type']}, which is no table")
    as_first, as_later = _ask(steps)
    forms = [as_later(word) for word in words]
    if fallback:
        _spell_bytes(forms, flags)
    first = None
    if any(step["type"] in _FIRST_DIFFERS for step in steps):
        first = [
            form if flags[i] & WORD_BYTE else as_first(words[i]) for i, form in enumerate(forms)
        ]
    return _vocab(forms, flags, first, raw, strip=strip)


def has_byte_fallback(tokenizer: Tokenizer) -> bool:
    """Return whether tokens such as `<0xC3>` spell single bytes."""
    return any(step["type"] == "ByteFallback" for step in _steps(tokenizer.decoder))


def _flags_of(tokenizer: Tokenizer, tokens: Sequence[str | None]) -> bytearray:
    flags = bytearray(WORD_NONE if token is None else 0 for token in tokens)
    for i, added in tokenizer.get_added_tokens_decoder().items():
        flags[i] |= WORD_ADDED | (WORD_SPECIAL if added.special else 0)
    return flags


def _steps(decoder: Any) -> list[Step]:
    if decoder is None:
        return []
    return _flat(json.loads(decoder.__getstate__()))


def _flat(step: Step) -> list[Step]:
    if step["type"] == "Sequence":
        return [inner for part in step["decoders"] for inner in _flat(part)]
    return [step]


def _split_off_strip(steps: list[Step]) -> tuple[list[Step], int]:
    """Return the chain without a final `Fuse` and `Strip`, and how many spaces these strip."""
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
    """Return two functions: the text of a token that is the first, and of a later token."""
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

    def as_first(token: str) -> bytes:
        text: str = decoder.decode([token])
        return text.encode()

    def as_later(token: str) -> bytes:
        text: str = decoder.decode(["a", token])
        if not text.startswith(before):
            raise NoTableError("its decoder joins a token to the one before it")
        return text[len(before) :].encode()

    return as_first, as_later


def _spell_bytes(forms: list[bytes], flags: bytearray) -> None:
    """Replace each form that spells a byte, such as `<0xC3>`, by this byte."""
    for i, form in enumerate(forms):
        if (byte := _spelled_byte(form)) is not None and not flags[i] & WORD_NONE:
            flags[i] |= WORD_BYTE
            forms[i] = byte


def _spelled_byte(form: bytes) -> bytes | None:
    if len(form) == 6 and form.startswith(b"<0x") and form.endswith(b">"):
        try:
            return bytes([int(form[3:5], 16)])
        except ValueError:
            return None
    return None


def _byte_alphabet() -> dict[str, int]:
    """Return the byte of each character in which a byte-level vocabulary is written."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    alphabet = {chr(byte): byte for byte in shown}
    hidden = (byte for byte in range(256) if byte not in set(shown))
    return alphabet | {chr(256 + i): byte for i, byte in enumerate(hidden)}


_BYTE_OF = _byte_alphabet()


def _byte_level(token: str) -> bytes:
    try:
        return bytes([_BYTE_OF[character] for character in token])
    except KeyError:  # an added token with other characters is its own text
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
