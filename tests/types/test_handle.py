"""A handle holds a DP rank, a slot and a generation, and no other number makes one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpipe.types import MAX_DP, MAX_GENERATION, MAX_SLOTS, make_handle, split_handle


@given(st.integers(0, MAX_DP - 1), st.integers(0, MAX_SLOTS - 1), st.integers(1, MAX_GENERATION))
def test_there_and_back_as_a_positive_int64(dp_rank: int, slot: int, generation: int) -> None:
    handle = make_handle(dp_rank, slot, generation)
    assert split_handle(handle) == (dp_rank, slot, generation)
    assert 0 < handle < 1 << 63


def test_the_largest_handle_uses_all_bits() -> None:
    assert make_handle(MAX_DP - 1, MAX_SLOTS - 1, MAX_GENERATION) == (1 << 63) - 1


@pytest.mark.parametrize(
    "parts",
    [
        (-1, 0, 1),
        (MAX_DP, 0, 1),
        (0, -1, 1),
        (0, MAX_SLOTS, 1),
        (0, 0, 0),
        (0, 0, MAX_GENERATION + 1),
    ],
)
def test_a_number_out_of_range_makes_no_handle(parts: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="no handle for dp"):
        make_handle(*parts)
