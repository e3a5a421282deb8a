"""Wait for several ports at once, in a loop of its own or in an asyncio loop."""

from __future__ import annotations

import select
import time
from collections.abc import Callable

from .port import Port


class Waiter:
    """Wait on many ports.

    In another loop, use asyncio's `add_reader(waiter.fileno())`. In the callback, receive from the
    ports until they are empty, or up to a bound of your own. Then call `pending()`; while it is
    true, schedule the callback again yourself. ZeroMQ's descriptor is edge-triggered: it does not
    become readable again for messages that came before the last event was read (zmq_getsockopt(3),
    ZMQ_FD).
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._ports: dict[int, Port] = {}
        self.called = False  # whether a watched descriptor ended the last wait

    def watch(self, fd: int) -> None:
        """End a wait also when this descriptor, which belongs to no port, is readable."""
        self._epoll.register(fd, select.EPOLLIN)

    def add(self, port: Port) -> None:
        """Wait on this port too. Call `remove` before the port is closed."""
        fd = port.fileno()
        self._epoll.register(fd, select.EPOLLIN)
        self._ports[fd] = port

    def remove(self, port: Port) -> None:
        """Wait on this port no longer. Call it before the port is closed."""
        for fd, known in self._ports.items():
            if known is port:
                self._epoll.unregister(fd)
                del self._ports[fd]
                return

    def fileno(self) -> int:
        """Return a descriptor that is readable when a port or a watched descriptor has an event."""
        return self._epoll.fileno()

    def pending(self) -> bool:
        """Return whether a message waits for which `fileno` does not become readable."""
        return any(not port.idle and port.readable() for port in self._ports.values())

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait up to `timeout_s`, for ever if None. Return whether a message can be received."""
        self.called = False
        if self.pending():
            return True
        if timeout_s is None:
            return self._wait_until(None)
        return self._wait_until(time.monotonic() + timeout_s)

    def _wait_until(self, deadline: float | None) -> bool:
        while True:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            events = self._epoll.poll(left)
            self.called = any(fd not in self._ports for fd, _ in events)
            if self.called or any(self._ports[fd].readable() for fd, _ in events):
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False

    def ready(self, timeout_s: Callable[[], float]) -> list[Port]:
        """Return every port that a message can be received from.

        If no port is known to have a message, call `timeout_s` and wait up to its result.
        """
        ready = [port for port in self._ports.values() if not port.idle and port.readable()]
        deadline = time.monotonic() + (0.0 if ready else timeout_s())
        while True:
            events = self._epoll.poll(max(deadline - time.monotonic(), 0.0))
            ports = [self._ports[fd] for fd, _ in events if fd in self._ports]
            ready += [port for port in ports if port not in ready and port.readable()]
            if ready or time.monotonic() >= deadline:
                return ready

    def close(self) -> None:
        """Close the descriptor. The ports stay open."""
        self._epoll.close()


def wait_readable(port: Port, timeout_s: float) -> bool:
    """Wait on one port up to `timeout_s`. Return whether a message can be received."""
    if port.readable():
        return True
    poll = select.poll()
    poll.register(port.fileno(), select.POLLIN)
    deadline = time.monotonic() + timeout_s
    while (left := deadline - time.monotonic()) > 0:
        if poll.poll(left * 1000) and port.readable():
            return True
    return False
