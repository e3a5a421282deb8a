"""The synthetic worker: plans in, steps out, at the rate it was told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tokenpipe.bench.oracle import sequence
from tokenpipe.bench.oracle_batch import OracleBatch
from tokenpipe.bench.worker import Worker
from tokenpipe.errors import LaneFull, LaneLost
from tokenpipe.wire import StepBind, StepPlan


class Clock:
    """A clock that moves when somebody waits."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Lane:
    """Plans at given times; waiting for one moves the clock, in whole ms as a poll does."""

    def __init__(self, clock: Clock, plans: list[tuple[float, StepPlan]]) -> None:
        self.clock = clock
        self.plans = plans
        self.ended = False

    def recv(self, timeout_s: float) -> list[StepPlan]:
        until = self.clock.now + round(timeout_s, 3)
        if self.plans and self.plans[0][0] <= until:
            self.clock.now = max(self.clock.now, self.plans[0][0])
            return [self.plans.pop(0)[1]]
        self.clock.now = until
        self.ended = not self.plans and until > 200
        return []


class Pub:
    """Remembers what was published and when."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.steps: list[tuple[float, int, list[int], list[int], list[int]]] = []
        self.logprobs: list[Any] = []
        self.polls = 0
        self.poll_within_s = 0.1
        self.lost_steps = 0  # so many find their processor dead

    def publish(self, step: int, handles: Any, tokens: Any, *_: Any, **rest: Any) -> None:
        if self.lost_steps:
            self.lost_steps -= 1
            raise LaneLost("its processor is dead")
        drained = rest["drained"]
        gone = [] if drained is None else drained.tolist()
        self.steps.append((self.clock.now, step, handles.tolist(), tokens.tolist(), gone))
        self.logprobs.append(rest["logprobs"])

    def poll(self) -> None:
        self.polls += 1


def plan(binds: list[tuple[int, int, int]], frees: tuple[int, ...] = (), **rest: Any) -> StepPlan:
    return StepPlan(1, tuple(StepBind(h, k, 0, max_tokens=m) for h, k, m in binds), frees, **rest)


Make = Callable[..., tuple[Worker, Pub]]


@pytest.fixture
def make() -> Make:
    def made(plans: list[tuple[float, StepPlan]], **options: Any) -> tuple[Worker, Pub]:
        clock = Clock()
        pub = Pub(clock)
        worker = Worker(
            Lane(clock, plans),
            pub,
            OracleBatch(overrun=0),
            clock=clock,
            sleep=clock.sleep,
            **options,
        )
        return worker, pub

    return made


def test_runs_what_is_bound_until_it_is_over_and_drains_what_is_freed(make: Make) -> None:
    worker, pub = make([(100.0, plan([(1, 11, 3), (2, 22, 5)])), (101.0, plan([], (1, 2)))])
    worker.run()
    assert [step[1] for step in pub.steps] == [1, 2, 3, 4, 5, 6]
    got: dict[int, list[int]] = {1: [], 2: []}
    for _, _, handles, tokens, _ in pub.steps:
        for handle, token in zip(handles, tokens, strict=True):
            got[handle].append(token)
    assert got == {1: sequence(11, 0, 3), 2: sequence(22, 0, 5)}
    assert sorted(pub.steps[-1][4]) == [1, 2] and not any(step[4] for step in pub.steps[:-1])
    report = worker.report()
    assert (report["steps"], report["rows"], report["tokens"]) == (6, 8, 8)
    assert report["publish_us"]["p50"] > 0 and report["cpu_s"] > 0


@pytest.mark.parametrize("rate", [50.0, 1000.0])
def test_keeps_its_rate_without_drifting(make: Make, rate: float) -> None:
    worker, pub = make([(100.5, plan([(1, 11, 1000)]))], rate=rate, steps=101)
    worker.run()
    took = pub.steps[-1][0] - pub.steps[0][0]
    assert took == pytest.approx(100 / rate, rel=0.02)


def test_polls_while_it_has_nothing_to_do(make: Make) -> None:
    worker, pub = make([(199.0, plan([(1, 11, 1)]))])
    worker.run()
    assert pub.polls >= 99 / 0.1


def test_a_follower_takes_plans_and_runs_no_steps(make: Make) -> None:
    worker, pub = make([(100.0, plan([(1, 11, 5)])), (150.0, plan([], (1,)))], follow=True)
    worker.run()
    assert not pub.steps and pub.polls


def test_in_lockstep_it_runs_what_each_plan_grants(make: Make) -> None:
    worker, pub = make(
        [
            (100.0, plan([(1, 11, 50)], steps=3)),
            (101.0, plan([(2, 22, 50)], steps=2)),
            (102.0, plan([], (1, 2))),
            (103.0, plan([], steps=2)),
        ],
        lockstep=True,
    )
    worker.run()
    assert [step[2] for step in pub.steps] == [[1]] * 3 + [[1, 2]] * 2 + [[], []]
    assert sorted(pub.steps[5][4]) == [1, 2]


def test_logprobs_ride_along(make: Make) -> None:
    worker, pub = make([(100.0, plan([(1, 11, 1)]))], logprobs=4)
    worker.run()
    assert pub.logprobs[0] is not None


def test_a_reset_voids_what_it_had_and_begins_with_what_follows(make: Make) -> None:
    plans = [
        (100.0, plan([(1, 11, 50)])),
        (100.0, plan([], (1,))),
        (100.0, plan([(2, 22, 2)], reset=True)),
    ]
    worker, pub = make(plans)
    worker.run()
    after = [step for step in pub.steps if 2 in step[2]]
    assert len(after) == 2 and all(step[2] == [2] and not step[4] for step in after)


def test_a_dead_processor_ends_its_batch_and_not_the_worker(make: Make) -> None:
    worker, pub = make([(100.0, plan([(1, 11, 50)])), (150.0, plan([(2, 22, 1)]))])
    pub.lost_steps = 1
    worker.run()
    assert [step[2] for step in pub.steps] == [[2]] and worker.rows == 1


def test_a_full_lane_holds_the_step_back_and_loses_none(make: Make) -> None:
    worker, pub = make([(100.0, plan([(1, 11, 3)])), (101.0, plan([], (1,)))])
    publish, full = pub.publish, [True, True, False, True, False]

    def reluctant(*args: Any, **rest: Any) -> None:
        if full and full.pop(0):
            raise LaneFull("no room")
        publish(*args, **rest)

    pub.publish = reluctant  # type: ignore[method-assign]
    worker.run()
    assert [step[1] for step in pub.steps] == [1, 2, 3, 4]
    assert [token for step in pub.steps for token in step[3]] == sequence(11, 0, 3)
    assert pub.polls >= 3
