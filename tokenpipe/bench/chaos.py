"""Do the planned faults while a run goes on, and count them."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .chaos_faults import SLOW_TURN_S, Undo, Victims, begin, slow_turn, target
from .chaos_plan import FaultKind, PlannedFault

_SLOW = (FaultKind.SLOW_WORKER, FaultKind.SLOW_PROCESSOR)
_log = logging.getLogger(__name__)


@dataclass
class _Lasting:
    """A fault that has begun and is not undone."""

    undo: Undo
    until: float
    slow: int | None  # the process that runs and stands still by turns
    turn_at: float
    running: bool = False


class Chaos:
    """Does the faults of a plan, each at its time. The owner calls `turn` in its loop.

    `clock` returns seconds. `done` has how often each kind was done.
    """

    def __init__(
        self, plan: Iterable[PlannedFault], victims: Victims, clock: Callable[[], float]
    ) -> None:
        self.done: Counter[str] = Counter()
        self._victims = victims
        self._clock = clock
        self._start = clock()
        self._planned = deque(plan)
        self._lasting: list[_Lasting] = []

    @property
    def wait_s(self) -> float:
        """The seconds until `turn` is due; inf if nothing is left."""
        due = [min(fault.until, fault.turn_at) for fault in self._lasting]
        if self._planned:
            due.append(self._start + self._planned[0].at_s)
        return max(0.0, min(due) - self._clock()) if due else float("inf")

    def turn(self) -> None:
        """Begin and undo what is due."""
        now = self._clock()
        for fault in self._lasting:
            if now >= fault.until:
                fault.undo()
            elif fault.slow is not None and now >= fault.turn_at:
                fault.running = not fault.running
                slow_turn(fault.slow, fault.running)
                fault.turn_at = now + SLOW_TURN_S
        self._lasting = [fault for fault in self._lasting if now < fault.until]
        while self._planned and now >= self._start + self._planned[0].at_s:
            self._begin(self._planned.popleft(), now)

    def end(self) -> None:
        """Undo all faults that last. No other fault begins."""
        self._planned.clear()
        for fault in self._lasting:
            fault.undo()
        self._lasting.clear()

    def _begin(self, fault: PlannedFault, now: float) -> None:
        _log.info("chaos: %s, for %.1f s", fault.kind.value, fault.lasts_s)
        self.done[fault.kind.value] += 1
        slow = target(fault, self._victims) if fault.kind in _SLOW else None
        undo = begin(fault, self._victims)
        if fault.lasts_s:
            turn_at = float("inf") if slow is None else now + SLOW_TURN_S
            self._lasting.append(_Lasting(undo, now + fault.lasts_s, slow, turn_at))
