"""The rows that a rank runs, in their order. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tokenpipe.errors import SlotBusy
from tokenpipe.types import split_handle
from tokenpipe.wire import StepBind

from .model import I64, Row


class DecodeBatch:
    """The rows that decode together until one leaves or another joins.

    A step adds 1 to `taken`, whatever the number of rows. `settle` adds the tokens to the rows.
    """

    __slots__ = ("_lengths", "_settled", "handles", "lasts", "rows", "taken")

    def __init__(self, rows: Sequence[Row] = ()) -> None:
        self.rows = list(rows)
        self.handles: I64 = np.array([row.handle for row in rows], np.int64)
        self.taken = 0  # steps since the batch was made; each gave one token to each row
        self.lasts = min((row.left for row in rows), default=0)  # steps until the first row is over
        self._lengths: I64 = np.array([row.length for row in rows], np.int64)  # at taken == 0
        self._settled = 0  # how many of `taken` the rows know

    @property
    def lengths(self) -> I64:
        """Return a new int64 [rows], tokens of each sequence."""
        return self._lengths + self.taken

    @property
    def over(self) -> bool:
        """Whether one of its rows has all tokens it may get."""
        return self.taken >= self.lasts

    def settle(self) -> None:
        """Add the tokens of the steps so far to the rows."""
        for row in self.rows:
            row.produced += self.taken - self._settled
        self._settled = self.taken


class RunnerBatch:
    """All rows of one rank. A row is bound, then prefilled, then it decodes until its end."""

    def __init__(self, free: Callable[[Row], None]) -> None:
        """Begin empty. `free` is called once for each row that leaves after its prefill."""
        self._free = free
        self._rows: dict[int, Row] = {}  # by slot
        self._fresh: list[Row] = []  # bound, not yet prefilled
        self._decode_batch = DecodeBatch()
        self._changed = False

    def __len__(self) -> int:
        """Return how many rows are bound."""
        return len(self._rows)

    def admit(self, binding: StepBind) -> None:
        """Add a row. Raises `SlotBusy` if the row in its slot was not freed."""
        row = Row.of(binding)
        held = self._rows.get(row.slot)
        if held is not None:
            raise SlotBusy(f"slot {row.slot} runs {held.handle}; free it before {row.handle}")
        self._rows[row.slot] = row
        if row.left > 0:
            self._fresh.append(row)

    def free(self, handle: int) -> None:
        """Remove a row. Without effect if it is not bound."""
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
        """Return the rows to decode in this step. It is the same object while nothing changed."""
        batch = self._decode_batch
        if self._changed or batch.over:
            batch.settle()
            rows = [r for r in batch.rows if r.left > 0 and self._rows.get(r.slot) is r]
            if len(rows) < len(batch.rows):
                self._decode_batch = DecodeBatch(rows)
            self._changed = False
        return self._decode_batch

    def steady(self) -> DecodeBatch | None:
        """Return the rows to decode if they are those of the step before and no row is new."""
        batch = self._decode_batch
        if self._fresh or self._changed or batch.over or not batch.rows:
            return None
        return batch

    def join(self, rows: Iterable[Row]) -> None:
        """Add prefilled rows to those that decode, from the next step on."""
        rows = list(rows)
        for row in rows:
            row.entered = True
        self._decode_batch.settle()
        self._decode_batch = DecodeBatch([*self._decode_batch.rows, *rows])

    def look(self) -> None:
        """Check at the next step which rows failed or have all their tokens."""
        self._changed = True

    @property
    def due(self) -> bool:
        """Whether a step has anything to run."""
        return bool(self._fresh or self.decode_batch().rows)
