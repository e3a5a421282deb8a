"""A column is a read-only array: a view of the frame's bytes, or its default."""

from __future__ import annotations

import numpy as np
import pytest

from tokenpipe.wire.column_view import column_view

RAW = np.array([7, -1, 3], np.int32).tobytes()


def test_a_column_is_a_view_of_its_bytes() -> None:
    array = column_view({3: RAW}, 3, np.int32, 0, default=9)
    assert array.tolist() == [7, -1, 3] and array.dtype == np.int32
    assert np.shares_memory(array, np.frombuffer(RAW, np.uint8))


def test_an_absent_column_has_its_default_in_each_row() -> None:
    array = column_view({3: RAW}, 4, np.uint16, 2, default=1)
    assert array.tolist() == [1, 1] and array.dtype == np.uint16
    assert column_view({}, 4, np.uint16, 2).tolist() == [0, 0]


@pytest.mark.parametrize("column", [3, 4])
def test_nobody_can_write_to_a_column(column: int) -> None:
    with pytest.raises(ValueError, match="read-only"):
        column_view({3: RAW}, column, np.int32, 1)[0] = 5
