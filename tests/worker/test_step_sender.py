"""A frame of a worker's loop is sent once, whether the lane is full or not."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from tests.worker.loop_fakes import FakePublisher
from tokenpipe.errors import FrameTooLarge, LaneFull, LaneLost
from tokenpipe.notify import Notifier
from tokenpipe.worker import StepRows
from tokenpipe.worker.step_sender import StepSender


def rows(*tokens: int) -> StepRows:
    handles = np.arange(1, 1 + len(tokens), dtype=np.int64)
    return StepRows(handles, np.array(tokens, np.int32))


def test_a_frame_has_rows_and_drained_handles() -> None:
    pub = FakePublisher()
    sender = StepSender(pub, Notifier(None))
    assert sender.send(1, rows(7), None) and sender.send(2, rows(8, 9), np.array([4]))
    assert [frame[:4] for frame in pub.frames] == [(1, [1], [7], []), (2, [1, 2], [8, 9], [4])]


def test_a_full_lane_gets_the_same_frame_until_it_takes_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pub = FakePublisher(LaneFull("no room"), LaneFull("no room"), LaneFull("no room"))
    sender = StepSender(pub, Notifier(None))
    with caplog.at_level(logging.WARNING, "tokenpipe.worker"):
        assert sender.send(1, rows(7), None)
    assert pub.log == ["publish 1", *["wait", "publish 1"] * 3]
    assert [frame.tokens for frame in pub.frames] == [[7]]
    assert [record.message for record in caplog.records] == [
        "no room; step 1 waits until the lane takes it"
    ]


def test_a_full_lane_keeps_nobody_who_is_told_to_stop() -> None:
    class Stopping(FakePublisher):
        def wait(self, timeout_s: float) -> None:
            sender.stopped = True

    pub = Stopping(*[LaneFull("no room")] * 5)
    sender = StepSender(pub, Notifier(None))
    assert sender.send(1, rows(7), None)
    assert pub.log == ["publish 1", "publish 1"] and not pub.frames


@pytest.mark.parametrize("errors", [(LaneLost("dead"),), (LaneFull("full"), LaneLost("dead"))])
def test_a_dead_processor_is_told(errors: tuple[LaneFull | LaneLost, ...]) -> None:
    pub = FakePublisher(*errors)
    sender = StepSender(pub, Notifier(None))
    assert not sender.send(1, rows(7), None) and not pub.frames
    assert sender.send(2, rows(8), None)  # of the next batch


def test_a_frame_that_no_lane_can_carry_is_not_tried_again() -> None:
    pub = FakePublisher(LaneFull("full"), FrameTooLarge("larger than the bound"))
    with pytest.raises(FrameTooLarge, match="larger than the bound"):
        StepSender(pub, Notifier(None)).send(1, rows(7), None)
    assert pub.log == ["publish 1", "wait", "publish 1"]


def test_an_attempt_of_somebody_else_is_continued() -> None:
    pub = FakePublisher()
    sender = StepSender(pub, Notifier(None))
    assert sender.retry(1, rows(7), None, LaneFull("full"))
    assert pub.log == ["wait", "publish 1"]
    assert not sender.retry(2, rows(8), None, LaneLost("dead"))
    with pytest.raises(FrameTooLarge):
        sender.retry(3, rows(9), None, FrameTooLarge("large"))
