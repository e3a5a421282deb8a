"""Make and poll the step lanes that the engine uses."""

from __future__ import annotations

from collections.abc import Callable

from tokenpipe.instance import Instance
from tokenpipe.topology import Topology
from tokenpipe.transport import Waiter
from tokenpipe.worker import StepLane

END_S = 0.5  # time for all workers to read that no plan follows


class StepLanes:
    """One `StepLane` for each DP rank, made at the first use."""

    def __init__(
        self, instance: Instance, topology: Topology, waiter: Waiter, clock: Callable[[], float]
    ) -> None:
        """Make no lane yet. The ports of each new lane are added to `waiter`."""
        self._instance = instance
        self._topology = topology
        self._waiter = waiter
        self._clock = clock
        self._lanes: dict[int, StepLane] = {}

    def of(self, dp_rank: int) -> StepLane:
        """Return the lane of a DP rank. Raises `ConfigError` for a rank that does not exist."""
        lane = self._lanes.get(dp_rank)
        if lane is None:
            lane = StepLane(self._instance, self._topology, dp_rank, clock=self._clock)
            self._lanes[dp_rank] = lane
            for port in lane.ports:
                self._waiter.add(port)
        return lane

    @property
    def next_deadline(self) -> float:
        """The time at which `poll` is due next if no message comes."""
        return min((lane.next_deadline for lane in self._lanes.values()), default=float("inf"))

    def poll(self) -> None:
        """Send waiting plans and read acknowledgements."""
        for lane in self._lanes.values():
            lane.poll()

    def reset(self, dp_rank: int) -> None:
        """Reset the lane of a rank that was lost."""
        lane = self._lanes.get(dp_rank)
        if lane is not None:
            lane.reset()

    def renew(self, dp_rank: int) -> None:
        """Note that a rank is up."""
        lane = self._lanes.get(dp_rank)
        if lane is not None:
            lane.renew()

    def close(self, end: float) -> None:
        """End all lanes, then wait for the workers' answers, at most until `end`."""
        for lane in self._lanes.values():
            lane.end()
        end = min(end, self._clock() + END_S)
        for lane in self._lanes.values():
            for port in lane.ports:
                self._waiter.remove(port)
            lane.close(max(0.0, end - self._clock()))
