"""An idle topology sleeps, and serves the next request."""

from __future__ import annotations

from multiprocessing import resource_tracker

import pytest

from benchmarks.bench_idle import measure
from tokenpipe.topology import Topology


@pytest.fixture(scope="module", autouse=True)
def tracker() -> None:
    """Start the resource tracker of the standard library, which lives as long as this process."""
    resource_tracker.ensure_running()


@pytest.mark.case("B71")
def test_no_process_spins_and_the_next_request_is_served() -> None:
    """The bounds are far above the measured values and far below a busy loop."""
    topology = Topology.model_validate(
        {
            "data_parallel_size": 2,
            "tensor_parallel_size": 2,
            "processors": {"count": 2},
            "clients": 2,
        }
    )
    report = measure(topology, 3.0)
    for role, row in report["roles"].items():
        assert row["cpu_percent"] < 4.0 * row["processes"], role
        assert row["wakes_per_s"] < 50 * row["processes"], role
    assert all(ms > 0 for ms in report["first_item_ms"]) and len(report["first_item_ms"]) == 2
