"""Keep the last durations of something, and return their percentiles."""

from __future__ import annotations

from array import array

import numpy as np


class Samples:
    """The last `size` durations, in ns. `count` is how many there were in all."""

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
        """Return p50, p99 and max in µs, or {} if nothing was kept."""
        kept = np.frombuffer(self._ring, dtype=np.int64)[: min(self.count, self._mask + 1)]
        return percentiles_us(kept)


def percentiles_us(ns: np.ndarray[tuple[int], np.dtype[np.int64]]) -> dict[str, float]:
    """Return p50, p99 and max of durations ns[n], in µs; {} for n = 0."""
    if not len(ns):
        return {}
    p50, p99, top = np.percentile(ns, (50, 99, 100)) / 1e3
    return {"p50": round(float(p50), 2), "p99": round(float(p99), 2), "max": round(float(top), 2)}
