"""Compare the tokens of the TP ranks of a DP rank. It never delays the rows of TP rank 0."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tokenpipe.wire import StepColumn, StepFrame

_COMPARED = (StepColumn.HANDLES, StepColumn.COUNTS, StepColumn.TOKENS)


class Divergence(NamedTuple):
    """The first step and handle in which a TP rank's tokens differ from those of TP rank 0."""

    tp: int
    step: int
    handle: int


class Verifier:
    """Keeps the last `window` steps of each TP rank until they can be compared."""

    def __init__(self, tp_size: int, window: int) -> None:
        self._window = window
        self._steps: list[dict[int, StepFrame]] = [{} for _ in range(tp_size)]
        self._newest: list[StepFrame | None] = [None] * tp_size
        self._reported: set[int] = set()
        self.compared = 0
        self.skipped = 0  # steps that left the window before they could be compared

    def reset(self) -> None:
        """Forget all steps, because the rank begins a new incarnation."""
        for steps in self._steps:
            steps.clear()
        self._reported.clear()

    def read(self, tp: int, raw: bytes) -> StepFrame:
        """Unpack the next frame of a TP rank's lane. Raises FrameError."""
        before, self._newest[tp] = self._newest[tp], None
        frame = self._newest[tp] = StepFrame.unpack(raw, before)
        return frame

    def feed(self, frame: StepFrame) -> Iterator[Divergence]:
        """Add a step, and yield differences: at most one for each TP rank in an incarnation."""
        mine = self._steps[frame.tp]
        mine[frame.step] = frame
        others = range(1, len(self._steps)) if frame.tp == 0 else (frame.tp,)
        for tp in others:
            leader, follower = self._steps[0].get(frame.step), self._steps[tp].get(frame.step)
            if leader is None or follower is None:
                continue
            del self._steps[tp][frame.step]
            self.compared += 1
            handle = first_difference(leader, follower)
            if handle is not None and tp not in self._reported:
                self._reported.add(tp)
                yield Divergence(tp, frame.step, handle)
        while len(mine) > self._window:
            del mine[next(iter(mine))]
            self.skipped += frame.tp != 0


def first_difference(one: StepFrame, other: StepFrame) -> int | None:
    """Return the lowest handle whose tokens differ, or None. The order of rows does not count."""
    if all(one.columns.get(c) == other.columns.get(c) for c in _COMPARED):
        return None
    a, b = _by_handle(one), _by_handle(other)
    n = min(len(a), len(b))
    unequal = np.nonzero((a[:n] != b[:n]).any(axis=1))[0]
    if len(unequal):
        at = int(unequal[0])
        return int(min(a[at, 0], b[at, 0]))
    longer = a if len(a) > n else b
    return int(longer[n, 0]) if len(longer) > n else None


def _by_handle(frame: StepFrame) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Return [tokens, 2] of (handle, token), by handle, tokens of one handle in their order."""
    handles = np.repeat(frame.handles, frame.counts)
    order = np.argsort(handles, kind="stable")
    return np.stack([handles[order], frame.tokens[order].astype(np.int64)], axis=1)
