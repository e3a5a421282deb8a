"""Short runs of the programs that take minutes; the soak tests run them whole."""

from __future__ import annotations

import subprocess
import sys
from multiprocessing import resource_tracker
from pathlib import Path

import pytest

from benchmarks.bench_soak import BURST, MemorySamples, MemoryWatch, write_trace
from benchmarks.bench_stopped import measure
from benchmarks.stopped_run import RANKS, STOPPED
from tokenpipe.bench.trace_files import load

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def tracker() -> None:
    """Start the resource tracker of the standard library, which lives as long as this process."""
    resource_tracker.ensure_running()


def soak(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.bench_soak", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


def test_a_trace_begins_with_a_burst_and_goes_on_evenly(tmp_path: Path) -> None:
    write_trace(tmp_path / "t.csv", seconds=50.0, arrivals=20.0)
    arrivals = load(tmp_path / "t.csv").arrivals
    assert len(arrivals) == BURST + 1000
    assert sum(a.at_s == 0.0 for a in arrivals) >= BURST
    assert 40 < arrivals[-1].at_s < 60


def test_growth_is_the_difference_of_two_medians() -> None:
    watch = MemoryWatch(100.0)
    samples = watch.samples["engine"] = MemorySamples(100)
    for second in range(150):  # more than there is room for
        samples.add(float(second), 50.0 + (5.0 if second == 20 else 0.0) + second / 100)
    assert len(samples.pairs()) == 100
    begin, end = watch.grown_mib("engine", 20.0, 100.0)
    assert end - begin == pytest.approx(0.75, abs=0.02)  # the single high sample does not count


def test_each_process_is_watched(tmp_path: Path) -> None:
    options = "--seconds 2 --warm-up 1 --limit 1000 --rate 2000 --json".split()
    done = soak(*options, str(tmp_path / "out.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("engine", "processor 1", "bench.worker 1.1", "bench.client bench-1"):
        assert name in done.stdout
    assert "every token right" in done.stdout and (tmp_path / "out.json").exists()


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("consume", ["columns", "streams"])
def test_no_process_grows_in_ten_minutes(consume: str) -> None:
    done = soak("--consume", consume)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.soak
@pytest.mark.case("B02")
def test_three_ranks_deliver_while_the_fourths_processor_is_stopped() -> None:
    report = measure(batch=64, seconds=1.0)
    assert report["wrong"] == 0
    assert all(report["during"][dp] > 0 for dp in range(RANKS) if dp != STOPPED)
