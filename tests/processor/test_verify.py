"""What TP ranks sampled, compared over a window of steps."""

from __future__ import annotations

import pytest

from tests.processor.rig import Rig, Row
from tokenpipe.processor.verify import Divergence, Verifier, first_difference
from tokenpipe.types import make_handle
from tokenpipe.wire import StepFrame

A, B = make_handle(0, 0, 1), make_handle(0, 1, 1)


def frame(step: int, tp: int, *rows: tuple[int, list[int]]) -> StepFrame:
    """Return the step that `tp` would send."""
    return StepFrame.unpack(Rig(tp_size=4).frame([Row(h, t) for h, t in rows], tp=tp, step=step))


@pytest.mark.parametrize(
    ("other", "handle"),
    [
        ([(A, [1, 2]), (B, [3])], None),
        ([(B, [3]), (A, [1, 2])], None),
        ([(A, [1]), (A, [2]), (B, [3])], None),
        ([(A, [1, 2]), (B, [4])], B),
        ([(A, [2, 1]), (B, [3])], A),
        ([(A, [1, 2])], B),
        ([(B, [3])], A),
        ([], A),
        ([(A, [1, 2]), (B, [3, 3])], B),
    ],
)
def test_finds_the_lowest_handle_that_differs(
    other: list[tuple[int, list[int]]], handle: int | None
) -> None:
    one = frame(1, 0, (A, [1, 2]), (B, [3]))
    assert first_difference(one, frame(1, 1, *other)) == handle
    assert first_difference(frame(1, 1, *other), one) == handle


def test_waits_for_the_counterpart_within_the_window() -> None:
    verifier = Verifier(3, window=4)
    for step in range(1, 4):
        assert list(verifier.feed(frame(step, 1, (A, [step if step != 2 else 9])))) == []
    assert list(verifier.feed(frame(1, 0, (A, [1])))) == []
    assert list(verifier.feed(frame(2, 0, (A, [2])))) == [Divergence(1, 2, A)]
    assert list(verifier.feed(frame(1, 2, (A, [8])))) == [Divergence(2, 1, A)]
    assert list(verifier.feed(frame(2, 2, (A, [8])))) == []  # once is enough
    assert (verifier.compared, verifier.skipped) == (4, 0)


def test_forgets_steps_that_leave_the_window_and_all_with_a_new_life() -> None:
    verifier = Verifier(2, window=4)
    for step in range(10):
        assert list(verifier.feed(frame(step, 1, (A, [1])))) == []
    assert verifier.skipped == 6
    for step in range(10):
        assert list(verifier.feed(frame(step, 0, (A, [1])))) == []
    assert verifier.compared == 4
    verifier.reset()
    assert list(verifier.feed(frame(9, 1, (A, [2])))) == []
