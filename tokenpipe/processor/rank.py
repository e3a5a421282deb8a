"""What the processor knows of one DP rank beside its bindings."""

from __future__ import annotations

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
        self.verifier = verifier

    def open(self, incarnation: int, now: float) -> None:
        """Begin a life."""
        self.incarnation = incarnation
        self.life = LifeClock(now)

    def close(self) -> None:
        """End it, with all that was awaited."""
        self.incarnation = 0
        for timer in (self.markers, self.drained, self.parked):
            timer.clear()
        if self.verifier is not None:
            self.verifier.reset()

    def forget(self, handle: int) -> None:
        """Cancel what is awaited for a handle."""
        self.markers.cancel(handle)
        self.drained.cancel(handle)
        self.parked.cancel(handle)

    @property
    def next_deadline(self) -> float | None:
        """Return when the first deadline is reached, as far as it can be known now."""
        marker = self.markers.head()
        dues = (
            None if marker is None else self.life.when(marker),
            self.drained.head(),
            self.parked.head(),
        )
        return min((due for due in dues if due is not None), default=None)
