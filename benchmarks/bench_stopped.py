"""Measure what the other ranks lose while one rank's processor is stopped by SIGSTOP.

There are four ranks with a processor each, and two clients that read from all of them. A first run
without a rate measures what the machine can do. In a second run the ranks publish at half of this
rate, and one processor is stopped for a while. The exit status is 1 if the other ranks lost more
than the limit, or if a token was wrong or missing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console

from tokenpipe.bench.machine_info import describe_machine

from .stopped_run import BUCKET_S, RANKS, SETTLE_S, STOPPED, StoppedRun
from .workload import Workload

TICK_S = 0.001  # the shortest sleep of a worker: four wake-ups for each step cost too much

Report = dict[str, Any]


def measure(batch: int, seconds: float, control: bool = False) -> Report:
    """Return what each rank delivered before and during the stop, and the steps/s without a rate.

    With `control` nothing is stopped: the loss is then the machine's own variation.
    """
    _, flood = StoppedRun(Workload(batch=batch, seconds=2.0), 0.0)()
    flood_rate = _delivered_per_s(flood) / RANKS / batch
    rate = flood_rate / 2
    length_s = 2 * (seconds + SETTLE_S) + 1.0
    paced = Workload(batch=batch, rate=rate, at_once=max(1, round(rate * TICK_S)), seconds=length_s)
    run = StoppedRun(paced, seconds, control)
    workers, clients = run()
    before = _tokens_per_s(clients, run.window[0], seconds)
    during = _tokens_per_s(clients, run.window[1] + SETTLE_S, seconds)
    made = sum(report["tokens"] for report in workers)
    # A rank that catches up delivers more than its rate. That surplus is no loss later.
    others = [(min(b, rate * batch), d) for b, d in zip(before[:-1], during[:-1], strict=True)]
    return {
        "flood_steps_per_s": round(flood_rate),
        "rate": round(rate),
        "before": before,
        "during": during,
        "lost_share": round(1 - sum(d for _, d in others) / sum(b for b, _ in others), 4),
        "worst_lost_share": round(max(1 - d / b for b, d in others), 4),
        "wrong": sum(c["wrong"] for c in clients) + abs(made - sum(c["tokens"] for c in clients)),
    }


def _delivered_per_s(clients: list[Report]) -> float:
    """Return the tokens/s that arrived. Published tokens may still be in the lanes."""
    came: Counter[int] = sum((rank for c in clients for rank in c["came"]), Counter())
    return came.total() / ((max(came) - min(came) + 1) * BUCKET_S)


def _tokens_per_s(clients: list[Report], begin: float, seconds: float) -> list[int]:
    """Return the tokens/s of each rank from `begin`, in monotonic time, for `seconds`."""
    first = int(begin / BUCKET_S) + 1
    buckets = range(first, first + int(seconds / BUCKET_S) - 1)
    return [
        round(sum(c["came"][dp][b] for c in clients for b in buckets) / (len(buckets) * BUCKET_S))
        for dp in range(RANKS)
    ]


def main(argv: list[str]) -> int:
    """Measure, print, and return 1 if the loss is too large or a token is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_stopped", description=__doc__)
    parser.add_argument("--batch", type=int, default=256, help="rows of a step")
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="before the stop, and of the stop"
    )
    parser.add_argument(
        "--control", action="store_true", help="stop nothing, to measure the machine's variation"
    )
    parser.add_argument(
        "--limit", type=float, default=0.1, help="share that the other ranks may lose"
    )
    parser.add_argument("--json", type=Path, help="file for the figures")
    args = parser.parse_args(argv)
    report = measure(args.batch, args.seconds, args.control)
    console = Console()
    console.print(
        f"without a rate: {report['flood_steps_per_s']:,} steps/s of each rank; "
        f"rate of this run: {report['rate']:,}"
    )
    for dp, (before, during) in enumerate(zip(report["before"], report["during"], strict=True)):
        note = " (its processor was stopped)" if dp == STOPPED and not args.control else ""
        console.print(f"rank {dp}: {before:,} tokens/s before, {during:,} during{note}")
    console.print(
        f"the other ranks lost {report['lost_share']:.1%} together, the worst of them "
        f"{report['worst_lost_share']:.1%}; wrong tokens: {report['wrong']}"
    )
    if args.json is not None:
        args.json.write_text(json.dumps({"machine": describe_machine(), **report}, indent=1))
    return 0 if report["lost_share"] <= args.limit and not report["wrong"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
