"""A small model of a Pipeline and its workers, for tests of what schedules on top of them."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tokenpipe.bench.oracle import sequence
from tokenpipe.bench.oracle_batch import OracleBatch
from tokenpipe.engine import Scheduler
from tokenpipe.events import (
    Aborted,
    Event,
    Finished,
    RankLost,
    RankUp,
    Released,
    Rescheduled,
    Submitted,
)
from tokenpipe.types import (
    ErrorCode,
    FinishReason,
    Request,
    RescheduleReason,
    SamplingParams,
    make_handle,
)
from tokenpipe.wire import StepBind, StepPlan


@dataclass
class Rank:
    """A worker that runs on by itself, and what its processor knows of its handles."""

    dp: int
    batch: OracleBatch = field(default_factory=OracleBatch)
    states: dict[int, str] = field(default_factory=dict)
    requests: dict[int, Request] = field(default_factory=dict)
    generations: dict[int, int] = field(default_factory=dict)
    drained: list[int] = field(default_factory=list)
    up: bool = True

    def send(self, plan: StepPlan) -> None:
        if self.up:
            self.batch.change(plan.binds, plan.frees)
            self.drained += plan.frees


class Model:
    """Pipeline, processors and workers in a page."""

    def __init__(self, ranks: int) -> None:
        self.ranks = [Rank(dp) for dp in range(ranks)]
        self.events: deque[Event] = deque(RankUp(rank.dp, 1) for rank in self.ranks)
        self.output: dict[int, list[int]] = {}
        self.bound: dict[int, tuple[Rank, int]] = {}
        self.ended: set[int] = set()

    def submit(self, key: int, max_tokens: int) -> Request:
        request = Request(key, f"r{key}", 0, (), SamplingParams(max_tokens=max_tokens))
        self.output[key] = []
        self.events.append(Submitted(request))
        return request

    @contextmanager
    def commands(self, dp_rank: int) -> Iterator[Model]:
        self.rank = self.ranks[dp_rank]
        yield self

    def bind(self, request: Request, slot: int) -> int:
        rank = self.rank
        assert request.internal_id not in self.bound
        for handle, state in rank.states.items():
            if handle >> 35 & 0xFFFF == slot:
                assert state in ("lingering", "aborting"), "bound to a slot that is not free"
        rank.generations[slot] = rank.generations.get(slot, 0) + 1
        handle = make_handle(rank.dp, slot, rank.generations[slot])
        rank.states[handle], rank.requests[handle] = "running", request
        self.bound[request.internal_id] = (rank, handle)
        if not rank.up:
            self.lose_binding(rank, handle)
        return handle

    def step_bind(self, handle: int) -> StepBind:
        request = self.rank.requests[handle]
        ids = tuple(self.output[request.internal_id])
        most = request.params.max_tokens
        return StepBind(handle, request.internal_id, len(ids), (), ids, most)

    def preempt(self, handle: int) -> None:
        if self.rank.states.get(handle) == "running":
            self.rank.states[handle] = "preempting"

    def abort(self, request: Request) -> None:
        if request.internal_id in self.bound:
            rank, handle = self.bound.pop(request.internal_id)
            rank.states[handle] = "aborting"
            got = len(self.output[request.internal_id])
            self.events.append(Aborted(request, handle, got))
        elif request.internal_id not in self.ended:
            self.events.append(Aborted(request, None, len(self.output[request.internal_id])))
        self.ended.add(request.internal_id)

    def reject(self, request: Request, error: str, code: ErrorCode) -> None:
        raise AssertionError(f"{request.external_id}: {error}")

    def run(self, rank: Rank) -> None:
        rows = rank.batch.step()
        for handle, token in zip(rows.handles.tolist(), rows.tokens.tolist(), strict=True):
            if rank.states.get(handle) in ("running", "preempting"):
                request = rank.requests[handle]
                output = self.output[request.internal_id]
                output.append(token)
                if len(output) == request.params.max_tokens:
                    self.end(rank, handle, "lingering")
                    self.ended.add(request.internal_id)
                    length = FinishReason.LENGTH
                    self.events.append(Finished(request, handle, length, len(output)))
        drained, rank.drained = rank.drained, []
        for handle in drained:
            request = rank.requests[handle]
            if handle not in rank.states:
                continue  # of a worker that is gone
            if rank.states[handle] == "preempting":
                self.reschedule(rank, handle, RescheduleReason.PREEMPTED)
            assert rank.states.pop(handle) != "running", "freed, but nobody said why"
            self.events.append(Released(request, handle, "drained"))

    def end(self, rank: Rank, handle: int, state: str) -> None:
        rank.states[handle] = state
        self.bound.pop(rank.requests[handle].internal_id, None)

    def reschedule(self, rank: Rank, handle: int, reason: RescheduleReason) -> None:
        self.end(rank, handle, "lingering")
        request = rank.requests[handle]
        ids = list(self.output[request.internal_id])
        self.events.append(Rescheduled(request, handle, reason, ids))

    def lose(self, rank: Rank) -> None:
        self.events.append(RankLost(rank.dp, "killed"))
        for handle in list(rank.states):
            self.lose_binding(rank, handle)
        rank.batch, rank.drained, rank.up = OracleBatch(), [], False

    def lose_binding(self, rank: Rank, handle: int) -> None:
        if rank.states[handle] in ("running", "preempting"):
            self.reschedule(rank, handle, RescheduleReason.RANK_LOST)
        del rank.states[handle]
        self.events.append(Released(rank.requests[handle], handle, "rank_lost"))

    def restart(self, rank: Rank) -> None:
        rank.up = True
        self.events.append(RankUp(rank.dp, 2))

    def take(self, rng: random.Random) -> list[Event]:
        """Hand over some of the events, as a poll may."""
        return [self.events.popleft() for _ in range(rng.randint(0, len(self.events)))]


Disturb = Callable[[Model, int], None]


def play(
    model: Model,
    scheduler: Scheduler,
    seed: int,
    *,
    requests: int = 60,
    disturb: Disturb = lambda model, turn: None,
    at: Callable[[float], None] = lambda seconds: None,
) -> None:
    """Run until each request has ended; `disturb` is called in each turn, `at` with its time."""
    rng = random.Random(seed)
    for key in range(1, requests + 1):
        model.submit(key, rng.randint(1, 30))
    for turn in range(20_000):
        at(turn / 1000)
        scheduler.handle(model.take(rng))
        scheduler.schedule()
        model.run(rng.choice(model.ranks))
        disturb(model, turn)
        if scheduler.idle and not model.events:
            return
    raise AssertionError(f"still busy: {scheduler.counts}")


def check(model: Model, complete: set[int]) -> None:
    for key, output in model.output.items():
        assert output == sequence(key, 0, len(output)), f"request {key}"
    assert not model.bound and not any(rank.states for rank in model.ranks)
    assert complete <= {key for key, output in model.output.items() if output}
