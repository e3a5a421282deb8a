"""Wait for several ports at once, in a loop of one's own or in asyncio."""

from __future__ import annotations

import select
import time

from .port import Port


class Waiter:
    """Wait on many ports.

    In a foreign loop (asyncio's `add_reader(waiter.fileno())`): when called, receive from the ports
    until they have nothing, or a bound of your own is reached; then, before going back to the loop,
    ask `pending()` and come again by yourself while it is true. A ZeroMQ descriptor is a bell, not
    a level: it stays silent for messages that came before its last ring was answered.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._ports: dict[int, Port] = {}
        self.called = False  # the last wait ended because a watched descriptor was readable

    def watch(self, fd: int) -> None:
        """Let waits also end when a descriptor that is no port's is readable."""
        self._epoll.register(fd, select.EPOLLIN)

    def add(self, port: Port) -> None:
        """Wait on this port too."""
        fd = port.fileno()
        self._epoll.register(fd, select.EPOLLIN)
        self._ports[fd] = port

    def remove(self, port: Port) -> None:
        """Forget a port; before it is closed."""
        for fd, known in self._ports.items():
            if known is port:
                self._epoll.unregister(fd)
                del self._ports[fd]
                return

    def fileno(self) -> int:
        """Return a descriptor that is readable when a bell has rung."""
        return self._epoll.fileno()

    def pending(self) -> bool:
        """Tell whether a message waits that no bell will announce."""
        return any(not port.idle and port.readable() for port in self._ports.values())

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until something can be received, or the time is over; None waits without end."""
        self.called = False
        if self.pending():
            return True
        if timeout_s is None:
            return self._wait_until(None)
        return self._wait_until(time.monotonic() + timeout_s)

    def _wait_until(self, deadline: float | None) -> bool:
        while True:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            rung = self._epoll.poll(left)
            self.called = any(fd not in self._ports for fd, _ in rung)
            if self.called or any(self._ports[fd].readable() for fd, _ in rung):
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False

    def close(self) -> None:
        """Give the descriptor back; the ports stay open."""
        self._epoll.close()


def wait_readable(port: Port, timeout_s: float) -> bool:
    """Wait on one port."""
    if port.readable():
        return True
    bell = select.poll()
    bell.register(port.fileno(), select.POLLIN)
    deadline = time.monotonic() + timeout_s
    while (left := deadline - time.monotonic()) > 0:
        if bell.poll(left * 1000) and port.readable():
            return True
    return False
