"""What the bench counts of a rank: steps that went out, and how long they took."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.worker.loop_fakes import FakePublisher
from tokenpipe.bench.measured_publisher import DiscardingPublisher, MeasuredPublisher
from tokenpipe.bench.progress import TokenCounter, read_token_count
from tokenpipe.errors import LaneFull, LaneLost

HANDLES, TOKENS = np.array([1, 2]), np.array([7, 8, 9])


def test_steps_rows_and_tokens_are_counted(tmp_path: Path) -> None:
    count = tmp_path / "count"
    pub = MeasuredPublisher(FakePublisher(), TokenCounter(count))
    pub.publish(1, HANDLES, TOKENS, [2, 1])
    pub.publish(2, [], [], drained=[1])
    report = pub.report()
    assert (report["steps"], report["rows"], report["tokens"]) == (2, 2, 3)
    assert report["publish_us"]["p50"] > 0
    assert read_token_count(count) == 3


def test_a_step_of_a_dead_processor_does_not_count() -> None:
    pub = MeasuredPublisher(FakePublisher(LaneLost("dead")), TokenCounter())
    with pytest.raises(LaneLost):
        pub.publish(1, HANDLES, TOKENS)
    assert pub.report()["steps"] == 0


def test_the_time_at_a_full_lane_counts() -> None:
    times = iter((0, 10_000_000))
    full = FakePublisher(LaneFull("full"), LaneFull("full"))
    pub = MeasuredPublisher(full, TokenCounter(), clock_ns=lambda: next(times))
    for _ in range(2):
        with pytest.raises(LaneFull):
            pub.publish(1, HANDLES, TOKENS)
    pub.publish(1, HANDLES, TOKENS)
    report = pub.report()
    assert report["steps"] == 1 and report["publish_us"]["max"] == 10_000


@pytest.mark.parametrize(("steps", "rows"), [(3, None), (None, 5)])
def test_it_tells_when_enough_was_published(steps: int | None, rows: int | None) -> None:
    pub = MeasuredPublisher(DiscardingPublisher(), TokenCounter(), most_steps=steps, most_rows=rows)
    done: list[int] = []
    pub.when_done = lambda: done.append(pub.report()["steps"])
    for step in (1, 2, 3):
        assert not done
        pub.publish(step, HANDLES, TOKENS)
    assert done == [3]


def test_all_else_is_passed_on() -> None:
    inner = FakePublisher()
    pub = MeasuredPublisher(inner, TokenCounter())
    pub.poll()
    pub.wait(0.01)
    pub.fail("no memory")
    assert inner.log == ["poll", "wait"] and inner.failures == ["no memory"]
    assert pub.poll_within_s == 0.1
