"""Frames of a worker's loop: numbered one after another, each sent once, full lane or not."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from tests.worker.loop_fakes import FakePublisher
from tokenpipe.errors import LaneClosed, LaneFull, LaneLost
from tokenpipe.notify import Notifier
from tokenpipe.worker import StepRows
from tokenpipe.worker.step_sender import StepSender


def rows(*tokens: int) -> StepRows:
    handles = np.arange(1, 1 + len(tokens), dtype=np.int64)
    return StepRows(handles, np.array(tokens, np.int32))


def test_each_frame_has_the_next_number() -> None:
    pub = FakePublisher()
    sender = StepSender(pub, Notifier(None))
    assert sender.send(rows(7)) and sender.send(rows(8, 9), np.array([4]))
    assert [frame[:4] for frame in pub.frames] == [(1, [1], [7], []), (2, [1, 2], [8, 9], [4])]


def test_a_full_lane_gets_the_same_frame_until_it_takes_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pub = FakePublisher(LaneFull("no room"), LaneFull("no room"), LaneFull("no room"))
    sender = StepSender(pub, Notifier(None))
    with caplog.at_level(logging.WARNING, "tokenpipe.worker"):
        assert sender.send(rows(7))
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
    assert sender.send(rows(7))
    assert pub.log == ["publish 1", "publish 1"] and not pub.frames


@pytest.mark.parametrize("errors", [(LaneLost("dead"),), (LaneFull("full"), LaneLost("dead"))])
def test_a_dead_processor_is_told(errors: tuple[LaneFull | LaneLost, ...]) -> None:
    pub = FakePublisher(*errors)
    sender = StepSender(pub, Notifier(None))
    assert not sender.send(rows(7)) and not pub.frames
    assert sender.send(rows(8))  # of the next batch


def test_a_muted_rank_sends_nothing_and_counts_all_the_same() -> None:
    pub = FakePublisher()
    sender = StepSender(pub, Notifier(None))
    sender.muted = True
    assert sender.send(rows(7)) and pub.log == ["poll"]
    sender.muted = False
    assert sender.send(rows(8)) and pub.frames[0].step == 2


def test_a_failure_that_cannot_be_reported_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Closed(FakePublisher):
        def fail(self, error: str | BaseException) -> None:
            raise LaneClosed("it is closed")

    StepSender(Closed(), Notifier(None)).report(RuntimeError("no memory"))
    assert [record.message for record in caplog.records] == [
        "the failure could not be reported to the processor: it is closed"
    ]
