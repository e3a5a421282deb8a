"""Hold which rows a rank runs, and in which order. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tokenpipe.errors import SlotBusy
from tokenpipe.types import split_handle
from tokenpipe.wire import StepBind

from .model import I64, Row


class DecodeBatch:
    """The rows that decode together, step after step, until one leaves or another joins.

    A step over it costs a count, whatever its size: rows are settled when it ends.
    """

    __slots__ = ("_lengths", "_settled", "handles", "lasts", "rows", "taken")

    def __init__(self, rows: Sequence[Row] = ()) -> None:
        self.rows = list(rows)
        self.handles: I64 = np.array([row.handle for row in rows], np.int64)
        self.taken = 0  # steps since its begin: a token of each row; count it here
        self.lasts = min((row.left for row in rows), default=0)  # steps until a row has all it may
        self._lengths: I64 = np.array([row.length for row in rows], np.int64)  # as of its begin
        self._settled = 0  # of `taken`, written into the rows

    @property
    def lengths(self) -> I64:
        """Return a new int64 [rows], tokens of each sequence."""
        return self._lengths + self.taken

    @property
    def over(self) -> bool:
        """Whether one of its rows has all tokens it may get."""
        return self.taken >= self.lasts

    def settle(self) -> None:
        """Write what was counted into the rows."""
        for row in self.rows:
            row.produced += self.taken - self._settled
        self._settled = self.taken


class RunnerBatch:
    """The rows of one rank: bound, then prefilled, then decoding until freed or at their length."""

    def __init__(self, free: Callable[[Row], None]) -> None:
        """Begin empty; `free` is called once for each row that the model has seen and leaves."""
        self._free = free
        self._rows: dict[int, Row] = {}  # by slot
        self._fresh: list[Row] = []  # bound, not yet prefilled
        self._decode_batch = DecodeBatch()
        self._changed = False

    def __len__(self) -> int:
        """Return how many rows are bound."""
        return len(self._rows)

    def change(self, binds: Iterable[StepBind], frees: Iterable[int]) -> list[int]:
        """Let handles go, then take new ones in; returns the handles to call drained.

        A handle that is bound and freed in one plan never runs. Unknown frees are drained all the
        same: a processor may wait for their marker. Raises `SlotBusy` for a slot that runs; then
        nothing was changed.
        """
        gone = list(dict.fromkeys(frees))
        rows = {row.slot: row for row in map(Row.of, binds) if row.handle not in gone}
        for slot, row in rows.items():
            held = self._rows.get(slot)
            if held is not None and held.handle not in gone:
                raise SlotBusy(f"slot {slot} runs {held.handle}; free it before {row.handle}")
        for handle in gone:
            self._let_go(handle)
        for row in rows.values():
            self._rows[row.slot] = row
            if row.left > 0:
                self._fresh.append(row)
        return gone

    def forget(self) -> None:
        """Drop everything: nobody waits for these rows any more."""
        for row in list(self._rows.values()):
            self._let_go(row.handle)

    def fresh(self) -> list[Row]:
        """Return the rows to prefill in this step, which decode from the next step on."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def decode_batch(self) -> DecodeBatch:
        """Return the rows to decode in this step: the same object while nothing changed."""
        decode_batch = self._decode_batch
        if self._changed or decode_batch.over:
            decode_batch.settle()
            rows = [r for r in decode_batch.rows if r.left > 0 and self._rows.get(r.slot) is r]
            if len(rows) < len(decode_batch.rows):
                self._decode_batch = DecodeBatch(rows)
            self._changed = False
        return self._decode_batch

    def steady(self) -> DecodeBatch | None:
        """Return the rows to decode where they are those of the step before and none is new."""
        decode_batch = self._decode_batch
        if self._fresh or self._changed or decode_batch.over or not decode_batch.rows:
            return None
        return decode_batch

    def join(self, rows: Iterable[Row]) -> None:
        """Let prefilled rows decode from the next step on."""
        rows = list(rows)
        for row in rows:
            row.entered = True
        decode_batch = self._decode_batch
        decode_batch.settle()
        self._decode_batch = DecodeBatch([*decode_batch.rows, *rows])

    def leave(self) -> None:
        """Say that a row's `left` may be none now."""
        self._changed = True

    @property
    def due(self) -> bool:
        """Whether a step has anything to run."""
        return bool(self._fresh or self.decode_batch().rows)

    def _let_go(self, handle: int) -> None:
        row = self._rows.get(split_handle(handle)[1])
        if row is None or row.handle != handle:
            return
        del self._rows[row.slot]
        self._changed = True
        if row.entered:
            self._free(row)
        elif row in self._fresh:
            self._fresh.remove(row)
