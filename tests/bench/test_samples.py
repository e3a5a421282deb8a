"""The number of samples is bounded, and percentiles are those of the kept samples."""

import numpy as np
import pytest

from tokenpipe.bench.samples import Samples, percentiles_us


def test_the_last_samples_are_kept() -> None:
    samples = Samples(size=4)
    assert samples.us() == {}
    for ns in (9_000_000, 1000, 2000, 3000, 4000):
        samples.add(ns)
    assert samples.count == 5
    assert samples.us() == {"p50": 2.5, "p99": 3.97, "max": 4.0}


def test_a_size_is_a_power_of_two() -> None:
    with pytest.raises(ValueError, match="power of two"):
        Samples(size=3)


def test_no_samples_have_no_percentiles() -> None:
    assert percentiles_us(np.zeros(0, dtype=np.int64)) == {}
