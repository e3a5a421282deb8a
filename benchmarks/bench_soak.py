"""Ask whether any process grows: a paced load for minutes, each process's memory all along.

Requests come and go (their lengths are a production trace's), some are preempted, some aborted by
the engine, some given up by their clients. Exit status 1 where a process grew beyond the limit
between the end of the warm-up and the end, or where a token was wrong.
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
BURST = 600  # requests at once in the beginning
WINDOW_S = 10.0  # a figure is the median of so long


class Samples:
    """Seconds and MiB of one process, in memory that is taken at once: the watch must not grow."""

    def __init__(self, most: int) -> None:
        self._at = array("d", bytes(8 * most))
        self._mib = array("d", bytes(8 * most))
        self._count = 0

    def add(self, at_s: float, mib: float) -> None:
        """Keep a sample, while there is room."""
        if self._count < len(self._at):
            self._at[self._count], self._mib[self._count] = at_s, mib
            self._count += 1

    def pairs(self) -> list[tuple[float, float]]:
        """Return (seconds, MiB) so far."""
        return list(zip(self._at, self._mib, strict=True))[: self._count]


class Watch:
    """Look at this process and all its children once a second, while the bench runs."""

    def __init__(self, seconds: float) -> None:
        self._most = int(seconds / EVERY_S) + 60
        self.samples: dict[str, Samples] = {}
        self._names: dict[int, str] = {}
        self._begin = 0.0
        self._due = 0.0

    def look(self, _: Progress) -> None:
        """Take a sample where one is due; the first call is second 0."""
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
                continue  # it has ended since

    def _add(self, name: str, now: float, mib: float) -> None:
        if name not in self.samples:
            self.samples[name] = Samples(self._most)
        self.samples[name].add(now - self._begin, mib)

    def grown_mib(self, name: str, begin_s: float, end_s: float) -> tuple[float, float]:
        """Return the MiB that a process had at `begin_s` and at `end_s`."""
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
    """Return what a child is, from its command line: `bench.worker 0.1`."""
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    module = words[words.index("-m") + 1].removeprefix("tokenpipe.")
    options = dict(pairwise(words))
    if module == "bench.worker":
        return f"{module} {options['--dp']}.{options['--tp']}"
    return f"{module} {options.get('--index') or options.get('--name')}"


def write_trace(path: Path, seconds: float, arrivals: float) -> None:
    """Write requests of real lengths: a burst, then so many a second at random.

    The burst is more than any crowd that chance brings later, so that what a full house needs is
    taken in the warm-up and what comes on top is growth.
    """
    requests = sample(BURST + int(seconds * arrivals), seed=1, rate=arrivals).arrivals
    lines = ["timestamp_ms,input_length,output_length"]
    for index, request in enumerate(requests):
        at_ms = 0.0 if index < BURST else 1000 * (request.at_s - requests[BURST].at_s)
        lines.append(f"{at_ms:.3f},{request.prompt_tokens},{request.output_tokens}")
    path.write_text("\n".join(lines) + "\n")


def main(argv: list[str]) -> int:
    """Soak, show, judge."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--warm-up", type=float, default=60.0, help="seconds before it counts")
    parser.add_argument("--limit", type=float, default=1.0, help="MiB that a process may grow")
    parser.add_argument("--arrivals", type=float, default=20.0, help="requests a second")
    parser.add_argument("--rate", type=float, default=50.0, help="steps a second of a rank")
    parser.add_argument("--consume", choices=("columns", "streams"), default="columns")
    parser.add_argument("--json", type=Path, help="file for all samples")
    args = parser.parse_args(argv)
    watch = Watch(args.seconds)
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        trace = Path(directory, "trace.csv")
        write_trace(trace, args.seconds, args.arrivals)
        report = run(
            Options(trace=trace, rate=args.rate, abort_rate=0.1, consume=args.consume), watch.look
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
