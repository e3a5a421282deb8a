"""What the processor knows of one DP rank beside its bindings."""

from __future__ import annotations

import math

from .deadlines import NEVER
from .timers import LifeClock, Timer
from .verify import Verifier


class Rank:
    """One DP rank: its incarnation while it is up, and its deadlines."""

    def __init__(self, dp: int, verifier: Verifier | None) -> None:
        self.dp = dp
        self.incarnation = 0  # 0: not up
        self.life = LifeClock(0.0)
        self.markers = Timer()  # a drained row is awaited; by the rank's clock
        self.drained = Timer()  # drained, though nobody asked; by the wall
        self.parked = Timer()  # rows without a bind; by the wall
        self.gap_at = -math.inf  # when frames were lost for good
        self.unheard = Timer()  # bound after that, and no row yet; by the rank's clock
        self._timers = (self.markers, self.drained, self.parked, self.unheard)
        self.bound_at: dict[int, int] = {}  # handle of those to the output it was bound with
        self.verifier = verifier

    def open(self, incarnation: int, now: float) -> None:
        """Begin a life."""
        self.incarnation = incarnation
        self.life = LifeClock(now)

    def close(self) -> None:
        """End it, with all that was awaited."""
        self.incarnation = 0
        self.gap_at = -math.inf
        self.bound_at.clear()
        for timer in self._timers:
            timer.clear()
        if self.verifier is not None:
            self.verifier.reset()

    def forget(self, handle: int) -> None:
        """Cancel what is awaited for a handle."""
        for timer in self._timers:
            timer.cancel(handle)
        self.bound_at.pop(handle, None)

    @property
    def next_deadline(self) -> float:
        """When the first deadline is reached, as far as it can be known now; or NEVER."""
        if not any(self._timers):
            return NEVER
        lived = self.life.when(min(self.markers.head(), self.unheard.head()))
        return min(lived, self.drained.head(), self.parked.head())
