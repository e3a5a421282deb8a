"""Prove at the client that each request's text is that of its tokens: whole, once, in order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenpipe.wire import OutputFrame

from .bench_tokenizer import WIDTH, words
from .oracle import VOCAB_BITS, sequence

_INDEX = np.uint64(0xFFFFFFFF)


class TextChecker:
    """Check the text of one client, of the bench's own tokenizer.

    `misspelled` counts rows, streams and requests whose text is wrong. Memory for `requests`
    requests is taken at once.
    """

    def __init__(self, bits: int = VOCAB_BITS, requests: int = 0) -> None:
        self._bits = bits
        self._words = words(bits)
        self._received = np.zeros(requests + 1, np.int64)  # bytes, by the low half of the key
        self.misspelled = 0

    def frame(self, frame: OutputFrame) -> None:
        """Check the text of a frame."""
        index = (frame.keys & _INDEX).astype(np.int64)
        if len(index) and int(index.max()) >= len(self._received):
            grown = np.zeros(max(int(index.max()) + 1, 2 * len(self._received)), np.int64)
            grown[: len(self._received)] = self._received
            self._received = grown
        if frame.text_bytes == self._words[frame.tokens].tobytes():
            np.add.at(self._received, index, frame.text_len.astype(np.int64))
            return
        rows = zip(
            frame.keys.tolist(), frame.text_offset.tolist(), frame.text_len.tolist(), strict=True
        )
        at = 0
        for key, offset, length in rows:
            self._row(key, offset, frame.text_bytes[at : at + length])
            at += length

    def stream(self, key: int, token_ids: Sequence[int], text: str) -> None:
        """Check the whole text of a request against all of its tokens."""
        self.misspelled += text.encode() != self._words[np.asarray(token_ids, np.int64)].tobytes()

    def finish(self, key: int, output_tokens: int) -> None:
        """End a request: its text must be as long as that of `output_tokens` tokens."""
        index = key & 0xFFFFFFFF
        if index < len(self._received):
            self.misspelled += int(self._received[index]) != output_tokens * WIDTH

    def _row(self, key: int, offset: int, text: bytes) -> None:
        index = key & 0xFFFFFFFF
        first, cut = divmod(offset, WIDTH)
        tokens = sequence(key, first, (cut + len(text)) // WIDTH + 1, self._bits)
        expected = self._words[tokens].tobytes()[cut : cut + len(text)]
        self.misspelled += bool(text) and (text != expected or offset != self._received[index])
        self._received[index] += len(text)
