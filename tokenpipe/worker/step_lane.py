"""Send step plans from an engine to its workers, for engines without a channel of their own.

A plan has new bindings with their token ids, and handles to free. A worker in lockstep gets a plan
for each step, another worker one for each change of its batch. It answers each free with a drained
row.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable

from tokenpipe.errors import FrameError, FrameTooLarge, LaneClosed, LaneFull, LaneLost
from tokenpipe.instance import Instance, OwnerGuard, step_lane, when_dropped
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
from tokenpipe.wire import StepPlan, join_messages, pack_message, unpack_control

from .publisher import check_rank

PLAN_BYTES = 1 << 26  # the most bytes of plans that a worker has not read
PLANS_PER_FRAME = 256
FRAME_SPARE = 1 << 10  # for the header and the names of fields, of a plan and of a frame
BIND_BYTES = 768  # of a binding with its parameters, without ids and texts
ENGINE = Role("engine", "0")


class StepLaneReader:
    """The worker's end of a StepLane.

    Make it before the Publisher: at `RankUp` the engine may send the first plan.
    """

    def __init__(
        self,
        endpoint: str | os.PathLike[str] | None,
        dp_rank: int,
        tp_rank: int,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Bind the step lane of (dp_rank, tp_rank)."""
        self._guard = OwnerGuard()
        self._instance = instance = Instance.attach(endpoint)
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
        """Return the plans that came, in order. Waits for the first one, at most `timeout_s`.

        Returns [] on a timeout, and once `ended` is set, because the engine closed the lane. Raises
        `LaneLost` if the engine died.
        """
        self._guard.check("StepLaneReader")
        if timeout_s <= 0 and not self._lane.is_due(self._clock()):
            return []  # the answer after most steps of a loop
        plans = self._read()
        if plans or self.ended or timeout_s <= 0:
            return plans
        deadline = self._clock() + timeout_s
        while not plans and not self.ended and (left := deadline - self._clock()) > 0:
            due_s = max(0.0, self._lane.next_deadline - self._clock())
            self._guard.wait(self._waiter.wait, min(left, due_s))
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
        self._guard.check_close("StepLaneReader")
        self._lane.close()
        self._instance.close()
        self._keep()


