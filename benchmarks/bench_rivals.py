"""Ask how tokenpipe stands beside other ways of the same path, in one run on this machine.

Worker, processor and clients are a process each, for every contestant; every token is checked at
the client by the same oracle, and a run with a wrong token has no figures. `python -m
benchmarks.bench_rivals` floods; `--rate 100` paces, with 2 clients and a consumer a request.
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
    parser.add_argument("--rate", type=float, help="steps/s; without it, flood")
    parser.add_argument("--streams", action="store_true", help="a consumer a request, flooding too")
    parser.add_argument(
        "--churn", action="store_true", help="by turns, one request of the batch gets no token"
    )
    parser.add_argument(
        "--check-later", action="store_true", help="of whole messages: once all are there"
    )
    parser.add_argument("--clients", type=int, help="default 1 flooding, 2 paced")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seconds", type=float, help="default 2 flooding, 5 paced")
    parser.add_argument("--repeat", type=int, default=1, help="take turns, keep the median run")
    parser.add_argument("--json", type=Path, help="file for the figures")
    return parser.parse_args(argv)


def run(label: str, work: Workload) -> Report:
    """Run one contestant once."""
    return run_ours(work) if label == OURS else run_rival(label, work)


def middle(runs: list[Report], paced: bool) -> Report:
    """Return the median run: by p99 latency where paced, else by tokens/s."""
    if any(report["wrong"] for report in runs):
        return max(runs, key=lambda report: report["wrong"])
    if paced:
        order = sorted(runs, key=lambda report: report["latency_us"]["p99"])
    else:
        order = sorted(runs, key=lambda report: report["tokens_per_s"])
    return order[(len(order) - 1) // 2]


def main(argv: list[str]) -> int:
    """Run the contestants by turns; exit status 1 when a token was wrong."""
    args = parse(argv)
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
        raise SystemExit("--churn is for whole messages: consumers tell steps by their offsets")
    labels = args.only or [OURS, *RIVALS]
    runs: dict[str, list[Report]] = {label: [] for label in labels}
    for _ in range(args.repeat):
        for label in labels:
            runs[label].append(run(label, work))
    reports = [middle(runs[label], paced) for label in labels]
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
    """Return the figures side by side; ours to theirs where ours ran."""
    how = f"{work.rate:g} steps/s" if work.rate else "flood"
    how += ", changing rows" if work.churn else ""
    reading = "a consumer a request" if work.streams else "whole messages"
    view = Table(title=f"batch {work.batch}, {how}, {work.clients} client(s), {reading}")
    view.add_column("")
    heads = ["tokens/s", "ours is", "worker", "processor", "client", "total", "wrong"]
    for head in heads:
        view.add_column(head, justify="right")
    if work.rate:
        view.add_column("p50 / p99 / max ms", justify="right")
        view.add_column("growth", justify="right")
    if work.streams:
        view.add_column("tokens an item p50 / p99", justify="right")
    ours = next((r["tokens_per_s"] for r in reports if r["label"] == OURS), None)
    for report in reports:
        if report["wrong"]:
            view.add_row(report["label"], "-", "-", "-", "-", "-", "-", str(report["wrong"]))
            continue
        ratio = f"{ours / report['tokens_per_s']:.1f} times" if ours and not work.rate else ""
        cpu = report["cpu_us_per_token"]
        cells = [f"{report['tokens_per_s']:,}", ratio, *(f"{v:.3f}" for v in cpu.values()), "0"]
        if work.rate:
            took = report["latency_us"]
            cells.append(" / ".join(f"{took[q] / 1000:.2f}" for q in ("p50", "p99", "max")))
            cells.append(f"{report['backlog_growth']:.2f}")
        if work.streams:
            cells.append(f"{report['item_tokens']['p50']} / {report['item_tokens']['p99']}")
        view.add_row(report["label"], *cells)
    view.caption = "worker, processor, client, total: CPU µs a token, making and checking left out"
    return view


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
