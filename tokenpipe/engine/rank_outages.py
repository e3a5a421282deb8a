"""Say since when ranks are down, and when a request has waited long enough for one. No clock."""

from __future__ import annotations

from collections.abc import Iterable


class RankOutages:
    """The DP ranks that are down, each with the time at which it went down.

    A request waits for any rank or, with a `home`, for one rank. It waits at most `patience_s` from
    the time at which the last rank that may serve it went down. None is for ever.
    """

    def __init__(self, ranks: Iterable[int], patience_s: float | None, now: float) -> None:
        """All `ranks` are down at `now`: they have not come up yet."""
        self._down = dict.fromkeys(ranks, now)
        self._up: set[int] = set()
        self._patience_s = patience_s

    def up(self, dp_rank: int) -> None:
        """Note that a rank is up."""
        self._up.add(dp_rank)
        self._down.pop(dp_rank, None)

    def lost(self, dp_rank: int, now: float) -> None:
        """Note that a rank is down. A second loss changes nothing."""
        self._up.discard(dp_rank)
        self._down.setdefault(dp_rank, now)

    def over(self, home: int | None, now: float) -> str:
        """Return why a request with this home waits no longer, "" if it may wait or be bound."""
        patience_s = self._patience_s
        if patience_s is None or not self._down:
            return ""
        if home is None:
            if self._up or now - max(self._down.values()) < patience_s:
                return ""
            return f"no worker is up, and none came up within {patience_s:g} s"
        if now - self._down.get(home, now) < patience_s:
            return ""
        return f"the worker of rank {home} died, and it did not come back within {patience_s:g} s"
