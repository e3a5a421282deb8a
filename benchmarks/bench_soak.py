"""Measure whether a process grows: its memory each second, under a paced load of some minutes.

Requests begin and end all the time, with the lengths of a production trace. Some are preempted,
some aborted by the engine, some cancelled by their clients. The exit status is 1 if a process
grew beyond the limit after the warm-up, or if a token was wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from array import array
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tokenpipe.bench.machine_info import describe_machine
from tokenpipe.bench.options import Options
from tokenpipe.bench.process_usage import rss_mb
from tokenpipe.bench.progress import Progress
from tokenpipe.bench.run import run
from tokenpipe.bench.traces import sample

EVERY_S = 1.0
BURST = 600  # requests at once at the beginning
WINDOW_S = 10.0  # a figure is the median of this time


class MemorySamples:
    """Seconds and MiB of one process. The memory for them is taken at once, so it does not grow."""

    def __init__(self, most: int) -> None:
        self._at = array("d", bytes(8 * most))
        self._mib = array("d", bytes(8 * most))
        self._count = 0

    def add(self, at_s: float, mib: float) -> None:
        """Keep a sample, if there is room."""
        if self._count < len(self._at):
            self._at[self._count], self._mib[self._count] = at_s, mib
            self._count += 1

    def pairs(self) -> list[tuple[float, float]]:
        """Return (seconds, MiB) so far."""
        return list(zip(self._at, self._mib, strict=True))[: self._count]


class MemoryWatch:
    """Read the memory of this process and all its children once a second, during the run."""

    def __init__(self, seconds: float) -> None:
        self._most = int(seconds / EVERY_S) + 60
        self.samples: dict[str, MemorySamples] = {}
        self._names: dict[int, str] = {}
        self._begin = 0.0
        self._due = 0.0

    def update(self, _: Progress) -> None:
        """Take samples if they are due. The first call is second 0."""
        now = time.monotonic()
        if now < self._due:
            return
        self._begin = self._begin or now
        self._due = now + EVERY_S
        self._add("engine", now, rss_mb())
        for pid in _children():
            try:
                name = self._names.get(pid) or self._names.setdefault(pid, _name(pid))
                self._add(name, now, rss_mb(pid))
            except (ProcessLookupError, FileNotFoundError):
                continue  # it has just ended

    def _add(self, name: str, now: float, mib: float) -> None:
        if name not in self.samples:
            self.samples[name] = MemorySamples(self._most)
        self.samples[name].add(now - self._begin, mib)

    def grown_mib(self, name: str, begin_s: float, end_s: float) -> tuple[float, float]:
        """Return the MiB of a process at `begin_s` and at `end_s`."""
        pairs = self.samples[name].pairs()
        at = [
            statistics.median(mib for when, mib in pairs if abs(when - middle) <= WINDOW_S / 2)
            for middle in (begin_s, end_s - WINDOW_S / 2)
        ]
        return at[0], at[1]


def _children() -> list[int]:
    pids: list[int] = []
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/children", encoding="ascii") as file:
            pids += map(int, file.read().split())
    return pids


def _name(pid: int) -> str:
    """Return the role and rank of a child, from its command line: `bench.worker 0.1`."""
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    module = words[words.index("-m") + 1].removeprefix("tokenpipe.")
    options = dict(pairwise(words))
    if module == "bench.worker":
        return f"{module} {options['--dp']}.{options['--tp']}"
    return f"{module} {options.get('--index') or options.get('--name')}"


def write_trace(path: Path, seconds: float, arrivals: float) -> None:
    """Write requests of real lengths: a burst, then `arrivals` a second at random.

    The burst has more requests than later run at one time. So each process takes the memory for a
    full load in the warm-up, and memory that it takes later is growth.
    """
    requests = sample(BURST + int(seconds * arrivals), seed=1, rate=arrivals).arrivals
    lines = ["timestamp_ms,input_length,output_length"]
    for index, request in enumerate(requests):
        at_ms = 0.0 if index < BURST else 1000 * (request.at_s - requests[BURST].at_s)
        lines.append(f"{at_ms:.3f},{request.prompt_tokens},{request.output_tokens}")
    path.write_text("\n".join(lines) + "\n")


def main(argv: list[str]) -> int:
    """Run, print the figures, and return 1 if a process grew or a token was wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="length of the run")
    parser.add_argument("--warm-up", type=float, default=60.0, help="seconds that do not count")
    parser.add_argument("--limit", type=float, default=1.0, help="MiB that a process may grow")
    parser.add_argument("--arrivals", type=float, default=20.0, help="requests a second")
    parser.add_argument("--rate", type=float, default=50.0, help="steps/s of each rank")
    parser.add_argument("--consume", choices=("columns", "streams"), default="columns")
    parser.add_argument("--json", type=Path, help="file for the report and all samples")
    args = parser.parse_args(argv)
    watch = MemoryWatch(args.seconds)
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        trace = Path(directory, "trace.csv")
        write_trace(trace, args.seconds, args.arrivals)
        report = run(
            Options(trace=trace, rate=args.rate, abort_rate=0.1, consume=args.consume), watch.update
        )
    figures = {
        name: watch.grown_mib(name, args.warm_up, args.seconds) for name in sorted(watch.samples)
    }
    _show(figures, report)
    if args.json is not None:
        values: dict[str, Any] = {"machine": describe_machine(), "report": report}
        values["samples"] = {name: samples.pairs() for name, samples in watch.samples.items()}
        args.json.write_text(json.dumps(values) + "\n")
    grown = max(end - begin for begin, end in figures.values())
    return 0 if report["ok"] and grown <= args.limit else 1


def _show(figures: dict[str, tuple[float, float]], report: dict[str, Any]) -> None:
    view = Table("process", "MiB after the warm-up", "at the end", "grown")
    for name, (begin, end) in figures.items():
        view.add_row(name, f"{begin:.2f}", f"{end:.2f}", f"{end - begin:+.2f}")
    console = Console()
    console.print(view)
    verdict = "every token right" if report["ok"] else "WRONG"
    console.print(
        f"{report['ended']:,} requests, {report['tokens_out']:,} tokens, "
        f"{report['events'].get('preempt', 0)} preempted, {report['reasons'].get('abort', 0)} "
        f"aborted: {verdict}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
