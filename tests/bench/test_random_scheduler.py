"""The bench's scheduler preempts and aborts at random, and completes every request all the same."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.pipe_model import Model, check, play
from tokenpipe.bench.random_scheduler import RandomScheduler


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def set(self, seconds: float) -> None:
        self.now = seconds


def made(ranks: int = 2, **options: Any) -> tuple[Model, RandomScheduler, Clock]:
    model, clock = Model(ranks), Clock()
    lanes = {rank.dp: rank for rank in model.ranks}
    return model, RandomScheduler(model, lanes, slots=4, clock=clock, **options), clock


def run(seed: int, **options: Any) -> tuple[Model, RandomScheduler]:
    model, scheduler, clock = made(seed=seed, **options)
    play(model, scheduler, seed, at=clock.set)
    return model, scheduler


@pytest.mark.parametrize("seed", range(5))
def test_every_request_completes_through_preemptions(seed: int) -> None:
    model, scheduler = run(seed, preempt_rate=0.4)
    check(model, set(model.output))
    counts = scheduler.counts
    assert counts["Finished"] == 60 and counts["abort"] == 0
    assert 3 < counts["rescheduled_preempted"] <= counts["preempt"]
    assert counts["binds"] == 60 + counts["Rescheduled"]


@pytest.mark.parametrize("seed", range(5))
def test_aborted_requests_have_their_outcome_too(seed: int) -> None:
    model, scheduler = run(seed, preempt_rate=0.3, abort_rate=0.3)
    check(model, set())
    counts = scheduler.counts
    assert 3 < counts["Aborted"] <= counts["abort"] and counts["preempt"] > 3
    assert counts["Finished"] + counts["Aborted"] == 60


def test_without_rates_nothing_is_disturbed() -> None:
    model, scheduler = run(1)
    check(model, set(model.output))
    assert scheduler.counts["preempt"] == scheduler.counts["abort"] == 0
    assert scheduler.counts["binds"] == scheduler.counts["Finished"] == 60


def test_the_same_seed_is_the_same_run() -> None:
    runs = [run(seed, preempt_rate=0.4, abort_rate=0.2)[1].counts for seed in (3, 3, 4)]
    assert runs[0] == runs[1] != runs[2]


def test_the_loop_waits_no_longer_than_until_the_next_one() -> None:
    model, scheduler, clock = made(1, preempt_rate=1.0)
    model.submit(1, 30)
    clock.now = 5.0
    assert scheduler.wait_s(0.2) == 0.2 and scheduler.idle
    scheduler.handle(model.events)
    scheduler.schedule()
    wait_s = scheduler.wait_s(0.2)
    assert 0.0 <= wait_s <= 0.03  # 30 tokens are expected to take 30 ms
    assert scheduler.counts["preempt"] == 0 and not scheduler.idle
    clock.now += wait_s
    assert scheduler.wait_s(0.2) == 0.0
    scheduler.schedule()
    assert scheduler.counts["preempt"] == 1
