"""Take the signals that stop a server: the first stops it in order, the second at once."""

from __future__ import annotations

import select
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tokenpipe.supervisor import Supervisor

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class SecondSignal(Exception):
    """A second signal came: all processes are to end now. `number` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class StopSignals:
    """The numbers of the first and the second signal, 0 until they come.

    The signal handler only notes them. A byte in a socket wakes a thread that waits.
    """

    def __init__(self) -> None:
        self.first = self.second = 0
        self._written, self._read = socket.socketpair()
        self._written.setblocking(False)
        self._read.setblocking(False)

    def handle(self, number: int, _frame: object) -> None:
        """Note a signal. This is the signal handler."""
        if self.first:
            self.second = number
        else:
            self.first = number
        with suppress(BlockingIOError):
            self._written.send(b"x")

    def expect_second(self) -> None:
        """Treat the next signal as the second one: the server stops already."""
        self.first = self.first or -1

    def fileno(self) -> int:
        """Return a descriptor that is readable from a signal until `clear`."""
        return self._read.fileno()

    def clear(self) -> None:
        """Make the descriptor unreadable until the next signal."""
        with suppress(BlockingIOError):
            self._read.recv(64)

    def wait(self, children: Supervisor, timeout_s: float) -> None:
        """Wait until a signal comes or a child dies, at most `timeout_s`."""
        poll = select.poll()  # unlike epoll it needs no descriptor, and perhaps there is none
        poll.register(children.fileno(), select.POLLIN)
        poll.register(self._read.fileno(), select.POLLIN)
        for fd, _ in poll.poll(timeout_s * 1000):
            if fd == self._read.fileno():
                self.clear()

    def close(self) -> None:
        """Close the sockets."""
        self._written.close()
        self._read.close()


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """Take the signals until the block ends. Call it in the main thread.

    A signal that is ignored stays ignored: `nohup` and a shell's `&` start a process so.
    """
    signals = StopSignals()
    taken = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, signals.handle) for number in taken}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signals.close()
