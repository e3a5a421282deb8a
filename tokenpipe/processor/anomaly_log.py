"""Say in the log, now and then, that rows came which are nobody's. Their tokens reach no one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from tokenpipe.logs import RateLimit
from tokenpipe.types import FIRST_GENERATION, split_handle

_log = logging.getLogger(__name__)
LOOK_S = 1.0
PERIOD_S = 10.0
WATCHED = {
    "stale": "rows of handles that are dead, or that no bind gave",
    "park_lost": "handles had rows and no bind, within park_s or the bound in bytes",
    "bad_rows": "rows with a token, status or handle that cannot be",
    "bad_frames": "frames that cannot be read",
    "lane_gaps": "holes in a worker's lane",
}
WHOSE = {"stale": "stale_handle", "park_lost": "park_lost_handle"}


class AnomalyLog:
    """Compare a processor's counters with those of the look before."""

    def __init__(self, index: int, clock: Callable[[], float]) -> None:
        self._index = index
        self._limit = RateLimit(PERIOD_S, clock)
        self._before: Mapping[str, int] = {}
        self.due = 0.0

    def look(self, counters: Mapping[str, int], now: float) -> None:
        """Log what has grown."""
        self.due = now + LOOK_S
        for name, what in WATCHED.items():
            more = counters.get(name, 0) - self._before.get(name, 0)
            if more > 0:
                said = f"processor {self._index}: {more} {what} ({name}){_whose(name, counters)}"
                self._limit.log(_log, logging.WARNING, name, said)
        self._before = dict(counters)


def _whose(name: str, counters: Mapping[str, int]) -> str:
    handle = counters.get(WHOSE.get(name, ""), 0)
    if not handle:
        return ""
    dp_rank, slot, generation = split_handle(handle)
    said = f", the newest {handle}: dp {dp_rank}, slot {slot}, generation {generation}"
    if generation < FIRST_GENERATION:
        said += "; no pipeline gave it. A slot's number is no handle"
    return said
