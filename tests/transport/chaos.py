"""A network that loses, and delays, what it is told to; ports on a fake clock."""

from __future__ import annotations

from collections import deque
from typing import Any

from tokenpipe._core import SocketRecv


class Net:
    """Carry messages between one sender port and one receiver port at a time.

    What is sent lies on the wire until `carry` moves it into the other's inbox, or `lose` drops it.
    """

    def __init__(self) -> None:
        self.up: deque[tuple[bytes, bytes]] = deque()
        self.down: deque[tuple[bytes, bytes]] = deque()
        self.inboxes: dict[bytes, deque[bytes]] = {}
        self.arrived: deque[tuple[bytes, bytes]] = deque()

    def carry(self) -> None:
        self.arrived += self.up
        self.up.clear()
        for route, frame in self.down:
            if route in self.inboxes:
                self.inboxes[route].append(frame)
        self.down.clear()


class Port:
    idle = False
    lane = "chaos"

    def __init__(self, net: Net) -> None:
        self.net = net

    def fileno(self) -> int:
        raise AssertionError("nobody waits here")

    def close(self) -> None:
        pass


class Sender(Port):
    def __init__(self, net: Net, route: bytes) -> None:
        super().__init__(net)
        self.route = route
        net.inboxes[route] = deque()

    def readable(self) -> bool:
        return bool(self.net.inboxes[self.route])

    def send(self, frame: bytes) -> bool:
        self.net.up.append((self.route, frame))
        return True

    def recv(self) -> bytes | None:
        inbox = self.net.inboxes[self.route]
        return inbox.popleft() if inbox else None


class Receiver(Port):
    malformed = shut = 0

    def __init__(self, net: Net) -> None:
        super().__init__(net)
        self._parts: list[bytes] = []

    def readable(self) -> bool:
        return bool(self.net.arrived)

    def send(self, route: bytes, frame: bytes) -> bool:
        self.net.down.append((route, frame))
        return True

    def recv_run(
        self, limit: int, next_header: tuple[int, int, int, int], out: list[Any]
    ) -> tuple[bytes, bytes] | None:
        return SocketRecv(self._part, 0, IndexError).take(limit, next_header, out)

    def _part(self, _flags: int) -> bytes:
        if self._parts:
            return self._parts.pop()
        route, frame = self.net.arrived.popleft()
        self._parts.append(frame)
        return route

    def tend(self, now: float) -> float:
        return float("inf")
