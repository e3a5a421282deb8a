"""Run one side of a path in its own process: worker, processor or client.

Each says "ready" on its pipe, waits for "go", does its work, reports, and stays until it may leave:
a socket that closes early can take its last message with it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenpipe.bench.checker import Checker
from tokenpipe.bench.pace import Pace
from tokenpipe.bench.process_usage import UsageMeter
from tokenpipe.bench.samples import Samples

from .fanout import ColumnsMessage, Recorder, Stream, check_columns, consume
from .machine import settle
from .rivals import RIVALS
from .rivals.faces import Bound
from .rivals.links import QueueLinks, ZmqLinks
from .workload import EOS, MAX_TOKENS, Turns, Workload, key

Links = ZmqLinks | QueueLinks
Report = dict[str, Any]


def worker(pipe: Connection, label: str, work: Workload, links: Links) -> None:
    """Play the worker of a rival."""
    out = links.outbox("steps")
    message = RIVALS[label].Send().message
    keys = [key(work.client_of(slot), slot // work.clients) for slot in range(work.batch)]
    settle()
    pipe.send("ready")
    pipe.recv()
    report = drive(work, keys, lambda step, rows, tokens: out.send(message(step, rows, tokens)))
    out.send(b"")
    pipe.send(report)
    pipe.recv()


def drive(
    work: Workload,
    keys: list[int],
    publish: Callable[[int, NDArray[np.int64], NDArray[np.int32]], None],
) -> Report:
    """Publish steps at the rate for as long as told, then one with EOS for all; report it."""
    turns = Turns(keys, work.churn)
    make_us = _cost_of_making(Turns(keys, work.churn))
    pace = Pace(work.rate / work.at_once, time.monotonic()) if work.rate else None
    begins: list[int] = []
    took = Samples()
    meter = UsageMeter.start()
    end = time.monotonic() + work.seconds
    step = 0
    while (now := time.monotonic()) < end:
        if pace is not None and step % work.at_once == 0:
            wait_s = pace.wait_s(now)
            if wait_s:
                time.sleep(wait_s)  # keeps a rate; nothing else is waited for
            pace.took()
        step += 1
        rows, tokens = turns.step(step)
        begin = time.monotonic_ns()
        publish(step, rows, tokens)
        took.add(time.monotonic_ns() - begin)
        if work.rate or step == 1:
            begins.append(begin)
    every = np.arange(len(keys), dtype=np.int64)
    publish(step + 1, every, np.full(len(keys), EOS, dtype=np.int32))
    return {
        "steps": step,
        "tokens": step * (len(keys) - work.churn),
        "begins": begins,
        "make_us": make_us,
        "publish_us": took.us(),
        **meter.spent(),
    }


def _cost_of_making(turns: Turns, steps: int = 500) -> float:
    """Return µs that a step's tokens cost to make, which no path is to be charged with."""
    meter = UsageMeter.start()
    for step in range(steps):
        turns.step(step)
        time.monotonic()
    return 1e6 * meter.spent()["cpu_s"] / steps


def processor(pipe: Connection, label: str, work: Workload, links: Links) -> None:
    """Play the processor of a rival."""
    inbox = links.inbox("steps")
    outboxes = [links.outbox(f"client{client}") for client in range(work.clients)]
    requests = [
        Bound(slot, key(client, slot // work.clients), client, MAX_TOKENS, EOS)
        for slot in range(work.batch)
        for client in [work.client_of(slot)]
    ]
    messages = RIVALS[label].Process(requests).messages
    settle()
    pipe.send("ready")
    pipe.recv()
    meter = UsageMeter.start()
    while step := inbox.recv():
        for client, message in messages(step):
            outboxes[client].send(message)
    pipe.send(meter.spent())
    pipe.recv()


def client(pipe: Connection, label: str, work: Workload, links: Links, index: int) -> None:
    """Play a client of a rival."""
    inbox = links.inbox(f"client{index}")
    receive = RIVALS[label].Receive()
    checker = Checker()
    for each in work.keys_of(index):
        checker.add(each)
    settle()
    pipe.send("ready")
    pipe.recv()
    meter = UsageMeter.start()
    if work.streams:
        recorder = asyncio.run(_stream_all(inbox, receive, work, index))
        report = streams_report(recorder, checker, meter)
    else:
        received = map(receive.columns, iter(inbox.recv, None))
        messages = ((c.keys, c.offsets, None, c.tokens, c.ended) for c in received)
        report = read_columns(messages, checker, meter, work, index)
    pipe.send(report)
    pipe.recv()


async def _stream_all(inbox: Any, receive: Any, work: Workload, index: int) -> Recorder:
    """Read messages as the loop finds them readable; one consumer a request."""
    recorder = recorder_for(work)
    streams = {each: Stream() for each in work.keys_of(index)}
    loop = asyncio.get_running_loop()

    def pump() -> None:
        for message in inbox.ready():
            for owner, offset, ids, last in receive.deltas(message):
                streams[owner].put((offset, ids, last))
        if inbox.more():
            loop.call_soon(pump)

    loop.add_reader(inbox.fileno(), pump)
    pump()
    await asyncio.gather(*(consume(k, s, recorder) for k, s in streams.items()))
    loop.remove_reader(inbox.fileno())
    return recorder


def recorder_for(work: Workload) -> Recorder:
    """Return a recorder that has room for the steps of a paced run."""
    return Recorder(int(work.rate * (work.seconds + 1)) if work.rate else 0)


def streams_report(recorder: Recorder, checker: Checker, meter: UsageMeter) -> Report:
    """Report a client with a consumer a request; its tokens are checked here, after the run."""
    spent, last = meter.spent(), time.monotonic()
    recorder.check(checker)
    verdict = checker.verdict()
    return {
        "tokens": verdict.tokens,
        "wrong": verdict.wrong + recorder.misplaced,
        "last_s": last,
        "last_ns": recorder.last_ns(),
        "items": dict(recorder.items),
        "errors": sorted(recorder.errors),
        "verify_s": 0.0,
        **spent,
    }


def read_columns(
    messages: Iterable[ColumnsMessage],
    checker: Checker,
    meter: UsageMeter,
    work: Workload,
    index: int,
) -> Report:
    """Read whole messages until every request of client `index` has ended; check and report."""
    kept: list[ColumnsMessage] = []
    verify_s = 0.0
    live = len(work.keys_of(index))
    for message in messages:
        if work.check_later:
            kept.append(message)
            live -= len(set(message[4]))
        else:
            begin = time.thread_time()
            live -= check_columns(checker, *message)
            verify_s += time.thread_time() - begin
        if not live:
            break
    spent, last = meter.spent(), time.monotonic()
    for message in kept:
        check_columns(checker, *message)
    verdict = checker.verdict()
    return {
        "tokens": verdict.tokens,
        "wrong": verdict.wrong,
        "last_s": last,
        "verify_s": verify_s,
        **spent,
    }
