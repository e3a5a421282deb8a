"""Run the batch of one synthetic worker: its handles, and the tokens that they get next.

No socket and no clock is used here. A step of an unchanged batch of 256 rows takes about 4 µs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tokenpipe.wire import StepBind

from .oracle import I32, I64, VOCAB_BITS, mix, seeds


class OracleRows(NamedTuple):
    """The rows of one step: handles i64[n], tokens i32[n * k]."""

    handles: I64
    tokens: I32
    counts: I64 | None  # None: one token a row


_NONE: I64 = np.zeros(0, dtype=np.int64)


class OracleBatch:
    """Hold the running handles of one rank, in the order in which they were bound.

    A handle gets `tokens_per_row` tokens a step until it is freed, or until `overrun` steps after
    its request's length. An engine that schedules ahead sends such rows too, and they must do no
    harm.
    """

    def __init__(
        self, *, tokens_per_row: int = 1, overrun: int = 2, bits: int = VOCAB_BITS
    ) -> None:
        if tokens_per_row < 1:
            raise ValueError(f"tokens_per_row must be at least 1, not {tokens_per_row}")
        self._k = tokens_per_row
        self._overrun = overrun
        self._bits = bits
        self._handles: I64 = _NONE
        self._keys = np.zeros(0, dtype=np.uint64)
        self._offsets: I64 = _NONE
        self._left: I64 = _NONE  # steps until a handle gets no more tokens
        self._steps_to_change = 0
        self._taken = 0  # steps since the last change
        self._lay_out()

    def __len__(self) -> int:
        """Return how many handles get tokens in the next step."""
        return len(self._handles)

    def change(self, binds: Iterable[StepBind], frees: Iterable[int]) -> None:
        """Take handles in and let others go, also some that are not known here."""
        self._apply_steps()
        freed = set(frees)
        fresh = [bind for bind in binds if bind.handle not in freed]
        if freed:
            self._keep(~np.isin(self._handles, np.fromiter(freed, dtype=np.int64)))
        offset = [bind.output_tokens for bind in fresh]
        left = [
            -(-max(bind.max_tokens - bind.output_tokens, 0) // self._k) + self._overrun
            for bind in fresh
        ]
        self._handles = _append(self._handles, [bind.handle for bind in fresh])
        self._keys = np.append(self._keys, np.array([b.key for b in fresh], dtype=np.uint64))
        self._offsets = _append(self._offsets, offset)
        self._left = _append(self._left, left)
        self._keep(self._left > 0)
        self._lay_out()

    def step(self) -> OracleRows:
        """Return the next step's rows. The arrays are valid until the next call."""
        np.copyto(self._out, self._walk)
        tokens = mix(self._out, self._scratch, self._bits)
        np.add(self._walk, self._leap, out=self._walk)
        self._taken += 1
        self._steps_to_change -= 1
        rows = OracleRows(self._handles, tokens, self._counts)
        if self._steps_to_change == 0:  # a handle has its last row; `rows` keeps its own arrays
            self._apply_steps()
            self._keep(self._left > 0)
            self._lay_out()
        return rows

    def _apply_steps(self) -> None:
        """Add the steps since the last change to each handle's offset."""
        self._offsets = self._offsets + self._taken * self._k
        self._left = self._left - self._taken
        self._taken = 0

    def _keep(self, which: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
        self._handles = self._handles[which]
        self._keys = self._keys[which]
        self._offsets = self._offsets[which]
        self._left = self._left[which]

    def _lay_out(self) -> None:
        """Compute the position of each row's walk, so that a step is a few array operations."""
        rows = len(self._handles)
        starts, strides = seeds(np.repeat(self._keys, self._k))
        at = (self._offsets[:, None] + np.arange(self._k)).ravel().astype(np.uint32)
        self._walk = starts + at * strides
        self._leap = strides * np.uint32(self._k)
        self._out = np.empty_like(self._walk)
        self._scratch = np.empty_like(self._walk)
        self._counts = None if self._k == 1 else np.full(rows, self._k, dtype=np.int64)
        self._steps_to_change = int(self._left.min()) if rows else 0
        self._taken = 0


def _append(array: I64, values: list[int]) -> I64:
    return np.append(array, np.array(values, dtype=np.int64))
