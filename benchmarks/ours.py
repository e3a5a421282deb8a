"""Run tokenpipe on the same workload, through its public face: what the rivals stand beside."""

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

from .fanout import ColumnsMessage, Recorder
from .launch import START_S, Side, summarise, until
from .machine import settle
from .sides import drive, read_columns, recorder_for, streams_report
from .workload import EOS, MAX_TOKENS, Workload

LABEL = "tokenpipe"
PARAMS = SamplingParams(max_tokens=MAX_TOKENS)
Report = dict[str, Any]


def run_ours(work: Workload) -> Report:
    """Run once: the engine is this process, worker and clients are their own."""
    return summarise(LABEL, work, *carry(work, worker))


def carry(
    work: Workload, play_worker: Callable[..., None], *args: Any
) -> tuple[Report, float, list[Report]]:
    """Run with that worker; return its report, the processor's CPU s, the clients' reports."""
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
        sides = [
            Side(f"{LABEL} client {index}", client, pipe.endpoint, work, index)
            for index in range(work.clients)
        ]
        worker_side = Side(f"{LABEL} worker", play_worker, pipe.endpoint, work, *args)
        all_sides = [*sides, worker_side]
        try:
            handles, keys = _bind(pipe, work)
            for side in all_sides:
                _hear(pipe, side, START_S)
            before_s = _processor_cpu_s(pipe)
            for side in sides:
                side.tell("go")
            worker_side.tell((handles, keys))
            patience_s = START_S + 20 * work.seconds
            worked = _hear(pipe, worker_side, patience_s)
            read = [_hear(pipe, side, patience_s) for side in sides]
            processor_s = _processor_cpu_s(pipe) - before_s
        finally:
            for side in all_sides:
                side.leave()
    return worked, processor_s, read


def _bind(pipe: Pipeline, work: Workload) -> tuple[list[int], list[int]]:
    """Bind every request as it is submitted, in one step; return handles and keys by slot."""
    requests: list[Request] = []
    up: list[int] = []

    def there() -> bool:
        pipe.wait(0.1)
        for event in pipe.poll():
            if isinstance(event, Submitted):
                requests.append(event.request)
            elif isinstance(event, RankUp):
                up.append(event.dp_rank)
        return bool(up) and len(requests) == work.batch

    until(there, START_S, "all requests submitted and the rank up")
    with pipe.step(0) as commands:
        handles = [commands.bind(request, slot) for slot, request in enumerate(requests)]
    if work.streams:  # a stream is known by the id its caller gave
        return handles, [int(request.external_id) for request in requests]
    return handles, [request.internal_id for request in requests]


def _hear(pipe: Pipeline, side: Side, timeout_s: float) -> Any:
    """Serve the pipeline until a side says something."""

    def spoke() -> bool:
        pipe.wait(0.05)
        pipe.poll()
        return side.spoke()

    until(spoke, timeout_s, f"a word of {side.name}")
    return side.hear(0.1)


def _processor_cpu_s(pipe: Pipeline) -> float:
    return sum(map(cpu_s, pipe.processor_pids))


def worker(pipe: Connection, endpoint: str, work: Workload) -> None:
    """Play the worker: publish what `drive` makes."""
    with Publisher(endpoint, dp_rank=0, tp_rank=0) as publisher:
        settle()
        pipe.send("ready")
        handle_list, keys = pipe.recv()
        every = np.array(handle_list, dtype=np.int64)
        publish = publisher.publish

        def step(number: int, rows: NDArray[np.int64], tokens: NDArray[np.int32]) -> None:
            handles = every if len(rows) == len(every) else every[rows]
            publish(number, handles, tokens)

        report = drive(work, keys, step)
        publisher.close()
        pipe.send(report)
        pipe.recv()


def client(pipe: Connection, endpoint: str, work: Workload, index: int) -> None:
    """Play a client: read whole frames, or give each request a consumer."""
    if work.streams:
        report = asyncio.run(_stream_all(pipe, endpoint, work, index))
    else:
        report = _read_columns(pipe, endpoint, work, index)
    pipe.send(report)
    pipe.recv()


def _read_columns(pipe: Connection, endpoint: str, work: Workload, index: int) -> Report:
    checker = Checker()
    with Client(endpoint, name=f"client-{index}") as me:
        keys = [me.submit([0], PARAMS) for _ in work.keys_of(index)]
        for key in keys:
            checker.add(key)
        settle()
        pipe.send("ready")
        pipe.recv()
        meter = UsageMeter.start()
        return read_columns(map(_message, me.frames()), checker, meter, work, index)


def _message(frame: OutputFrame) -> ColumnsMessage:
    counts = frame.counts if len(frame.tokens) != len(frame.keys) else None
    ended = np.flatnonzero(frame.finish).tolist()
    return frame.keys, frame.offsets, counts, frame.tokens, ended


async def _stream_all(pipe: Connection, endpoint: str, work: Workload, index: int) -> Report:
    recorder = recorder_for(work)
    checker = Checker()
    async with AsyncClient(endpoint, name=f"client-{index}") as me:
        tasks = []
        for key in work.keys_of(index):
            checker.add(key)
            tasks.append(asyncio.create_task(_consume(me, key, recorder)))
        await asyncio.sleep(0)  # every request is on its way before "ready"
        settle()
        pipe.send("ready")
        await asyncio.to_thread(pipe.recv)
        meter = UsageMeter.start()
        await asyncio.gather(*tasks)
        return streams_report(recorder, checker, meter)


async def _consume(me: AsyncClient, key: int, recorder: Recorder) -> None:
    ids = recorder.tokens.setdefault(key, [])
    async for out in me.generate([0], PARAMS, request_id=str(key)):
        before = len(ids)
        if out.offset != before:
            recorder.misplaced += abs(out.offset - before)
        ids += out.token_ids
        recorder.took(before, len(ids))
        if out.error:
            recorder.errors.add(out.error)
