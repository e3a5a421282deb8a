"""Deadlines of one length, and a clock that stands while its rank is silent."""

from __future__ import annotations

import pytest

from tokenpipe.processor.deadlines import NEVER
from tokenpipe.processor.timers import LIFE_CREDIT_S, LifeClock, Timer


def test_clock_runs_on_signs_of_life_and_stands_in_silence() -> None:
    clock = LifeClock(100.0)
    assert clock.read(101.0) == 1.0
    assert clock.read(1000.0) == LIFE_CREDIT_S
    clock.seen(1000.0)
    clock.seen(999.0)  # never backwards
    assert clock.read(1000.0) == LIFE_CREDIT_S
    assert clock.when(LIFE_CREDIT_S + 1.5) == pytest.approx(1001.5)
    assert clock.when(LIFE_CREDIT_S * 2 + 0.1) == NEVER
    assert clock.read(1001.5) == pytest.approx(LIFE_CREDIT_S + 1.5)


def test_timer_forgets_what_was_cancelled_or_moved() -> None:
    timer = Timer()
    timer.set(1, 10.0)
    timer.set(2, 11.0)
    timer.set(1, 12.0)
    assert timer.head() == 11.0
    assert timer.expired(11.0) == [2]
    assert timer.expired(11.9) == []
    timer.set(3, 13.0)
    timer.cancel(1)
    timer.cancel(99)
    assert timer.head() == 13.0
    timer.cancel(3)
    assert timer.head() == NEVER
    timer.set(4, 14.0)
    timer.clear()
    assert timer.expired(99.0) == []
