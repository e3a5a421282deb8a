"""Log what any caller can cause: one line for each kind, however often it happens."""

from __future__ import annotations

import logging
from collections import Counter

PERIOD_S = 10.0


class EventLog:
    """Counts events by their text. Used by one thread."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._counts: Counter[str] = Counter()
        self._next_line: dict[str, float] = {}  # of each text: the time of its next line

    def count(self, text: str) -> None:
        """Count an event. `text` is one of a few constants; it begins with what is counted."""
        self._counts[text] += 1

    def flush(self, now: float) -> None:
        """Log each kind that happened, at most one line in PERIOD_S."""
        for text in [text for text in self._counts if now >= self._next_line.get(text, now)]:
            self._log.warning("%s: %d", text, self._counts.pop(text))
            self._next_line[text] = now + PERIOD_S
