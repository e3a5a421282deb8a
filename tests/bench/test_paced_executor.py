"""The bench's executor: the oracle's tokens, at the rate it was told."""

from __future__ import annotations

from typing import Any

import pytest

from tokenpipe.bench.oracle import sequence
from tokenpipe.bench.oracle_batch import OracleBatch
from tokenpipe.bench.paced_executor import PacedExecutor
from tokenpipe.wire import StepBind


class Clock:
    """A clock that moves when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.sleeps: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds


def make(clock: Clock | None = None, **options: Any) -> PacedExecutor:
    clock = clock or Clock()
    return PacedExecutor(OracleBatch(overrun=0), clock=clock, sleep=clock.sleep, **options)


def bind(handle: int, key: int, max_tokens: int) -> StepBind:
    return StepBind(handle, key, 0, max_tokens=max_tokens)


def tokens(executor: PacedExecutor, calls: int) -> dict[int, list[int]]:
    got: dict[int, list[int]] = {}
    for _ in range(calls):
        rows = executor.step()
        if rows is not None:
            for handle, token in zip(rows.handles, rows.tokens, strict=True):
                got.setdefault(int(handle), []).append(int(token))
    return got


def test_each_handle_gets_its_tokens_until_its_end() -> None:
    executor = make()
    executor.admit(bind(1, 11, 3))
    executor.admit(bind(2, 22, 5))
    assert tokens(executor, 10) == {1: sequence(11, 0, 3), 2: sequence(22, 0, 5)}
    assert executor.step() is None  # silent until something changes


def test_a_freed_handle_gets_nothing_more() -> None:
    executor = make()
    executor.admit(bind(1, 11, 50))
    executor.admit(bind(2, 22, 50))
    executor.free(2)  # before it ran
    executor.step()
    executor.free(1)
    executor.admit(bind(3, 33, 2))
    assert tokens(executor, 5) == {3: sequence(33, 0, 2)}


@pytest.mark.parametrize("rate", [5.0, 50.0, 1000.0])
def test_it_keeps_its_rate_without_drift(rate: float) -> None:
    clock = Clock()
    executor = make(clock, rate=rate)
    executor.admit(bind(1, 11, 1000))
    times: list[float] = []
    while len(times) < 101:
        rows = executor.step()
        assert rows is not None
        times += [clock.now] * len(rows.handles)
        clock.now += 1e-4  # what publishing takes
    assert times[-1] - times[0] == pytest.approx(100 / rate, rel=0.02)
    assert max(clock.sleeps) <= 0.05  # a low rate keeps no plan waiting


def test_a_pause_is_not_made_up_for() -> None:
    clock = Clock()
    executor = make(clock, rate=100.0)
    executor.admit(bind(1, 11, 2))
    assert len(tokens(executor, 10)[1]) == 2
    clock.now += 60.0
    executor.admit(bind(2, 22, 50))
    clock.sleeps.clear()
    tokens(executor, 11)
    assert sum(clock.sleeps) == pytest.approx(0.1)


def test_in_lockstep_each_call_is_a_step() -> None:
    clock = Clock()
    executor = make(clock, rate=2.0, lockstep=True)
    executor.admit(bind(1, 11, 3))
    assert [len(rows.handles) for _ in range(3) if (rows := executor.step())] == [1, 1, 1]
    assert clock.now == pytest.approx(101.0)


def test_a_rank_that_does_not_publish_runs_no_step() -> None:
    executor = make(runs=False)
    executor.admit(bind(1, 11, 3))
    assert executor.step() is None
    executor.free(1)
    assert executor.step() is None


def test_logprobs_go_with_the_tokens() -> None:
    executor = make(logprobs=4)
    executor.admit(bind(1, 11, 1))
    rows = executor.step()
    assert rows is not None and rows.logprobs is not None
    assert rows.logprobs.token_ids.shape == (1, 5)


def test_usage_is_measured_from_the_first_request_on() -> None:
    executor = make()
    assert executor.meter is None
    executor.admit(bind(1, 11, 1))
    assert executor.meter is not None and executor.meter.spent()["cpu_s"] >= 0
