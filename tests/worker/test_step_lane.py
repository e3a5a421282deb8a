"""Plans from an engine to its workers: each one, to every TP rank, in order; and the end of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.worker.far import Far
from tokenpipe.errors import ConfigError, LaneClosed, LaneError, LaneLost
from tokenpipe.wire import StepBind, StepPlan
from tokenpipe.worker import StepLane, StepLaneReader

Make = Callable[..., Far]


@pytest.fixture
def far(runtime_dir: Path) -> Iterator[Make]:
    """Make far ends that are closed with the test."""
    made: list[Far] = []

    def make(**options: Any) -> Far:
        made.append(Far(runtime_dir, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def plan(step: int) -> StepPlan:
    bind = StepBind(step, 7, 2, (1, 2, 3), (4, 5), 100, b"x")
    return StepPlan(step, (bind,), (step + 1000,), 3, b"extra")


def take(f: Far, lane: StepLane, reader: StepLaneReader, count: int) -> list[StepPlan]:
    """Return the next plans of a reader."""
    plans: list[StepPlan] = []
    f.until(lambda: len(plans) >= count, lane.poll, lambda: plans.extend(reader.recv()))
    return plans


def test_every_plan_reaches_every_tp_rank_in_order(far: Make) -> None:
    f = far(tensor_parallel_size=2)
    lane = f.step_lane()
    readers = [StepLane.worker(f.endpoint, 0, tp) for tp in range(2)]
    sent = [plan(step) for step in range(1, 40)]
    for one in sent:
        lane.send(one)
    for reader in readers:
        assert take(f, lane, reader, len(sent)) == sent
        assert reader.recv() == [] and not reader.ended
    assert len(lane.ports) == 2 and lane.next_deadline < float("inf")
    lane.close()
    for reader in readers:
        reader.close()


def test_plans_wait_for_a_worker_that_is_not_there_yet(far: Make) -> None:
    f = far()
    lane = f.step_lane()
    lane.send(plan(1))
    lane.poll()
    lane.send(plan(2))
    reader = StepLane.worker(f.endpoint)
    assert take(f, lane, reader, 2) == [plan(1), plan(2)]
    lane.close()
    reader.close()


def test_recv_waits_for_a_plan_and_not_for_ever(far: Make) -> None:
    f = far()
    lane = f.step_lane()
    reader = StepLane.worker(f.endpoint)
    assert reader.recv(timeout_s=0.01) == []
    f.until(lambda: lane._ends[0].lane.ready, lane.poll, reader.recv)
    lane.send(plan(1))
    assert reader.recv(timeout_s=30.0) == [plan(1)]
    lane.close()
    reader.close()
    assert reader.recv() == []


def test_an_end_comes_after_the_last_plan(far: Make) -> None:
    f = far()
    lane = f.step_lane()
    reader = StepLane.worker(f.endpoint)
    lane.send(plan(1))
    assert take(f, lane, reader, 1) == [plan(1)]
    lane.send(plan(2))
    lane.end()
    plans: list[StepPlan] = []
    f.until(lambda: reader.ended, lane.poll, lambda: plans.extend(reader.recv()))
    assert plans == [plan(2)]
    assert reader.recv(timeout_s=30.0) == []  # at once: nothing follows
    lane.close()
    reader.close()


@pytest.mark.parametrize("closing", [False, True])
def test_an_end_waits_for_plans_that_no_worker_could_take_yet(far: Make, closing: bool) -> None:
    f = far()
    lane = f.step_lane()
    sent = [plan(step) for step in range(1, 4)]
    for one in sent:
        lane.send(one)
    lane.end()
    with pytest.raises(LaneClosed):
        lane.send(plan(4))
    claim = f.instance.claim("worker", "0.0")  # as a Publisher: else the worker counts as dead
    reader = StepLane.worker(f.endpoint)
    plans: list[StepPlan] = []
    if closing:
        reading = threading.Thread(target=read_to_the_end, args=(reader, plans))
        reading.start()
        lane.close(timeout_s=20.0)
        reading.join(20.0)
    else:
        f.until(lambda: reader.ended, lane.poll, lambda: plans.extend(reader.recv()))
        lane.close()
    assert plans == sent and reader.ended
    reader.close()
    claim.release()


def read_to_the_end(reader: StepLaneReader, plans: list[StepPlan]) -> None:
    while not reader.ended:
        plans.extend(reader.recv(timeout_s=0.1))


def test_a_rank_that_comes_anew_gets_only_what_is_sent_to_it(far: Make) -> None:
    f = far()
    lane = f.step_lane()
    first = StepLane.worker(f.endpoint)
    lane.send(plan(1))
    assert take(f, lane, first, 1) == [plan(1)]
    first.close()
    lane.send(plan(2))
    lane.reset()  # what was for the lost one goes with it
    claim = f.instance.claim("worker", "0.0")  # a Publisher has it: hellos are repeated meanwhile
    second = StepLane.worker(f.endpoint)
    lane.renew()
    lane.send(plan(3))
    plans = take(f, lane, second, 1)
    f.until(lambda: plan(3) in plans, lane.poll, lambda: plans.extend(second.recv()))
    assert [one for one in plans if not one.reset] == [plan(3)]
    lane.close()
    second.close()
    claim.release()


def test_a_worker_that_lives_on_is_told_to_forget_its_handles(far: Make) -> None:
    f = far()
    lane = f.step_lane()
    reader = StepLane.worker(f.endpoint)
    lane.send(plan(1))
    assert take(f, lane, reader, 1) == [plan(1)]
    lane.reset()
    lane.send(plan(2))
    told = take(f, lane, reader, 2)
    assert [one.reset for one in told] == [True, False] and told[1] == plan(2)
    lane.close()
    reader.close()


def test_an_engine_that_died_is_said(far: Make) -> None:
    f = far()
    lane = f.step_lane()
    reader = StepLane.worker(f.endpoint)
    lane.send(plan(1))
    assert take(f, lane, reader, 1) == [plan(1)]
    f.engine_dies()
    with pytest.raises(LaneLost, match="step lane"):
        while True:
            reader.recv(timeout_s=0.1)
    lane.close()
    reader.close()


def test_a_rank_must_exist_and_has_one_reader(far: Make) -> None:
    f = far()
    reader = StepLane.worker(f.endpoint)
    with pytest.raises(ConfigError, match="no worker"):
        StepLane.worker(f.endpoint, 0, 1)
    with pytest.raises(LaneError):
        StepLane.worker(f.endpoint)
    reader.close()
