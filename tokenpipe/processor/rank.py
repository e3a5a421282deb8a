"""What the processor knows of one DP rank beside its bindings."""

from __future__ import annotations

import math

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
        for timer in (self.markers, self.drained, self.parked, self.unheard):
            timer.clear()
        if self.verifier is not None:
            self.verifier.reset()

    def forget(self, handle: int) -> None:
        """Cancel what is awaited for a handle."""
        self.markers.cancel(handle)
        self.drained.cancel(handle)
        self.parked.cancel(handle)
        self.unheard.cancel(handle)
        self.bound_at.pop(handle, None)

    @property
    def next_deadline(self) -> float | None:
        """Return when the first deadline is reached, as far as it can be known now."""
        lived = [timer.head() for timer in (self.markers, self.unheard)]
        dues = (
            *(None if due is None else self.life.when(due) for due in lived),
            self.drained.head(),
            self.parked.head(),
        )
        return min((due for due in dues if due is not None), default=None)
