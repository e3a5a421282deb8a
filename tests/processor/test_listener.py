"""The ends of a processor that have a message, found by their ports."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tokenpipe.processor.cadence import Ask
from tokenpipe.processor.listener import Listener
from tokenpipe.transport import MemoryLane
from tokenpipe.transport.memory_port import MemoryReceiverPort, MemorySenderPort


class Taker:
    """An end with a port of its own, and somebody who sends to it."""

    next_deadline = float("inf")

    def __init__(self, name: str) -> None:
        lane = MemoryLane(name)
        self.sender: MemorySenderPort = lane.sender(name)
        self.port: MemoryReceiverPort = lane.receiver()

    def take(self) -> None:
        self.port.recv_run(9, (1, 2, 3, 1), [])

    def close(self) -> None:
        self.sender.close()
        self.port.close()


@pytest.fixture
def ends() -> Iterator[tuple[Listener, Taker, Taker]]:
    """Give a listener, the end of a worker's lane and another one."""
    listener, worker, client = Listener(), Taker("w"), Taker("c")
    listener.add(worker.port, worker, worker=True)
    listener.add(client.port, client)
    yield listener, worker, client
    listener.close()
    worker.close()
    client.close()


def never() -> float:
    raise AssertionError("nothing to wait for")


def test_the_ends_that_have_a_message_are_found_without_waiting(
    ends: tuple[Listener, Taker, Taker],
) -> None:
    listener, worker, client = ends
    assert listener.ready(Ask.ALL, lambda: 0.0) == []
    worker.sender.send(b"x")
    assert listener.ready(Ask.ALL, lambda: 5.0) == [worker]
    client.sender.send(b"x")
    assert sorted(map(id, listener.ready(Ask.ALL, never))) == sorted(map(id, (worker, client)))
    worker.take()
    assert listener.ready(Ask.ALL, never) == [client]


def test_workers_are_not_asked_where_only_the_others_are(
    ends: tuple[Listener, Taker, Taker],
) -> None:
    listener, worker, client = ends
    worker.sender.send(b"x")
    assert listener.ready(Ask.OTHERS, lambda: 0.0) == []
    assert listener.ready(Ask.NOBODY, never) == []
    client.sender.send(b"x")
    assert listener.ready(Ask.OTHERS, lambda: 5.0) == [client]


def test_an_end_that_was_removed_is_asked_no_more(ends: tuple[Listener, Taker, Taker]) -> None:
    listener, _, client = ends
    client.sender.send(b"x")
    listener.remove(client.port)
    assert listener.ready(Ask.ALL, lambda: 0.0) == []
    listener.add(client.port, client)
    assert listener.ready(Ask.ALL, lambda: 5.0) == [client]
