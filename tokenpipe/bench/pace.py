"""Keep a rate without drift."""

from __future__ import annotations


class Pace:
    """Tell a loop when its next turn is due. Turns that are late are made up for, not dropped."""

    def __init__(self, rate: float | None, now: float) -> None:
        self._period_s = 1 / rate if rate else 0.0
        self._next = now

    def wait_s(self, now: float) -> float:
        """Return seconds until the next turn is due: 0 for "now", always 0 without a rate."""
        return max(0.0, self._next - now) if self._period_s else 0.0

    def took(self) -> None:
        """Book one turn."""
        self._next += self._period_s

    def restart(self, now: float) -> None:
        """Begin a new run of turns, after a pause in which none was owed."""
        self._next = max(self._next, now)
