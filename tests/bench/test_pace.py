"""Rates are kept, samples are bounded."""

import numpy as np
import pytest

from tokenpipe.bench.pace import Pace, Samples, percentiles_us


def test_makes_up_for_late_turns() -> None:
    pace = Pace(100.0, now=5.0)
    assert pace.wait_s(5.0) == 0.0
    pace.took()
    assert pace.wait_s(5.0) == pytest.approx(0.01)
    assert pace.wait_s(5.5) == 0.0
    pace.took()
    assert pace.wait_s(5.0) == pytest.approx(0.02)


def test_owes_nothing_for_a_pause() -> None:
    pace = Pace(100.0, now=5.0)
    pace.restart(9.0)
    pace.took()
    assert pace.wait_s(9.0) == pytest.approx(0.01)
    pace.restart(8.0)
    assert pace.wait_s(9.0) == pytest.approx(0.01)


def test_without_a_rate_it_is_always_time() -> None:
    pace = Pace(None, now=5.0)
    pace.took()
    assert pace.wait_s(5.0) == 0.0


def test_samples_keep_the_last() -> None:
    samples = Samples(size=4)
    assert samples.us() == {}
    for ns in (9_000_000, 1000, 2000, 3000, 4000):
        samples.add(ns)
    assert samples.count == 5
    assert samples.us() == {"p50": 2.5, "p99": 3.97, "max": 4.0}


def test_a_size_is_a_power_of_two() -> None:
    with pytest.raises(ValueError, match="power of two"):
        Samples(size=3)


def test_percentiles_of_nothing_are_nothing() -> None:
    assert percentiles_us(np.zeros(0, dtype=np.int64)) == {}
