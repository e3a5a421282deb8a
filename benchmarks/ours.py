"""Run tokenpipe on the same workload as the rivals, through its public interface."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenpipe.bench.checker import Checker
from tokenpipe.bench.process_usage import UsageMeter, cpu_s
from tokenpipe.client import AsyncClient, Client
from tokenpipe.events import RankUp, Submitted
from tokenpipe.pipeline import Pipeline
from tokenpipe.topology import Topology
from tokenpipe.types import Request, SamplingParams
from tokenpipe.wire import OutputFrame
from tokenpipe.worker import Publisher

from .clients import read_columns, recorder_for, streams_report
from .collector import freeze_collector
from .fanout import ColumnsMessage, Recorder
from .launch import summarise
from .processes import START_S, BenchProcess, until
from .publish_steps import publish_steps
from .workload import EOS, MAX_TOKENS, Workload

LABEL = "tokenpipe"
PARAMS = SamplingParams(max_tokens=MAX_TOKENS)
Report = dict[str, Any]


def run_ours(work: Workload) -> Report:
    """Run once. The engine is this process; the worker and the clients are children."""
    return summarise(LABEL, work, *run_pipeline(work, worker))


def run_pipeline(
    work: Workload, run_worker: Callable[..., None], *args: Any
) -> tuple[Report, float, list[Report]]:
    """Run with `run_worker(pipe, endpoint, work, *args)` as the worker's process.

    Returns the worker's report, the processor's CPU seconds and the clients' reports.
    """
    topology = Topology.model_validate(
        {
            "slots_per_rank": work.batch,
            "vocab_size": EOS + 1,
            "eos_token_ids": (EOS,),
            "processors": {"mode": "process", "count": 1},
            "clients": work.clients,
        }
    )
    with Pipeline(topology) as pipe:
        clients = [
            BenchProcess(f"{LABEL} client {index}", client, pipe.endpoint, work, index)
            for index in range(work.clients)
        ]
        worker_process = BenchProcess(f"{LABEL} worker", run_worker, pipe.endpoint, work, *args)
        processes = [*clients, worker_process]
        try:
            handles, keys = _bind(pipe, work)
            for process in processes:
                _receive(pipe, process, START_S)
            before_s = _processor_cpu_s(pipe)
            for process in clients:
                process.send("go")
            worker_process.send((handles, keys))
            patience_s = START_S + 20 * work.seconds
            worked = _receive(pipe, worker_process, patience_s)
            read = [_receive(pipe, process, patience_s) for process in clients]
            processor_s = _processor_cpu_s(pipe) - before_s
        finally:
            for process in processes:
                process.stop()
    return worked, processor_s, read


def _bind(pipe: Pipeline, work: Workload) -> tuple[list[int], list[int]]:
    """Bind all requests in one step, in order of arrival; return handles and keys by slot."""
    requests: list[Request] = []
    up: list[int] = []

    def all_are_there() -> bool:
        pipe.wait(0.1)
        for event in pipe.poll():
            if isinstance(event, Submitted):
                requests.append(event.request)
            elif isinstance(event, RankUp):
                up.append(event.dp_rank)
        return bool(up) and len(requests) == work.batch

    until(all_are_there, START_S, "all requests and the rank")
    with pipe.commands(0) as commands:
        handles = [commands.bind(request, slot) for slot, request in enumerate(requests)]
    if work.streams:  # the key of a stream is the id that its caller gave
        return handles, [int(request.external_id) for request in requests]
    return handles, [request.internal_id for request in requests]


def _receive(pipe: Pipeline, process: BenchProcess, timeout_s: float) -> Any:
    """Run the engine until a process sends a message; return the message."""

    def is_there() -> bool:
        pipe.wait(0.05)
        pipe.poll()
        return process.has_message()

    until(is_there, timeout_s, f"a message of {process.name}")
    return process.receive(0.1)


def _processor_cpu_s(pipe: Pipeline) -> float:
    return sum(map(cpu_s, pipe.processor_pids))


def worker(pipe: Connection, endpoint: str, work: Workload) -> None:
    """Publish the steps of the workload."""
    with Publisher(endpoint, dp_rank=0, tp_rank=0) as publisher:
        freeze_collector()
        pipe.send("ready")
        handle_list, keys = pipe.recv()
        every = np.array(handle_list, dtype=np.int64)
        publish = publisher.publish

        def step(number: int, rows: NDArray[np.int64], tokens: NDArray[np.int32]) -> None:
            handles = every if len(rows) == len(every) else every[rows]
            publish(number, handles, tokens)

        report = publish_steps(work, keys, step)
        publisher.close()
        pipe.send(report)
        pipe.recv()


def client(pipe: Connection, endpoint: str, work: Workload, index: int) -> None:
    """Read whole frames, or give each request a consumer."""
    if work.streams:
        report = asyncio.run(_read_streams(pipe, endpoint, work, index))
    else:
        report = _read_columns(pipe, endpoint, work, index)
    pipe.send(report)
    pipe.recv()


def _read_columns(pipe: Connection, endpoint: str, work: Workload, index: int) -> Report:
    checker = Checker()
    with Client(endpoint, name=f"client-{index}") as opened:
        keys = [opened.submit([0], PARAMS) for _ in work.keys_of(index)]
        for key in keys:
            checker.add(key)
        freeze_collector()
        pipe.send("ready")
        pipe.recv()
        meter = UsageMeter.start()
        return read_columns(map(_message, opened.frames()), checker, meter, work, index)


def _message(frame: OutputFrame) -> ColumnsMessage:
    counts = frame.counts if len(frame.tokens) != len(frame.keys) else None
    ended = np.flatnonzero(frame.finish).tolist()
    return frame.keys, frame.offsets, counts, frame.tokens, ended


async def _read_streams(pipe: Connection, endpoint: str, work: Workload, index: int) -> Report:
    recorder = recorder_for(work)
    checker = Checker()
    async with AsyncClient(endpoint, name=f"client-{index}") as opened:
        tasks = []
        for key in work.keys_of(index):
            checker.add(key)
            tasks.append(asyncio.create_task(_consume(opened, key, recorder)))
        await asyncio.sleep(0)  # each task submits its request before "ready"
        freeze_collector()
        pipe.send("ready")
        await asyncio.to_thread(pipe.recv)
        meter = UsageMeter.start()
        await asyncio.gather(*tasks)
        return streams_report(recorder, checker, meter)


async def _consume(opened: AsyncClient, key: int, recorder: Recorder) -> None:
    ids = recorder.tokens.setdefault(key, [])
    async for out in opened.generate([0], PARAMS, request_id=str(key)):
        before = len(ids)
        if out.offset != before:
            recorder.misplaced += abs(out.offset - before)
        ids += out.token_ids
        recorder.took(before, len(ids))
        if out.error:
            recorder.errors.add(out.error)
