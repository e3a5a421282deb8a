"""Remember the requests that have no output yet. Another engine can run them from the start."""

from __future__ import annotations

from collections.abc import Callable

from tokenpipe.errors import LaneFull
from tokenpipe.wire import Submit

SWEEP_S = 1.0  # between two looks for requests that have output by now
FIRST_SWEEP = 64  # requests


class Unstarted:
    """The messages that submitted them. A message is dropped soon after the first output."""

    def __init__(self, received: Callable[[int], int | None], most: int) -> None:
        """`received(key)` is how many tokens a request has, None once it is over.

        At most `most` requests wait while the engine is away.
        """
        self._received = received
        self._most = most
        self._submits: dict[int, Submit] = {}
        self._sweep_at = FIRST_SWEEP
        self._due = 0.0

    def __len__(self) -> int:
        return len(self._submits)

    def check_room(self, away: Exception) -> None:
        """Raise LaneFull if no further request may wait. `away` says why the engine is away."""
        if len(self._submits) >= self._most:
            raise LaneFull(f"{away}; {len(self._submits)} request(s) wait for the next one already")

    def add(self, submit: Submit) -> None:
        """Remember a request that is about to be sent."""
        if len(self._submits) >= self._sweep_at:  # so the cost of a sweep is spread over many adds
            self.sweep()
            self._sweep_at = 2 * len(self._submits) + FIRST_SWEEP
        self._submits[submit.key] = submit

    def forget(self, key: int) -> None:
        """Drop a request that is over."""
        self._submits.pop(key, None)

    def tick(self, now: float) -> None:
        """Drop, once a second, the requests that have output."""
        if self._submits and now >= self._due:
            self._due = now + SWEEP_S
            self.sweep()

    def sweep(self) -> dict[int, Submit]:
        """Drop the requests that have output or are over. Return the others in order."""
        for key in [key for key in self._submits if self._received(key) != 0]:
            del self._submits[key]
        return dict(self._submits)
