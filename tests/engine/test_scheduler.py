"""The scheduler completes every request, whatever it preempts, aborts or loses on the way.

A small model of pipeline and workers stands in for the real ones; a test of this kind over real
processes is the bench itself.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from tokenpipe.bench.oracle import sequence
from tokenpipe.bench.oracle_batch import OracleBatch
from tokenpipe.engine.scheduler import Scheduler
from tokenpipe.events import (
    Aborted,
    AbortRequested,
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
    up: bool = True

    def send(self, plan: StepPlan) -> None:
        if self.up:
            self.batch.change(plan.binds, plan.frees)


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
    def step(self, dp_rank: int) -> Iterator[Model]:
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
        for handle in rows.drained.tolist():
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
        rank.batch, rank.up = OracleBatch(), False

    def lose_binding(self, rank: Rank, handle: int) -> None:
        if rank.states[handle] in ("running", "preempting"):
            self.reschedule(rank, handle, RescheduleReason.RANK_LOST)
        del rank.states[handle]
        self.events.append(Released(rank.requests[handle], handle, "rank_lost"))

    def restart(self, rank: Rank) -> None:
        rank.up = True
        self.events.append(RankUp(rank.dp, 2))

    def take(self, chance: random.Random) -> list[Event]:
        """Hand over some of the events, as a poll may."""
        return [self.events.popleft() for _ in range(chance.randint(0, len(self.events)))]


Disturb = Callable[[Model, int], None]


def play(
    seed: int, *, ranks: int = 2, requests: int = 60, disturb: Disturb | None = None, **options: Any
) -> tuple[Model, Scheduler]:
    """Run until everything is done; returns the model and the scheduler, to be looked at."""
    chance = random.Random(seed)
    model = Model(ranks)
    lanes = {rank.dp: rank for rank in model.ranks}
    scheduler = Scheduler(model, lanes, slots=4, seed=seed, **options)
    for key in range(1, requests + 1):
        model.submit(key, chance.randint(1, 30))
    for turn in range(20_000):
        scheduler.handle(model.take(chance), turn / 1000)
        scheduler.schedule(turn / 1000)
        model.run(chance.choice(model.ranks))
        if disturb is not None:
            disturb(model, turn)
        if scheduler.idle and not model.events:
            return model, scheduler
    raise AssertionError(f"still busy: {scheduler.counts}")


def check(model: Model, complete: set[int]) -> None:
    for key, output in model.output.items():
        assert output == sequence(key, 0, len(output)), f"request {key}"
    assert not model.bound and not any(rank.states for rank in model.ranks)
    assert complete <= {key for key, output in model.output.items() if output}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("reuse_early", [True, False])
def test_every_request_completes_through_preemptions(seed: int, reuse_early: bool) -> None:
    model, scheduler = play(seed, preempt_rate=0.4, reuse_early=reuse_early)
    check(model, set(model.output))
    assert scheduler.counts["Finished"] == 60
    assert scheduler.counts["rescheduled_preempted"] > 3
    assert scheduler.counts["binds"] == 60 + scheduler.counts["Rescheduled"]


@pytest.mark.parametrize("seed", range(5))
def test_aborted_requests_have_their_outcome_too(seed: int) -> None:
    model, scheduler = play(seed, preempt_rate=0.3, abort_rate=0.3)
    check(model, set())
    assert scheduler.counts["Aborted"] > 3
    assert scheduler.counts["Finished"] + scheduler.counts["Aborted"] == 60


@pytest.mark.parametrize("seed", range(5))
def test_a_lost_rank_costs_no_request(seed: int) -> None:
    def disturb(model: Model, turn: int) -> None:
        if turn == 40:
            model.lose(model.ranks[1])
        if turn == 90:
            model.restart(model.ranks[1])

    model, scheduler = play(seed, preempt_rate=0.2, disturb=disturb)
    check(model, set(model.output))
    assert scheduler.counts["Finished"] == 60
    assert scheduler.counts["rescheduled_rank_lost"] > 0


def test_clients_may_give_up_waiting_running_and_ended_requests() -> None:
    def disturb(model: Model, turn: int) -> None:
        if turn == 20:
            for key in (1, 2, 3, 58, 59, 60):
                params = SamplingParams(max_tokens=30)
                model.events.append(AbortRequested(Request(key, f"r{key}", 0, (), params)))

    model, scheduler = play(1, disturb=disturb)
    check(model, set())
    assert scheduler.counts["Finished"] + scheduler.counts["Aborted"] == 60
    assert all(not model.output[key] for key in (58, 59, 60))


def test_a_grant_goes_to_every_rank_with_every_plan() -> None:
    sent: list[StepPlan] = []

    class Lane:
        def send(self, plan: StepPlan) -> None:
            sent.append(plan)

    scheduler = Scheduler(Model(2), {0: Lane(), 1: Lane()}, slots=4)
    scheduler.handle([RankUp(0, 1), RankUp(1, 1)], 0.0)
    scheduler.schedule(0.0)
    assert not sent
    scheduler.schedule(0.0, grant=8)
    assert [plan.steps for plan in sent] == [8, 8]


class Refusing(Model):
    def __init__(self, ranks: int) -> None:
        super().__init__(ranks)
        self.refused: list[tuple[int, str, ErrorCode]] = []

    def reject(self, request: Request, error: str, code: ErrorCode) -> None:
        self.refused.append((request.internal_id, error, code))
        self.ended.add(request.internal_id)


def test_requests_of_a_lost_rank_end_where_told_so() -> None:
    model = Refusing(2)
    lanes = {rank.dp: rank for rank in model.ranks}
    scheduler = Scheduler(model, lanes, slots=4, lost_rank="end")
    for key in range(1, 11):
        model.submit(key, 30)
    scheduler.handle(model.events, 0.0)
    model.events.clear()
    scheduler.schedule(0.0)
    lost = sorted(key for key, (rank, _) in model.bound.items() if rank.dp == 1)
    model.lose(model.ranks[1])
    scheduler.handle(model.events, 1.0)
    assert not model.refused and not scheduler.idle
    scheduler.schedule(1.0)
    said = "the worker that made it was lost"
    assert sorted(model.refused) == [(key, said, ErrorCode.LOST) for key in lost] and len(lost) == 4
    assert (scheduler.running, scheduler.waiting) == (4, 2)  # the others go on, and wait


def test_what_comes_to_a_full_queue_is_refused_at_the_next_plan() -> None:
    model = Refusing(1)
    scheduler = Scheduler(model, {0: model.ranks[0]}, slots=4, max_queued=2)
    for key in range(1, 10):  # four find a slot, two a place in the queue
        model.submit(key, 30)
    scheduler.handle(model.events, 0.0)
    assert not model.refused and not scheduler.idle
    scheduler.schedule(0.0)
    assert (scheduler.running, scheduler.waiting) == (4, 2)
    said = "2 requests wait already"
    assert model.refused == [(key, said, ErrorCode.UNAVAILABLE) for key in (7, 8, 9)]
    scheduler.handle([RankLost(0, "gone")], 1.0)  # what had a slot may wait beyond the bound
    request = Request(1, "r1", 0, (), SamplingParams(max_tokens=30))
    handle = next(iter(scheduler._bindings))
    scheduler.handle([Rescheduled(request, handle, RescheduleReason.RANK_LOST, [])], 1.0)
    scheduler.schedule(1.0)
    assert scheduler.waiting == 3 and len(model.refused) == 3


def test_a_strike_is_a_deadline() -> None:
    model = Model(1)
    scheduler = Scheduler(model, {0: model.ranks[0]}, slots=4, preempt_rate=1.0)
    model.submit(1, 30)
    assert scheduler.next_deadline is None and scheduler.idle
    scheduler.handle(model.events, 5.0)
    scheduler.schedule(5.0)
    assert scheduler.next_deadline is not None and not scheduler.idle
    assert 5.0 <= scheduler.next_deadline <= 5.1
