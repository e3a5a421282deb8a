"""Carry a lane through memory, between objects of one process: the twin of zmq_port.

It behaves as ZeroMQ does: what was sent before a receiver came waits for it, an answer to a route
that is gone is not taken, a message may be sent from one thread and received in another.
"""

from __future__ import annotations

import os
from collections import deque
from typing import Any

from tokenpipe._core import SocketRecv
from tokenpipe.errors import LaneBusy


class _Mailbox:
    """Queue messages and ring an eventfd."""

    def __init__(self) -> None:
        self.messages: deque[tuple[bytes, bytes]] = deque()
        self.bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def put(self, route: bytes, frame: bytes) -> None:
        self.messages.append((route, frame))
        os.eventfd_write(self.bell, 1)

    def empty(self) -> bool:
        """Tell whether nothing is here; the bell is silent then."""
        if self.messages:
            return False
        try:
            os.eventfd_read(self.bell)
        except BlockingIOError:
            return True
        return not self.messages  # asked again: it may have come before the bell was silenced

    def take(self) -> tuple[bytes, bytes] | None:
        return None if self.empty() else self.messages.popleft()

    def close(self) -> None:
        os.close(self.bell)
        self.bell = -1


class MemoryLane:
    """Join senders and one receiver; make ports with `sender(route)` and `receiver()`."""

    def __init__(self, lane: str) -> None:
        self.lane = lane
        self._inbox: _Mailbox | None = None
        self._waiting: deque[tuple[bytes, bytes]] = deque()
        self._routes: dict[bytes, _Mailbox] = {}

    def sender(self, route: str) -> MemorySenderPort:
        """Return a port that sends under this route."""
        return MemorySenderPort(self, route.encode())

    def receiver(self) -> MemoryReceiverPort:
        """Return the receiving port. Raises LaneBusy where there is one already."""
        if self._inbox is not None:
            raise LaneBusy(f"lane {self.lane} is already bound in this process")
        return MemoryReceiverPort(self)


class _MemoryPort:
    """What both ends share: the mailbox and its bell."""

    def __init__(self, lane: MemoryLane) -> None:
        self.lane = lane.lane
        self.idle = False
        self._shared = lane
        self._mailbox = _Mailbox()

    def fileno(self) -> int:
        return self._mailbox.bell

    def readable(self) -> bool:
        self.idle = self._mailbox.empty()
        return not self.idle


class MemorySenderPort(_MemoryPort):
    """Send into a MemoryLane."""

    def __init__(self, lane: MemoryLane, route: bytes) -> None:
        super().__init__(lane)
        self._route = route
        lane._routes[route] = self._mailbox

    def send(self, frame: bytes) -> bool:
        """Hand a frame over; it waits where there is no receiver."""
        inbox = self._shared._inbox
        if inbox is None:
            self._shared._waiting.append((self._route, frame))
        else:
            inbox.put(self._route, frame)
        return True

    def recv(self) -> bytes | None:
        """Take one message, or None."""
        taken = self._mailbox.take()
        self.idle = taken is None
        return None if taken is None else taken[1]

    def close(self) -> None:
        """Leave the lane; what was sent stays sent."""
        if self._mailbox.bell >= 0:
            if self._shared._routes.get(self._route) is self._mailbox:
                del self._shared._routes[self._route]
            self._mailbox.close()


class MemoryReceiverPort(_MemoryPort):
    """Receive from a MemoryLane."""

    def __init__(self, lane: MemoryLane) -> None:
        super().__init__(lane)
        self._frame: bytes | None = None
        self._socket_recv = SocketRecv(self._part, 0, BlockingIOError)
        lane._inbox = self._mailbox
        while lane._waiting:
            self._mailbox.put(*lane._waiting.popleft())

    def send(self, route: bytes, frame: bytes) -> bool:
        """Answer; False where the route is gone."""
        mailbox = self._shared._routes.get(route)
        if mailbox is None:
            return False
        mailbox.put(b"", frame)
        return True

    def recv_run(
        self, limit: int, next_header: tuple[int, int, int, int], out: list[Any]
    ) -> tuple[bytes, bytes] | None:
        """Append the data frame with that lane header and those that follow it in number.

        Stops after `limit` messages; returns the first other message, or None.
        """
        other = self._socket_recv.take(limit, next_header, out)
        self.idle = self._socket_recv.idle
        return other

    def _part(self, _flags: int) -> bytes:
        """Return a route, then its frame, as a ROUTER does."""
        if self._frame is not None:
            frame, self._frame = self._frame, None
            return frame
        taken = self._mailbox.take()
        if taken is None:
            raise BlockingIOError
        route, self._frame = taken
        return route

    def realign(self) -> None:
        """Do nothing: a message here has no further parts."""

    def close(self) -> None:
        """Unbind; what comes from now on waits for the next receiver."""
        if self._mailbox.bell >= 0:
            if self._shared._inbox is self._mailbox:
                self._shared._inbox = None
            self._mailbox.close()
