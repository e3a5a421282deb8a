"""Ask what a model runner costs the forward's thread: from "ids are sampled" to "next forward".

A model that computes for a while and returns ids it has, as numpy and as Paddle CPU tensors, at
batch 256; a bare pyzmq send of as many bytes takes turns in the same process. To make the ids is
the model's affair and not counted; what becomes of them is, the end of a tensor too. Then whole
loops: the same steps published and thrown away, by turns, for the rate that the pipeline costs;
"discarded" is from ids to the next forward where nothing is published.

The forward's thread has one core to itself, all else has the others: processor, client, engine and
the threads of the worker's own sockets. A thread begins on the core of the one that makes it, and
libzmq's would then send on the forward's, in its way: `--together` leaves them there.

What an engine asks its scheduler for before a forward is no hand-off. A worker in `run(lane)` looks
for plans there: `--plans` counts that too.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from tokenpipe.bench.machine_info import describe_machine
from tokenpipe.bench.samples import Samples
from tokenpipe.bench.worker import Discard
from tokenpipe.runners import CPUModelRunner, Row, Sampled
from tokenpipe.wire import StepBind
from tokenpipe.worker import Publisher, StepLane, StepLaneReader

from . import machine
from .launch import START_S, Side
from .ours import carry
from .rivals.links import ZmqLinks
from .workload import EOS, MAX_TOKENS, Tokens, Workload

Report = dict[str, Any]
Clock = Callable[[], int]
FORWARD_BYTES = 1 << 21  # what a turn of computing touches: more than a core's own caches hold
HEADER_BYTES = 64  # what a frame of a running batch has beside 4 bytes a row
PAIRS = 10
TURNS = 6  # of each in a pair: what others do to the machine in its 0.6 s meets both
TURN_STEPS = 10


@dataclass(frozen=True, slots=True)
class How:
    """What a run is told beside its workload."""

    forward_s: float
    clock: Clock
    cores: tuple[int, ...]
    together: bool
    plans: bool


class Forward:
    """Computes for `forward_s`, says when its ids are ready and when it begins again."""

    def __init__(self, ids: Callable[[], Any], forward_s: float, clock: Clock) -> None:
        self.ids = ids
        self._clock = clock
        self._weights = np.ones(FORWARD_BYTES // 8)
        began = time.thread_time()
        for _ in range(20):
            self._weights.sum()
        self._sums = max(1, round(forward_s / ((time.thread_time() - began) / 20)))
        self.ready = 0
        self.handoff = Samples()
        self.beside: Callable[[], None] | None = None  # what takes turns with a hand-off

    def prefill(self, rows: Sequence[Row]) -> Sampled:
        """Begin."""
        return self._step()

    def decode(self, rows: Sequence[Row], last: Any, lengths: Any) -> Sampled:
        """Run one step."""
        self.handoff.add(self._clock() - self.ready)
        return self._step()

    def free(self, row: Row) -> None:
        """Nothing is kept."""

    def same_as(self, other: Forward) -> None:
        """Compute exactly as much as the other does, out of the same memory."""
        self._sums = other._sums
        self._weights = other._weights

    def compute(self) -> None:
        """Do what a forward does."""
        for _ in range(self._sums):
            self._weights.sum()

    def _step(self) -> Sampled:
        self.compute()
        if self.beside is not None:
            self.beside()
            self.compute()
        ids = self.ids()
        self.ready = self._clock()
        return Sampled(ids)


class Unsent(Discard):
    """A publisher that sends nothing, as a runner takes one."""

    def fail(self, error: str | BaseException) -> None:
        """Raise what the runner could not go on from."""
        raise RuntimeError(str(error))


def worker(
    pipe: Connection, endpoint: str, work: Workload, links: ZmqLinks, kind: str, how: How
) -> None:
    """Time hand-offs beside bare sends, then steps published and thrown away."""
    clock = how.clock
    if how.together:
        os.sched_setaffinity(0, how.cores[:1])  # and all threads that follow
    out = links.outbox("bare")
    lane = StepLane.worker(endpoint) if how.plans else None
    with Publisher(endpoint) as publisher:
        pipe.send("ready")
        handles, keys = pipe.recv()
        tokens = Tokens(keys)
        to_tensor = _to_tensor(kind)
        bare = Samples()
        forward = Forward(lambda: to_tensor(tokens.step()), how.forward_s, clock)
        runner = CPUModelRunner(forward, publisher)
        runner.change(_binds(handles, keys))

        def send_bare() -> None:
            frame = bytes(4 * work.batch + HEADER_BYTES)
            begin = clock()
            out.send(frame)
            bare.add(clock() - begin)

        forward.beside = send_bare
        os.sched_setaffinity(0, how.cores[:1])  # this thread, and no other
        machine.settle()
        end = time.perf_counter() + work.seconds
        step = _step(runner, lane)
        while time.perf_counter() < end:
            step()
        handoff = forward.handoff.us()
        forward.beside = None
        unsent = Tokens(keys)  # made as the others are, and thrown away
        silent = Forward(lambda: to_tensor(unsent.step()), how.forward_s, clock)
        silent.same_as(forward)
        discarding = CPUModelRunner(silent, Unsent())
        discarding.change(_binds(handles, keys))
        ratios = _pairs(step, _step(discarding, lane), clock)
        end_ids = to_tensor(np.full(work.batch, EOS, dtype=np.int32))
        forward.ids = lambda: end_ids
        runner.step()
        out.send(b"")
        publisher.close()
        if lane is not None:
            lane.close()
        pipe.send(
            {
                "handoff_us": handoff,
                "bare_us": bare.us(),
                "discarded_us": silent.handoff.us(),
                "calls": bare.count,
                "rate": round(median(ratios), 4),
                "rates": [round(ratio, 4) for ratio in sorted(ratios)],
            }
        )
        pipe.recv()


def _binds(handles: list[int], keys: list[int]) -> list[StepBind]:
    return [
        StepBind(handle, key, 0, (1,), max_tokens=MAX_TOKENS)
        for handle, key in zip(handles, keys, strict=True)
    ]


def _step(runner: CPUModelRunner, lane: StepLaneReader | None) -> Callable[[], object]:
    """Return what a loop calls for each step."""
    if lane is None:
        return runner.step

    def look_and_step() -> None:
        lane.recv(0.0)
        runner.step()

    return look_and_step


def _pairs(
    publish: Callable[[], object], discard: Callable[[], object], clock: Clock
) -> list[float]:
    """Return for each pair the published steps' rate over that of the others."""
    ratios = []
    for pair in range(PAIRS + 1):
        order = (publish, discard) if pair % 2 else (discard, publish)
        took = {publish: 0, discard: 0}
        for one in order * TURNS:
            begin = clock()
            for _ in range(TURN_STEPS):
                one()
            took[one] += clock() - begin
        if pair:  # the first warms up
            ratios.append(took[discard] / took[publish])
    return ratios


