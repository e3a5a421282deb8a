"""Tokens are counted in one process and read in another, and progress is reported rarely."""

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
counter = TokenCounter(Path(sys.argv[1]))
counter.add(300)
counter.add(1 << 33)
"""


def test_a_process_counts_and_another_reads(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    assert read_token_count(path) == 0
    subprocess.run([sys.executable, "-c", COUNT, str(path)], check=True)
    assert read_token_count(path) == 300 + (1 << 33)


def test_progress_is_reported_at_most_ten_times_a_second(tmp_path: Path, clock: Clock) -> None:
    paths = [tmp_path / "one", tmp_path / "two"]
    for path in paths:
        TokenCounter(path).add(5)
    reported: list[Progress] = []
    counts = [*paths, tmp_path / "not there yet"]
    reporter = ProgressReporter(reported.append, counts, requests=7, tokens=100, clock=clock)
    for _ in range(3):
        reporter.update(1)
    clock.advance(0.11)
    reporter.update(2)
    assert reported == [Progress(1, 7, 10, 100), Progress(2, 7, 10, 100)]
