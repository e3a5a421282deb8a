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

    A step over it costs one addition, whatever its size: `settle` writes the tokens into the rows.
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

    def admit(self, binding: StepBind) -> None:
        """Take a row in. Raises `SlotBusy` where its slot has a row that was not freed."""
        row = Row.of(binding)
        held = self._rows.get(row.slot)
        if held is not None:
            raise SlotBusy(f"slot {row.slot} runs {held.handle}; free it before {row.handle}")
        self._rows[row.slot] = row
        if row.left > 0:
            self._fresh.append(row)

    def free(self, handle: int) -> None:
        """Let a row go; without effect where it is not bound."""
        row = self._rows.get(split_handle(handle)[1])
        if row is None or row.handle != handle:
            return
        del self._rows[row.slot]
        self._changed = True
        if row.entered:
            self._free(row)
        elif row in self._fresh:
            self._fresh.remove(row)

    def fresh(self) -> list[Row]:
        """Return the rows to prefill in this step, which decode from the next step on."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def decode_batch(self) -> DecodeBatch:
        """Return the rows to decode in this step: the same object while nothing changed."""
        batch = self._decode_batch
        if self._changed or batch.over:
            batch.settle()
            rows = [r for r in batch.rows if r.left > 0 and self._rows.get(r.slot) is r]
            if len(rows) < len(batch.rows):
                self._decode_batch = DecodeBatch(rows)
            self._changed = False
        return self._decode_batch

    def steady(self) -> DecodeBatch | None:
        """Return the rows to decode where they are those of the step before and none is new."""
        batch = self._decode_batch
        if self._fresh or self._changed or batch.over or not batch.rows:
            return None
        return batch

    def join(self, rows: Iterable[Row]) -> None:
        """Let prefilled rows decode from the next step on."""
        rows = list(rows)
        for row in rows:
            row.entered = True
        self._decode_batch.settle()
        self._decode_batch = DecodeBatch([*self._decode_batch.rows, *rows])

    def look(self) -> None:
        """Have the next step look which rows have all they may get, or failed."""
        self._changed = True

    @property
    def due(self) -> bool:
        """Whether a step has anything to run."""
        return bool(self._fresh or self.decode_batch().rows)
