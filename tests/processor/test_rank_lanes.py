"""A rank is up while all of its workers are: hello, end, death, failure, and their next lives."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processor.rig import Rig, Row
from tests.processor.shell import INCARNATION, Shell, Worker
from tokenpipe.processor.rank_feed import RankFeed
from tokenpipe.processor.rank_lanes import RankLanes
from tokenpipe.types import make_handle
from tokenpipe.wire import (
    Bind,
    HandleReleased,
    Preempt,
    RankClosed,
    RankFailed,
    RankOpened,
    StepPlan,
    pack_control,
)

HANDLE = make_handle(0, 0, 1)


class Ranks:
    """The lanes of dp rank 0 and the processor that they feed."""

    def __init__(self, base: Path, tp_size: int = 1, **topology: Any) -> None:
        self.shell = Shell(base, tensor_parallel_size=tp_size, **topology)
        self.processor = Rig(tp_size=tp_size, drained_timeout_s=0.2).processor
        self.processor.rank_lost(0, "not there yet", 100.0)
        self.processor.reports()
        self.lanes = RankLanes(
            self.shell.instance, self.shell.topology, RankFeed(0), INCARNATION, time.monotonic
        )
        self.reported: list[object] = []

    def turn(self, limit: int = 64) -> None:
        now = time.monotonic()
        self.full = self.lanes.read(self.lanes.lanes, limit, now)
        self.lanes.feed(self.processor, now)
        self.lanes.applied(self.lanes.lanes)
        self.processor.tick(time.monotonic())
        self.reported += self.processor.reports()

    def until(self, fact: Callable[[], object], *workers: Worker) -> None:
        self.shell.until(fact, self.turn, *(worker.lane.poll for worker in workers))

    def up(self, *workers: Worker) -> None:
        """Wait until the rank is up and its workers know it."""
        before = len(self.of(RankOpened))
        self.until(
            lambda: len(self.of(RankOpened)) > before and all(w.lane.ready for w in workers),
            *workers,
        )

    def of(self, kind: type) -> list[Any]:
        return [report for report in self.reported if isinstance(report, kind)]

    def close(self) -> None:
        self.lanes.close()
        self.shell.close()


@pytest.fixture
def ranks(runtime_dir: Path) -> Iterator[Callable[..., Ranks]]:
    made: list[Ranks] = []

    def make(tp_size: int = 1, **topology: Any) -> Ranks:
        made.append(Ranks(runtime_dir, tp_size, **topology))
        return made[-1]

    yield make
    for one in made:
        one.close()


Make = Callable[..., Ranks]


def bind_one(r: Ranks) -> None:
    """Bind a request in the rank's present life."""
    incarnation = r.of(RankOpened)[-1].incarnation
    bind = Bind(handle=HANDLE, rank_incarnation=incarnation, key=1, client=0, max_tokens=9)
    r.processor.command(bind, time.monotonic())


def test_a_rank_is_up_when_all_of_its_workers_said_hello(ranks: Make) -> None:
    r = ranks(tp_size=3)
    first = [r.shell.worker(0, tp) for tp in range(2)]
    r.until(lambda: all(worker.lane.ready for worker in first), *first)
    for _ in range(20):
        r.turn()
    assert not r.reported
    r.up(*first, r.shell.worker(0, 2))
    assert len(r.reported) == 1 and r.of(RankOpened)[0].dp == 0


def test_a_worker_that_ends_its_lane_takes_the_rank_down_by_name(ranks: Make) -> None:
    r = ranks(tp_size=2)
    workers = [r.shell.worker(0, tp) for tp in range(2)]
    r.up(*workers)
    workers[1].lane.end()
    r.until(lambda: r.of(RankClosed), *workers)
    up = r.of(RankOpened)[0].incarnation
    assert r.of(RankClosed) == [RankClosed(0, "worker 0.1 closed its lane", up)]
    workers[1].close()
    r.up(workers[0], r.shell.worker(0, 1))  # its next life brings the rank back
    first, second = (opened.incarnation for opened in r.of(RankOpened))
    assert first != second


def test_a_worker_that_dies_without_a_word_is_missed(ranks: Make) -> None:
    r = ranks()
    worker = r.shell.worker()
    r.up(worker)
    worker.die()
    r.until(lambda: r.of(RankClosed))
    assert "is dead" in r.of(RankClosed)[0].reason
    r.up(r.shell.worker())


def test_a_worker_that_gives_up_is_down_until_its_next_life(ranks: Make) -> None:
    r = ranks(tp_size=2)
    workers = [r.shell.worker(0, tp) for tp in range(2)]
    r.up(*workers)
    workers[1].tell(RankFailed(0, 1, "no memory"))
    r.until(lambda: r.of(RankClosed), *workers)
    up = r.of(RankOpened)[0].incarnation
    assert r.of(RankClosed) == [RankClosed(0, "worker 0.1 failed: no memory", up)]
    for _ in range(20):  # both lanes are there, and that is not enough
        r.turn()
        workers[1].lane.poll()
    assert len(r.of(RankOpened)) == 1
    workers[1].lane.end()
    r.until(lambda: workers[1].lane.ended, *workers)
    workers[1].close()
    r.up(workers[0], r.shell.worker(0, 1))


def test_what_is_no_frame_of_a_worker_is_counted_and_the_rest_goes_on(ranks: Make) -> None:
    r = ranks()
    worker = r.shell.worker()
    r.up(worker)
    worker.send(Row(HANDLE, [5]))
    for raw in (
        lambda h: pack_control(h, [RankFailed(0, 0, "x")])[:-2],
        lambda h: pack_control(h, [StepPlan(1)]),  # a message, but none of a worker's
    ):
        worker.send_raw(raw)
    worker.send(Row(HANDLE, [6]))
    r.until(lambda: r.processor.counters["rows"] == 2 and not worker.lane.unacked_frames, worker)
    assert r.lanes.rank.bad_frames == 1
    assert not r.of(RankClosed)


def test_a_turn_reads_no_more_than_its_limit(ranks: Make) -> None:
    r = ranks()
    worker = r.shell.worker()
    r.up(worker)
    for token in range(10):
        worker.send(Row(HANDLE, [token]))
    fed = 0
    while fed < 10:
        r.turn(limit=3)
        came, fed = r.processor.counters["frames"] - fed, r.processor.counters["frames"]
        assert came <= 3
        assert r.full == (came == 3)  # then more may be there


def test_what_is_read_is_confirmed_when_it_is_applied_and_not_before(ranks: Make) -> None:
    r = ranks()
    worker = r.shell.worker()
    r.up(worker)
    worker.send(Row(HANDLE, [5]))

    def read_only() -> None:
        now = time.monotonic()
        r.lanes.read(r.lanes.lanes, 64, now)
        r.lanes.feed(r.processor, now)

    r.shell.until(lambda: r.processor.counters["frames"] == 1, read_only, worker.lane.poll)
    for _ in range(20):
        read_only()
        worker.lane.poll()
    assert worker.lane.unacked_frames == 1
    r.until(lambda: not worker.lane.unacked_frames, worker)


def test_a_poll_is_a_sign_of_life_and_lets_a_deadline_run(ranks: Make) -> None:
    r = ranks()
    worker = r.shell.worker()
    r.up(worker)
    bind_one(r)
    r.processor.command(Preempt(HANDLE), time.monotonic())
    # The worker has nothing to say: its pings alone let the drained row's deadline come.
    r.until(lambda: r.of(HandleReleased), worker)
    assert r.of(HandleReleased)[0].reason == "drained_timeout"
