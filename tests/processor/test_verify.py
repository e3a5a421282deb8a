"""What TP ranks sampled, compared by handle and position."""

from __future__ import annotations

import pytest

from tests.processor.rig import Rig, Row
from tokenpipe.processor.verify import Divergence, Verifier
from tokenpipe.types import RowStatus, make_handle
from tokenpipe.wire import StepFrame

A, B = make_handle(0, 0, 1), make_handle(0, 1, 1)


class Ranks:
    """TP ranks that send frames to a verifier. Each has its own step numbers."""

    def __init__(self, tp_size: int = 2, window: int = 4) -> None:
        self.verifier = Verifier(tp_size, window)
        self._rigs = [Rig(tp_size=4) for _ in range(tp_size)]

    def send(
        self, tp: int, *rows: tuple[int, list[int]], step: int | None = None, drained: int = 0
    ) -> list[Divergence]:
        made = [Row(handle, tokens) for handle, tokens in rows]
        made += [Row(drained, (), RowStatus.DRAINED)] if drained else []
        return self.verifier.feed(StepFrame.unpack(self._rigs[tp].frame(made, tp=tp, step=step)))


@pytest.mark.parametrize(
    ("other", "handle"),
    [
        ([(A, [1, 2]), (B, [3])], None),
        ([(B, [3]), (A, [1, 2])], None),
        ([(A, [1]), (A, [2]), (B, [3])], None),
        ([(A, [1, 2]), (B, [4])], B),
        ([(A, [2, 1]), (B, [3])], A),
        ([(A, [2, 1]), (B, [4])], A),
        ([(A, [1, 2])], None),  # the rest may come in another frame
        ([], None),
        ([(A, [1, 2]), (B, [3, 3])], None),
        ([(A, [1, 2, 5]), (B, [2])], B),
    ],
)
def test_finds_the_lowest_handle_that_differs(
    other: list[tuple[int, list[int]]], handle: int | None
) -> None:
    one = [(A, [1, 2]), (B, [3])]
    for first in (0, 1):
        ranks = Ranks()
        sent = [one, other] if first == 0 else [other, one]
        assert ranks.send(first, *sent[first]) == []
        found = ranks.send(1 - first, *sent[1 - first])
        assert found == ([] if handle is None else [Divergence(1, 1, handle)])


def test_waits_for_the_counterpart_within_the_window() -> None:
    ranks = Ranks(3)
    for n in range(1, 4):
        assert ranks.send(1, (A, [n if n != 2 else 9])) == []
    assert ranks.send(0, (A, [1])) == []
    assert ranks.send(0, (A, [2])) == [Divergence(1, 2, A)]
    assert ranks.send(2, (A, [8])) == [Divergence(2, 1, A)]
    assert ranks.send(2, (A, [8])) == []  # once is enough
    assert ranks.verifier.skipped == 0


@pytest.mark.case("F21")
def test_the_numbers_of_steps_do_not_matter() -> None:
    """A rank that idled sends its drained row in a frame, and a step, of its own."""
    ranks = Ranks()
    ranks.send(0, (A, [1]), (B, [2]), step=1)
    ranks.send(1, (A, [1]), (B, [2]), step=1)
    ranks.send(0, (B, [3]), step=2, drained=A)
    ranks.send(1, step=2, drained=A)
    assert ranks.send(1, (B, [3]), step=3) == []
    for n in range(20):
        assert ranks.send(0, (B, [n]), step=3 + n) == []
        assert ranks.send(1, (B, [n]), step=4 + n) == []
    assert ranks.send(0, (B, [7]), step=30) == []
    assert ranks.send(1, (B, [8]), step=31) == [Divergence(1, 30, B)]


@pytest.mark.case("F21")
def test_more_rows_after_a_free_are_no_difference() -> None:
    ranks = Ranks()
    again = make_handle(0, 0, 2)
    ranks.send(0, (A, [1]))
    ranks.send(1, (A, [1]))
    ranks.send(0, (A, [2]))  # one rank has launched one more step
    ranks.send(0, drained=A)
    ranks.send(1, drained=A)
    for n in range(20):
        assert ranks.send(0, (again, [n])) == []
        assert ranks.send(1, (again, [n])) == []
    assert ranks.send(1, (again, [7])) == []
    assert ranks.send(0, (again, [8])) == [Divergence(1, 24, again)]


@pytest.mark.case("F21")
def test_a_rank_that_counts_its_steps_anew_is_compared() -> None:
    """One worker of a DP rank was restarted, and the other goes on with its numbers."""
    ranks = Ranks()
    ranks.send(0, (A, [1]), step=900)
    ranks.verifier.reset()
    for n in range(8):
        ranks.send(0, (B, [n]), step=901 + n)
        assert ranks.send(1, (B, [n]), step=1 + n) == []
    assert ranks.verifier.compared == 8
    ranks.send(1, (B, [1]), step=9)
    assert ranks.send(0, (B, [2]), step=909) == [Divergence(1, 909, B)]


def test_forgets_what_leaves_the_window_and_all_with_a_new_life() -> None:
    ranks = Ranks()
    for _ in range(10):
        assert ranks.send(1, (A, [1])) == []
    assert ranks.verifier.skipped == 6
    for _ in range(6):
        assert ranks.send(0, (A, [1])) == []
    assert ranks.send(0, (A, [1])) == []
    assert ranks.send(0, (A, [2])) == [Divergence(1, 8, A)]
    ranks.verifier.reset()
    assert ranks.send(1, (B, [2])) == []
    assert ranks.send(0, (B, [3])) == [Divergence(1, 9, B)]
    assert ranks.verifier.skipped == 6


def test_keeps_a_bounded_number_of_tokens() -> None:
    ranks = Ranks(window=1)
    for n in range(20):
        handle = make_handle(0, n, 1)
        ranks.send(0, (handle, list(range(1000))))
        ranks.send(1, (make_handle(0, 30 + n, 1), list(range(1000))))
    pair = ranks.verifier._pairs[0]
    assert all(side.count <= 5096 for side in pair._sides)
    assert ranks.verifier.skipped > 20
