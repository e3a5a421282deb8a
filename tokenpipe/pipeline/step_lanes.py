"""Keep the step lanes that the engine asked for going."""

from __future__ import annotations

from collections.abc import Callable

from tokenpipe.instance import Instance
from tokenpipe.topology import Topology
from tokenpipe.transport import Waiter
from tokenpipe.worker import StepLane

END_S = 0.5  # for all workers to hear that no plan follows


class StepLanes:
    """One `StepLane` a DP rank, made when it is first asked for."""

    def __init__(
        self, instance: Instance, topology: Topology, waiter: Waiter, clock: Callable[[], float]
    ) -> None:
        """Make none yet; the ports of those that are made stand in `waiter`."""
        self._instance = instance
        self._topology = topology
        self._waiter = waiter
        self._clock = clock
        self._lanes: dict[int, StepLane] = {}

    def of(self, dp_rank: int) -> StepLane:
        """Return the lane of a DP rank. Raises `ConfigError` for a rank that there is not."""
        lane = self._lanes.get(dp_rank)
        if lane is None:
            lane = StepLane(self._instance, self._topology, dp_rank, clock=self._clock)
            self._lanes[dp_rank] = lane
            for port in lane.ports:
                self._waiter.add(port)
        return lane

    @property
    def next_deadline(self) -> float:
        """When `poll` is due next without anything having come."""
        return min((lane.next_deadline for lane in self._lanes.values()), default=float("inf"))

    def poll(self) -> None:
        """Send what waits, read acknowledgements."""
        for lane in self._lanes.values():
            lane.poll()

    def reset(self, dp_rank: int) -> None:
        """Have a lost rank begin anew."""
        lane = self._lanes.get(dp_rank)
        if lane is not None:
            lane.reset()

    def renew(self, dp_rank: int) -> None:
        """Hear that a rank is up."""
        lane = self._lanes.get(dp_rank)
        if lane is not None:
            lane.renew()

    def close(self, end: float) -> None:
        """End all at once, then wait for the workers' word together, at most until `end`."""
        for lane in self._lanes.values():
            lane.end()
        end = min(end, self._clock() + END_S)
        for lane in self._lanes.values():
            for port in lane.ports:
                self._waiter.remove(port)
            lane.close(max(0.0, end - self._clock()))
