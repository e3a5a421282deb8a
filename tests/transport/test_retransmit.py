"""When a receiver asks for missing frames again, and when it calls them lost."""

from __future__ import annotations

from tokenpipe.transport import timing
from tokenpipe.transport.retransmit import Retransmission


def test_a_hole_is_asked_for_once_while_it_heals() -> None:
    healing = Retransmission(timeout_s=1.0)
    assert healing.look((5, 9), 0.0)
    assert not healing.look((5, 9), 0.05)
    assert healing.look((5, 9), 0.1)  # no progress: again
    assert not healing.look((7, 9), 0.15)  # progress: what was asked for is on its way
    assert healing.give_up_due == 1.15
    assert healing.look((12, 12), 0.2)  # a hole that was not asked for
    assert not healing.look(None, 0.3)
    assert healing.give_up_due == healing.ask_due == timing.NEVER


def test_a_range_is_lost_so_long_after_the_last_progress() -> None:
    healing = Retransmission(timeout_s=1.0)
    healing.look((5, 9), 0.0)
    for now in (0.3, 0.6, 0.9):
        healing.look((5, 9), now)
    assert healing.give_up_due == 1.0
    healing.look((6, 9), 0.95)
    assert healing.give_up_due == 1.95


def test_a_range_that_comes_anew_begins_anew() -> None:
    healing = Retransmission(timeout_s=1.0)
    assert healing.look((5, 5), 0.0)
    healing.look(None, 0.01)
    assert healing.look((5, 5), 0.02)  # not as if it had been asked for
    assert healing.give_up_due == 1.02
