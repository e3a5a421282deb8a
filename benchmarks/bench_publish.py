"""Measure how long publish() stops a forward loop, beside a bare pyzmq send of as many bytes.

Between its calls the thread computes all the time, as a forward loop does. So it holds the GIL, and
the caches are full of other data. Both calls take turns in one process, and each has a reader.
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

from .bare_send import BareSend, bare_reader
from .collector import freeze_collector
from .forward import FORWARD_BYTES, compute_until
from .ours import run_pipeline
from .rivals.links import ZmqLinks
from .workload import EOS, Tokens, Workload

Report = dict[str, Any]


def worker(
    pipe: Connection,
    endpoint: str,
    work: Workload,
    links: ZmqLinks,
    period_s: float,
    clock: Callable[[], int],
) -> None:
    """Call publish and a bare send by turns, one call in each period."""
    bare = BareSend(links, 16 * work.batch, clock)
    with Publisher(endpoint) as publisher:
        freeze_collector()
        pipe.send("ready")
        handle_list, keys = pipe.recv()
        handles = np.array(handle_list, dtype=np.int64)
        tokens = Tokens(keys)
        ours = Samples()
        weights = np.ones(FORWARD_BYTES // 8)
        due = time.perf_counter()
        end = due + work.seconds
        step = 0
        while due < end:
            step += 1
            row = tokens.step()
            due = compute_until(due + period_s, weights)
            begin = clock()
            publisher.publish(step, handles, row)
            ours.add(clock() - begin)
            due = compute_until(due + period_s, weights)
            bare()
        publisher.publish(step + 1, handles, np.full(work.batch, EOS, dtype=np.int32))
        bare.end()
        publisher.close()
        pipe.send({"publish_us": ours.us(), "bare_us": bare.took.us(), "calls": ours.count})
        pipe.recv()


def measure(period_s: float, seconds: float, batch: int, clock: Callable[[], int]) -> Report:
    """Return p50, p99 and max of both calls, in µs of the clock."""
    work = Workload(batch=batch, seconds=seconds)
    with tempfile.TemporaryDirectory(prefix="publish-") as directory:
        links = ZmqLinks(directory)
        with bare_reader(links):
            worked, _, read = run_pipeline(work, worker, links, period_s, clock)
    return {"period_ms": period_s * 1e3, "wrong": sum(c["wrong"] for c in read), **worked}


def main(argv: list[str]) -> int:
    """Measure without a pause, every 1 ms and every 10 ms."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_publish", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each period")
    parser.add_argument("--batch", type=int, default=256, help="rows of a step")
    parser.add_argument(
        "--cpu",
        action="store_true",
        help="measure the calling thread's CPU time, for a machine that others use too",
    )
    parser.add_argument("--json", type=Path, help="file for the figures")
    args = parser.parse_args(argv)
    clock = time.thread_time_ns if args.cpu else time.perf_counter_ns
    reports = [measure(ms / 1e3, args.seconds, args.batch, clock) for ms in (0, 1, 10)]
    shown = Table("called every", "publish p50 / p99 µs", "bare send p50 / p99 µs", "calls")
    for report in reports:
        mine, bare = report["publish_us"], report["bare_us"]
        shown.add_row(
            f"{report['period_ms']:g} ms" if report["period_ms"] else "flood",
            f"{mine['p50']} / {mine['p99']}",
            f"{bare['p50']} / {bare['p99']}",
            str(report["calls"]),
        )
    Console().print(shown)
    if args.json is not None:
        figures = {"machine": describe_machine(), "reports": reports}
        args.json.write_text(json.dumps(figures, indent=1))
    return 1 if any(report["wrong"] for report in reports) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
