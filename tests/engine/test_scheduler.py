"""The scheduler completes every request, whatever is preempted, aborted or lost on the way.

A small model of pipeline and workers stands in for the real ones; a test of this kind over real
processes is the bench itself.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.engine.pipe_model import Model, check, play
from tokenpipe.engine import BoundRequest, Scheduler
from tokenpipe.events import AbortRequested, RankLost, RankUp, Rescheduled
from tokenpipe.types import ErrorCode, Request, RescheduleReason, SamplingParams
from tokenpipe.wire import StepPlan


class Recording(Scheduler):
    """Keeps each binding that it makes."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.made: list[BoundRequest] = []

    def bound(self, binding: BoundRequest, output_tokens: int) -> None:
        super().bound(binding, output_tokens)
        self.made.append(binding)


def made(**options: Any) -> tuple[Model, Recording]:
    """Return a model of two ranks and a scheduler with four slots on each."""
    model = Model(2)
    lanes = {rank.dp: rank for rank in model.ranks}
    return model, Recording(model, lanes, slots=4, **options)


@pytest.mark.parametrize("seed", range(5))
def test_every_request_completes_through_preemptions(seed: int) -> None:
    rng = random.Random(seed)
    model, scheduler = made()

    def disturb(model: Model, turn: int) -> None:
        if turn % 5 == 0 and scheduler.made:
            scheduler.preempt(rng.choice(scheduler.made[-8:]))

    play(model, scheduler, seed, disturb=disturb)
    check(model, set(model.output))
    assert scheduler.counts["Finished"] == 60
    assert scheduler.counts["rescheduled_preempted"] > 3
    assert scheduler.counts["binds"] == 60 + scheduler.counts["Rescheduled"]


@pytest.mark.parametrize("seed", range(5))
def test_aborted_requests_have_their_outcome_too(seed: int) -> None:
    rng = random.Random(seed)
    model, scheduler = made()

    def disturb(model: Model, turn: int) -> None:
        if turn % 5 == 0 and scheduler.made:
            one = rng.choice(scheduler.made[-8:])
            scheduler.preempt(one) if turn % 2 else scheduler.abort(one.request)

    play(model, scheduler, seed, disturb=disturb)
    check(model, set())
    assert scheduler.counts["Aborted"] > 3 and scheduler.counts["rescheduled_preempted"] > 3
    assert scheduler.counts["Finished"] + scheduler.counts["Aborted"] == 60


@pytest.mark.parametrize("seed", range(5))
def test_a_lost_rank_costs_no_request(seed: int) -> None:
    def disturb(model: Model, turn: int) -> None:
        if turn == 40:
            model.lose(model.ranks[1])
        if turn == 90:
            model.restart(model.ranks[1])

    model, scheduler = made()
    play(model, scheduler, seed, disturb=disturb)
    check(model, set(model.output))
    assert scheduler.counts["Finished"] == 60
    assert scheduler.counts["rescheduled_rank_lost"] > 0


def test_clients_may_give_up_waiting_running_and_ended_requests() -> None:
    def disturb(model: Model, turn: int) -> None:
        if turn == 20:
            for key in (1, 2, 3, 58, 59, 60):
                params = SamplingParams(max_tokens=30)
                model.events.append(AbortRequested(Request(key, f"r{key}", 0, (), params)))

    model, scheduler = made()
    play(model, scheduler, 1, disturb=disturb)
    check(model, set())
    assert scheduler.counts["Finished"] + scheduler.counts["Aborted"] == 60
    assert all(not model.output[key] for key in (58, 59, 60))


def test_a_grant_goes_to_every_rank_with_every_plan() -> None:
    sent: list[StepPlan] = []

    class Lane:
        def send(self, plan: StepPlan) -> None:
            sent.append(plan)

    scheduler = Scheduler(Model(2), {0: Lane(), 1: Lane()}, slots=4)
    scheduler.handle([RankUp(0, 1), RankUp(1, 1)])
    scheduler.schedule()
    assert not sent
    scheduler.schedule(grant=8)
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
    scheduler.handle(model.events)
    model.events.clear()
    scheduler.schedule()
    lost = sorted(key for key, (rank, _) in model.bound.items() if rank.dp == 1)
    model.lose(model.ranks[1])
    scheduler.handle(model.events)
    assert not model.refused and not scheduler.idle
    scheduler.schedule()
    said = "the worker that ran it was lost"
    assert sorted(model.refused) == [(key, said, ErrorCode.LOST) for key in lost] and len(lost) == 4
    assert (scheduler.running, scheduler.waiting) == (4, 2)  # the others go on, and wait


