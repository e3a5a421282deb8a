"""Carry a lane through memory, between objects of one process.

It behaves as `zmq_port` does. Messages wait for a receiver that comes later. An answer to a route
that is gone is refused. One thread may send and another may receive.
"""

from __future__ import annotations

import os
from collections import deque
from typing import Any

from tokenpipe._core import SocketRecv
from tokenpipe.errors import LaneBusy

from . import timing


class _Mailbox:
    """A queue of messages with an eventfd that is readable while it may have one."""

    def __init__(self) -> None:
        self.messages: deque[tuple[bytes, bytes]] = deque()
        self.eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def put(self, route: bytes, frame: bytes) -> None:
        self.messages.append((route, frame))
        os.eventfd_write(self.eventfd, 1)

    def empty(self) -> bool:
        """Return whether the queue is empty; the eventfd is then not readable."""
        if self.messages:
            return False
        try:
            os.eventfd_read(self.eventfd)
        except BlockingIOError:
            return True
        return not self.messages  # again: a message may have come before the eventfd was read

    def take(self) -> tuple[bytes, bytes] | None:
        return None if self.empty() else self.messages.popleft()

    def close(self) -> None:
        os.close(self.eventfd)
        self.eventfd = -1


class MemoryLane:
    """Connect senders with one receiver. `sender(route)` and `receiver()` make the ports."""

    def __init__(self, lane: str) -> None:
        self.lane = lane
        self._inbox: _Mailbox | None = None
        self._waiting: deque[tuple[bytes, bytes]] = deque()
        self._routes: dict[bytes, _Mailbox] = {}

    def sender(self, route: str) -> MemorySenderPort:
        """Return a port that sends with this route."""
        return MemorySenderPort(self, route.encode())

    def receiver(self) -> MemoryReceiverPort:
        """Return the receiving port. Raises LaneBusy if the lane has one already."""
        if self._inbox is not None:
            raise LaneBusy(f"lane {self.lane} is already bound in this process")
        return MemoryReceiverPort(self)


class _MemoryPort:
    """Base of both ends: a mailbox and its eventfd."""

    def __init__(self, lane: MemoryLane) -> None:
        self.lane = lane.lane
        self.idle = False
        self._shared = lane
        self._mailbox = _Mailbox()

    def fileno(self) -> int:
        return self._mailbox.eventfd

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
        """Send a frame. It waits if the lane has no receiver yet."""
        inbox = self._shared._inbox
        if inbox is None:
            self._shared._waiting.append((self._route, frame))
        else:
            inbox.put(self._route, frame)
        return True

    def recv(self) -> bytes | None:
        """Return one message, or None if there is none."""
        taken = self._mailbox.take()
        self.idle = taken is None
        return None if taken is None else taken[1]

    def close(self) -> None:
        """Leave the lane. Frames that were sent stay in the lane."""
        if self._mailbox.eventfd >= 0:
            if self._shared._routes.get(self._route) is self._mailbox:
                del self._shared._routes[self._route]
            self._mailbox.close()


class MemoryReceiverPort(_MemoryPort):
    """Receive from a MemoryLane."""

    shut = 0  # connections that were closed

    def __init__(self, lane: MemoryLane) -> None:
        super().__init__(lane)
        self._frame: bytes | None = None
        self._socket_recv = SocketRecv(self._part, 0, BlockingIOError)
        lane._inbox = self._mailbox
        while lane._waiting:
            self._mailbox.put(*lane._waiting.popleft())

    def send(self, route: bytes, frame: bytes) -> bool:
        """Answer. Return False if the route is gone."""
        mailbox = self._shared._routes.get(route)
        if mailbox is None:
            return False
        mailbox.put(b"", frame)
        return True

    def recv_run(
        self, limit: int, next_header: tuple[int, int, int, int], out: list[Any]
    ) -> tuple[bytes, bytes] | None:
        """Append to `out` the data frame with this lane header and its direct successors.

        It stops after `limit` messages. It returns the first other message (route, frame), or None.
        """
        other = self._socket_recv.take(limit, next_header, out)
        self.idle = self._socket_recv.idle
        return other

    def _part(self, _flags: int) -> bytes:
        """Return a route in one call and its frame in the next, as a ROUTER does."""
        if self._frame is not None:
            frame, self._frame = self._frame, None
            return frame
        taken = self._mailbox.take()
        if taken is None:
            raise BlockingIOError
        route, self._frame = taken
        return route

    @property
    def malformed(self) -> int:
        """How many messages have come that are not frames."""
        return self._socket_recv.malformed

    def tend(self, _now: float) -> float:
        """Do nothing: a message in memory comes whole."""
        return timing.NEVER

    def close(self) -> None:
        """Unbind. Messages that come from now on wait for the next receiver."""
        if self._mailbox.eventfd >= 0:
            if self._shared._inbox is self._mailbox:
                self._shared._inbox = None
            self._mailbox.close()
