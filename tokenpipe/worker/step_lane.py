"""Carry what to run next from an engine to its workers, for engines without a channel of their own.

One message per step and rank, or, for a worker that runs on by itself, one per change of its
batch: bindings with token ids, and handles to free. The worker answers a free with a drained row.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable

from tokenpipe.errors import FrameError, FrameTooLarge, LaneClosed, LaneFull, LaneLost
from tokenpipe.instance import ForkGuard, Instance, step_lane, when_dropped
from tokenpipe.topology import Topology
from tokenpipe.transport import (
    Gap,
    Peer,
    PeerDown,
    PeerEnded,
    Port,
    Role,
    Waiter,
    new_incarnation,
    open_receiver,
    open_sender,
)
from tokenpipe.wire import StepPlan, pack_control, unpack_control

from .publisher import check_rank

PLAN_BYTES = 1 << 26  # plans that a worker has not taken
PLANS_PER_FRAME = 256
FRAME_SPARE = 1 << 10  # names of fields and header, of a plan and of a frame
BIND_BYTES = 768  # the parameters included
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
        self._keep = when_dropped(self, f"StepLaneReader {rank}", self._lane.close)
        self.ended = False

    def recv(self, timeout_s: float = 0.0) -> list[StepPlan]:
        """Return the plans that came, in order; waits for the first up to `timeout_s`.

        [] on a timeout, and once `ended` is set (the engine closed the lane). Raises `LaneLost`
        when the engine died.
        """
        self._guard.check("StepLane")
        if timeout_s <= 0 and not self._lane.is_due(self._clock()):
            return []  # what a forward loop hears after most of its steps
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
        for change in lane.peer_events():
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
        self._keep()


class StepLane:
    """The engine's end for one DP rank: every plan goes to each of its TP ranks.

    `Pipeline.step_lane(dp_rank)` makes it and keeps it going. Plans sent while a worker is not yet
    there wait for it. When the rank is lost, what waits is dropped, and workers of it that still
    live get a plan with `reset`: all their handles are dead.
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
        check_rank(topology, dp_rank, 0)
        self.dp_rank = dp_rank
        self._clock = clock
        self._ends = [
            _End(instance, dp_rank, tp_rank, clock)
            for tp_rank in range(topology.tensor_parallel_size)
        ]

    def send(self, plan: StepPlan) -> None:
        """Send a plan to every TP rank; never blocks.

        Raises `LaneFull` where a worker has 64 MiB unread, `FrameTooLarge` for a plan that alone
        is larger, `LaneClosed`; then no TP rank gets it.
        """
        size = _most_bytes(plan)
        for end in self._ends:
            end.check(size)
        for end in self._ends:
            end.add(plan, size)

    @property
    def unread(self) -> int:
        """Plans, or frames of them, that the slowest TP rank has not taken."""
        return max(end.lane.unacked_frames + end.waiting for end in self._ends)

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
            end.poll()

    def reset(self) -> None:
        """Have the rank begin anew: drop what waits, and tell workers that still live."""
        for end in self._ends:
            end.reset()

    def renew(self) -> None:
        """Hear that the rank is up: what follows is for the workers that are there now."""
        for end in self._ends:
            end.lane.doubt()

    def end(self) -> None:
        """Say that no plan follows: the workers see `ended` once they have the last one."""
        for end in self._ends:
            end.end()

    def close(self, timeout_s: float = 0.0) -> None:
        """End the lane: the workers see `ended`; waits for their word at most `timeout_s`."""
        self.end()
        deadline = self._clock() + timeout_s
        for end in self._ends:
            end.close(deadline)


class _End:
    """One TP rank's lane and the plans that wait for it."""

    def __init__(
        self, instance: Instance, dp_rank: int, tp_rank: int, clock: Callable[[], float]
    ) -> None:
        self._waiting: deque[tuple[StepPlan, int]] = deque()
        self._waiting_bytes = 0
        self._last = False  # no plan follows those that wait
        self._clock = clock
        self.lane = open_sender(
            instance,
            step_lane(dp_rank, tp_rank),
            me=Peer(*ENGINE, new_incarnation()),
            to=Role("worker", f"{dp_rank}.{tp_rank}"),
            bound_bytes=PLAN_BYTES,
            clock=clock,
        )

    @property
    def waiting(self) -> int:
        """Plans that are not sent yet."""
        return len(self._waiting)

    def check(self, size: int) -> None:
        """Raise where a plan of at most `size` bytes cannot be taken."""
        lane = self.lane.port.lane
        if self._last or self.lane.ending:
            raise LaneClosed(f"lane {lane} was ended")
        if size > PLAN_BYTES - FRAME_SPARE:
            raise FrameTooLarge(f"lane {lane}: a plan of {size} bytes, {PLAN_BYTES} is the bound")
        unread = self.lane.unacked_bytes + self._waiting_bytes
        if unread + size > PLAN_BYTES - FRAME_SPARE:
            raise LaneFull(f"lane {lane}: the worker has not read {unread} bytes of plans")

    def add(self, plan: StepPlan, size: int) -> None:
        self._waiting.append((plan, size))
        self._waiting_bytes += size
        self.poll()

    def reset(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0
        if self.lane.receiver and not self._last:  # else nobody has anything to forget
            self.lane.doubt()
            self.add(StepPlan(0, reset=True), FRAME_SPARE)

    def poll(self) -> None:
        lane = self.lane
        lane.poll()
        while self._waiting and lane.ready and not lane.ending:
            room = lane.room - FRAME_SPARE
            plans: list[StepPlan] = []
            size = 0
            for plan, plan_size in self._waiting:
                if size + plan_size > room or len(plans) == PLANS_PER_FRAME:
                    break
                plans.append(plan)
                size += plan_size
            if not plans:
                return
            lane.send(pack_control(lane.next_header, plans))
            for _ in plans:
                self._waiting_bytes -= self._waiting.popleft()[1]
        if self._last and not self._waiting:
            lane.end()

    def end(self) -> None:
        self._last = True
        self.poll()

    def close(self, deadline: float) -> None:
        if self._waiting:
            self._flush(deadline)
        self.lane.close(max(0.0, deadline - self._clock()))

    def _flush(self, deadline: float) -> None:
        """Send what waits, or drop it at the deadline."""
        lane, waiter = self.lane, Waiter()
        waiter.add(lane.port)
        while self._waiting and not lane.lost and (left := deadline - self._clock()) > 0:
            waiter.wait(min(left, max(0.0, lane.next_deadline - self._clock())))
            self.poll()
        waiter.close()
        self._waiting.clear()


def _most_bytes(plan: StepPlan) -> int:
    """Return what a plan takes at most on the wire: 9 bytes a handle, 5 a token id."""
    size = FRAME_SPARE + len(plan.extra) + 9 * len(plan.frees)
    for bind in plan.binds:
        ids = len(bind.prompt_token_ids) + len(bind.output_token_ids)
        ids += len(bind.params.stop_token_ids)
        size += BIND_BYTES + 5 * ids + len(bind.extra)
        size += sum(4 * len(text) + 5 for text in bind.params.stop)  # UTF-8
    return size
