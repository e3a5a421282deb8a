"""A worker of the bench, as a process: its plans in, its steps out, and its report."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tokenpipe import Pipeline, RankUp, StepBind, StepPlan, Topology, make_handle
from tokenpipe.bench.progress import read_token_count
from tokenpipe.bench.worker import parse

SLOTS = 4


class Bench:
    """An engine without a scheduler, and one worker."""

    def __init__(self, pipe: Pipeline, directory: Path, *arguments: str) -> None:
        self.pipe, self.report, self.count = pipe, directory / "report", directory / "count"
        self.lane = pipe.step_lane(0)
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tokenpipe.bench.worker", "--endpoint", pipe.endpoint),
                *("--report", str(self.report), "--token-count", str(self.count), *arguments),
            ]
        )
        self.ups = 0
        self.until(lambda: self.ups)

    def until(self, fact: Callable[[], object]) -> None:
        """Run the pipeline until the fact holds."""
        deadline = time.monotonic() + 20.0
        while not fact():
            assert time.monotonic() < deadline
            self.pipe.wait(0.01)
            self.ups += sum(isinstance(event, RankUp) for event in self.pipe.poll())

    def bind(self, tokens: int) -> None:
        handles = [make_handle(0, slot, 1) for slot in range(SLOTS)]
        binds = [StepBind(handle, 7, 0, max_tokens=tokens) for handle in handles]
        self.lane.send(StepPlan(1, tuple(binds)))

    def ended(self) -> dict[str, Any]:
        """Return the report of the worker, once it has ended."""
        self.until(lambda: self.process.poll() is not None)
        report: dict[str, Any] = json.loads(self.report.read_text())
        return report


@pytest.fixture
def pipe(runtime_dir: Path) -> Iterator[Pipeline]:
    topology = Topology(
        runtime_dir=runtime_dir, slots_per_rank=SLOTS, processors={"mode": "inline"}
    )
    with Pipeline(topology) as made:
        yield made


def test_it_ends_with_its_lane_and_reports_what_it_did(pipe: Pipeline, tmp_path: Path) -> None:
    bench = Bench(pipe, tmp_path, "--overrun", "1")
    bench.bind(9)
    bench.until(lambda: read_token_count(bench.count) == 10 * SLOTS)
    bench.lane.end()
    report = bench.ended()
    assert bench.process.returncode == 0
    assert (report["steps"], report["rows"], report["tokens"]) == (10, 10 * SLOTS, 10 * SLOTS)
    assert report["publish_us"]["p50"] > 0 and report["cpu_s"] > 0
    assert (report["undelivered"], report["lane_lost"]) == (0, None)


@pytest.mark.parametrize(
    ("arguments", "steps"), [(["--steps", "5"], 5), (["--discard", "--rows", "12"], 3)]
)
def test_it_ends_when_it_has_made_enough(
    pipe: Pipeline, tmp_path: Path, arguments: list[str], steps: int
) -> None:
    bench = Bench(pipe, tmp_path, *arguments)
    bench.bind(10_000)
    report = bench.ended()
    assert bench.process.returncode == 0
    assert (report["steps"], report["rows"]) == (steps, steps * SLOTS)


def test_it_ends_when_it_is_told_to(pipe: Pipeline, tmp_path: Path) -> None:
    bench = Bench(pipe, tmp_path, "--rate", "20")
    bench.bind(10_000)
    bench.until(lambda: read_token_count(bench.count) > 0)
    bench.process.send_signal(signal.SIGTERM)
    report = bench.ended()
    assert bench.process.returncode == 0 and report["undelivered"] == 0


def test_its_options_are_those_that_the_bench_gives() -> None:
    args = parse(["--tokens-per-row", "3", "--logprobs", "2", "--lockstep", "--pin", "1"])
    assert (args.tokens_per_row, args.logprobs, args.lockstep, args.pin) == (3, 2, True, 1)
    assert (args.rate, args.steps, args.rows, args.overrun) == (None, None, None, 2)
