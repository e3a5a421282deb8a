"""Decide what one turn of a processor waits for, and which ends it serves.

Pure: the caller passes the time, and waits, reads and sends. An end is anything that takes part in
turns: the sender or the receiver of a lane, or the processor itself, which only has deadlines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Protocol

from .deadlines import NEVER, Deadlines

FRAMES_PER_TURN = 32
"""Frames that a turn reads from one lane. It keeps turns short, and the frames to clients small."""
PACE_S = 0.002
"""Time between two reads of the workers, if one floods and a client is behind.

It allows 16 steps a ms, more than any model makes. The tokens of a faster worker reach the clients
in small frames, one for each read.
"""
LOOK_S = 0.001
"""How often a turn that does not wait looks at the deadlines.

In a flood it then also asks the ends that are not those of workers.
"""


class End(Protocol):
    """Anything that takes part in turns."""

    @property
    def next_deadline(self) -> float:
        """When to serve it although no message came, or NEVER."""
        ...


class Ask(Enum):
    """The ends that a turn asks for messages."""

    ALL = auto()
    OTHERS = auto()  # all but the workers'
    NOBODY = auto()


class Cadence:
    """Decides when the ends of one processor are served.

    A turn calls `ask`, and asks the ports of the ends that `ask` names. If none has a message, it
    waits for one, at most `seconds`. Then it serves the ends that `serve` returns, and calls `fed`
    if workers are among them. It passes other ends that it uses to `used`, because their deadlines
    may change.

    A flood begins with a turn that could not read all frames of a worker, and ends with one that
    could. Turns in a flood do not wait. But while a client is behind, they are paced: they wait
    until the workers may be read again.
    """

    def __init__(self, workers: Iterable[End]) -> None:
        """`workers` are the ends of the workers' lanes. Add all other ends with `used`."""
        self._workers = frozenset(workers)
        self._deadlines = Deadlines[End]()
        self._used: set[End] = set(self._workers)  # their deadlines may have changed
        self._flood_due: float | None = None  # in a flood: when a paced turn reads the workers
        self._paced = False
        self._until = 0.0
        self._look_due = 0.0

    def used(self, *ends: End) -> None:
        """Note that these ends are new, or were used."""
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
        """Begin a turn that may wait up to `timeout_s`. Return the ends to ask for messages.

        `behind` returns whether a client has much left to read. It is called only in a flood.
        """
        due = self._flood_due
        self._paced = due is not None and timeout_s > 0.0 and now < due and behind(now)
        self._until = now + timeout_s
        if due is None:
            return Ask.ALL
        self._until = min(self._until, due) if self._paced else now
        return Ask.OTHERS if self._paced or now >= self._look_due else Ask.NOBODY

    def seconds(self, now: float) -> float:
        """Return how long to wait if none of the ends that were asked has a message."""
        return max(0.0, min(self._until, self.next_deadline) - now)

    def serve(self, now: float, ready: Iterable[End]) -> set[End]:
        """Return the ends to serve: those that are ready, due, or flooding."""
        if now >= self._look_due:
            self._look_due = now + LOOK_S
            self._look()
        served = set(ready)
        if self._deadlines.earliest <= now:
            served.update(self._deadlines.take(now))
        flood_due, workers = self._flood_due, self._workers
        if flood_due is not None:
            resting = self._paced and now < flood_due
            # In a flood, workers are served together: serving one puts off the next read of all.
            if not resting or not workers.isdisjoint(served):
                served |= workers
        self._used |= served
        return served

    def fed(self, now: float, full: bool) -> None:
        """Note that workers were served. `full`: one of them had as much as a turn may read."""
        self._flood_due = now + PACE_S if full else None