def _to_tensor(kind: str) -> Callable[[Any], Any]:
    if kind == "numpy":
        return lambda ids: ids
    tensor: Callable[[Any], Any] = importlib.import_module("paddle").to_tensor
    return tensor


def reader(pipe: Connection, links: ZmqLinks) -> None:
    """Read the bare sends."""
    inbox = links.inbox("bare")
    pipe.send("ready")
    while inbox.recv():
        pass
    pipe.recv()


def measure(kind: str, work: Workload, how: How) -> Report:
    """Return p50, p99 and max of hand-off and bare send in µs, and the rate of the loop."""
    cores = how.cores
    with tempfile.TemporaryDirectory(prefix="handoff-") as directory:
        links = ZmqLinks(directory)
        if len(cores) > 1:  # all but the forward, which takes the first for itself
            os.sched_setaffinity(0, cores[1:])
        try:
            beside = Side("bare reader", reader, links)
            try:
                beside.hear(START_S)
                worked, _, read = carry(work, worker, links, kind, how)
            finally:
                beside.leave()
        finally:
            os.sched_setaffinity(0, cores)
    return {"ids": kind, "wrong": sum(client["wrong"] for client in read), **worked}


def main(argv: list[str]) -> int:
    """Measure with numpy and with Paddle."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_handoff", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--forward-ms", type=float, default=5.0)
    parser.add_argument(
        "--cpu",
        action="store_true",
        help="the forward thread's CPU time instead of the wall's, for a machine that others use",
    )
    parser.add_argument(
        "--together",
        action="store_true",
        help="leave the worker's threads for its sockets on the forward's core",
    )
    parser.add_argument(
        "--plans", action="store_true", help="look for plans before each step, as `run` does"
    )
    parser.add_argument("--json", type=Path, help="file for the figures")
    args = parser.parse_args(argv)
    how = How(
        forward_s=args.forward_ms / 1e3,
        clock=time.thread_time_ns if args.cpu else time.perf_counter_ns,
        cores=tuple(sorted(os.sched_getaffinity(0))),
        together=args.together,
        plans=args.plans,
    )
    work = Workload(batch=args.batch, seconds=args.seconds)
    reports = [measure(kind, work, how) for kind in ("numpy", "paddle")]
    view = Table(
        "ids", "hand-off p50 / p99 µs", "bare send p50 / p99 µs", "discarded p50", "rate", "calls"
    )
    for report in reports:
        mine, bare = report["handoff_us"], report["bare_us"]
        view.add_row(
            report["ids"],
            f"{mine['p50']} / {mine['p99']}",
            f"{bare['p50']} / {bare['p99']}",
            str(report["discarded_us"]["p50"]),
            f"{report['rate']:.2%}",
            str(report["calls"]),
        )
    Console().print(view)
    if args.json is not None:
        whole = {"machine": describe_machine(), "cpu": args.cpu, "reports": reports}
        args.json.write_text(json.dumps(whole, indent=1))
    return 1 if any(report["wrong"] for report in reports) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
