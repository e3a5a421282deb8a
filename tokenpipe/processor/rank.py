"""The state of one DP rank in a processor, without its bindings."""

from __future__ import annotations

import math
from typing import Any

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

    def save(self) -> dict[str, Any]:
        """Return the state, in plain values, for `load`."""
        return {
            "incarnation": self.incarnation,
            "life": self.life.save(),
            "gap_at": self.gap_at if self.gap_at > -math.inf else None,
            "bound_at": list(self.bound_at.items()),
            "timers": [timer.save() for timer in self._timers],
        }

    def load(self, saved: dict[str, Any]) -> None:
        """Take a saved state."""
        self.incarnation = saved["incarnation"]
        self.life.load(*saved["life"])
        self.gap_at = -math.inf if saved["gap_at"] is None else saved["gap_at"]
        self.bound_at.update((handle, total) for handle, total in saved["bound_at"])
        for timer, deadlines in zip(self._timers, saved["timers"], strict=True):
            timer.load((handle, due) for handle, due in deadlines)
        if self.verifier is not None:
            self.verifier.join()

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
