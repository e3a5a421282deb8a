"""Carry what to run next from an engine to its workers, for engines without a channel of their own.

One message per step and rank, or, for a worker that runs on by itself, one per change of its
batch: bindings with token ids, and handles to free. The worker answers a free with a drained row.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable

from tokenpipe.errors import FrameError, LaneLost
from tokenpipe.topology import Topology
from tokenpipe.transport import (
    ForkGuard,
    Gap,
    Instance,
    Peer,
    PeerDown,
    PeerEnded,
    Port,
    Role,
    Waiter,
    new_incarnation,
    open_receiver,
    open_sender,
    step_lane,
)
from tokenpipe.wire import LaneHeader, StepPlan, pack_control, unpack_control

from .publisher import check_rank

PLAN_BYTES = 1 << 26  # plans that a worker has not taken
ENGINE = Role("engine", "0")


class StepLaneReader:
    """A worker rank's end: make it before the Publisher, so that it is there at RankUp."""

    def __init__(
        self,
        endpoint: str | os.PathLike[str] | None,
        dp_rank: int,
        tp_rank: int,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Bind the step lane of (dp_rank, tp_rank)."""
        self._guard = ForkGuard()
        instance = Instance.attach(endpoint)
        topology = Topology.from_json_dict(instance.info["topology"])
        check_rank(topology, dp_rank, tp_rank)
        rank = f"{dp_rank}.{tp_rank}"
        self._lane = open_receiver(
            instance,
            step_lane(dp_rank, tp_rank),
            me=Peer("worker", rank, new_incarnation()),
            expects=ENGINE,
            max_frame_bytes=PLAN_BYTES,
            hold_bytes=PLAN_BYTES,
            gap_timeout_s=topology.timeouts.gap_s,
            clock=clock,
        )
        self._clock = clock
        self._waiter = Waiter()
        self._waiter.add(self._lane.port)
        self.ended = False

    def recv(self, timeout_s: float = 0.0) -> list[StepPlan]:
        """Return the plans that came, in order; waits for the first up to `timeout_s`.

        [] on a timeout, and once `ended` is set (the engine closed the lane). Raises `LaneLost`
        when the engine died.
        """
        self._guard.check("StepLane")
        plans = self._read()
        if plans or self.ended or timeout_s <= 0:
            return plans
        deadline = self._clock() + timeout_s
        while not plans and not self.ended and (left := deadline - self._clock()) > 0:
            self._waiter.wait(min(left, max(0.0, self._lane.next_deadline - self._clock())))
            plans = self._read()
        return plans

    def _read(self) -> list[StepPlan]:
        lane = self._lane
        plans: list[StepPlan] = []
        for change in lane.changes():
            if isinstance(change, PeerEnded):
                self.ended = True
            elif isinstance(change, PeerDown) and not self.ended:
                raise LaneLost(f"step lane: {change.reason}")
        for item in lane.recv():
            if isinstance(item, Gap):
                raise LaneLost(f"step lane: plans {item} are lost for good")
            try:
                messages = unpack_control(item)[1]
            except FrameError as error:
                raise LaneLost(f"step lane: a plan could not be read: {error}") from error
            plans.extend(m for m in messages if isinstance(m, StepPlan))
        lane.applied()
        lane.tick(self._clock())
        return plans

    def close(self) -> None:
        """Close this end."""
        self._lane.close()


class StepLane:
    """The engine's end for one DP rank: every plan goes to each of its TP ranks.

    `Pipeline.step_lane(dp_rank)` makes it and keeps it going; plans sent while a worker is not
    yet there wait for it, plans for a rank that is lost are dropped with it.
    """

    @staticmethod
    def worker(
        endpoint: str | os.PathLike[str] | None = None, dp_rank: int = 0, tp_rank: int = 0
    ) -> StepLaneReader:
        """Open the worker's end."""
        return StepLaneReader(endpoint, dp_rank, tp_rank)

    def __init__(
        self,
        instance: Instance,
        topology: Topology,
        dp_rank: int,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.dp_rank = dp_rank
        self._instance = instance
        self._topology = topology
        self._clock = clock
        self._ends = self._make_ends()

    def _make_ends(self) -> list[_End]:
        tp_ranks = range(self._topology.tensor_parallel_size)
        return [_End(self._instance, self.dp_rank, tp, self._clock) for tp in tp_ranks]

    def send(self, plan: StepPlan) -> None:
        """Send a plan to every TP rank; never blocks. Raises `LaneFull` past 64 MiB unread."""
        for end in self._ends:
            end.waiting.append(plan)
            end.poll(self._instance.id)

    @property
    def ports(self) -> list[Port]:
        """What to wait on."""
        return [end.lane.port for end in self._ends]

    @property
    def next_deadline(self) -> float:
        """When `poll` is due next without anything having come."""
        return min(end.lane.next_deadline for end in self._ends)

    def poll(self) -> None:
        """Greet, read acknowledgements, send what waited."""
        for end in self._ends:
            end.poll(self._instance.id)

    def end(self) -> None:
        """Say that no plan follows: the workers see `ended` once they have the last one."""
        for end in self._ends:
            end.lane.end()

    def reset(self) -> None:
        """Begin anew, for the rank's next life."""
        self.close()
        self._ends = self._make_ends()

    def close(self, timeout_s: float = 0.0) -> None:
        """End the lane: the workers see `ended`."""
        for end in self._ends:
            end.lane.close(timeout_s)


class _End:
    """One TP rank's lane and the plans that wait for it."""

    def __init__(
        self, instance: Instance, dp_rank: int, tp_rank: int, clock: Callable[[], float]
    ) -> None:
        self.me = Peer(*ENGINE, new_incarnation())
        self.waiting: deque[StepPlan] = deque()
        self.lane = open_sender(
            instance,
            step_lane(dp_rank, tp_rank),
            me=self.me,
            to=Role("worker", f"{dp_rank}.{tp_rank}"),
            bound_bytes=PLAN_BYTES,
            clock=clock,
        )

    def poll(self, instance_id: int) -> None:
        lane = self.lane
        lane.poll()
        if lane.ready and self.waiting:
            plans = list(self.waiting)
            header = LaneHeader(instance_id, self.me.incarnation, lane.receiver, lane.next_seq)
            lane.send(pack_control(header, plans))
            self.waiting.clear()