def test_without_a_rank_requests_wait_up_to_their_patience() -> None:
    now = [0.0]
    model = Refusing(1)
    rank = model.ranks[0]
    scheduler = Scheduler(model, {0: rank}, slots=2, patience_s=10.0, clock=lambda: now[0])
    for key in (1, 2, 3):
        model.submit(key, 30)
    scheduler.handle(model.events)
    model.events.clear()
    scheduler.schedule()
    for _ in range(5):
        model.run(rank)
    now[0] = 100.0
    model.lose(rank)
    model.submit(4, 30)  # a new one waits too
    scheduler.handle(model.events)
    model.events.clear()
    now[0] = 109.9
    scheduler.schedule()
    assert not model.refused and scheduler.waiting == 4
    now[0] = 110.0
    model.submit(5, 30)
    scheduler.handle(model.events)
    scheduler.schedule()
    assert [key for key, _, code in model.refused if code is ErrorCode.LOST] == [1, 2]
    assert [key for key, _, code in model.refused if code is ErrorCode.UNAVAILABLE] == [3, 4, 5]
    assert {why for _, why, _ in model.refused} == {"no worker is up, and none came up within 10 s"}
    assert scheduler.idle


@pytest.mark.parametrize("lost_rank", ["move", "wait"])
@pytest.mark.parametrize("seed", range(5))
def test_all_ranks_may_be_lost_again_and_again(seed: int, lost_rank: str) -> None:
    def disturb(model: Model, turn: int) -> None:
        if turn % 60 == 40:
            for rank in model.ranks:
                if rank.up:
                    model.lose(rank)
        if turn % 60 == 55:
            for rank in model.ranks:
                model.restart(rank)

    model, scheduler = made(lost_rank=lost_rank, patience_s=10.0)
    play(model, scheduler, seed, disturb=disturb)
    check(model, set(model.output))
    assert scheduler.counts["Finished"] == 60
    assert scheduler.counts["rescheduled_rank_lost"] > 8


def test_a_request_that_waits_for_its_rank_runs_there_again() -> None:
    model, scheduler = made(lost_rank="wait")
    for key in range(1, 11):
        model.submit(key, 30)
    scheduler.handle(model.events)
    model.events.clear()
    scheduler.schedule()
    homes = {key: rank.dp for key, (rank, _) in model.bound.items()}
    for rank in model.ranks:
        model.run(rank)
    model.lose(model.ranks[1])
    scheduler.handle(model.events)
    model.events.clear()
    scheduler.schedule()
    assert {key for key, (rank, _) in model.bound.items()} == {k for k in homes if not homes[k]}
    model.restart(model.ranks[1])
    scheduler.handle(model.events)
    scheduler.schedule()
    assert {key: rank.dp for key, (rank, _) in model.bound.items()} == homes


def test_what_comes_to_a_full_queue_is_refused_at_the_next_plan() -> None:
    model = Refusing(1)
    scheduler = Scheduler(model, {0: model.ranks[0]}, slots=4, max_queued=2)
    for key in range(1, 10):  # four find a slot, two a place in the queue
        model.submit(key, 30)
    scheduler.handle(model.events)
    assert not model.refused and not scheduler.idle
    scheduler.schedule()
    assert (scheduler.running, scheduler.waiting) == (4, 2)
    said = "2 requests wait already"
    assert model.refused == [(key, said, ErrorCode.UNAVAILABLE) for key in (7, 8, 9)]
    scheduler.handle([RankLost(0, "gone")])  # what had a slot may wait beyond the bound
    request = Request(1, "r1", 0, (), SamplingParams(max_tokens=30))
    handle = next(iter(scheduler._bindings))
    scheduler.handle([Rescheduled(request, handle, RescheduleReason.RANK_LOST, [])])
    scheduler.schedule()
    assert scheduler.waiting == 3 and len(model.refused) == 3
