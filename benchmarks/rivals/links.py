"""The links between a rival's processes: ZeroMQ over ipc, or a standard queue."""

from __future__ import annotations

import queue
from dataclasses import dataclass, field
from multiprocessing.context import SpawnContext
from typing import Any, Protocol

import zmq


class LinkReceiver(Protocol):
    """The receiving end of a link."""

    def recv(self) -> Any:
        """Wait for the next message and return it."""

    def ready(self) -> list[Any]:
        """Return the messages that are there, 32 at most, without waiting."""

    def fileno(self) -> int:
        """Return a descriptor that an event loop can wait for."""

    def more(self) -> bool:
        """Return whether a message is there that the descriptor does not report."""


class LinkSender(Protocol):
    """The sending end of a link."""

    def send(self, message: Any) -> None:
        """Send a message; wait while the link is full."""


@dataclass(frozen=True)
class ZmqLinks:
    """Links of a PUSH socket that connects and a PULL socket that binds, with default bounds."""

    directory: str

    def receiver(self, name: str) -> ZmqReceiver:
        """Bind the receiving end of a link."""
        socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PULL)
        socket.bind(f"ipc://{self.directory}/{name}")
        return ZmqReceiver(socket)

    def sender(self, name: str) -> zmq.Socket[bytes]:
        """Connect the sending end of a link."""
        socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PUSH)
        socket.connect(f"ipc://{self.directory}/{name}")
        return socket


@dataclass(frozen=True)
class ZmqReceiver:
    """A PULL socket without zmq.asyncio, whose futures cost more than a message."""

    socket: zmq.Socket[bytes]

    def recv(self) -> bytes:
        """Return the next message."""
        return self.socket.recv()

    def ready(self) -> list[bytes]:
        """Return the messages that are there, 32 at most."""
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
        """Return whether a message is there: the descriptor reports it only once."""
        return bool(int(self.socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN)


@dataclass(frozen=True)
class QueueLinks:
    """Links of one `multiprocessing.Queue` each, which the parent makes."""

    queues: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def make(cls, context: SpawnContext, names: list[str]) -> QueueLinks:
        """Make the queues of all links, with the bounds that ZeroMQ has."""
        return cls({name: context.Queue(2000) for name in names})

    def receiver(self, name: str) -> QueueReceiver:
        """Return the reading end."""
        return QueueReceiver(self.queues[name])

    def sender(self, name: str) -> QueueSender:
        """Return the writing end."""
        return QueueSender(self.queues[name])


@dataclass(frozen=True)
class QueueReceiver:
    """The reading end of a queue."""

    queue: Any

    def recv(self) -> Any:
        """Return the next message."""
        return self.queue.get()

    def ready(self) -> list[Any]:
        """Return the messages that are there, 32 at most."""
        messages: list[Any] = []
        while len(messages) < 32:
            try:
                messages.append(self.queue.get_nowait())
            except queue.Empty:
                break
        return messages

    def fileno(self) -> int:
        """Return the descriptor of the queue's pipe, the cheapest thing to wait for."""
        return int(self.queue._reader.fileno())

    def more(self) -> bool:
        """Return False: the descriptor reports each message."""
        return False


@dataclass(frozen=True)
class QueueSender:
    """The writing end of a queue."""

    queue: Any

    def send(self, message: Any) -> None:
        """Send a message; wait while the queue is full."""
        self.queue.put(message)
