"""Deadlines of equal length, and a clock that stops while a rank is silent."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from .deadlines import NEVER

LIFE_CREDIT_S = 2.0
"""A rank that is alive shows it more often. After so long a silence its clock stops."""


class LifeClock:
    """Runs while a rank shows life, so that a rank that is stopped misses no deadline."""

    def __init__(self, now: float) -> None:
        self._lived = 0.0
        self._seen = now

    def seen(self, now: float) -> None:
        """Note a sign of life."""
        if now > self._seen:
            self._lived = self.read(now)
            self._seen = now

    def read(self, now: float) -> float:
        """Return how many seconds this clock has run."""
        return self._lived + min(max(now - self._seen, 0.0), LIFE_CREDIT_S)

    def save(self) -> tuple[float, float]:
        """Return its state, for `load`."""
        return self._lived, self._seen

    def load(self, lived: float, seen: float) -> None:
        """Take a saved state."""
        self._lived, self._seen = lived, seen

    def when(self, due: float) -> float:
        """Return the time at which this clock shows `due`; NEVER if it stops before."""
        left = due - self._lived
        return self._seen + left if left <= LIFE_CREDIT_S else NEVER


class Timer:
    """Holds one deadline for each handle. No deadline is earlier than one set before it."""

    def __init__(self) -> None:
        self._due: dict[int, float] = {}
        self._order: deque[tuple[float, int]] = deque()

    def __len__(self) -> int:
        return len(self._due)

    def set(self, handle: int, due: float) -> None:
        """Set or move the deadline of a handle."""
        self._due[handle] = due
        self._order.append((due, handle))

    def cancel(self, handle: int) -> None:
        """Remove the deadline of a handle, if it has one."""
        self._due.pop(handle, None)
        if not self._due:
            self._order.clear()

    def head(self) -> float:
        """Return the earliest deadline; NEVER if there is none."""
        while self._order:
            due, handle = self._order[0]
            if self._due.get(handle) == due:
                return due
            self._order.popleft()
        return NEVER

    def expired(self, now: float) -> list[int]:
        """Remove the deadlines that are reached, and return their handles."""
        handles = []
        while self.head() <= now:
            _, handle = self._order.popleft()
            del self._due[handle]
            handles.append(handle)
        return handles

    def save(self) -> list[tuple[int, float]]:
        """Return each handle with its deadline, for `load`."""
        return sorted(self._due.items(), key=lambda entry: entry[1])

    def load(self, saved: Iterable[tuple[int, float]]) -> None:
        """Set saved deadlines."""
        for handle, due in saved:
            self.set(handle, due)

    def clear(self) -> None:
        """Remove all deadlines."""
        self._due.clear()
        self._order.clear()
