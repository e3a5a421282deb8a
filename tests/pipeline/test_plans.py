"""Plans wait for their worker, bounded in bytes, and come in order; a lost rank's are void."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from tokenpipe import FrameTooLarge, LaneFull, Pipeline, Publisher, RankLost, RankUp, Topology
from tokenpipe.errors import LaneClosed
from tokenpipe.wire import StepPlan
from tokenpipe.worker import StepLane, StepLaneReader

T = TypeVar("T")


def beside(pipe: Pipeline, work: Callable[[], T]) -> T:
    """Do the work in a thread while the pipeline is served here."""
    results: list[T] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    while thread.is_alive():
        pipe.wait(0.02)
        pipe.poll()
    return results[0]


class Opening(threading.Thread):
    """Open a publisher in a thread of its own; the pipeline has to be served meanwhile."""

    def __init__(self, endpoint: str, tp: int) -> None:
        super().__init__(name=f"opening-{tp}")
        self._where = (endpoint, 0, tp)
        self.start()

    def run(self) -> None:
        self._publisher = Publisher(*self._where)

    def publisher(self) -> Publisher:
        self.join()
        return self._publisher


def heavy(step: int) -> StepPlan:
    return StepPlan(step, extra=bytes(1 << 22))


def receive(reader: StepLaneReader, count: int) -> list[StepPlan]:
    plans: list[StepPlan] = []
    while len(plans) < count and (got := reader.recv(5.0)):
        plans += got
    return plans


def test_unread_plans_are_bounded_and_none_is_lost(runtime_dir: Path) -> None:
    topology = Topology(
        runtime_dir=runtime_dir, tensor_parallel_size=2, processors={"mode": "inline"}
    )
    with Pipeline(topology) as pipe:
        lane = pipe.step_lane(0)
        for step in range(1, 15):
            lane.send(heavy(step))
        with pytest.raises(LaneFull, match="has not read"):
            for step in range(15, 99):
                lane.send(heavy(step))
        sent = len(lane._ends[0]._waiting)
        assert [len(end._waiting) for end in lane._ends] == [sent, sent]  # all or none
        with pytest.raises(FrameTooLarge, match="the limit is"):
            lane.send(StepPlan(99, extra=bytes(1 << 26)))
        for tp in (0, 1):
            reader = StepLane.worker(pipe.endpoint, 0, tp)
            plans = beside(pipe, partial(receive, reader, sent))
            assert [plan.number for plan in plans] == list(range(1, sent + 1))
            beside(pipe, partial(reader.recv, 0.05))
            reader.close()


def test_many_small_plans_come_in_order(runtime_dir: Path) -> None:
    topology = Topology(runtime_dir=runtime_dir, processors={"mode": "inline"})
    with Pipeline(topology) as pipe:
        lane = pipe.step_lane(0)
        for step in range(2000):
            lane.send(StepPlan(step))
        reader = StepLane.worker(pipe.endpoint)
        plans = beside(pipe, lambda: receive(reader, 2000))
        assert [plan.number for plan in plans] == list(range(2000))
        lane.end()
        with pytest.raises(LaneClosed):
            lane.send(StepPlan(1))
        reader.close()


def test_plans_of_a_lost_rank_are_void_for_the_living_and_the_next(runtime_dir: Path) -> None:
    topology = Topology(
        runtime_dir=runtime_dir, tensor_parallel_size=2, processors={"mode": "inline"}
    )
    with Pipeline(topology) as pipe:
        lane = pipe.step_lane(0)

        def until(kind: type) -> None:
            while not any(isinstance(event, kind) for event in pipe.poll()):
                assert pipe.wait(5.0)

        reader0 = StepLane.worker(pipe.endpoint, 0, 0)
        reader1 = StepLane.worker(pipe.endpoint, 0, 1)
        opening = Opening(pipe.endpoint, 0), Opening(pipe.endpoint, 1)
        until(RankUp)
        pub0, pub1 = (one.publisher() for one in opening)
        lane.send(StepPlan(1))
        for reader in (reader0, reader1):
            assert [p.number for p in beside(pipe, partial(receive, reader, 1))] == [1]
        reader1.close()
        thread = threading.Thread(target=pub1.close)
        thread.start()
        until(RankLost)
        thread.join()
        lane.send(StepPlan(2))  # by an engine that has not yet read its events
        (reset, late) = beside(pipe, lambda: receive(reader0, 2))
        assert (reset.reset, late.number, late.reset) == (True, 2, False)
        again = StepLane.worker(pipe.endpoint, 0, 1)
        reopening = Opening(pipe.endpoint, 1)
        until(RankUp)
        pub_again = reopening.publisher()
        lane.send(StepPlan(3))
        plans = beside(pipe, lambda: receive(again, 1))
        assert plans[-1].number == 3
        beside(pipe, lambda: (pub0.close(), pub_again.close()))
        reader0.close()
        again.close()
