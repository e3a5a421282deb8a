"""Log the rows and frames that belong to nobody, with a rate limit.

Their tokens reach no client.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from tokenpipe.logs import RateLimit
from tokenpipe.types import FIRST_GENERATION, split_handle

LOOK_S = 1.0  # between two looks at the counters
PERIOD_S = 10.0  # between two lines about one counter
WATCHED = {
    "stale": "rows had a handle that is released or was never bound; they were dropped",
    "park_lost": "handles had rows but no bind within park_s or park_bytes; the rows were dropped",
    "bad_rows": "rows had an invalid token, status or handle",
    "bad_frames": "frames could not be read; they were dropped",
    "clock_ahead": "frames had a time (step_ns) ahead of CLOCK_MONOTONIC; the processor's time was "
    "used",
    "lane_gaps": "times a worker's lane lost frames for good",
}
NEWEST = {"stale": "stale_handle", "park_lost": "park_lost_handle"}
_log = logging.getLogger(__name__)


class AnomalyLog:
    """Compares a processor's counters with those of the last look."""

    def __init__(self, index: int, clock: Callable[[], float]) -> None:
        self._index = index
        self._limit = RateLimit(PERIOD_S, clock)
        self._before: Mapping[str, int] = {}
        self.due = 0.0  # when `look` is due

    def look(self, counters: Mapping[str, int], now: float) -> None:
        """Log the watched counters that have grown."""
        self.due = now + LOOK_S
        for name, what in WATCHED.items():
            more = counters.get(name, 0) - self._before.get(name, 0)
            if more > 0:
                line = f"processor {self._index}: {more} {what} ({name}){_newest(name, counters)}"
                self._limit.log(_log, logging.WARNING, name, line)
        self._before = dict(counters)


def _newest(name: str, counters: Mapping[str, int]) -> str:
    handle = counters.get(NEWEST.get(name, ""), 0)
    if not handle:
        return ""
    dp_rank, slot, generation = split_handle(handle)
    text = f"; the newest is {handle}: dp {dp_rank}, slot {slot}, generation {generation}"
    if generation < FIRST_GENERATION:
        text += ". No pipeline gave this handle: a slot's number is not a handle"
    return text
