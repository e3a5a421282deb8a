"""Prove at the client that every token came once, in order, to its owner.

The common case (each row begins where its request stands, each request once in a frame) is decided
on whole columns; only a frame that is not like that is walked row by row to name what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from tokenpipe._core import OFFSET_UNKNOWN
from tokenpipe.types import TokenLogprobs
from tokenpipe.wire import OutputFrame

from .oracle import I32, I64, U64, VOCAB_BITS, logprobs_of, seeds, tokens_of

_INDEX = np.uint64(0xFFFFFFFF)


@dataclass
class Verdict:
    """Count tokens by what became of them; `wrong` sums all that must be 0."""

    tokens: int = 0  # came, once, right
    lost: int = 0
    duplicated: int = 0
    misattributed: int = 0  # not the token that this request has at this offset
    reordered: int = 0  # came, but after a later one
    misscored: int = 0  # without the logprobs asked for, with others, or with some nobody asked for

    @property
    def wrong(self) -> int:
        """Number of tokens that were not delivered as they should be."""
        wrong = self.lost + self.duplicated + self.misattributed + self.reordered
        return wrong + self.misscored

    def __add__(self, other: Verdict) -> Verdict:
        mine, theirs = asdict(self), asdict(other)
        return Verdict(**{name: mine[name] + theirs[name] for name in mine})


class Checker:
    """Check the output of one client, whose keys count up in their low 32 bits.

    `bits` is the oracle's, `logprobs` the k that the client asked for (None: no logprobs).
    Memory for `requests` of them is taken at once, and grows beyond.
    """

    def __init__(
        self, *, bits: int = VOCAB_BITS, logprobs: int | None = None, requests: int = 0
    ) -> None:
        self._bits = bits
        self._k = logprobs
        self._verdict = Verdict()
        self._keys: U64 = np.zeros(0, dtype=np.uint64)
        self._next: I64 = np.zeros(0, dtype=np.int64)  # offset that the next token should have
        self._stamp: I64 = np.zeros(0, dtype=np.int64)
        self._known = np.zeros(0, dtype=np.bool_)
        self._starts, self._strides = seeds(self._keys)
        self._holes: dict[int, set[int]] = {}  # index -> offsets jumped over so far
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
        """Tell whether a row begins beyond where its request stands."""
        index = (keys & _INDEX).astype(np.int64)
        if not len(index) or int(index.max()) >= len(self._keys):
            return False
        beyond = offsets.astype(np.int64) > self._next[index]
        return bool((beyond & (offsets != OFFSET_UNKNOWN)).any())

    def rows(self, keys: U64, offsets: I64, counts: I64 | None, tokens: I32) -> None:
        """Check rows as they came: keys u64[n], offsets[n], counts[n] (None: all 1), tokens."""
        index = keys & _INDEX
        index = index.astype(np.int64)
        rows = len(index)
        if not rows:
            return
        if int(index.max()) >= len(self._keys):
            return self._walk(keys, offsets, counts, tokens)
        order = np.arange(rows)
        self._stamp[index] = order
        offsets = offsets.astype(np.int64)
        fine = (
            (self._stamp[index] == order)  # no request twice
            & (self._next[index] == offsets)
            & (self._keys[index] == keys)
            & self._known[index]
        )
        if not fine.all():
            return self._walk(keys, offsets, counts, tokens)
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
        """Check one delta of one request."""
        index = key & 0xFFFFFFFF
        if index >= len(self._keys) or not self._known[index] or int(self._keys[index]) != key:
            self._verdict.misattributed += len(token_ids)
            return
        first = self._fresh(index, offset, len(token_ids))
        at = np.arange(offset, offset + len(token_ids), dtype=np.int64)
        one = slice(index, index + 1)
        expected = tokens_of(self._starts[one], self._strides[one], at, self._bits)
        right = expected == np.asarray(token_ids, dtype=np.int32)
        self._verdict.misattributed += int(np.count_nonzero(~right))
        self._verdict.tokens += int(np.count_nonzero(right[first:]))

    def scores(self, frame: OutputFrame) -> None:
        """Check the logprobs of a frame against its tokens."""
        k, counts, ks = self._k, frame.counts, frame.lp_k
        if k is None:
            self._verdict.misscored += int(counts[ks >= 0].sum())
            return
        if not (ks[counts > 0] == k).all():
            self._verdict.misscored += int(counts[ks != k].sum())
            return  # whose scores are whose is for the row that is wrong to say
        ids, values, ranks = logprobs_of(frame.tokens, k, self._bits)
        shape = ids.shape
        right = (frame.lp_ids.reshape(shape) == ids).all(axis=1)
        right &= (frame.lp_values.reshape(shape) == values).all(axis=1)
        right &= frame.lp_ranks == ranks
        self._verdict.misscored += int(np.count_nonzero(~right))

    def stream_scores(
        self, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs] | None
    ) -> None:
        """Check the logprobs of one delta."""
        got = [] if logprobs is None else list(logprobs)
        expected: list[TokenLogprobs] = []
        if self._k is not None:
            tokens = np.asarray(token_ids, dtype=np.int32)
            columns = (column.tolist() for column in logprobs_of(tokens, self._k, self._bits))
            expected = [
                TokenLogprobs(tuple(ids), tuple(values), rank)
                for ids, values, rank in zip(*columns, strict=True)
            ]
        same = sum(mine == theirs for mine, theirs in zip(got, expected, strict=False))
        self._verdict.misscored += max(len(got), len(expected)) - same

    def misplaced(self, gap: int) -> None:
        """Count a delta that began `gap` tokens after (lost) or before (repeated) its place."""
        self._verdict.lost += max(gap, 0)
        self._verdict.duplicated += max(-gap, 0)

    def finish(self, key: int, output_tokens: int) -> None:
        """Close a request that ended after `output_tokens`: what did not come by now is lost."""
        index = key & 0xFFFFFFFF
        missing = output_tokens - int(self._next[index])
        if missing > 0:
            self._verdict.lost += missing
        else:
            self._verdict.duplicated -= missing  # tokens past the end
        self._verdict.lost += len(self._holes.pop(index, ()))
        self._known[index] = False

    def verdict(self) -> Verdict:
        """Return the counts so far; holes that nobody filled yet count as lost."""
        open_holes = sum(map(len, self._holes.values()))
        return self._verdict + Verdict(lost=open_holes)

    def _walk(self, keys: U64, offsets: I64, counts: I64 | None, tokens: I32) -> None:
        at = 0
        for row, key in enumerate(keys.tolist()):
            count = 1 if counts is None else int(counts[row])
            if count or int(offsets[row]) != OFFSET_UNKNOWN:
                self.stream(key, int(offsets[row]), tokens[at : at + count].tolist())
            at += count

    def _fresh(self, index: int, offset: int, count: int) -> int:
        """Book offsets offset..offset+count; return how many of the first are repeats."""
        due = int(self._next[index])
        if offset > due:
            self._holes.setdefault(index, set()).update(range(due, offset))
        late = range(offset, min(offset + count, due))
        holes = self._holes.get(index, set())
        filled = holes.intersection(late)
        holes -= filled
        self._verdict.reordered += len(filled)
        self._verdict.duplicated += len(late) - len(filled)
        self._next[index] = max(due, offset + count)
        return len(late)

    def _grow(self, size: int) -> None:
        size = max(size, 2 * len(self._keys), 1024)
        for name in ("_keys", "_next", "_stamp", "_known", "_starts", "_strides"):
            old = getattr(self, name)
            new = np.full(size, 0, dtype=old.dtype)  # writes each page now, not in a year
            new[: len(old)] = old
            setattr(self, name, new)
