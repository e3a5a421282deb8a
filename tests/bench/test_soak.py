"""A whole production trace, and a run whose processes are often stopped."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest

from tokenpipe.bench.options import Options
from tokenpipe.bench.progress import Progress
from tokenpipe.bench.run import run
from tokenpipe.bench.trace_files import load

AZURE = Path(os.environ.get("TOKENPIPE_TRACES", "traces")) / "azure_llm_2023_conv.csv"


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.skipif(not AZURE.exists(), reason="no traces in $TOKENPIPE_TRACES")
def test_each_token_of_a_whole_trace_arrives() -> None:
    trace = load(AZURE)
    assert len(trace.arrivals) == 19_366 and trace.skipped == 0
    report = run(Options(trace=AZURE, speed_up=120.0, batch=256, abort_rate=0.0))
    assert report["ok"], report
    assert report["ended"] == report["reasons"]["length"] == 19_366
    assert report["tokens_out"] == trace.output_tokens > 4_000_000
    assert report["events"]["preempt"] > 100  # so the run had preemptions too


class Stopper:
    """Stop a child of this process at random times by SIGSTOP, for 3 s at most."""

    def __init__(self, seed: int) -> None:
        self.stops = 0
        self._chance = random.Random(seed)
        self._due = 0.0
        self._timers: list[threading.Timer] = []

    def look(self, _: Progress) -> None:
        now = time.monotonic()
        mine = Path(f"/proc/self/task/{os.getpid()}/children")
        children = [int(pid) for pid in mine.read_text().split()]
        if now < self._due or not children:
            return
        self._due = now + self._chance.uniform(0.0, 0.5)
        pid = self._chance.choice(children)
        os.kill(pid, signal.SIGSTOP)  # its pid is not reused before it is reaped
        self.stops += 1
        timer = threading.Timer(self._chance.choice([0.1, 0.5, 1.5, 3.0]), goes_on, (pid,))
        timer.start()
        self._timers.append(timer)

    def close(self) -> None:
        for timer in self._timers:
            timer.join()


def goes_on(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:  # it has ended
        return


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("consume", ["columns", "streams"])
def test_a_stopped_process_is_not_taken_for_dead_and_nothing_is_lost(
    seed: int, consume: str
) -> None:
    stopper = Stopper(seed)
    options = Options(
        batch=16,
        requests=150,
        arrivals=30.0,
        rate=500.0,
        preempt_rate=0.3,
        abort_rate=0.3,
        consume=consume,
        seed=seed,
    )
    try:
        report = run(options, stopper.look)
    finally:
        stopper.close()
    assert report["ok"], report
    assert stopper.stops > 10
