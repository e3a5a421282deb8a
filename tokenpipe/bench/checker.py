"""Prove at the client that each token arrives once, in order, at its owner.

In the common case each row begins at the next offset of its request, and no request is twice in a
frame. Then whole columns are compared. Any other frame is checked row by row, to count the errors.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenpipe._core import OFFSET_UNKNOWN
from tokenpipe.types import TokenLogprobs
from tokenpipe.wire import OutputFrame

from .logprobs_check import misscored_in_frame, misscored_in_output
from .oracle import I32, I64, U64, VOCAB_BITS, seeds, tokens_of
from .verdict import Verdict

_INDEX = np.uint64(0xFFFFFFFF)


class Checker:
    """Check the output of one client. The low 32 bits of its keys count up.

    `bits` is the oracle's. `logprobs` is how many the client asked for, None for no logprobs.
    Memory for `requests` requests is taken at once; it grows if there are more.
    """

    def __init__(
        self, *, bits: int = VOCAB_BITS, logprobs: int | None = None, requests: int = 0
    ) -> None:
        self._bits = bits
        self._k = logprobs
        self._verdict = Verdict()
        self._keys: U64 = np.zeros(0, dtype=np.uint64)
        self._next: I64 = np.zeros(0, dtype=np.int64)  # the offset that the next token must have
        self._last_row: I64 = np.zeros(0, dtype=np.int64)  # in the frame that is checked now
        self._known = np.zeros(0, dtype=np.bool_)
        self._starts, self._strides = seeds(self._keys)
        self._skipped: dict[int, set[int]] = {}  # index -> offsets that have not come yet
        if requests:
            self._grow(requests + 1)

    def add(self, key: int) -> None:
        """Expect output of request `key`, from offset 0 on."""
        index = key & 0xFFFFFFFF
        if index >= len(self._keys):
            self._grow(index + 1)
        self._keys[index] = key
        self._known[index] = True
        self._next[index] = 0
        start, stride = seeds(self._keys[index : index + 1])
        self._starts[index], self._strides[index] = start[0], stride[0]

    def received(self, key: int) -> int:
        """Return how far the output of `key` has come, in tokens."""
        return int(self._next[key & 0xFFFFFFFF])

    def ahead(self, keys: U64, offsets: I64) -> bool:
        """Return whether a row begins behind tokens that have not come yet."""
        index = (keys & _INDEX).astype(np.int64)
        if not len(index) or int(index.max()) >= len(self._keys):
            return False
        beyond = offsets.astype(np.int64) > self._next[index]
        return bool((beyond & (offsets != OFFSET_UNKNOWN)).any())

    def rows(self, keys: U64, offsets: I64, counts: I64 | None, tokens: I32) -> None:
        """Check rows: keys u64[n], offsets i64[n], counts i64[n] (None: 1 each), tokens i32."""
        index = keys & _INDEX
        index = index.astype(np.int64)
        rows = len(index)
        if not rows:
            return
        if int(index.max()) >= len(self._keys):
            return self._row_by_row(keys, offsets, counts, tokens)
        order = np.arange(rows)
        self._last_row[index] = order
        offsets = offsets.astype(np.int64)
        plain = (
            (self._last_row[index] == order)  # no request twice
            & (self._next[index] == offsets)
            & (self._keys[index] == keys)
            & self._known[index]
        )
        if not plain.all():
            return self._row_by_row(keys, offsets, counts, tokens)
        if counts is None:
            self._next[index] = offsets + 1
            expected = tokens_of(self._starts[index], self._strides[index], offsets, self._bits)
        else:
            counts = counts.astype(np.int64)
            self._next[index] = offsets + counts
            before = np.cumsum(counts) - counts
            at = np.repeat(offsets - before, counts) + np.arange(len(tokens))
            each = np.repeat(index, counts)
            expected = tokens_of(self._starts[each], self._strides[each], at, self._bits)
        right = int(np.count_nonzero(expected == tokens))
        self._verdict.tokens += right
        self._verdict.misattributed += len(tokens) - right

    def stream(self, key: int, offset: int, token_ids: Sequence[int]) -> None:
        """Check the tokens of one output of a stream."""
        index = key & 0xFFFFFFFF
        if index >= len(self._keys) or not self._known[index] or int(self._keys[index]) != key:
            self._verdict.misattributed += len(token_ids)
            return
        first = self._count_order(index, offset, len(token_ids))
        at = np.arange(offset, offset + len(token_ids), dtype=np.int64)
        one = slice(index, index + 1)
        expected = tokens_of(self._starts[one], self._strides[one], at, self._bits)
        right = expected == np.asarray(token_ids, dtype=np.int32)
        self._verdict.misattributed += int(np.count_nonzero(~right))
        self._verdict.tokens += int(np.count_nonzero(right[first:]))

    def scores(self, frame: OutputFrame) -> None:
        """Check the logprobs of a frame."""
        self._verdict.misscored += misscored_in_frame(frame, self._k, self._bits)

    def stream_scores(
        self, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs] | None
    ) -> None:
        """Check the logprobs of one output of a stream."""
        self._verdict.misscored += misscored_in_output(token_ids, logprobs, self._k, self._bits)

    def misplaced(self, gap: int) -> None:
        """Count an output that began `gap` tokens too late (lost) or too early (duplicated)."""
        self._verdict.lost += max(gap, 0)
        self._verdict.duplicated += max(-gap, 0)

    def finish(self, key: int, output_tokens: int) -> None:
        """End a request of `output_tokens` tokens. Tokens that have not come by now are lost."""
        index = key & 0xFFFFFFFF
        missing = output_tokens - int(self._next[index])
        if missing > 0:
            self._verdict.lost += missing
        else:
            self._verdict.duplicated -= missing  # tokens behind the end
        self._verdict.lost += len(self._skipped.pop(index, ()))
        self._known[index] = False

    def verdict(self) -> Verdict:
        """Return the counts so far. Tokens that were skipped and have not come are lost."""
        skipped = sum(map(len, self._skipped.values()))
        return self._verdict + Verdict(lost=skipped)

    def _row_by_row(self, keys: U64, offsets: I64, counts: I64 | None, tokens: I32) -> None:
        at = 0
        for row, key in enumerate(keys.tolist()):
            count = 1 if counts is None else int(counts[row])
            if count or int(offsets[row]) != OFFSET_UNKNOWN:
                self.stream(key, int(offsets[row]), tokens[at : at + count].tolist())
            at += count

    def _count_order(self, index: int, offset: int, count: int) -> int:
        """Note that offsets offset..offset+count came; return how many of the first are late."""
        due = int(self._next[index])
        if offset > due:
            self._skipped.setdefault(index, set()).update(range(due, offset))
        late = range(offset, min(offset + count, due))
        skipped = self._skipped.get(index, set())
        filled = skipped.intersection(late)
        skipped -= filled
        self._verdict.reordered += len(filled)
        self._verdict.duplicated += len(late) - len(filled)
        self._next[index] = max(due, offset + count)
        return len(late)

    def _grow(self, size: int) -> None:
        size = max(size, 2 * len(self._keys), 1024)
        for name in ("_keys", "_next", "_last_row", "_known", "_starts", "_strides"):
            old = getattr(self, name)
            # `full` writes each page now. `zeros` would take the memory later, during the run.
            new = np.full(size, 0, dtype=old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)
