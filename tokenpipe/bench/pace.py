"""Keep a rate without drift."""

from __future__ import annotations


class Pace:
    """Say when a loop's next step is due. A step that was late makes the next one due earlier."""

    def __init__(self, rate: float | None, now: float) -> None:
        """`rate` is in steps a second. With None, a step is always due."""
        self._period_s = 1 / rate if rate else 0.0
        self._next = now

    def wait_s(self, now: float) -> float:
        """Return the seconds until the next step is due, 0 if it is due now."""
        return max(0.0, self._next - now) if self._period_s else 0.0

    def took(self) -> None:
        """Count one step."""
        self._next += self._period_s

    def restart(self, now: float) -> None:
        """Begin again after a pause. The steps of the pause are not made up for."""
        self._next = max(self._next, now)
