"""Run four ranks with a processor each, and stop one processor for a while."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from tokenpipe.bench.checker import Checker
from tokenpipe.client import Client
from tokenpipe.events import Event, RankUp, Submitted
from tokenpipe.pipeline import Pipeline
from tokenpipe.topology import Topology
from tokenpipe.types import SamplingParams
from tokenpipe.worker import Publisher

from .collector import freeze_collector
from .fanout import check_columns
from .processes import START_S, BenchProcess, until
from .publish_steps import publish_steps
from .workload import EOS, MAX_TOKENS, Workload

RANKS = 4
CLIENTS = 2
STOPPED = RANKS - 1
BUCKET_S = 0.1
SETTLE_S = 1.0  # that does not count, after the start and after the stop

Report = dict[str, Any]


def worker(pipe: Connection, endpoint: str, work: Workload, dp: int) -> None:
    """Publish the steps of one rank."""
    with Publisher(endpoint, dp_rank=dp) as publisher:
        freeze_collector()
        pipe.send("ready")
        handle_list, keys = pipe.recv()
        handles = np.array(handle_list, dtype=np.int64)
        publish = publisher.publish
        report = publish_steps(
            work, keys, lambda step, rows, tokens: publish(step, handles[rows], tokens)
        )
        pipe.send(report)
        pipe.recv()  # rows that are not acknowledged yet go to the processor that was stopped
        publisher.close()


def client(pipe: Connection, endpoint: str, work: Workload, index: int) -> None:
    """Read the frames of all ranks; count the tokens of each rank by time."""
    checker = Checker()
    with Client(endpoint, name=f"client-{index}") as opened:
        params = SamplingParams(max_tokens=MAX_TOKENS)
        live = RANKS * work.batch // CLIENTS
        for _ in range(live):
            checker.add(opened.submit([0], params))
        freeze_collector()
        pipe.send("ready")
        came: list[Counter[int]] = [Counter() for _ in range(RANKS)]
        for frame in opened.frames():
            came[frame.processor][int(time.monotonic() / BUCKET_S)] += frame.tokens_total
            ended = np.flatnonzero(frame.finish).tolist()
            counts = frame.counts if len(frame.tokens) != len(frame.keys) else None
            live -= check_columns(checker, frame.keys, frame.offsets, counts, frame.tokens, ended)
            if not live:
                break
    pipe.send({"came": came, "tokens": checker.verdict().tokens, "wrong": checker.verdict().wrong})
    pipe.recv()


class StoppedRun:
    """One run of four ranks, with or without a stop in the middle."""

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
                BenchProcess(f"client {i}", client, pipe.endpoint, self.work, i)
                for i in range(CLIENTS)
            ]
            workers = [
                BenchProcess(f"worker {dp}", worker, pipe.endpoint, self.work, dp)
                for dp in range(RANKS)
            ]
            try:
                bound = _bind(pipe, self.work)
                for process in (*clients, *workers):
                    _wait_for_message(pipe, process)
                    process.receive(0.1)
                for process, handles_and_keys in zip(workers, bound, strict=True):
                    process.send(handles_and_keys)
                if self.stop_s:
                    self._stop_for_a_while(pipe)
                for process in (*workers, *clients):
                    _wait_for_message(pipe, process)
                return [p.receive(0.1) for p in workers], [p.receive(0.1) for p in clients]
            finally:
                for process in (*clients, *workers):
                    process.stop()

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


def _wait_for_message(pipe: Pipeline, process: BenchProcess) -> None:
    def is_there() -> bool:
        pipe.wait(0.02)
        pipe.poll()
        return process.has_message()

    until(is_there, 2 * START_S, f"a message of {process.name}")


def _bind(pipe: Pipeline, work: Workload) -> list[tuple[list[int], list[int]]]:
    """Bind the requests; each client has some on every rank. Returns handles and keys by rank."""
    events: list[Event] = []

    def all_are_there() -> bool:
        events.extend(_serve_for(pipe, 0.05))
        up = sum(isinstance(event, RankUp) for event in events)
        return up == RANKS and len(events) == RANKS + RANKS * work.batch

    until(all_are_there, 2 * START_S, "all requests and ranks")
    requests = [event.request for event in events if isinstance(event, Submitted)]
    bound = []
    for dp in range(RANKS):
        mine = requests[dp::RANKS]
        with pipe.commands(dp) as commands:
            handles = [commands.bind(request, slot) for slot, request in enumerate(mine)]
        bound.append((handles, [request.internal_id for request in mine]))
    return bound
