"""Take the signals that end a server: the first in order, the second at once."""

from __future__ import annotations

import selectors
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tokenpipe.supervisor import Supervisor

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Interrupted(Exception):
    """A second signal, `number`: the end is now."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Signals:
    """Count signals; `wait` ends with them. Nothing is done in the handler itself."""

    def __init__(self) -> None:
        self.first = self.second = 0
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._theirs.setblocking(False)

    def handle(self, number: int, _frame: object) -> None:
        """Take a signal."""
        if self.first:
            self.second = number
        else:
            self.first = number
        with suppress(BlockingIOError):
            self._ours.send(b"x")

    def forget_first(self) -> None:
        """Let the next signal be the one that ends at once."""
        self.first = self.first or -1

    def fileno(self) -> int:
        """Return a descriptor that is readable once a signal has come, until `seen`."""
        return self._theirs.fileno()

    def seen(self) -> None:
        """Wait for the next one from now on."""
        with suppress(BlockingIOError):
            self._theirs.recv(64)

    def wait(self, children: Supervisor, timeout_s: float) -> None:
        """Wait for a signal or a death."""
        with selectors.DefaultSelector() as selector:
            selector.register(children, selectors.EVENT_READ)
            selector.register(self, selectors.EVENT_READ)
            for key, _ in selector.select(timeout_s):
                if key.fileobj is self:
                    self.seen()

    def close(self) -> None:
        """Give both ends back."""
        self._ours.close()
        self._theirs.close()


@contextmanager
def taken_signals() -> Iterator[Signals]:
    """Take them until the end of the block. For the main thread."""
    signals = Signals()
    before = {number: signal.signal(number, signals.handle) for number in SIGNALS}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signals.close()
