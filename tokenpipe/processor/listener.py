"""Wait on the ports of a processor, and find the ends that have a message."""

from __future__ import annotations

from collections.abc import Callable

from tokenpipe.transport import Port, Waiter

from .cadence import Ask, End


class Listener:
    """The ports of the ends that take part in a processor's turns."""

    def __init__(self) -> None:
        self._all = Waiter()
        self._others = Waiter()  # all but the workers'
        self._ends: dict[Port, End] = {}

    def add(self, port: Port, end: End, *, worker: bool = False) -> None:
        """Wait on the port of this end too."""
        self._ends[port] = end
        self._all.add(port)
        if not worker:
            self._others.add(port)

    def remove(self, port: Port) -> None:
        """Forget a port of an end that is not a worker's; before it is closed."""
        del self._ends[port]
        self._all.remove(port)
        self._others.remove(port)

    def ready(self, ask: Ask, timeout_s: Callable[[], float]) -> list[End]:
        """Return the ends that have a message, of those to ask.

        Where none has one it waits for the first, as long as `timeout_s` then says.
        """
        if ask is Ask.NOBODY:
            return []
        waiter = self._all if ask is Ask.ALL else self._others
        return [self._ends[port] for port in waiter.ready(timeout_s)]

    def close(self) -> None:
        """Give the descriptors back; the ports stay open."""
        self._all.close()
        self._others.close()
