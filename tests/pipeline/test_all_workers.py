"""All workers of an embedded engine die: its requests wait for the next ones, and miss nothing."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest

from tests.pipeline.engine import Asking, Engine, engine
from tokenpipe import ErrorCode, FinishReason, RankLost, RankUp, Topology
from tokenpipe.bench.oracle import sequence

TOKENS = 300


def kill_all(it: Engine) -> None:
    """Kill each worker, see that its rank is lost, and start its successor."""
    ranks, lost = list(it.workers), len(it.seen(RankLost))
    for rank in ranks:
        os.kill(it.workers[rank].pid, signal.SIGKILL)
    it.until(lambda: len(it.seen(RankLost)) == lost + len(ranks))
    assert it.scheduler.ranks_up == ()
    for rank in ranks:
        it.start_worker(*rank)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("ranks", "moments"), [(1, 3), (2, 2), pytest.param(1, 20, marks=pytest.mark.soak)]
)
def test_nobody_notices_that_all_workers_died(
    runtime_dir: Path, tmp_path: Path, ranks: int, moments: int
) -> None:
    chance = random.Random(ranks + moments)
    topology = Topology(runtime_dir=runtime_dir, data_parallel_size=ranks, slots_per_rank=6)
    with engine(topology, tmp_path) as it:
        for _ in range(moments):
            asking = Asking(it.pipe.endpoint, [TOKENS] * 8)  # with one rank, two of them wait
            moment = chance.randint(1, 6 * TOKENS // 2)
            it.until(lambda asking=asking, moment=moment: asking.got >= moment)  # type: ignore[misc]
            kill_all(it)
            for answer in it.join(asking):
                assert answer.tokens == sequence(answer.key, 0, TOKENS), answer.error
                assert answer.reason is FinishReason.LENGTH


def test_requests_come_while_no_worker_is_there(runtime_dir: Path, tmp_path: Path) -> None:
    with engine(Topology(runtime_dir=runtime_dir), tmp_path) as it:
        os.kill(it.workers[0, 0].pid, signal.SIGKILL)
        it.until(lambda: it.seen(RankLost))
        asking = Asking(it.pipe.endpoint, [50] * 4)
        it.until(lambda: it.scheduler.waiting == 4)
        it.start_worker(0, 0)
        assert all(answer.tokens == sequence(answer.key, 0, 50) for answer in it.join(asking))


def test_a_request_that_kills_its_workers_ends_and_the_others_go_on(
    runtime_dir: Path, tmp_path: Path
) -> None:
    topology = Topology(runtime_dir=runtime_dir, policies={"max_deaths": 1})
    with engine(topology, tmp_path) as it:
        poison = Asking(it.pipe.endpoint, [100_000])
        it.until(lambda: poison.got > 50)
        kill_all(it)
        before = poison.got
        it.until(lambda: poison.got > before + 50)
        late = Asking(it.pipe.endpoint, [2_000])
        it.until(lambda: late.got > 50)
        kill_all(it)
        (ended,) = it.join(poison)
        assert (ended.reason, ended.code) == (FinishReason.ERROR, ErrorCode.CRASHES)
        assert ended.error == (
            "its worker died 2 time(s) while it ran the request; policies.max_deaths is 1"
        )
        assert ended.right and len(ended.tokens) > before
        (other,) = it.join(late)  # it has seen one death
        assert other.reason is FinishReason.LENGTH and len(other.tokens) == 2_000 and other.right


def test_a_worker_that_closes_in_order_is_no_death(runtime_dir: Path, tmp_path: Path) -> None:
    topology = Topology(runtime_dir=runtime_dir, policies={"max_deaths": 0})
    with engine(topology, tmp_path) as it:
        asking = Asking(it.pipe.endpoint, [1_000])
        it.until(lambda: asking.got > 50)
        os.kill(it.workers[0, 0].pid, signal.SIGTERM)
        it.until(lambda: it.seen(RankLost))
        it.start_worker(0, 0)
        it.until(lambda: len(it.seen(RankUp)) == 2)
        (answer,) = it.join(asking)
        assert answer.reason is FinishReason.LENGTH and answer.right, answer.error
