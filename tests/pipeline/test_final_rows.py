"""Final rows that the pipeline makes, and the requests that may need one."""

from __future__ import annotations

import pytest

from tests.pipeline.test_bindings import table_with
from tokenpipe._core import OFFSET_UNKNOWN
from tokenpipe.pipeline.final_rows import (
    ERROR_BYTES,
    PIPELINE,
    ROWS_PER_FRAME,
    FinalRow,
    RecentlyEnded,
    pack_final_rows,
)
from tokenpipe.types import ErrorCode, FinishReason
from tokenpipe.wire import OutputFrame


def test_recently_ended_is_bounded_and_forgets_the_oldest() -> None:
    _, requests = table_with(1, 2, 3, 4, 5)
    recent = RecentlyEnded(capacity=3)
    for one, dp in zip(requests, [0, 1, 0, 1, 0], strict=True):
        recent.add(one, dp)
    assert sorted(recent.take([0])) == [(0, 3), (0, 5)]
    assert list(recent.take([0, 1])) == [(0, 4)]
    assert list(recent.take([0, 1])) == []


def test_final_rows_are_an_output_frame() -> None:
    rows = [
        FinalRow(3, (1 << 64) - 1, 7, FinishReason.ABORT),
        FinalRow(3, 2, OFFSET_UNKNOWN, FinishReason.ERROR, ErrorCode.LOST, "ü" * ERROR_BYTES),
    ]
    frame = OutputFrame.unpack(pack_final_rows((1, 2, 3, 4), rows))
    assert frame.client == 3 and frame.rows == 2 and frame.tokens_total == 0
    assert frame.keys.tolist() == [(1 << 64) - 1, 2]
    assert frame.offsets.tolist() == [7, OFFSET_UNKNOWN]
    assert frame.finish.tolist() == [3, 4]
    assert frame.errors == ["", "ü" * (ERROR_BYTES // 2)]
    assert frame.error_code.tolist() == [ErrorCode.NONE, ErrorCode.LOST]


def test_a_full_frame_of_long_errors_fits_the_lane() -> None:
    rows = [
        FinalRow(0, k, 0, FinishReason.ERROR, ErrorCode.LOST, "x" * 9999)
        for k in range(ROWS_PER_FRAME)
    ]
    assert len(pack_final_rows((1, 2, 3, 4), rows)) < 1 << 24


def test_text_that_was_held_back_goes_with_the_row() -> None:
    rows = [
        FinalRow(3, 1, 7, FinishReason.ABORT, text_offset=5, text="é".encode()),
        FinalRow(3, 2, 8, FinishReason.ABORT),
    ]
    frame = OutputFrame.unpack(pack_final_rows((1, 2, 3, 4), rows))
    assert frame.header == (1, 2, 3, 4) and frame.processor == PIPELINE
    assert frame.text_len.tolist() == [2, 0] and frame.text_bytes == "é".encode()
    assert frame.text_offset.tolist() == [5, 0]


@pytest.mark.parametrize(("size", "kept"), [(1, 1), (255, 255), (256, 0)])
def test_the_field_that_is_to_blame_is_named_where_its_name_fits(size: int, kept: int) -> None:
    row = FinalRow(0, 1, 0, FinishReason.ERROR, ErrorCode.INVALID, "is wrong", "n" * size)
    frame = OutputFrame.unpack(pack_final_rows((1, 2, 3, 4), [row]))
    assert frame.errors == ["is wrong"] and frame.error_fields == ["n" * kept]
    assert frame.error_code.tolist() == [ErrorCode.INVALID]
