"""A rank's deadlines: by the wall, or by a clock that stands while the rank is silent."""

from __future__ import annotations

from tokenpipe.processor.deadlines import NEVER
from tokenpipe.processor.rank import Rank
from tokenpipe.processor.timers import LIFE_CREDIT_S


def opened(now: float = 100.0) -> Rank:
    rank = Rank(3, None)
    rank.open(7, now)
    return rank


def test_a_rank_without_deadlines_is_never_due() -> None:
    assert Rank(0, None).next_deadline == NEVER and Rank(0, None).incarnation == 0
    rank = opened()
    assert (rank.dp, rank.incarnation, rank.next_deadline) == (3, 7, NEVER)


def test_the_first_of_all_deadlines_counts() -> None:
    rank = opened()
    rank.parked.set(1, 105.0)
    assert rank.next_deadline == 105.0
    rank.unasked.set(2, 104.0)
    assert rank.next_deadline == 104.0
    rank.undrained.set(3, rank.life.read(100.0) + 1.0)
    assert rank.next_deadline == 101.0
    rank.unheard.set(4, rank.life.read(100.0) + 0.5)
    assert rank.next_deadline == 100.5


def test_a_silent_rank_misses_no_deadline_of_its_own_clock() -> None:
    rank = opened()
    rank.undrained.set(3, rank.life.read(100.0) + LIFE_CREDIT_S + 1.0)
    assert rank.next_deadline == NEVER  # it must show life first
    rank.life.seen(102.0)
    assert rank.next_deadline == 100.0 + LIFE_CREDIT_S + 1.0


def test_what_is_forgotten_is_due_no_more() -> None:
    rank = opened()
    for timer in (rank.parked, rank.unasked, rank.undrained, rank.unheard):
        timer.set(1, 101.0)
        timer.set(2, 102.0)
    rank.bound_at.update({1: 0, 2: 0})
    rank.forget(1)
    assert rank.parked.head() == rank.unasked.head() == 102.0 and rank.bound_at == {2: 0}
    rank.forget(2)
    assert rank.next_deadline == NEVER


def test_the_end_of_a_life_ends_all_that_was_awaited() -> None:
    rank = opened()
    rank.gap_at = 99.0
    rank.bound_at[1] = 0
    for timer in (rank.parked, rank.unasked, rank.undrained, rank.unheard):
        timer.set(1, 101.0)
    rank.close()
    assert (rank.incarnation, rank.next_deadline, rank.bound_at) == (0, NEVER, {})
    assert rank.gap_at < -1e9
    rank.open(8, 200.0)
    assert rank.incarnation == 8 and rank.life.read(200.0) == 0.0
