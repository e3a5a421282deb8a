"""Say how often a role may be started again. No process, no clock of its own."""

from __future__ import annotations

from collections import deque


class Budget:
    """So many restarts within so many seconds, counted for each key."""

    def __init__(self, restarts: int, within_s: float) -> None:
        self.restarts = restarts
        self.within_s = within_s
        self._taken: dict[str, deque[float]] = {}

    def take(self, key: str, now: float) -> bool:
        """Take one restart; False where the budget is used up."""
        taken = self._taken.setdefault(key, deque())
        while taken and now - taken[0] >= self.within_s:
            taken.popleft()
        if len(taken) >= self.restarts:
            return False
        taken.append(now)
        return True

    def __str__(self) -> str:
        return f"{self.restarts} restarts within {self.within_s:g} s"
