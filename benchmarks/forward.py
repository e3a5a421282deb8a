"""A model that only computes, and says how long the runner needs between two of its steps."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tokenpipe.bench.samples import Samples
from tokenpipe.runners import Row, Sampled

Clock = Callable[[], int]
FORWARD_BYTES = 1 << 21  # that one computation reads: more than the caches of one core hold


class Forward:
    """Compute for `forward_s` a step. `hand_off` has the time from the ids to the next step.

    `ids` makes the token ids of a step. `clock` returns ns.
    """

    def __init__(self, ids: Callable[[], Any], forward_s: float, clock: Clock) -> None:
        self.ids = ids
        self._clock = clock
        self._weights = np.ones(FORWARD_BYTES // 8)
        began = time.thread_time()
        for _ in range(20):
            self._weights.sum()
        self._sums = max(1, round(forward_s / ((time.thread_time() - began) / 20)))
        self.ready = 0
        self.hand_off = Samples()
        self.beside: Callable[[], None] | None = None  # called in each step, between computations

    def prefill(self, rows: Sequence[Row]) -> Sampled:
        """Run the first step."""
        return self._step()

    def decode(self, rows: Sequence[Row], last: Any, lengths: Any) -> Sampled:
        """Run a step. The hand-off of the step before ends here."""
        self.hand_off.add(self._clock() - self.ready)
        return self._step()

    def free(self, row: Row) -> None:
        """Nothing is kept."""

    def same_as(self, other: Forward) -> None:
        """Compute as much as the other one, and read the same memory."""
        self._sums = other._sums
        self._weights = other._weights

    def compute(self) -> None:
        """Do the work of one forward."""
        for _ in range(self._sums):
            self._weights.sum()

    def _step(self) -> Sampled:
        self.compute()
        if self.beside is not None:
            self.beside()
            self.compute()
        ids = self.ids()
        self.ready = self._clock()
        return Sampled(ids)


def compute_until(due: float, weights: np.ndarray) -> float:
    """Compute until `due`, in seconds of perf_counter; return the time then."""
    now = time.perf_counter()
    while now < due:
        weights.sum()
        now = time.perf_counter()
    return now


def to_tensor(kind: str) -> Callable[[Any], Any]:
    """Return what makes ids of a kind from i32[n]: `numpy` or `paddle`."""
    if kind == "numpy":
        return lambda ids: ids
    tensor: Callable[[Any], Any] = importlib.import_module("paddle").to_tensor
    return tensor
