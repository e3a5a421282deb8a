"""How far a run is, counted in one process and read in another, and not too often."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.conftest import Clock
from tokenpipe.bench.progress import Progress, ProgressReporter, TokenCounter, read_token_count

COUNT = """
import sys
from pathlib import Path
from tokenpipe.bench.progress import TokenCounter
tally = TokenCounter(Path(sys.argv[1]))
tally.add(300)
tally.add(1 << 33)
"""


def test_a_process_counts_and_another_reads(tmp_path: Path) -> None:
    path = tmp_path / "tally"
    assert read_token_count(path) == 0
    subprocess.run([sys.executable, "-c", COUNT, str(path)], check=True)
    assert read_token_count(path) == 300 + (1 << 33)


def test_nobody_is_told_twice_in_a_tenth_of_a_second(tmp_path: Path, clock: Clock) -> None:
    paths = [tmp_path / "one", tmp_path / "two"]
    for path in paths:
        TokenCounter(path).add(5)
    told: list[Progress] = []
    counts = [*paths, tmp_path / "not there yet"]
    reporter = ProgressReporter(told.append, counts, requests=7, tokens=100, clock=clock)
    for _ in range(3):
        reporter.update(1)
    clock.advance(0.11)
    reporter.update(2)
    assert told == [Progress(1, 7, 10, 100), Progress(2, 7, 10, 100)]
