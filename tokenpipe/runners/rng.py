"""One number in (0, 1) for each token: a function of its request's seed and the token's index.

So a seeded request draws the same tokens whoever shares its batch, however often it is preempted,
and on every TP rank; a request without a seed takes its key for one. splitmix64, on whole arrays.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .model import I64, Row

U64 = NDArray[np.uint64]
F32 = NDArray[np.float32]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def seeds(rows: list[Row]) -> U64:
    """Return u64[rows]: the seed of each row's numbers."""
    given = [row.key if row.params.seed is None else row.params.seed for row in rows]
    mask = (1 << 64) - 1
    own = np.array([0 if row.params.seed is None else 1 for row in rows], np.uint64)
    return _mix(np.array([seed & mask for seed in given], np.uint64) ^ (own << np.uint64(63)))


def uniforms(seeds: U64, offsets: I64) -> F32:
    """Return f32[rows] in (0, 1), never 0 or 1: a step of 2^-23 apart, exact in float32."""
    drawn = _mix(seeds + (offsets.astype(np.uint64) + np.uint64(1)) * _GOLDEN)
    top = (drawn >> np.uint64(41)).astype(np.float32)  # 23 bits, so that the half below is exact
    numbers: F32 = (top + np.float32(0.5)) * np.float32(2.0**-23)
    return numbers


def _mix(x: U64) -> U64:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x