class StepLane:
    """The engine's end for one DP rank. Each plan goes to all of its TP ranks.

    `Pipeline.step_lane(dp_rank)` makes it and polls it. Plans wait for a worker that is not up yet.
    When the rank is lost, waiting plans are dropped. Workers of the rank that still live then get a
    plan with `reset`, because all their handles are dead.
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
        self._guard = OwnerGuard()
        self.dp_rank = dp_rank
        self._clock = clock
        self._ends = [
            _End(instance, dp_rank, tp_rank, clock)
            for tp_rank in range(topology.tensor_parallel_size)
        ]

    def send(self, plan: StepPlan) -> None:
        """Send a plan to all TP ranks. Never blocks.

        Raises `LaneFull` if a worker has 64 MiB of plans unread, `FrameTooLarge` for a single
        plan that is larger, and `LaneClosed`. Then no TP rank gets the plan.
        """
        self._guard.check("StepLane")
        size = _most_bytes(plan)
        for end in self._ends:
            end.check(size)
        packed = pack_message(plan)  # once for all TP ranks
        for end in self._ends:
            end.add(packed)

    @property
    def unread(self) -> int:
        """How many plans, or frames of plans, the slowest TP rank has not read."""
        return max(end.lane.unacked_frames + end.waiting for end in self._ends)

    @property
    def ports(self) -> list[Port]:
        """The ports to wait on."""
        return [end.lane.port for end in self._ends]

    @property
    def next_deadline(self) -> float:
        """When `poll` is due next, if no message comes."""
        return min(end.lane.next_deadline for end in self._ends)

    def poll(self) -> None:
        """Say hello, read acknowledgements, and send waiting plans."""
        self._guard.check("StepLane")
        for end in self._ends:
            end.poll()

    def reset(self) -> None:
        """Drop waiting plans, and tell the workers that still live to drop their batch."""
        for end in self._ends:
            end.reset()

    def renew(self) -> None:
        """The rank is up: the next plans are for the workers that live now."""
        for end in self._ends:
            end.lane.doubt()

    def end(self) -> None:
        """Tell the workers that no plan follows. They see `ended` after the last plan."""
        for end in self._ends:
            end.end()

    def close(self, timeout_s: float = 0.0) -> None:
        """End the lane, and wait at most `timeout_s` until all workers have read it."""
        self._guard.check_close("StepLane")
        self.end()
        deadline = self._clock() + timeout_s
        for end in self._ends:
            end.close(deadline)


class _End:
    """The lane of one TP rank, and the plans that wait for it."""

    def __init__(
        self, instance: Instance, dp_rank: int, tp_rank: int, clock: Callable[[], float]
    ) -> None:
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._last = False  # no plan follows the waiting ones
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
        """How many plans are not sent yet."""
        return len(self._waiting)

    def check(self, size: int) -> None:
        """Raise if the lane cannot take a plan of at most `size` bytes."""
        lane = self.lane.port.lane
        if self._last or self.lane.ending:
            raise LaneClosed(f"lane {lane} was ended")
        if size > PLAN_BYTES - FRAME_SPARE:
            raise FrameTooLarge(f"lane {lane}: a plan of {size} bytes, the limit is {PLAN_BYTES}")
        unread = self.lane.unacked_bytes + self._waiting_bytes
        if unread + size > PLAN_BYTES - FRAME_SPARE:
            raise LaneFull(f"lane {lane}: the worker has not read {unread} bytes of plans")

    def add(self, plan: bytes) -> None:
        """Send a packed plan, or let it wait."""
        self._waiting.append(plan)
        self._waiting_bytes += len(plan)
        self.poll()

    def reset(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0
        if self.lane.receiver and not self._last:  # else no worker has a batch to drop
            self.lane.doubt()
            self.add(pack_message(StepPlan(0, reset=True)))

    def poll(self) -> None:
        lane = self.lane
        lane.poll()
        while self._waiting and lane.ready and not lane.ending:
            room = lane.room - FRAME_SPARE
            plans: list[bytes] = []
            size = 0
            for plan in self._waiting:
                if size + len(plan) > room or len(plans) == PLANS_PER_FRAME:
                    break
                plans.append(plan)
                size += len(plan)
            if not plans:
                return
            lane.send(join_messages(lane.next_header, plans))
            for _ in plans:
                self._waiting_bytes -= len(self._waiting.popleft())
        if self._last and not self._waiting:
            lane.end()

    def end(self) -> None:
        self._last = True
        self.poll()

    def close(self, deadline: float) -> None:
        if self._waiting:
            self._send_waiting(deadline)
        self.lane.close(max(0.0, deadline - self._clock()))

    def _send_waiting(self, deadline: float) -> None:
        """Send the waiting plans, or drop them at the deadline."""
        lane, waiter = self.lane, Waiter()
        waiter.add(lane.port)
        while self._waiting and not lane.lost and (left := deadline - self._clock()) > 0:
            waiter.wait(min(left, max(0.0, lane.next_deadline - self._clock())))
            self.poll()
        waiter.close()
        self._waiting.clear()


def _most_bytes(plan: StepPlan) -> int:
    """Return the most bytes of a plan on the wire. A handle has at most 9 bytes, a token id 5."""
    size = FRAME_SPARE + len(plan.extra) + 9 * len(plan.frees)
    for bind in plan.binds:
        ids = len(bind.prompt_token_ids) + len(bind.output_token_ids)
        ids += len(bind.params.stop_token_ids)
        size += BIND_BYTES + 5 * ids + len(bind.extra)
        size += sum(4 * len(text) + 5 for text in bind.params.stop)  # UTF-8
    return size
