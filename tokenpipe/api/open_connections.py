"""All connections of one process: how many there may be, and how long one may send no request."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

from .descriptors import SPARE, connection_bound
from .event_log import EventLog
from .problems import Problem, unavailable

CLOSED = "connections without a request that were closed to make room for others"
REFUSED = "connections that were refused, because all others have open requests"


class Connection(Protocol):
    """A connection, as this module sees it. None of its methods is called twice in one turn."""

    def drop(self) -> None:
        """Close it at once."""

    def refuse(self, problem: Problem) -> None:
        """Answer with an error instead of what it asks, and close it."""

    def look(self) -> bool:
        """Look for an end that nothing reads; return whether to look again."""

    def overdue(self, receive_s: float) -> None:
        """Give up its request, which did not come in time."""


class OpenConnections:
    """Bounds the connections below the limit of descriptors. All methods run in the event loop.

    If there is no room for a new connection, the one that has waited longest without a request is
    closed: first those that never sent one. If all have open requests, the new one gets a 503.
    """

    def __init__(self, most: int | None, receive_s: float, events: EventLog) -> None:
        """`most` is None for as many as the limit of descriptors allows.

        `receive_s` is the longest wait for a head, and for each further piece of a body.
        """
        self.events = events
        self._given = most
        self._most: int | None = None
        self._receive_s = receive_s
        self._count = 0
        self._fresh: OrderedDict[Connection, None] = OrderedDict()  # without a request so far
        self._idle: OrderedDict[Connection, None] = OrderedDict()  # between two requests
        self._waiting: OrderedDict[Connection, float] = OrderedDict()  # for bytes, since when
        self._watched: set[Connection] = set()

    # --- what a connection tells ---

    def add(self, connection: Connection, now: float) -> None:
        """Add a new connection, or refuse it."""
        if self._most is None:  # the first connection: the process has opened what it needs
            self._most = connection_bound(self._given)
        self._count += 1
        if self._count > self._most and not self._make_room():
            self.events.count(REFUSED)
            if self._count > self._most + SPARE:
                connection.drop()
            else:
                connection.refuse(unavailable("the server has no room for another connection"))
            return
        self._fresh[connection] = None
        self._waiting[connection] = now

    def remove(self, connection: Connection) -> None:
        """Remove a connection that is closed."""
        self._count -= 1
        self._fresh.pop(connection, None)
        self._idle.pop(connection, None)
        self._waiting.pop(connection, None)
        self._watched.discard(connection)

    def asks(self, connection: Connection) -> None:
        """Note that the head of a request has come."""
        self._fresh.pop(connection, None)
        self._idle.pop(connection, None)

    def answered(self, connection: Connection) -> None:
        """Note that no request is open any more."""
        self._idle[connection] = None

    def waits(self, connection: Connection, now: float) -> None:
        """Note that a head began to come. Its deadline does not move with its bytes."""
        self._waiting.setdefault(connection, now)

    def waits_again(self, connection: Connection, now: float) -> None:
        """Note that a piece of a body has come, and that more is to come."""
        self._waiting[connection] = now
        self._waiting.move_to_end(connection)

    def has_all(self, connection: Connection) -> None:
        """Note that a whole request has come."""
        self._waiting.pop(connection, None)

    def watch(self, connection: Connection) -> None:
        """Call the connection's `look` several times a second, as long as it returns True."""
        self._watched.add(connection)

    # --- what is done now and then ---

    def look(self, now: float) -> None:
        """Find ends that nothing reads, and requests that are late. Call it often."""
        for connection in list(self._watched):
            if not connection.look():
                self._watched.discard(connection)
        while self._waiting:
            connection, since = next(iter(self._waiting.items()))
            if now - since <= self._receive_s:
                break
            del self._waiting[connection]
            connection.overdue(self._receive_s)
        self.events.flush(now)

    def _make_room(self) -> bool:
        for waiting in (self._fresh, self._idle):
            if waiting:
                connection, _ = waiting.popitem(last=False)
                self.events.count(CLOSED)
                connection.drop()
                return True
        return False
