"""Carry messages between a rival's processes: ZeroMQ over ipc, or a standard queue."""

from __future__ import annotations

import queue
from dataclasses import dataclass, field
from multiprocessing.context import SpawnContext
from typing import Any, Protocol

import zmq


class Inbox(Protocol):
    """The receiving end of a link."""

    def recv(self) -> Any:
        """Return the next message; waits for it."""

    def ready(self) -> list[Any]:
        """Return what is there, up to 32 messages; never waits."""

    def fileno(self) -> int:
        """Return what an event loop can wait on."""

    def more(self) -> bool:
        """Say whether a message is there though the descriptor stays silent."""


class Outbox(Protocol):
    """The sending end of a link."""

    def send(self, message: Any) -> None:
        """Send; waits while the link is full."""


@dataclass(frozen=True)
class ZmqLinks:
    """PUSH that connects, PULL that binds, one pair a link, ZeroMQ's own bounds."""

    directory: str

    def inbox(self, name: str) -> ZmqInbox:
        """Bind a link."""
        socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PULL)
        socket.bind(f"ipc://{self.directory}/{name}")
        return ZmqInbox(socket)

    def outbox(self, name: str) -> zmq.Socket[bytes]:
        """Connect a link."""
        socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PUSH)
        socket.connect(f"ipc://{self.directory}/{name}")
        return socket


@dataclass(frozen=True)
class ZmqInbox:
    """A PULL socket, read without zmq.asyncio, whose futures would cost more than the message."""

    socket: zmq.Socket[bytes]

    def recv(self) -> bytes:
        """Return the next message."""
        return self.socket.recv()

    def ready(self) -> list[bytes]:
        """Return what is there."""
        messages: list[bytes] = []
        while len(messages) < 32:
            try:
                messages.append(self.socket.recv(zmq.NOBLOCK))
            except zmq.Again:
                break
        return messages

    def fileno(self) -> int:
        """Return ZeroMQ's edge-triggered descriptor."""
        return int(self.socket.getsockopt(zmq.FD))

    def more(self) -> bool:
        """Say whether a message is there, which the descriptor tells only once."""
        return bool(int(self.socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN)


@dataclass(frozen=True)
class QueueLinks:
    """One `multiprocessing.Queue` a link, made by the parent."""

    queues: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def make(cls, context: SpawnContext, names: list[str]) -> QueueLinks:
        """Make the queues of all links, as bounded as ZeroMQ's are."""
        return cls({name: context.Queue(2000) for name in names})

    def inbox(self, name: str) -> QueueInbox:
        """Return the reading end."""
        return QueueInbox(self.queues[name])

    def outbox(self, name: str) -> QueueOutbox:
        """Return the writing end."""
        return QueueOutbox(self.queues[name])


@dataclass(frozen=True)
class QueueInbox:
    """The reading end of a queue."""

    queue: Any

    def recv(self) -> Any:
        """Return the next message."""
        return self.queue.get()

    def ready(self) -> list[Any]:
        """Return what is there."""
        messages: list[Any] = []
        while len(messages) < 32:
            try:
                messages.append(self.queue.get_nowait())
            except queue.Empty:
                break
        return messages

    def fileno(self) -> int:
        """Return the pipe's descriptor; waiting on it is the cheapest way a loop can."""
        return int(self.queue._reader.fileno())

    def more(self) -> bool:
        """Say whether a message is there; the descriptor tells by itself."""
        return False


@dataclass(frozen=True)
class QueueOutbox:
    """The writing end of a queue."""

    queue: Any

    def send(self, message: Any) -> None:
        """Send; waits while the queue is full."""
        self.queue.put(message)
