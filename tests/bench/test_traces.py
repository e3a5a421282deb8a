"""The built-in sample, and changes of a trace."""

import math

import pytest

from tokenpipe.bench.traces import sample
from tokenpipe.errors import ConfigError


def test_the_sample_is_seeded_and_has_real_lengths() -> None:
    trace = sample(500, seed=7, rate=100.0)
    assert trace == sample(500, seed=7, rate=100.0) != sample(500, seed=8, rate=100.0)
    assert 100 < trace.output_tokens / 500 < 300
    assert trace.arrivals[0].at_s == 0.0 and 2 < trace.arrivals[-1].at_s < 10
    assert {a.at_s for a in sample(5).arrivals} == {0.0}
    assert "Azure" in trace.credit


def test_a_trace_can_be_cut_and_sped_up() -> None:
    trace = sample(10, rate=1.0)
    assert trace.first(3).arrivals == trace.arrivals[:3]
    assert trace.faster(4).arrivals[-1].at_s == pytest.approx(trace.arrivals[-1].at_s / 4)
    assert {a.at_s for a in trace.faster(math.inf).arrivals} == {0.0}
    with pytest.raises(ConfigError):
        trace.faster(0)
