"""Samples are bounded, and percentiles are those of the durations kept."""

import numpy as np
import pytest

from tokenpipe.bench.samples import Samples, percentiles_us


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
