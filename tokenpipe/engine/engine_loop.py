"""Run a scheduler on a Pipeline, one turn after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tokenpipe.events import Event

from .scheduler import Scheduler
from .scheduler_protocols import EventSource, StepLaneEnd

GRANT = 4  # steps of a tensor-parallel group that one plan allows
LOCKSTEP_WAIT_S = 0.002


class EngineLoop:
    """The loop of an engine's process. Its owner calls `turn` again and again, in one thread.

    With `lockstep`, each plan allows its workers `grant` steps and no more, so all TP ranks of a DP
    rank run the same steps. The next plans are sent when all ranks have read their last one, so no
    rank is ahead of another by more than one plan. Without `lockstep`, workers run steps by
    themselves, and a plan is sent when the batch changes.
    """

    def __init__(
        self,
        pipe: EventSource,
        lanes: Mapping[int, StepLaneEnd],
        scheduler: Scheduler,
        *,
        lockstep: bool = False,
        grant: int = GRANT,
        on_events: Callable[[list[Event]], object] = lambda events: None,
    ) -> None:
        """`lanes` has the step lane of each DP rank.

        `turn` calls `on_events` with the events that it read, before anything is sent.
        """
        self._pipe = pipe
        self._lanes = lanes
        self._scheduler = scheduler
        self._lockstep = lockstep
        self._grant = grant
        self._on_events = on_events

    def turn(self, timeout_s: float) -> list[Event]:
        """Wait for events at most `timeout_s`, handle them, and send what follows from them.

        Returns the events. In lockstep a turn is short while a request runs, because no event tells
        that a rank has read its plan.
        """
        scheduler = self._scheduler
        if self._lockstep and scheduler.ranks_up and not scheduler.idle:
            timeout_s = min(timeout_s, LOCKSTEP_WAIT_S)
        events = self.take_events(timeout_s)
        self._on_events(events)
        if not self._lockstep:
            scheduler.schedule()
        elif not (scheduler.idle or self._unread()):
            scheduler.schedule(self._grant)
        return events

    def take_events(self, timeout_s: float) -> list[Event]:
        """Wait for events at most `timeout_s` and handle them, but send nothing. Return them."""
        self._pipe.wait(timeout_s)
        events = self._pipe.poll()
        self._scheduler.handle(events)
        return events

    def end_workers(self) -> None:
        """Tell each worker that no plan follows."""
        for lane in self._lanes.values():
            lane.end()

    def _unread(self) -> bool:
        """Return whether one of the ranks has not read its last plan."""
        return any(self._lanes[dp].unread for dp in self._scheduler.ranks_up)
