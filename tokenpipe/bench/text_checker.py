"""A vocabulary whose words are as easy to check as its tokens: four letters each, all different.

The processor reads it as any byte-level tokenizer.json; only the bench knows how plain it is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tokenpipe.wire import OutputFrame

from .oracle import VOCAB_BITS, sequence

WIDTH = 4  # bytes of a word
_LETTERS = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8
)
_INDEX = np.uint64(0xFFFFFFFF)


def words(bits: int) -> NDArray[np.uint32]:
    """Return the four bytes of each word as one u32: a space and three letters."""
    ids = np.arange(1 << bits)
    columns = [np.full(len(ids), 32, np.uint8)]
    columns += [_LETTERS[ids >> shift & 63] for shift in (12, 6, 0)]
    return np.ascontiguousarray(np.stack(columns, axis=1)).view("<u4").reshape(-1)


def write_tokenizer(path: Path) -> None:
    """Write the tokenizer.json of all words."""
    made = words(VOCAB_BITS).tobytes().decode()
    vocab = {"\u0120" + made[i * WIDTH + 1 : (i + 1) * WIDTH]: i for i in range(1 << VOCAB_BITS)}
    decoder = {
        "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True
    }  # fmt: skip
    model = {"type": "BPE", "vocab": vocab, "merges": []}
    path.write_text(
        json.dumps({"version": "1.0", "added_tokens": [], "decoder": decoder, "model": model})
    )


class TextChecker:
    """Prove that every request's text is that of its tokens: whole, once, in order."""

    def __init__(self, bits: int = VOCAB_BITS, requests: int = 0) -> None:
        self._bits = bits
        self._words = words(bits)
        self._bytes = np.zeros(requests + 1, np.int64)  # that came, by the low half of the key
        self.misspelled = 0

    def frame(self, frame: OutputFrame) -> None:
        """Check the text of a frame."""
        index = (frame.keys & _INDEX).astype(np.int64)
        if len(index) and int(index.max()) >= len(self._bytes):
            grown = np.zeros(max(int(index.max()) + 1, 2 * len(self._bytes)), np.int64)
            grown[: len(self._bytes)] = self._bytes
            self._bytes = grown
        if frame.text_bytes == self._words[frame.tokens].tobytes():
            np.add.at(self._bytes, index, frame.text_len.astype(np.int64))
            return
        rows = zip(
            frame.keys.tolist(), frame.text_offset.tolist(), frame.text_len.tolist(), strict=True
        )
        at = 0
        for key, offset, length in rows:
            self._row(key, offset, frame.text_bytes[at : at + length])
            at += length

    def _row(self, key: int, offset: int, text: bytes) -> None:
        index = key & 0xFFFFFFFF
        first, cut = divmod(offset, WIDTH)
        tokens = sequence(key, first, (cut + len(text)) // WIDTH + 1, self._bits)
        expected = self._words[tokens].tobytes()[cut : cut + len(text)]
        self.misspelled += bool(text) and (text != expected or offset != self._bytes[index])
        self._bytes[index] += len(text)

    def stream(self, key: int, token_ids: Sequence[int], text: str) -> None:
        """Check all text of a request against all of its tokens."""
        self.misspelled += text.encode() != self._words[np.asarray(token_ids, np.int64)].tobytes()

    def finish(self, key: int, output_tokens: int) -> None:
        """Close a request: its text must be as long as its tokens say."""
        index = key & 0xFFFFFFFF
        if index < len(self._bytes):
            self.misspelled += int(self._bytes[index]) != output_tokens * WIDTH
