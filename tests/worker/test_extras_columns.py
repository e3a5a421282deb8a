"""Extras of rows, packed for the rows that have them."""

from __future__ import annotations

import pytest

from tokenpipe.errors import RowError
from tokenpipe.extras import RowExtras
from tokenpipe.wire import pack_extras
from tokenpipe.worker.extras_columns import extras_columns


def test_each_row_has_the_length_of_its_own() -> None:
    one, two = RowExtras(draft_token_ids=[6], custom=b"x"), RowExtras(draft_token_ids=[8, 1])
    lengths, raw = extras_columns({1: one, 2: two}, 4, [1, 1, 2, 0])
    assert lengths.tolist() == [0, len(pack_extras(one, 1)), len(pack_extras(two, 2)), 0]
    assert raw == pack_extras(one, 1) + pack_extras(two, 2)


@pytest.mark.parametrize("row", [-1, 2, 1 << 40])
def test_a_row_that_is_not_there_is_refused(row: int) -> None:
    with pytest.raises(RowError, match=f"extras: there is no row {row} of 2"):
        extras_columns({row: RowExtras()}, 2, None)


def test_what_does_not_fit_is_named_by_its_row() -> None:
    with pytest.raises(RowError, match=r"extras\[1\]: sampling_masks: 2 entries for a row of 1"):
        extras_columns({1: RowExtras(sampling_masks=[[1], [2]])}, 2, None)
    with pytest.raises(RowError, match=r"extras\[0\]: pooled"):
        extras_columns({0: RowExtras(pooled=object())}, 2, [0, 1])
