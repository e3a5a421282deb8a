"""Ask how long publish() holds up a forward loop, beside a bare pyzmq send of as many bytes.

The thread computes all the time between its calls, as a forward loop does: it holds the GIL, and
its caches are cold for us. Both calls take turns in the same process; each has its reader.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from tokenpipe.bench.machine_info import describe_machine
from tokenpipe.bench.samples import Samples
from tokenpipe.worker import Publisher

from . import machine
from .launch import START_S, Side
from .ours import carry
from .rivals.links import ZmqLinks
from .workload import EOS, Tokens, Workload

Report = dict[str, Any]
FORWARD_BYTES = 1 << 21  # what a turn of computing touches: more than a core's own caches hold


def worker(
    pipe: Connection,
    endpoint: str,
    work: Workload,
    links: ZmqLinks,
    period_s: float,
    clock: Callable[[], int],
) -> None:
    """Call publish and a bare send by turns, one call each period."""
    out = links.outbox("bare")
    with Publisher(endpoint) as publisher:
        machine.settle()
        pipe.send("ready")
        handle_list, keys = pipe.recv()
        handles = np.array(handle_list, dtype=np.int64)
        tokens = Tokens(keys)
        ours, bare = Samples(), Samples()
        weights = np.ones(FORWARD_BYTES // 8)
        due = time.perf_counter()
        end = due + work.seconds
        step = 0
        while due < end:
            step += 1
            row = tokens.step()
            due = _compute_until(due + period_s, weights)
            begin = clock()
            publisher.publish(step, handles, row)
            ours.add(clock() - begin)
            due = _compute_until(due + period_s, weights)
            frame = bytes(16 * work.batch)
            begin = clock()
            out.send(frame)
            bare.add(clock() - begin)
        publisher.publish(step + 1, handles, np.full(work.batch, EOS, dtype=np.int32))
        out.send(b"")
        publisher.close()
        pipe.send({"publish_us": ours.us(), "bare_us": bare.us(), "calls": ours.count})
        pipe.recv()


def _compute_until(due: float, weights: np.ndarray) -> float:
    """Compute until `due`; without a period, go on at once. Returns the time it is."""
    now = time.perf_counter()
    while now < due:
        weights.sum()
        now = time.perf_counter()
    return now


def reader(pipe: Connection, links: ZmqLinks) -> None:
    """Read the bare sends."""
    inbox = links.inbox("bare")
    pipe.send("ready")
    while inbox.recv():
        pass
    pipe.recv()


def measure(period_s: float, seconds: float, batch: int, clock: Callable[[], int]) -> Report:
    """Return p50, p99 and max of both calls, in µs by that clock."""
    work = Workload(batch=batch, seconds=seconds)
    with tempfile.TemporaryDirectory(prefix="publish-") as directory:
        links = ZmqLinks(directory)
        beside = Side("bare reader", reader, links)
        try:
            beside.hear(START_S)
            worked, _, read = carry(work, worker, links, period_s, clock)
        finally:
            beside.leave()
    return {"period_ms": period_s * 1e3, "wrong": sum(c["wrong"] for c in read), **worked}


def main(argv: list[str]) -> int:
    """Measure in flood, every 1 ms and every 10 ms."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_publish", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument(
        "--cpu",
        action="store_true",
        help="the calling thread's CPU time instead of the wall's, for a machine that others use",
    )
    parser.add_argument("--json", type=Path, help="file for the figures")
    args = parser.parse_args(argv)
    clock = time.thread_time_ns if args.cpu else time.perf_counter_ns
    reports = [measure(ms / 1e3, args.seconds, args.batch, clock) for ms in (0, 1, 10)]
    view = Table("called every", "publish p50 / p99 µs", "bare send p50 / p99 µs", "calls")
    for report in reports:
        mine, bare = report["publish_us"], report["bare_us"]
        view.add_row(
            f"{report['period_ms']:g} ms" if report["period_ms"] else "flood",
            f"{mine['p50']} / {mine['p99']}",
            f"{bare['p50']} / {bare['p99']}",
            str(report["calls"]),
        )
    Console().print(view)
    if args.json is not None:
        figures = {"machine": describe_machine(), "reports": reports}
        args.json.write_text(json.dumps(figures, indent=1))
    return 1 if any(report["wrong"] for report in reports) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
