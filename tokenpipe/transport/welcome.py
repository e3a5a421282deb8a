"""Wait for a lane's welcome, and notice what makes the wait useless."""

from __future__ import annotations

import time
from collections.abc import Callable

from tokenpipe.errors import LaneLost, StartupError
from tokenpipe.instance import Instance

from . import timing
from .peer import Role
from .sender import LaneSender
from .waiter import wait_readable

ENGINE = Role("engine", "0")
ALONE_S = 1.0  # time for another thread to begin to poll the pipeline


class WelcomeWait:
    """One wait for a welcome. Call `arrived` again and again, in any loop; it never blocks."""

    def __init__(
        self,
        lane: LaneSender,
        instance: Instance,
        to: Role,
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to wait at most `timeout_s` for the welcome of `to`."""
        self._lane = lane
        self._instance = instance
        self._to = to
        self._timeout_s = timeout_s
        self._clock = clock
        self._began = clock()
        self._probe_due = 0.0

    def arrived(self) -> bool:
        """Return whether the welcome is there.

        Raises LaneLost if the pipeline is dead, LaneError if the receiver refuses, StartupError at
        the deadline.
        """
        if self._lane.welcomed():
            return True
        now = self._clock()
        if now >= self._probe_due:
            self._probe_due = now + timing.PROBE_S
            if not self._instance.running:
                gone = f"the pipeline of the instance at {self._instance.directory} is gone"
                raise LaneLost(f"lane {self._lane.port.lane}: no welcome, because {gone}")
        if self.waited_s >= self._timeout_s:
            raise self.late(self._timeout_s)
        return False

    @property
    def waited_s(self) -> float:
        """How long this wait has lasted."""
        return self._clock() - self._began

    @property
    def next_s(self) -> float:
        """The seconds until `arrived` must be called next if no message comes."""
        due = min(self._lane.next_deadline, self._probe_due, self._began + self._timeout_s)
        return max(0.0, due - self._clock())

    def late(self, waited_s: float) -> StartupError:
        """Return the error of a welcome that did not come.

        If this process owns the receiver, the error says so: perhaps nobody polls the pipeline.
        """
        text = self._lane.no_welcome(waited_s)
        if self._instance.own(*self._to) is not None:
            text += (
                ". This process owns the pipeline: poll the pipeline in another thread, or use an "
                "AsyncClient in the event loop that polls it"
            )
        return StartupError(text)


def wait_welcome(lane: LaneSender, instance: Instance, to: Role, timeout_s: float) -> None:
    """Wait until the receiver welcomes the lane. Raises what `WelcomeWait.arrived` raises.

    If the waiting thread is the one that polls the pipeline, nobody can answer, and the error comes
    within a second.
    """
    wait = WelcomeWait(lane, instance, to, timeout_s)
    alone = ALONE_S if instance.own(*to) is not None else timeout_s
    while not wait.arrived():
        if wait.waited_s >= alone and _waits_for_itself(instance):
            raise wait.late(alone)
        wait_readable(lane.port, wait.next_s)


def _waits_for_itself(instance: Instance) -> bool:
    claim = instance.own(*ENGINE)
    return claim is not None and claim.attended_here
