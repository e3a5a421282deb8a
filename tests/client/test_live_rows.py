"""A reader of columns gets one final row of each request, and nothing after it."""

from __future__ import annotations

import pytest

from tests.client.frames import Row, output_frame
from tokenpipe._core import OFFSET_UNKNOWN
from tokenpipe.client.live_rows import PIPELINE, LiveRows
from tokenpipe.wire import OutputFrame


def frame(*rows: Row, processor: int = 0) -> OutputFrame:
    made = OutputFrame.unpack(output_frame(*rows))
    return OutputFrame(made.header, processor, *[getattr(made, f) for f in made.__slots__[2:]])


@pytest.mark.case("F23")
def test_the_final_row_of_the_pipeline_does_not_come_after_that_of_the_processor() -> None:
    live = LiveRows()
    live.add([1, 2])
    last = frame(Row(1, 0, [5, 6], finish=1))
    assert live.take(last) is last
    ends = [Row(key, OFFSET_UNKNOWN, finish=4, error="lost", error_code=3) for key in (1, 2)]
    taken = live.take(frame(*ends, processor=PIPELINE))
    assert taken is not None
    assert (taken.keys.tolist(), taken.errors) == ([2], ["lost"])  # 1 has ended
    assert live.take(frame(*ends, processor=PIPELINE)) is None


@pytest.mark.case("F23")
def test_rows_that_come_again_are_of_live_requests() -> None:
    live = LiveRows()
    live.add([1, 2])
    rows = Row(1, 0, [5, 6], finish=1, text="ab"), Row(2, 0, [7], text="c")
    assert live.take(frame(*rows)) is not None
    live.careful = True  # the processor died, and its next process sends these again
    taken = live.take(frame(*rows))
    assert taken is not None
    assert taken.keys.tolist() == [2] and taken.tokens.tolist() == [7] and taken.texts == ["c"]
    assert taken.rows == 1 and taken.tokens_total == 1
    assert live.take(frame(Row(2, 1, [8], finish=2))) is not None
    assert live.take(frame(*rows)) is None
