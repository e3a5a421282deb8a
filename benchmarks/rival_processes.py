"""Run one process of a rival's path: its worker, its processor or a client.

Each one sends "ready" on its pipe, waits for "go", does its work and sends a report. Then it stays
until it is told to stop, because a socket that closes early may lose its last message.
"""

from __future__ import annotations

import asyncio
from multiprocessing.connection import Connection
from typing import Any

from tokenpipe.bench.checker import Checker
from tokenpipe.bench.process_usage import UsageMeter

from .clients import read_columns, recorder_for, streams_report
from .collector import freeze_collector
from .fanout import FanoutStream, Recorder, consume
from .publish_steps import publish_steps
from .rivals import RIVALS
from .rivals.links import QueueLinks, ZmqLinks
from .rivals.protocols import Bound
from .workload import EOS, MAX_TOKENS, Workload, key

Links = ZmqLinks | QueueLinks


def worker(pipe: Connection, label: str, work: Workload, links: Links) -> None:
    """Run the worker of a rival."""
    out = links.sender("steps")
    message = RIVALS[label].Send().message
    keys = [key(work.client_of(slot), slot // work.clients) for slot in range(work.batch)]
    freeze_collector()
    pipe.send("ready")
    pipe.recv()
    report = publish_steps(
        work, keys, lambda step, rows, tokens: out.send(message(step, rows, tokens))
    )
    out.send(b"")
    pipe.send(report)
    pipe.recv()


def processor(pipe: Connection, label: str, work: Workload, links: Links) -> None:
    """Run the processor of a rival."""
    receiver = links.receiver("steps")
    senders = [links.sender(f"client{client}") for client in range(work.clients)]
    requests = [
        Bound(slot, key(client, slot // work.clients), client, MAX_TOKENS, EOS)
        for slot in range(work.batch)
        for client in [work.client_of(slot)]
    ]
    messages = RIVALS[label].Process(requests).messages
    freeze_collector()
    pipe.send("ready")
    pipe.recv()
    meter = UsageMeter.start()
    while step := receiver.recv():
        for client, message in messages(step):
            senders[client].send(message)
    pipe.send(meter.spent())
    pipe.recv()


def client(pipe: Connection, label: str, work: Workload, links: Links, index: int) -> None:
    """Run a client of a rival."""
    receiver = links.receiver(f"client{index}")
    receive = RIVALS[label].Receive()
    checker = Checker()
    for each in work.keys_of(index):
        checker.add(each)
    freeze_collector()
    pipe.send("ready")
    pipe.recv()
    meter = UsageMeter.start()
    if work.streams:
        recorder = asyncio.run(_read_streams(receiver, receive, work, index))
        report = streams_report(recorder, checker, meter)
    else:
        received = map(receive.columns, iter(receiver.recv, None))
        messages = ((c.keys, c.offsets, None, c.tokens, c.ended) for c in received)
        report = read_columns(messages, checker, meter, work, index)
    pipe.send(report)
    pipe.recv()


async def _read_streams(receiver: Any, receive: Any, work: Workload, index: int) -> Recorder:
    """Read messages when the event loop finds them, and give each request a consumer."""
    recorder = recorder_for(work)
    streams = {each: FanoutStream() for each in work.keys_of(index)}
    loop = asyncio.get_running_loop()

    def read() -> None:
        for message in receiver.ready():
            for owner, offset, ids, last in receive.deltas(message):
                streams[owner].put((offset, ids, last))
        if receiver.more():
            loop.call_soon(read)

    loop.add_reader(receiver.fileno(), read)
    read()
    await asyncio.gather(*(consume(k, s, recorder) for k, s in streams.items()))
    loop.remove_reader(receiver.fileno())
    return recorder
