"""The state of one DP rank in a processor, without its bindings."""

from __future__ import annotations

import math

from .deadlines import NEVER
from .timers import LifeClock, Timer
from .verify import Verifier


class Rank:
    """One DP rank: its incarnation while it is up, and the deadlines of its handles.

    Deadlines of a rank that shows no life stand still: they run on `life`, not on the clock.
    """

    def __init__(self, dp: int, verifier: Verifier | None) -> None:
        self.dp = dp
        self.incarnation = 0  # 0 while the rank is not up
        self.life = LifeClock(0.0)
        self.undrained = Timer()  # on `life`: a drained row must come
        self.unheard = Timer()  # on `life`: bound after a gap, a first row must come
        self.unasked = Timer()  # on the clock: drained, but neither preempted nor ended
        self.parked = Timer()  # on the clock: rows whose bind must come
        self._timers = (self.undrained, self.unheard, self.unasked, self.parked)
        self.gap_at = -math.inf  # when frames were lost for good
        self.bound_at: dict[int, int] = {}  # unheard handle to the tokens it was bound with
        self.verifier = verifier

    def open(self, incarnation: int, now: float) -> None:
        """Begin an incarnation."""
        self.incarnation = incarnation
        self.life = LifeClock(now)

    def close(self) -> None:
        """End the incarnation and all deadlines."""
        self.incarnation = 0
        self.gap_at = -math.inf
        self.bound_at.clear()
        for timer in self._timers:
            timer.clear()
        if self.verifier is not None:
            self.verifier.reset()

    def forget(self, handle: int) -> None:
        """Cancel the deadlines of a handle."""
        for timer in self._timers:
            timer.cancel(handle)
        self.bound_at.pop(handle, None)

    @property
    def next_deadline(self) -> float:
        """The earliest deadline that will be reached without a sign of life, or NEVER."""
        if not any(self._timers):
            return NEVER
        lived = self.life.when(min(self.undrained.head(), self.unheard.head()))
        return min(lived, self.unasked.head(), self.parked.head())
