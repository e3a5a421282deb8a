"""Ask what the other ranks lose while one rank's processor is stopped (SIGSTOP), not dead.

Four ranks, a processor each, two clients that read from all of them. First a flood says what the
machine can do; then the ranks run at half of that, one processor stops for a while and goes on.
Exit status 1 where the other ranks lost more than the limit, or a token was wrong or missing.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from tokenpipe.bench.checker import Checker
from tokenpipe.bench.machine_info import describe_machine
from tokenpipe.client import Client
from tokenpipe.events import Event, RankUp, Submitted
from tokenpipe.pipeline import Pipeline
from tokenpipe.topology import Topology
from tokenpipe.types import SamplingParams
from tokenpipe.worker import Publisher

from .fanout import check_columns
from .launch import START_S, Side, until
from .machine import settle
from .sides import drive
from .workload import EOS, MAX_TOKENS, Workload

RANKS = 4
CLIENTS = 2
STOPPED = RANKS - 1
BUCKET_S = 0.1
TICK_S = 0.001  # a worker sleeps so long at least: four that wake for each step are the load
SETTLE_S = 1.0  # after "go", and after a stop, before it counts

Report = dict[str, Any]


def worker(pipe: Connection, endpoint: str, work: Workload, dp: int) -> None:
    """Publish steps of one rank."""
    with Publisher(endpoint, dp_rank=dp) as publisher:
        settle()
        pipe.send("ready")
        handle_list, keys = pipe.recv()
        handles = np.array(handle_list, dtype=np.int64)
        publish = publisher.publish
        report = drive(work, keys, lambda step, rows, tokens: publish(step, handles[rows], tokens))
        pipe.send(report)
        pipe.recv()  # what is not acknowledged yet is for the stopped one to take
        publisher.close()


def client(pipe: Connection, endpoint: str, work: Workload, index: int) -> None:
    """Read frames of all ranks; count the tokens of each rank in time."""
    checker = Checker()
    with Client(endpoint, name=f"client-{index}") as me:
        params = SamplingParams(max_tokens=MAX_TOKENS)
        live = RANKS * work.batch // CLIENTS
        for _ in range(live):
            checker.add(me.submit([0], params))
        settle()
        pipe.send("ready")
        came: list[Counter[int]] = [Counter() for _ in range(RANKS)]
        for frame in me.frames():
            came[frame.processor][int(time.monotonic() / BUCKET_S)] += frame.tokens_total
            ended = np.flatnonzero(frame.finish).tolist()
            counts = frame.counts if len(frame.tokens) != len(frame.keys) else None
            live -= check_columns(checker, frame.keys, frame.offsets, counts, frame.tokens, ended)
            if not live:
                break
    pipe.send({"came": came, "tokens": checker.verdict().tokens, "wrong": checker.verdict().wrong})
    pipe.recv()


class Run:
    """One run over four ranks, with or without a stop in the middle."""

    def __init__(self, work: Workload, stop_s: float, control: bool = False) -> None:
        self.work = work
        self.stop_s = stop_s
        self.control = control
        self.window = (0.0, 0.0)

    def __call__(self) -> tuple[list[Report], list[Report]]:
        """Return the workers' and the clients' reports."""
        topology = Topology.model_validate(
            {
                "data_parallel_size": RANKS,
                "slots_per_rank": self.work.batch,
                "vocab_size": EOS + 1,
                "eos_token_ids": (EOS,),
                "processors": {"count": RANKS},
                "clients": CLIENTS,
                "timeouts": {"publish_s": 60.0},
            }
        )
        with Pipeline(topology) as pipe:
            clients = [
                Side(f"client {i}", client, pipe.endpoint, self.work, i) for i in range(CLIENTS)
            ]
            workers = [
                Side(f"worker {dp}", worker, pipe.endpoint, self.work, dp) for dp in range(RANKS)
            ]
            try:
                bound = _bind(pipe, self.work)
                for side in (*clients, *workers):
                    _serve_until(pipe, side)
                    side.hear(0.1)
                for side, what in zip(workers, bound, strict=True):
                    side.tell(what)
                if self.stop_s:
                    self._stop_for_a_while(pipe)
                for side in (*workers, *clients):
                    _serve_until(pipe, side)
                return [s.hear(0.1) for s in workers], [s.hear(0.1) for s in clients]
            finally:
                for side in (*clients, *workers):
                    side.leave()

    def _stop_for_a_while(self, pipe: Pipeline) -> None:
        begin = time.monotonic()
        _serve_for(pipe, SETTLE_S + self.stop_s)
        pid = pipe.processor_pids[STOPPED]
        if not self.control:
            os.kill(pid, signal.SIGSTOP)
        stopped = time.monotonic()
        _serve_for(pipe, SETTLE_S + self.stop_s)
        self.window = (begin + SETTLE_S, stopped)
        if not self.control:
            os.kill(pid, signal.SIGCONT)


def _serve_for(pipe: Pipeline, seconds: float) -> list[Event]:
    end = time.monotonic() + seconds
    events: list[Event] = []
    while (left := end - time.monotonic()) > 0:
        pipe.wait(left)
        events += pipe.poll()
    return events


def _serve_until(pipe: Pipeline, side: Side) -> None:
    def spoke() -> bool:
        pipe.wait(0.02)
        pipe.poll()
        return side.spoke()

    until(spoke, 2 * START_S, f"a word of {side.name}")


def _bind(pipe: Pipeline, work: Workload) -> list[tuple[list[int], list[int]]]:
    """Bind the requests, those of each client spread over all ranks; handles and keys by rank."""
    events: list[Event] = []

    def there() -> bool:
        events.extend(_serve_for(pipe, 0.05))
        up = sum(isinstance(event, RankUp) for event in events)
        return up == RANKS and len(events) == RANKS + RANKS * work.batch

    until(there, 2 * START_S, "all requests and ranks")
    requests = [event.request for event in events if isinstance(event, Submitted)]
    bound = []
    for dp in range(RANKS):
        mine = requests[dp::RANKS]
        with pipe.step(dp) as commands:
            handles = [commands.bind(request, slot) for slot, request in enumerate(mine)]
        bound.append((handles, [request.internal_id for request in mine]))
    return bound


def measure(batch: int, seconds: float, control: bool = False) -> Report:
    """Return the steps/s of a flood, and what each rank delivered before and during the stop.

    `control` stops nothing: what is lost then is the machine's own swing.
    """
    _, flood = Run(Workload(batch=batch, seconds=2.0), 0.0)()
    flood_rate = _delivered_per_s(flood) / RANKS / batch
    rate = flood_rate / 2
    length_s = 2 * (seconds + SETTLE_S) + 1.0
    paced = Workload(batch=batch, rate=rate, at_once=max(1, round(rate * TICK_S)), seconds=length_s)
    run = Run(paced, seconds, control)
    workers, clients = run()
    before = _tokens_per_s(clients, run.window[0], seconds)
    during = _tokens_per_s(clients, run.window[1] + SETTLE_S, seconds)
    made = sum(report["tokens"] for report in workers)
    # A rank that catches up has more than its pace before; that is not what it can lose.
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
    """Return the tokens/s that arrived, first to last; what is published fills the lanes too."""
    came: Counter[int] = sum((rank for c in clients for rank in c["came"]), Counter())
    return came.total() / ((max(came) - min(came) + 1) * BUCKET_S)


def _tokens_per_s(clients: list[Report], begin: float, seconds: float) -> list[int]:
    """Return tokens/s of each rank within a span of monotonic time."""
    first = int(begin / BUCKET_S) + 1
    buckets = range(first, first + int(seconds / BUCKET_S) - 1)
    return [
        round(sum(c["came"][dp][b] for c in clients for b in buckets) / (len(buckets) * BUCKET_S))
        for dp in range(RANKS)
    ]


def main(argv: list[str]) -> int:
    """Measure, show, judge."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_stopped", description=__doc__)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=3.0, help="before, and of the stop")
    parser.add_argument("--control", action="store_true", help="stop nothing: the machine's swing")
    parser.add_argument("--limit", type=float, default=0.1, help="share that the others may lose")
    parser.add_argument("--json", type=Path, help="file for the figures")
    args = parser.parse_args(argv)
    report = measure(args.batch, args.seconds, args.control)
    console = Console()
    console.print(
        f"flood: {report['flood_steps_per_s']:,} steps/s of each rank; paced at {report['rate']:,}"
    )
    for dp, (before, during) in enumerate(zip(report["before"], report["during"], strict=True)):
        note = " (its processor was stopped)" if dp == STOPPED and not args.control else ""
        console.print(f"rank {dp}: {before:,} tokens/s before, {during:,} during{note}")
    console.print(
        f"the others lost {report['lost_share']:.1%} together, {report['worst_lost_share']:.1%} at "
        f"worst; wrong tokens: {report['wrong']}"
    )
    if args.json is not None:
        args.json.write_text(json.dumps({"machine": describe_machine(), **report}, indent=1))
    return 0 if report["lost_share"] <= args.limit and not report["wrong"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
