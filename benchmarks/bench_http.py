"""Measure what HTTP costs: SSE tokens/s and CPU a token of the API server, beside a bare app.

`ours` is all of `python -m tokenpipe serve` with its synthetic engine. `bare` is a Starlette app on
the same server, which streams a constant chunk of one token: the upper limit. Both take turns.

Without a rate, the figure is how many tokens a second come through; tokenpipe then puts several
tokens into one event. With `--rate` each event has one token, and the figure is an event's CPU.
CPU is that of all threads of the processes that answer HTTP.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from tokenpipe.bench.machine_info import describe_machine
from tokenpipe.bench.process_usage import cpu_s
from tokenpipe.supervisor import Child, ChildSpec, Supervisor

START_S = 60.0
ROOT = str(Path(__file__).parent.parent)


class MeasuredServer(NamedTuple):
    """A server that is measured. `pids` are the processes that answer HTTP."""

    name: str
    url: str
    pids: list[int]


def main(argv: Sequence[str]) -> int:
    """Measure and print a table. The exit status is 1 if a stream has too few tokens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=256, help="streams at once")
    parser.add_argument("--tokens", type=int, default=400, help="tokens of each stream")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="API workers")
    parser.add_argument("--rate", type=float, default=0.0, help="tokens/s of a stream; 0: no limit")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each side; the median")
    parser.add_argument("--json", type=Path, help="file for the figures")
    args = parser.parse_args(argv)
    report: dict[str, Any] = {"machine": describe_machine(), "sides": {}}
    for workers in args.workers:
        report["sides"][workers] = measure(args, workers)
    show(report["sides"])
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    return int(any(run["short"] for side in report["sides"].values() for run in side.values()))


def measure(args: argparse.Namespace, workers: int) -> dict[str, dict[str, float]]:
    """Return the median run of each side."""
    runs: dict[str, list[dict[str, float]]] = {"bare": [], "ours": []}
    with (
        tempfile.TemporaryDirectory(prefix="bench-http-") as scratch,
        Supervisor(Path(scratch)) as children,
        serving(children, "bare", Path(scratch), workers, args) as bare,
        serving(children, "ours", Path(scratch), workers, args) as ours,
    ):
        for turn in range(args.repeat + 1):  # the first turn warms up
            for server in (bare, ours):
                run = one_run(children, server, args, turn)
                if turn:
                    runs[server.name].append(run)
    return {name: median(found) for name, found in runs.items()}


@contextmanager
def serving(
    children: Supervisor, name: str, scratch: Path, workers: int, args: argparse.Namespace
) -> Iterator[MeasuredServer]:
    """Start a server and wait until it serves; stop it at the end."""
    if name == "bare":
        module = "benchmarks.bare_sse"
        options = ["--workers", str(workers), "--rate", str(args.rate)]
    else:
        topology = scratch / "topology.yaml"
        where = {"runtime_dir": str(scratch / "run"), "log_dir": str(scratch / "logs")}
        api = {"port": 0, "workers": workers}
        keys = {**where, "api": api, "slots_per_rank": args.streams, "name": "bench"}
        topology.write_text(json.dumps(keys))
        module = "tokenpipe"
        options = ["serve", str(topology), "--engine-arg", f"rate={args.rate}"]
    child = children.start(ChildSpec(name, "0", module, tuple(options), {"PYTHONPATH": ROOT}))
    url = ""
    deadline = time.monotonic() + START_S
    while not url:
        found = re.search(r"serving on (\S+);", child.log_tail())
        url = found[1] if found else ""
        if children.poll(0.05) or time.monotonic() > deadline:
            raise SystemExit(f"{name} did not start:\n{child.log_tail()}")
    try:
        yield MeasuredServer(name, url, answering(child, name, workers))
    finally:
        children.stop(20.0, [child])


def answering(child: Child, name: str, workers: int) -> list[int]:
    """Wait until all processes that answer HTTP are there; return their pids."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        (root,) = [child.pid] if name == "bare" else below(child.pid, "tp:api")[:1] or [0]
        found = [root] if workers == 1 else below(root, "")
        if root and len(found) == workers:
            return found
        time.sleep(0.05)
    raise SystemExit(f"{name}: {workers} workers did not start")


def below(pid: int, title: str) -> list[int]:
    """Return the children of a process whose name begins with `title`."""
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        children += map(int, (task / "children").read_text().split())
    return [c for c in children if Path(f"/proc/{c}/comm").read_text().startswith(title)]


def one_run(
    children: Supervisor, server: MeasuredServer, args: argparse.Namespace, turn: int
) -> dict[str, float]:
    """Load a server once; return the counts, and its CPU during the load."""
    options = ("--url", server.url, "--streams", str(args.streams), "--tokens", str(args.tokens))
    before = sum(map(cpu_s, server.pids))
    rank = f"{server.name}-{turn}"
    spec = ChildSpec("load", rank, "benchmarks.http_load", options, {"PYTHONPATH": ROOT})
    load = children.start(spec)
    while load.died is None:
        if any(died.child is not load for died in children.poll(1.0)):
            raise SystemExit(f"{server.name} ended")
    cpu = sum(map(cpu_s, server.pids)) - before
    if load.died.returncode:
        raise SystemExit(str(load.died))
    run: dict[str, float] = json.loads(load.died.log_tail)
    run["tokens_per_s"] = run["tokens"] / run["wall_s"]
    run["cpu_us_per_token"] = cpu / run["tokens"] * 1e6
    run["cpu_us_per_event"] = cpu / run["events"] * 1e6
    return run


def median(runs: list[dict[str, float]]) -> dict[str, float]:
    """Return the median run by tokens/s. `short` is that of all runs."""
    middle = statistics.median_low([run["tokens_per_s"] for run in runs])
    found = next(run for run in runs if run["tokens_per_s"] == middle)
    return {**found, "short": sum(run["short"] for run in runs)}


def show(sides: dict[int, dict[str, dict[str, float]]]) -> None:
    """Print the figures of both sides and their ratio."""
    table = Table("workers", "side", "tokens/s", "tokens/event", "CPU µs/token", "CPU µs/event")
    for workers, pair in sides.items():
        for name, run in pair.items():
            row = [f"{run['tokens_per_s']:,.0f}", f"{run['tokens'] / run['events']:.2f}"]
            row += [f"{run['cpu_us_per_token']:.1f}", f"{run['cpu_us_per_event']:.1f}"]
            table.add_row(str(workers), name, *row)
        bare, ours = pair["bare"], pair["ours"]
        ratios = ["tokens_per_s", "cpu_us_per_token", "cpu_us_per_event"]
        first, *rest = (ours[key] / bare[key] for key in ratios)
        table.add_row(str(workers), "ours / bare", f"{first:.2f}", "", *(f"{r:.2f}" for r in rest))
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
