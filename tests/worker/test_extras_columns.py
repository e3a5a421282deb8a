"""Extras of rows, packed for the rows that have them."""

from __future__ import annotations

import pytest

from tokenpipe.errors import RowError
from tokenpipe.extras import RowAnnex
from tokenpipe.wire import pack_annex
from tokenpipe.worker.extras_columns import annex_columns


def test_each_row_has_the_length_of_its_own() -> None:
    one, two = RowAnnex(draft_token_ids=[6], extra=b"x"), RowAnnex(draft_token_ids=[8, 1])
    lengths, raw = annex_columns({1: one, 2: two}, 4, [1, 1, 2, 0])
    assert lengths.tolist() == [0, len(pack_annex(one, 1)), len(pack_annex(two, 2)), 0]
    assert raw == pack_annex(one, 1) + pack_annex(two, 2)


@pytest.mark.parametrize("row", [-1, 2, 1 << 40])
def test_a_row_that_is_not_there_is_refused(row: int) -> None:
    with pytest.raises(RowError, match=f"annexes: there is no row {row} of 2"):
        annex_columns({row: RowAnnex()}, 2, None)


def test_what_does_not_fit_is_named_by_its_row() -> None:
    with pytest.raises(RowError, match=r"annexes\[1\]: sampling_masks: 2 entries for a row of 1"):
        annex_columns({1: RowAnnex(sampling_masks=[[1], [2]])}, 2, None)
    with pytest.raises(RowError, match=r"annexes\[0\]: pooled"):
        annex_columns({0: RowAnnex(pooled=object())}, 2, [0, 1])
