"""Decide what one turn of a processor waits for, and which of its ends it then serves.

Pure: the caller gives the time, waits, reads and sends. An end is whatever takes part in a turn:
a lane's sender or receiver, or the processor itself, which has deadlines only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Protocol

from .deadlines import NEVER, Deadlines

FRAMES_PER_TURN = 32
"""Frames that a turn reads from one lane. It keeps turns short, and the frames to clients small."""
PACE_S = 0.002
"""Time between two reads of the workers, where one floods and a client is behind.

16 steps a ms are more than any model makes. A faster worker's tokens reach the client in frames of
one read each, and not in large heaps.
"""
LOOK_S = 0.001
"""How often turns that follow one another without a wait look at the deadlines.

In a flood they also ask the other ends' ports so often.
"""


class End(Protocol):
    """Takes part in turns."""

    @property
    def next_deadline(self) -> float:
        """When it must be served although nothing came; NEVER where there is no such time."""
        ...


class Ask(Enum):
    """Whose ports a turn asks for messages."""

    ALL = auto()
    OTHERS = auto()  # all but the workers'
    NOBODY = auto()


class Cadence:
    """Choose when the ends of one processor are served.

    A turn calls `ask`, and asks those ports. Where none has a message it waits for one, for
    `seconds` at most. Then it serves the ends that `serve` returns, and calls `fed` where workers
    are among them. It tells `used` which other ends it used: their deadlines may have changed.

    A worker floods after a turn that could not read all that it had sent. Then one turn follows
    another without a wait. Where a client is behind, the turns in a flood are paced.
    """

    def __init__(self, workers: Iterable[End]) -> None:
        """`workers` are the ends of the workers' lanes. `used` adds all other ends."""
        self._workers = frozenset(workers)
        self._deadlines = Deadlines[End]()
        self._used: set[End] = set(self._workers)  # their deadlines may have changed
        self._flood_due: float | None = None  # in a flood: when a paced turn reads the workers
        self._paced = False
        self._until = 0.0
        self._look_due = 0.0

    def used(self, *ends: End) -> None:
        """Note that these ends were used, or are new."""
        self._used.update(ends)

    def forget(self, end: End) -> None:
        """Remove an end that is closed."""
        self._used.discard(end)
        self._deadlines.set(end, NEVER)

    @property
    def next_deadline(self) -> float:
        """When a turn is due although nothing came."""
        self._look()
        return self._deadlines.earliest

    def _look(self) -> None:
        for end in self._used:
            self._deadlines.set(end, end.next_deadline)
        self._used.clear()

    def ask(self, now: float, timeout_s: float, behind: Callable[[float], bool]) -> Ask:
        """Begin a turn that may wait for `timeout_s`, and return whom it asks for messages.

        `behind` tells whether a client has much left to read. It is called in a flood only.
        """
        due = self._flood_due
        self._paced = due is not None and timeout_s > 0.0 and now < due and behind(now)
        self._until = now + timeout_s
        if due is None:
            return Ask.ALL
        self._until = min(self._until, due) if self._paced else now
        return Ask.OTHERS if self._paced or now >= self._look_due else Ask.NOBODY

    def seconds(self, now: float) -> float:
        """Return how long to wait where nobody that was asked has a message."""
        return max(0.0, min(self._until, self.next_deadline) - now)

    def serve(self, now: float, ready: Iterable[End]) -> set[End]:
        """Return the ends to serve: those that are ready, due, or flooding."""
        if now >= self._look_due:
            self._look_due = now + LOOK_S
            self._look()
        served = {*ready, *self._deadlines.take(now)}
        flood_due, workers = self._flood_due, self._workers
        if flood_due is not None:
            resting = self._paced and now < flood_due
            # In a flood they are served together: one that is due must not delay the rest.
            if not resting or not workers.isdisjoint(served):
                served |= workers
        self._used |= served
        return served

    def fed(self, now: float, full: bool) -> None:
        """Note that workers were served; `full`: one had as much as a turn may read."""
        self._flood_due = now + PACE_S if full else None
