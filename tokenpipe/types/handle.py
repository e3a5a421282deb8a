"""Make and split handles. A handle names one binding of one request to one slot."""

from __future__ import annotations

from tokenpipe._core import DP_BITS, GENERATION_BITS, SLOT_BITS

MAX_GENERATION = (1 << GENERATION_BITS) - 1
FIRST_GENERATION = 1 << 30
"""The least first generation of a pipeline. So no handle is a small number."""
MAX_SLOTS = 1 << SLOT_BITS
MAX_DP = 1 << DP_BITS


def make_handle(dp_rank: int, slot: int, generation: int) -> int:
    """Return the handle of a generation of a slot, a positive int64.

    A handle has 12 bits of DP rank, 16 of slot and 35 of generation, which is at least 1. Raises
    ValueError for a number out of range.
    """
    if not (0 <= dp_rank < MAX_DP and 0 <= slot < MAX_SLOTS and 1 <= generation <= MAX_GENERATION):
        raise ValueError(f"no handle for dp {dp_rank}, slot {slot}, generation {generation}")
    return (dp_rank << (SLOT_BITS + GENERATION_BITS)) | (slot << GENERATION_BITS) | generation


def split_handle(handle: int) -> tuple[int, int, int]:
    """Return (DP rank, slot, generation) of a handle."""
    return (
        handle >> (SLOT_BITS + GENERATION_BITS),
        (handle >> GENERATION_BITS) & (MAX_SLOTS - 1),
        handle & MAX_GENERATION,
    )
