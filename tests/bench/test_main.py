"""The bench as a program ends soon and leaves nothing, whatever is killed or stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import eventually


class Bench:
    """A bench with one worker, one client and one processor, which runs until it is stopped."""

    def __init__(self, base: Path) -> None:
        self.base = base
        (base / "run").mkdir(mode=0o700)
        (base / "tmp").mkdir()
        topology = base / "t.yaml"
        topology.write_text(f"runtime_dir: {base}/run\nclients: 1\nslots_per_rank: 4\n")
        arguments = ["--steps", str(1 << 24), "--rate", "100", "--topology", str(topology)]
        with open(base / "out", "wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tokenpipe.bench", *arguments],
                stdout=out,
                stderr=out,
                env={**os.environ, "TMPDIR": str(base / "tmp"), "COLUMNS": "200"},
            )
        assert eventually(lambda: self.child("bench.client") and self.running(), 30), self.output

    def running(self) -> bool:
        return bool(list((self.base / "run").glob("*/client*.lock")))

    def child(self, module: str) -> int:
        """Return the pid of the child that runs a module, 0 where there is none."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        for pid in children.read_text().split():
            try:
                if f"tokenpipe.{module}" in Path(f"/proc/{pid}/cmdline").read_text().split("\0"):
                    return int(pid)
            except FileNotFoundError:  # it has just ended
                continue
        return 0

    @property
    def output(self) -> str:
        return (self.base / "out").read_text()

    def left(self) -> list[str]:
        """Return the names of all files in its directories."""
        return [p.name for name in ("run", "tmp") for p in (self.base / name).iterdir()]


@contextmanager
def running(base: Path) -> Iterator[Bench]:
    bench = Bench(base)
    try:
        yield bench
    finally:
        bench.process.kill()
        bench.process.wait()


@pytest.mark.parametrize(
    ("module", "number", "named"),
    [
        ("bench.worker", signal.SIGKILL, "bench.worker 0.0"),
        ("bench.worker", signal.SIGTERM, "ended with exit code 0, too early"),
        ("bench.client", signal.SIGKILL, "bench.client 0"),
        ("processor", signal.SIGKILL, "processor 0 was lost"),
    ],
)
def test_a_process_that_dies_ends_the_bench_and_is_named(
    tmp_path: Path, module: str, number: int, named: str
) -> None:
    with running(tmp_path) as bench:
        os.kill(bench.child(module), number)
        assert bench.process.wait(20) in (1, 2), bench.output
        assert named in bench.output and "BenchFailed" in bench.output
        assert not bench.left()


def test_a_second_signal_does_not_interrupt_the_clean_up(tmp_path: Path) -> None:
    with running(tmp_path) as bench:
        worker = bench.child("bench.worker")
        bench.process.send_signal(signal.SIGTERM)
        assert eventually(lambda: not bench.child("bench.worker"))  # the clean-up has begun
        bench.process.send_signal(signal.SIGINT)
        bench.process.send_signal(signal.SIGTERM)
        assert bench.process.wait(20) == 143, bench.output
        assert not bench.left()
        assert not Path(f"/proc/{worker}").exists()


def test_wrong_arguments_are_status_2() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tokenpipe.bench", "--discard"], capture_output=True, text=True
    )
    assert done.returncode == 2 and "needs steps" in done.stderr


@pytest.mark.parametrize("rate", ["fast", "0", "-1", "nan"])
def test_rate_is_a_number_or_max(rate: str) -> None:
    command = [sys.executable, "-m", "tokenpipe.bench", "--rate", rate]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "200"}
    )
    assert done.returncode == 2
    assert "must be a number of steps per second above 0, or max" in done.stderr
