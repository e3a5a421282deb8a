"""Keep a rate without drifting, and keep a bounded sample of durations."""

from __future__ import annotations

from array import array

import numpy as np


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


class Samples:
    """Keep the last `size` durations, in ns."""

    def __init__(self, size: int = 1 << 16) -> None:
        self._ring = array("q", bytes(8 * size))
        self._mask = size - 1
        if size & self._mask:
            raise ValueError(f"size must be a power of two, not {size}")
        self.count = 0

    def add(self, ns: int) -> None:
        """Keep one duration."""
        self._ring[self.count & self._mask] = ns
        self.count += 1

    def us(self) -> dict[str, float]:
        """Return p50, p99, max in µs; empty when nothing was kept."""
        kept = np.frombuffer(self._ring, dtype=np.int64)[: min(self.count, self._mask + 1)]
        return percentiles_us(kept)


def percentiles_us(ns: np.ndarray[tuple[int], np.dtype[np.int64]]) -> dict[str, float]:
    """Return p50, p99 and max of durations ns[n], in µs; empty for n = 0."""
    if not len(ns):
        return {}
    p50, p99, top = np.percentile(ns, (50, 99, 100)) / 1e3
    return {"p50": round(float(p50), 2), "p99": round(float(p99), 2), "max": round(float(top), 2)}
