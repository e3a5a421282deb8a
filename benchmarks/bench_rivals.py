"""Compare tokenpipe with other implementations of the same path, in one run on one machine.

Worker, processor and clients are a process each, for each contestant. The client checks each token
with the same oracle, and a run with a wrong token shows no figures. Without options the worker
publishes as fast as it can. With `--rate 100` it keeps a rate, and there are 2 clients and a
consumer for each request.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tokenpipe.bench.machine_info import describe_machine

from .launch import run_rival
from .ours import LABEL as OURS
from .ours import run_ours
from .rivals import RIVALS
from .workload import Workload

Report = dict[str, Any]


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_rivals", description=__doc__)
    parser.add_argument("--only", nargs="*", choices=[OURS, *RIVALS], help="contestants to run")
    parser.add_argument("--rate", type=float, help="steps/s (default: as fast as possible)")
    parser.add_argument(
        "--streams", action="store_true", help="a consumer for each request, without a rate too"
    )
    parser.add_argument(
        "--churn", action="store_true", help="in each step, another request gets no token"
    )
    parser.add_argument(
        "--check-later", action="store_true", help="check whole messages when all have come"
    )
    parser.add_argument("--clients", type=int, help="default: 1, or 2 with a rate")
    parser.add_argument("--batch", type=int, default=256, help="rows of a step")
    parser.add_argument("--seconds", type=float, help="default: 2, or 5 with a rate")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each, by turns; the median")
    parser.add_argument("--json", type=Path, help="file for the figures")
    return parser.parse_args(argv)


def run(label: str, work: Workload) -> Report:
    """Run one contestant once."""
    return run_ours(work) if label == OURS else run_rival(label, work)


def middle(runs: list[Report], paced: bool) -> Report:
    """Return the median run: by p99 latency if there is a rate, else by tokens/s."""
    if any(report["wrong"] for report in runs):
        return max(runs, key=lambda report: report["wrong"])
    if paced:
        order = sorted(runs, key=lambda report: report["latency_us"]["p99"])
    else:
        order = sorted(runs, key=lambda report: report["tokens_per_s"])
    return order[(len(order) - 1) // 2]


def workload_of(args: argparse.Namespace) -> Workload:
    """Return the workload that the options ask for."""
    paced = args.rate is not None
    work = Workload(
        batch=args.batch,
        clients=args.clients or (2 if paced else 1),
        seconds=args.seconds or (5.0 if paced else 2.0),
        rate=args.rate,
        churn=args.churn,
        streams=args.streams or paced,
        check_later=args.check_later,
    )
    if work.churn and work.streams:
        raise SystemExit("--churn needs whole messages: a consumer tells steps by token offsets")
    return work


def main(argv: list[str]) -> int:
    """Run the contestants by turns. The exit status is 1 if a token is wrong."""
    args = parse(argv)
    work = workload_of(args)
    labels = args.only or [OURS, *RIVALS]
    runs: dict[str, list[Report]] = {label: [] for label in labels}
    for _ in range(args.repeat):
        for label in labels:
            runs[label].append(run(label, work))
    reports = [middle(runs[label], work.rate is not None) for label in labels]
    console = Console()
    console.print(table(reports, work))
    for report in reports:
        for error in report["errors"][:3]:
            console.print(f"{report['label']}: {error}")
    if args.json is not None:
        spread = {
            label: [report["tokens_per_s"] for report in each] for label, each in runs.items()
        }
        figures = {
            "machine": describe_machine(),
            "workload": {name: getattr(work, name) for name in Workload.__slots__},
            "reports": reports,
            "tokens_per_s_of_all_runs": spread,
            "tokens_per_s_median": {k: statistics.median(v) for k, v in spread.items()},
        }
        args.json.write_text(json.dumps(figures, indent=1))
    return 1 if any(report["wrong"] for report in reports) else 0


def table(reports: list[Report], work: Workload) -> Table:
    """Return the figures of all contestants, with the ratio to tokenpipe if it ran."""
    how = f"{work.rate:g} steps/s" if work.rate else "flood"
    how += ", changing rows" if work.churn else ""
    reading = "a consumer a request" if work.streams else "whole messages"
    view = Table(title=f"batch {work.batch}, {how}, {work.clients} client(s), {reading}")
    view.add_column("")
    heads = ["tokens/s", "ours is", "worker", "processor", "client", "total", "wrong"]
    if work.rate:
        heads += ["p50 / p99 / max ms", "growth"]
    if work.streams:
        heads.append("tokens an item p50 / p99")
    for head in heads:
        view.add_column(head, justify="right")
    ours = next((r["tokens_per_s"] for r in reports if r["label"] == OURS), None)
    for report in reports:
        view.add_row(report["label"], *_cells(report, work, ours))
    view.caption = (
        "worker, processor, client, total: CPU µs a token, without making and checking tokens"
    )
    return view


def _cells(report: Report, work: Workload, ours: float | None) -> list[str]:
    if report["wrong"]:
        return [*["-"] * 6, str(report["wrong"])]
    ratio = f"{ours / report['tokens_per_s']:.1f} times" if ours and not work.rate else ""
    cpu = report["cpu_us_per_token"]
    cells = [f"{report['tokens_per_s']:,}", ratio, *(f"{v:.3f}" for v in cpu.values()), "0"]
    if work.rate:
        took = report["latency_us"]
        cells.append(" / ".join(f"{took[q] / 1000:.2f}" for q in ("p50", "p99", "max")))
        cells.append(f"{report['backlog_growth']:.2f}")
    if work.streams:
        cells.append(f"{report['item_tokens']['p50']} / {report['item_tokens']['p99']}")
    return cells


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
