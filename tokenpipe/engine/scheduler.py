"""The reference scheduler: a waiting queue, slots in each rank, continuous batching.

It uses a Pipeline, its events and its step lanes, as a scheduler of your own does.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Literal

from tokenpipe.events import (
    Aborted,
    AbortRequested,
    Event,
    Finished,
    PrefillDone,
    RankLost,
    RankUp,
    Released,
    Rescheduled,
    Submitted,
)
from tokenpipe.types import ErrorCode, Request, RescheduleReason, split_handle
from tokenpipe.wire import StepBind, StepPlan

from .rank_outages import RankOutages
from .scheduler_protocols import PlanSender, SchedulerPipe
from .waiting_queue import Placed, WaitingQueue

RANK_GONE = (RescheduleReason.RANK_LOST, RescheduleReason.RANK_CLOSED)
LOST = "the worker that ran it was lost"


@dataclass(slots=True)
class BoundRequest:
    """A request in a slot, from its bind to its release."""

    request: Request
    dp: int
    slot: int
    handle: int
    freed: bool = False  # a plan frees the handle
    over: bool = False  # the outcome came
    returned: bool = False  # the slot is free again


@dataclass(slots=True)
class _Orders:
    """The orders for one rank in the next `schedule`."""

    preempts: list[BoundRequest] = field(default_factory=list)
    aborts: list[Request] = field(default_factory=list)
    frees: list[int] = field(default_factory=list)


class Scheduler:
    """Bind waiting requests to free slots, in the order of their arrival, to the emptiest rank.

    Requests of a rank that was lost come before all others.

    Args:
        pipe: the Pipeline.
        lanes: the step lane of each DP rank.
        slots: slots of a rank.
        patience_s: requests are rejected if no rank that may serve them is up for this time. None:
            they wait for ever.
        lost_rank: requests of a lost rank are bound to another rank, or wait while none is up
            ("move"), wait for this rank ("wait"), or are rejected ("end").
        max_queued: so many requests may wait while no slot is free. Others are rejected. None is no
            bound.
        clock: the time, in seconds.
    """

    def __init__(
        self,
        pipe: SchedulerPipe,
        lanes: Mapping[int, PlanSender],
        *,
        slots: int,
        patience_s: float | None = None,
        lost_rank: Literal["move", "wait", "end"] = "move",
        max_queued: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pipe = pipe
        self._lanes = lanes
        self._slots = slots
        self._lost_rank = lost_rank
        self._clock = clock
        self._outages = RankOutages(lanes, patience_s, clock())
        self._max_queued = max_queued
        self._rejected: list[tuple[Request, str, ErrorCode]] = []  # `schedule` tells the Pipeline
        self._waiting = WaitingQueue()
        self._bindings: dict[int, BoundRequest] = {}  # by handle, until released
        self._running: dict[int, BoundRequest] = {}  # by request, until its outcome
        self._free: dict[int, list[int]] = {}  # free slots of the ranks that are up
        self._orders: defaultdict[int, _Orders] = defaultdict(_Orders)
        self._plans = count(1)
        self.counts: Counter[str] = Counter()

    @property
    def idle(self) -> bool:
        """Whether no request waits and all handles are released."""
        return not (self._waiting or self._bindings or self._rejected)

    @property
    def unreleased(self) -> int:
        """How many handles are not released yet."""
        return len(self._bindings)

    @property
    def waiting(self) -> int:
        """How many requests wait for a slot."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """How many requests have a slot, and no outcome yet."""
        return len(self._running)

    @property
    def ranks_up(self) -> tuple[int, ...]:
        """The DP ranks that are up."""
        return tuple(sorted(self._free))

    def handle(self, events: Iterable[Event]) -> None:
        """Take events of the Pipeline. What follows from them is sent by `schedule`."""
        for event in events:
            self.counts[type(event).__name__] += 1
            match event:
                case Submitted(request):
                    self._submitted(request)
                case AbortRequested(request):
                    self.abort(request)
                case Rescheduled(request, handle, reason, ids):
                    self.counts[f"rescheduled_{reason}"] += 1
                    self._outcome(handle)
                    if reason in RANK_GONE:
                        self._returned(request, handle, ids)
                    else:
                        self._waiting.add(request, ids)
                case PrefillDone(request, handle, ids):
                    self._outcome(handle)
                    self._waiting.add(request, ids)
                case Finished(request, handle):
                    self._outcome(handle)
                case Aborted(request):  # without a handle if the abort crossed a reschedule
                    self._waiting.remove(request.internal_id)
                    binding = self._running.get(request.internal_id)
                    self._outcome(binding.handle if binding else None)
                case Released(request, handle, reason):
                    self.counts[f"released_{reason}"] += 1
                    self._release(handle)
                case RankUp(dp_rank):
                    self._open(dp_rank)
                case RankLost(dp_rank):
                    self._free.pop(dp_rank, None)
                    self._outages.lost(dp_rank, self._clock())

    def schedule(self, grant: int | None = None) -> None:
        """Send each rank what is due: commands to its processor, and a plan to its workers.

        With `grant`, each rank that is up gets a plan, and its workers run so many steps.
        """
        self._rejected += self._waiting.take_expired(self._outages, self._clock())
        for rejected in self._rejected:
            self._pipe.reject(*rejected)
        self._rejected.clear()
        placed = self._waiting.place(self._free)
        for dp in sorted({*placed, *self._orders, *(self._free if grant else ())}):
            orders = self._orders.pop(dp, _Orders())
            binds = self._command(dp, orders, placed.get(dp, []))
            if binds or orders.frees or grant:
                frees = tuple(orders.frees)
                self._lanes[dp].send(StepPlan(next(self._plans), tuple(binds), frees, grant or 0))

    def _command(self, dp: int, orders: _Orders, placed: list[Placed]) -> list[StepBind]:
        binds: list[StepBind] = []
        if not (orders.preempts or orders.aborts or placed):
            return binds
        with self._pipe.commands(dp) as commands:
            for binding in orders.preempts:
                commands.preempt(binding.handle)
            for request in orders.aborts:
                commands.abort(request)
            for request, ids, slot in placed:
                handle = commands.bind(request, slot)  # the Pipeline has the ids so far
                self.bound(BoundRequest(request, dp, slot, handle), len(ids))
                binds.append(commands.step_bind(handle))
        return binds

    def _submitted(self, request: Request) -> None:
        room = self._max_queued
        if room is not None and self._free:
            room += sum(map(len, self._free.values()))  # so many get a slot with the next plan
        if room is not None and len(self._waiting) >= room:
            error = f"{self._max_queued} requests wait already"
            self._rejected.append((request, error, ErrorCode.UNAVAILABLE))
        else:
            self._waiting.add(request, [])

    def _returned(self, request: Request, handle: int, ids: list[int]) -> None:
        """Take a request of a rank that was lost."""
        if self._lost_rank == "end":
            self._rejected.append((request, LOST, ErrorCode.LOST))
        else:
            home = split_handle(handle)[0] if self._lost_rank == "wait" else None
            self._waiting.add_returned(request, ids, home)

    def bound(self, binding: BoundRequest, output_tokens: int) -> None:
        """Keep a new binding of a request, which has `output_tokens` so far.

        `schedule` calls this. A subclass may extend it.
        """
        self.counts["binds"] += 1
        self._bindings[binding.handle] = binding
        self._running[binding.request.internal_id] = binding

    def preempt(self, binding: BoundRequest) -> None:
        """Take a running request out of its slot. It waits again after its Rescheduled event.

        The next `schedule` sends this order. Without effect if a plan frees the handle already.
        """
        if not binding.freed:
            self._orders[binding.dp].preempts.append(binding)
            self._order_free(binding)

    def abort(self, request: Request) -> None:
        """Abort a request that waits or runs. The next `schedule` sends this order."""
        binding = self._running.get(request.internal_id)
        if binding is not None:
            self._orders[binding.dp].aborts.append(request)
            self._order_free(binding)
        elif self._waiting.remove(request.internal_id):
            self._orders[0].aborts.append(request)

    def _order_free(self, binding: BoundRequest) -> None:
        if not binding.freed:
            binding.freed = True
            self._orders[binding.dp].frees.append(binding.handle)

    def _outcome(self, handle: int | None) -> None:
        binding = self._bindings.get(handle or 0)
        if binding is None or binding.over:
            return
        binding.over = True
        self._running.pop(binding.request.internal_id, None)
        self._order_free(binding)
        self._give_back(binding)

    def _release(self, handle: int) -> None:
        binding = self._bindings.pop(handle, None)
        if binding is not None:
            self._give_back(binding)

    def _give_back(self, binding: BoundRequest) -> None:
        if not binding.returned and binding.dp in self._free:
            self._free[binding.dp].append(binding.slot)
        binding.returned = True

    def _open(self, dp: int) -> None:
        held = {b.slot for b in self._bindings.values() if b.dp == dp and not b.returned}
        self._outages.up(dp)
        self._free[dp] = [slot for slot in range(self._slots) if slot not in held]
