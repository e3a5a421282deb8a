"""Find the ends of a processor that have a message, and wait for one if none has."""

from __future__ import annotations

from collections.abc import Callable

from tokenpipe.transport import Port, Waiter

from .cadence import Ask, End


class Listener:
    """Knows the ports of all ends that take part in a processor's turns."""

    def __init__(self) -> None:
        self._all = Waiter()
        self._others = Waiter()  # all but the workers'
        self._ends: dict[Port, End] = {}

    def add(self, port: Port, end: End, *, worker: bool = False) -> None:
        """Add the port of an end."""
        self._ends[port] = end
        self._all.add(port)
        if not worker:
            self._others.add(port)

    def remove(self, port: Port) -> None:
        """Remove the port of an end that is not a worker's. Call it before the port is closed."""
        del self._ends[port]
        self._all.remove(port)
        self._others.remove(port)

    def ready(self, ask: Ask, timeout_s: Callable[[], float]) -> list[End]:
        """Return those ends that have a message.

        If no lane end that was asked has a message, wait up to `timeout_s()` for the first.
        """
        if ask is Ask.NOBODY:
            return []
        waiter = self._all if ask is Ask.ALL else self._others
        return [self._ends[port] for port in waiter.ready(timeout_s)]

    def close(self) -> None:
        """Close the descriptors. The ports stay open."""
        self._all.close()
        self._others.close()
