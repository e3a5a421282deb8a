"""Measure what a model runner costs the forward's thread.

The hand-off is the time from sampled token ids to the next forward, at batch 256. The ids are numpy
arrays, and then Paddle CPU tensors. A model computes for a while and returns ids that exist
already. Making ids does not count; releasing them does. A bare pyzmq send of as many bytes is timed
in the same thread, by turns.

Then whole loops run by turns: one publishes its steps, one discards them. "rate" is the rate of
the publishing loop over that of the other. "discarded" is the hand-off if nothing is published.

The forward's thread has one core for itself. Everything else has the other cores: processor,
client, engine, and the socket threads of the worker. A new thread begins on the core of its parent
thread, so libzmq's threads would send on the forward's core: `--together` leaves them there.

Before a forward, an engine also asks its scheduler, which is no part of a hand-off. A worker's loop
reads plans there: `--plans` includes that.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from tokenpipe.bench.machine_info import describe_machine
from tokenpipe.bench.measured_publisher import DiscardingPublisher
from tokenpipe.runners import CPUModelRunner
from tokenpipe.wire import StepBind, StepPlan
from tokenpipe.worker import Publisher, StepLane, StepLaneReader, WorkerLoop

from .bare_send import BareSend, bare_reader
from .collector import freeze_collector
from .forward import Clock, Forward, to_tensor
from .ours import run_pipeline
from .rivals.links import ZmqLinks
from .workload import EOS, MAX_TOKENS, Tokens, Workload

Report = dict[str, Any]
Step = Callable[[], object]
HEADER_BYTES = 64  # of a frame of an unchanged batch, beside 4 bytes a row
PAIRS = 10
TURNS = 6  # of each loop in a pair, so that other load of the machine meets both
TURN_STEPS = 10


@dataclass(frozen=True, slots=True)
class Conditions:
    """How a run is measured."""

    forward_s: float
    clock: Clock
    cores: tuple[int, ...]
    together: bool
    plans: bool


class FirstPlan:
    """A step lane that gives one plan of its own, then those of another lane if there is one."""

    ended = False

    def __init__(self, plan: StepPlan, lane: StepLaneReader | None) -> None:
        self._plan = plan
        self._lane = lane

    def recv(self, timeout_s: float) -> list[StepPlan]:
        """Return the plan."""
        if self._lane is not None:
            self.recv = self._lane.recv  # type: ignore[method-assign]
        return [self._plan]


def worker(
    pipe: Connection,
    endpoint: str,
    work: Workload,
    links: ZmqLinks,
    kind: str,
    conditions: Conditions,
) -> None:
    """Time hand-offs and bare sends by turns, then the loops that publish and discard."""
    if conditions.together:
        os.sched_setaffinity(0, conditions.cores[:1])  # for all threads that start from here on
    bare = BareSend(links, 4 * work.batch + HEADER_BYTES, conditions.clock)
    lane = StepLane.worker(endpoint) if conditions.plans else None
    with Publisher(endpoint) as publisher:
        pipe.send("ready")
        handles, keys = pipe.recv()
        forward = _forward(keys, kind, conditions)
        plans = _plan(handles, keys), lane
        loop = WorkerLoop(FirstPlan(*plans), publisher, CPUModelRunner(forward))
        loop.turn()
        os.sched_setaffinity(0, conditions.cores[:1])  # for this thread alone
        freeze_collector()
        step = _step(loop, lane)
        report = _hand_offs(forward, step, bare, work.seconds)
        silent = _forward(keys, kind, conditions)
        silent.same_as(forward)
        discarding = WorkerLoop(FirstPlan(*plans), DiscardingPublisher(), CPUModelRunner(silent))
        discarding.turn()
        ratios = _pairs(step, _step(discarding, lane), conditions.clock)
        report["discarded_us"] = silent.hand_off.us()
        report["rate"] = round(median(ratios), 4)
        report["rates"] = [round(ratio, 4) for ratio in sorted(ratios)]
        end_ids = to_tensor(kind)(np.full(work.batch, EOS, dtype=np.int32))
        forward.ids = lambda: end_ids
        step()
        bare.end()
        publisher.close()
        if lane is not None:
            lane.close()
        pipe.send(report)
        pipe.recv()


def _forward(keys: list[int], kind: str, conditions: Conditions) -> Forward:
    tokens, make = Tokens(keys), to_tensor(kind)
    return Forward(lambda: make(tokens.step()), conditions.forward_s, conditions.clock)


def _hand_offs(forward: Forward, step: Step, bare: BareSend, seconds: float) -> Report:
    """Run steps with a bare send between two computations of each."""
    forward.beside = bare
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        step()
    forward.beside = None
    return {
        "handoff_us": forward.hand_off.us(),
        "bare_us": bare.took.us(),
        "calls": bare.took.count,
    }


def _plan(handles: list[int], keys: list[int]) -> StepPlan:
    binds = [
        StepBind(handle, key, 0, (1,), max_tokens=MAX_TOKENS)
        for handle, key in zip(handles, keys, strict=True)
    ]
    return StepPlan(0, tuple(binds))


def _step(loop: WorkerLoop, lane: StepLaneReader | None) -> Step:
    """Return the function that runs a step: without a lane, no plan is looked for."""
    return loop.step if lane is None else loop.turn


def _pairs(publish: Step, discard: Step, clock: Clock) -> list[float]:
    """Return, for each pair of loops, the rate of the published steps over that of the others."""
    ratios = []
    for pair in range(PAIRS + 1):
        order = (publish, discard) if pair % 2 else (discard, publish)
        took = {publish: 0, discard: 0}
        for one in order * TURNS:
            begin = clock()
            for _ in range(TURN_STEPS):
                one()
            took[one] += clock() - begin
        if pair:  # the first pair warms up
            ratios.append(took[discard] / took[publish])
    return ratios


def measure(kind: str, work: Workload, conditions: Conditions) -> Report:
    """Return p50, p99 and max of the hand-off and the bare send in µs, and the loop's rate."""
    cores = conditions.cores
    with tempfile.TemporaryDirectory(prefix="handoff-") as directory:
        links = ZmqLinks(directory)
        if len(cores) > 1:  # the forward's thread takes the first core for itself
            os.sched_setaffinity(0, cores[1:])
        try:
            with bare_reader(links):
                worked, _, read = run_pipeline(work, worker, links, kind, conditions)
        finally:
            os.sched_setaffinity(0, cores)
    return {"ids": kind, "wrong": sum(client["wrong"] for client in read), **worked}


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_handoff", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of hand-offs")
    parser.add_argument("--batch", type=int, default=256, help="rows of a step")
    parser.add_argument("--forward-ms", type=float, default=5.0, help="length of a forward")
    parser.add_argument(
        "--cpu",
        action="store_true",
        help="measure the forward thread's CPU time, for a machine that others use too",
    )
    parser.add_argument(
        "--together",
        action="store_true",
        help="leave the worker's socket threads on the forward's core",
    )
    parser.add_argument(
        "--plans", action="store_true", help="read plans before each step, as a worker's loop does"
    )
    parser.add_argument("--json", type=Path, help="file for the figures")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Measure with numpy and with Paddle. The exit status is 1 if a token is wrong."""
    args = parse(argv)
    conditions = Conditions(
        forward_s=args.forward_ms / 1e3,
        clock=time.thread_time_ns if args.cpu else time.perf_counter_ns,
        cores=tuple(sorted(os.sched_getaffinity(0))),
        together=args.together,
        plans=args.plans,
    )
    work = Workload(batch=args.batch, seconds=args.seconds)
    reports = [measure(kind, work, conditions) for kind in ("numpy", "paddle")]
    Console().print(table(reports))
    if args.json is not None:
        whole = {"machine": describe_machine(), "cpu": args.cpu, "reports": reports}
        args.json.write_text(json.dumps(whole, indent=1))
    return 1 if any(report["wrong"] for report in reports) else 0


def table(reports: list[Report]) -> Table:
    """Return the figures of both kinds of ids."""
    shown = Table(
        "ids", "hand-off p50 / p99 µs", "bare send p50 / p99 µs", "discarded p50", "rate", "calls"
    )
    for report in reports:
        mine, bare = report["handoff_us"], report["bare_us"]
        shown.add_row(
            report["ids"],
            f"{mine['p50']} / {mine['p99']}",
            f"{bare['p50']} / {bare['p99']}",
            str(report["discarded_us"]["p50"]),
            f"{report['rate']:.2%}",
            str(report["calls"]),
        )
    return shown


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
