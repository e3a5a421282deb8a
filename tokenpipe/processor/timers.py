"""Deadlines that all have one length, and the clock of a rank's life."""

from __future__ import annotations

from collections import deque

from .deadlines import NEVER

LIFE_CREDIT_S = 2.0
"""A rank that lives shows it more often than this; after such a silence its clock stands."""


class LifeClock:
    """Runs while a rank shows life, so that a silent one misses no deadline."""

    def __init__(self, now: float) -> None:
        self._lived = 0.0
        self._seen = now

    def seen(self, now: float) -> None:
        """Note a sign of life."""
        if now > self._seen:
            self._lived = self.read(now)
            self._seen = now

    def read(self, now: float) -> float:
        """Return the seconds lived until now."""
        return self._lived + min(max(now - self._seen, 0.0), LIFE_CREDIT_S)

    def when(self, due: float) -> float:
        """Return when the clock will show `due`; NEVER without a further sign of life."""
        left = due - self._lived
        return self._seen + left if left <= LIFE_CREDIT_S else NEVER


class Timer:
    """Hold one deadline per handle. They are set in the order in which they are due."""

    def __init__(self) -> None:
        self._due: dict[int, float] = {}
        self._order: deque[tuple[float, int]] = deque()

    def __len__(self) -> int:
        return len(self._due)

    def set(self, handle: int, due: float) -> None:
        """Set, or move, the deadline of a handle."""
        self._due[handle] = due
        self._order.append((due, handle))

    def cancel(self, handle: int) -> None:
        """Forget a handle's deadline, if there is one."""
        self._due.pop(handle, None)
        if not self._due:
            self._order.clear()

    def head(self) -> float:
        """Return the earliest deadline; NEVER where there is none."""
        while self._order:
            due, handle = self._order[0]
            if self._due.get(handle) == due:
                return due
            self._order.popleft()
        return NEVER

    def expired(self, now: float) -> list[int]:
        """Take out the handles whose deadline is reached."""
        handles = []
        while self.head() <= now:
            _, handle = self._order.popleft()
            del self._due[handle]
            handles.append(handle)
        return handles

    def clear(self) -> None:
        """Forget all."""
        self._due.clear()
        self._order.clear()
