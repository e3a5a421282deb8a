"""A processor that is stopped is alive: who depends on it waits, everybody else goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tokenpipe import (
    Finished,
    FinishReason,
    ProcessorLost,
    ProcessorRestarted,
    Publisher,
    RankLost,
    RankUp,
    Rescheduled,
)

from .case_rig import Got, rig


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process for as long as the block lasts."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.case("B02")
def test_the_other_ranks_go_on_while_a_processor_is_stopped(runtime_dir: Path) -> None:
    with rig(runtime_dir, ranks=3, clients=2, processors={"count": 3}) as r:
        before = [r.submit(dp % 2, tokens=4) for dp in range(3)]
        handles = [r.bind(key, 0, dp) for dp, key in enumerate(before)]
        for dp, h in enumerate(handles):
            r.publish([(h, [0, 1])], dp=dp)
        r.until(lambda: all(len(r.got[key].tokens) == 2 for key in before))
        with stopped(r.pipe.processor_pids[1]):
            late = r.submit(tokens=3)  # bound to it while it is stopped
            late_handle = r.bind(late, 1, 1)
            for dp, h in enumerate(handles):
                r.publish([(h, [2, 3])], [h], dp=dp)
            r.publish([(late_handle, [7, 8, 9])], dp=1)
            r.until(lambda: r.ended(before[0], before[2]))
            for _ in range(20):  # whole requests come and go meanwhile
                key = r.submit(tokens=2)
                h = r.bind(key, 1, 2)
                r.publish([(h, [5, 6])], [h], dp=2)
                r.until(partial(r.ended, key))
                assert r.got[key].tokens == [5, 6]
            assert not r.ended(before[1]) and not r.ended(late)
        r.until(lambda: r.ended(before[1], late))
        for key in before:
            assert r.got[key] == Got([0, 1, 2, 3], FinishReason.LENGTH)
        assert r.got[late] == Got([7, 8, 9], FinishReason.LENGTH)
        r.until(lambda: len(r.of(Finished)) == 24)
        assert not r.of(ProcessorLost) and not r.of(RankLost)


@pytest.mark.case("B17")
def test_a_worker_is_ready_when_its_processor_answers_and_not_before(runtime_dir: Path) -> None:
    with rig(runtime_dir, workers=False) as r:
        made: list[Publisher] = []
        held = r.pipe.processor_pids[0]
        os.kill(held, signal.SIGSTOP)

        opening = r.start(lambda: made.append(Publisher(r.pipe.endpoint)))
        for _ in range(50):
            r.turn()
            assert not made and not r.of(RankUp)
        os.kill(held, signal.SIGCONT)
        r.until(lambda: not opening.is_alive())
        r.pubs += made
        r.until(lambda: r.of(RankUp))
        key = r.submit(tokens=1)
        r.publish([(r.bind(key, 0), [42])])  # the first row after ready is not lost
        r.until(lambda: r.ended(key))
        assert r.got[key].tokens == [42]


@pytest.mark.case("B23")
@pytest.mark.parametrize("killed", [True, False])
def test_closing_with_rows_nobody_takes_ends_and_says_how_many(
    runtime_dir: Path, killed: bool
) -> None:
    with rig(runtime_dir) as r:
        key = r.submit(tokens=5000)
        h = r.bind(key, 0)
        r.publish([(h, [0])])
        r.until(lambda: r.got[key].tokens == [0] and not r.pubs[0].unacknowledged)
        pid = r.pipe.processor_pids[0]
        os.kill(pid, signal.SIGSTOP)
        for step in range(1000):
            r.publish([(h, [step])])
        if killed:
            r.got[key].repeats = True
            os.kill(pid, signal.SIGKILL)
        assert r.pubs.pop().close(timeout_s=0.5) == 1000
        if not killed:
            os.kill(pid, signal.SIGCONT)
        if killed:  # the next processor goes on, and misses the worker
            r.until(lambda: r.of(ProcessorRestarted) and r.of(Rescheduled))
            r.abort(key)
            r.until(lambda: r.ended(key))


@pytest.mark.case("B23")
def test_a_pipeline_closes_though_its_processor_is_stopped(runtime_dir: Path) -> None:
    with rig(runtime_dir, timeouts={"close_s": 1.0}) as r:
        os.kill(r.pipe.processor_pids[0], signal.SIGSTOP)
