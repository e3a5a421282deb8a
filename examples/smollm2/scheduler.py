"""Continuous batching with a limited KV cache: an engine's decisions, from tokenpipe's events.

Each plan is one step of a rank, so the scheduler counts lengths: a running request has one token
more after each plan. If the next step would not fit into the cache, the youngest is preempted.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tokenpipe import (
    Aborted,
    AbortRequested,
    Event,
    Finished,
    Pipeline,
    PrefillDone,
    RankLost,
    RankUp,
    Request,
    Rescheduled,
    StepBind,
    StepPlan,
    Submitted,
)

HEADROOM_STEPS = 8  # room for all that run; else a new request is preempted at once


@dataclass(slots=True)
class Running:
    """A bound request: its slot, and how many tokens it has there."""

    request: Request
    handle: int
    slot: int
    length: int
    end: int  # its length at `max_tokens`


@dataclass(slots=True)
class Rank:
    """One DP rank's slots."""

    free: list[int] = field(default_factory=list)
    running: dict[int, Running] = field(default_factory=dict)  # by handle, oldest first
    leaving: dict[int, Running] = field(default_factory=dict)  # preempted, not yet handed back
    frees: list[int] = field(default_factory=list)  # handles that the next plan frees
    plans: int = 0

    @property
    def used(self) -> int:
        """Return how many tokens the cache must hold after the next step."""
        return sum(min(one.length + 1, one.end) for one in self.running.values())


class Scheduler:
    """First come, first served, at the rank with the most room. Preempted requests go first."""

    def __init__(self, pipe: Pipeline, kv_tokens: int, room: int) -> None:
        """Schedule `pipe` with `kv_tokens` tokens of cache for each rank, `room` for each slot."""
        self._pipe = pipe
        self._kv_tokens = kv_tokens
        self._room = min(room, kv_tokens)
        self._waiting: deque[tuple[Request, list[int]]] = deque()
        self._ranks = {dp: Rank() for dp in range(pipe.topology.data_parallel_size)}
        self.counts: Counter[str] = Counter()

    @property
    def busy(self) -> bool:
        """Whether a request runs, waits or leaves."""
        return bool(self._waiting) or any(
            r.running or r.frees or r.leaving for r in self._ranks.values()
        )

    def take(self, events: Iterable[Event]) -> None:
        """Handle the pipeline's events."""
        for event in events:
            self.counts[type(event).__name__] += 1
            match event:
                case Submitted(request):
                    self._submitted(request)
                case Rescheduled(request, handle, _, ids) | PrefillDone(request, handle, ids):
                    self._over(handle)
                    self._waiting.appendleft((request, ids))
                case Finished(_, handle):
                    self._over(handle)
                case Aborted(request, handle):
                    self._forget(request)
                    self._over(handle)
                case AbortRequested(request):
                    self._abort(request)
                case RankUp(dp):
                    self._ranks[dp] = Rank(free=list(range(self._pipe.topology.slots_per_rank)))
                case RankLost(dp):
                    self._ranks[dp] = Rank()  # what ran there comes back as Rescheduled

    def plan(self, dp: int) -> StepPlan | None:
        """Send a rank's commands and return its next step; None if it has nothing to do."""
        rank = self._ranks[dp]
        binds: list[StepBind] = []
        with self._pipe.commands(dp) as commands:
            while rank.used > self._kv_tokens:
                handle, youngest = rank.running.popitem()
                commands.preempt(handle)
                rank.leaving[handle] = youngest
                rank.frees.append(handle)
                self.counts["preempted"] += 1
            while self._waiting and rank.free and dp == self._roomiest():
                request, ids = self._waiting[0]
                length = len(request.prompt_token_ids) + len(ids)
                ahead = HEADROOM_STEPS * (len(rank.running) + 1)
                if rank.running and rank.used + length + ahead > self._kv_tokens:
                    break
                self._waiting.popleft()
                slot = min(rank.free)
                rank.free.remove(slot)
                handle = commands.bind(request, slot)
                end = len(request.prompt_token_ids) + request.params.max_tokens
                rank.running[handle] = Running(request, handle, slot, length, end)
                binds.append(commands.step_bind(handle))
        if not rank.running and not rank.frees:
            return None
        for one in rank.running.values():
            one.length = min(one.length + 1, one.end)
        rank.plans += 1
        frees, rank.frees = tuple(rank.frees), []
        return StepPlan(rank.plans, tuple(binds), frees, steps=1)

    def _submitted(self, request: Request) -> None:
        if len(request.prompt_token_ids) + request.params.max_tokens > self._room:
            self._pipe.reject(request, f"prompt and max_tokens together exceed {self._room}")
        else:
            self._waiting.append((request, []))

    def _roomiest(self) -> int:
        up = [dp for dp, rank in self._ranks.items() if rank.free]
        return min(up, key=lambda dp: self._ranks[dp].used, default=-1)

    def _over(self, handle: int | None) -> None:
        """Take an outcome: the slot may be bound again, the next plan frees the handle first."""
        for rank in self._ranks.values():
            one = rank.running.pop(handle or 0, None)
            if one is not None:
                rank.frees.append(one.handle)
            else:
                one = rank.leaving.pop(handle or 0, None)
            if one is not None:
                rank.free.append(one.slot)

    def _abort(self, request: Request) -> None:
        dp = next((dp for dp, one in self._everyone() if one.request == request), 0)
        with self._pipe.commands(dp) as commands:
            commands.abort(request)

    def _everyone(self) -> Iterator[tuple[int, Running]]:
        for dp, rank in self._ranks.items():
            for one in (*rank.running.values(), *rank.leaving.values()):
                yield dp, one

    def _forget(self, request: Request) -> None:
        self._waiting = deque(entry for entry in self._waiting if entry[0] != request)
