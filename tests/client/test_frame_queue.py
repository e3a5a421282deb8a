"""A reader of columns gets frames as they came, and an error behind them."""

from __future__ import annotations

from tokenpipe.client.frame_queue import FrameQueue
from tokenpipe.errors import LaneError, LaneLost


def test_frames_stay_whole_and_in_order() -> None:
    queue = FrameQueue()
    for frame in (b"a", b"no frame at all", b"a"):
        queue.feed(frame, 0.0)
    assert list(queue.frames) == [b"a", b"no frame at all", b"a"]
    assert queue.error is None and queue.bad_frames == 0


def test_a_gap_is_an_error_that_names_its_lane_and_takes_no_frame_away() -> None:
    queue = FrameQueue()
    queue.feed(b"a", 0.0)
    queue.gap("output.0.3")
    assert isinstance(queue.error, LaneError) and "output.0.3" in str(queue.error)
    assert list(queue.frames) == [b"a"]


def test_the_first_error_is_the_one_that_is_told() -> None:
    queue, first = FrameQueue(), LaneLost("the engine is gone")
    queue.fail(first)
    queue.gap("output.0.3")
    queue.fail(LaneLost("later"))
    assert queue.error is first


def test_a_dead_processor_is_for_the_engine_to_say() -> None:
    queue = FrameQueue()
    queue.source_lost(0.0)
    assert queue.error is None
