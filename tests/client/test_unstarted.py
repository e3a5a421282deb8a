"""Requests without output are remembered, and no others for long."""

from __future__ import annotations

import pytest

from tokenpipe.client.unstarted import FIRST_SWEEP, Unstarted
from tokenpipe.errors import LaneFull, LaneLost
from tokenpipe.types import SamplingParams
from tokenpipe.wire import Submit


def submit(key: int) -> Submit:
    return Submit(key, f"r{key}", (1, 2), SamplingParams())


def test_requests_are_kept_in_order_until_they_have_output_or_are_over() -> None:
    received: dict[int, int] = dict.fromkeys(range(1, 5), 0)
    unstarted = Unstarted(received.get, 10)
    for key in received:
        unstarted.add(submit(key))
    received[2] = 1
    del received[3]
    unstarted.forget(4)
    unstarted.forget(4)
    assert unstarted.sweep() == {1: submit(1)} and len(unstarted) == 1


def test_what_has_output_is_dropped_in_time_and_among_many() -> None:
    received: dict[int, int] = {}
    unstarted = Unstarted(received.get, 10)
    for key in range(1, 10_000):
        received[key] = 0
        unstarted.add(submit(key))
        received[key] = 1
        assert len(unstarted) <= FIRST_SWEEP + 1
    unstarted.tick(0.0)
    assert len(unstarted) == 0
    received[1] = 0
    unstarted.add(submit(1))
    received[1] = 1
    unstarted.tick(0.9)
    assert len(unstarted) == 1
    unstarted.tick(1.0)
    assert len(unstarted) == 0


def test_so_many_may_wait_and_no_more() -> None:
    unstarted, why = Unstarted(lambda key: 0, 2), LaneLost("the engine is gone")
    for key in (1, 2):
        unstarted.check_room(why)
        unstarted.add(submit(key))
    with pytest.raises(LaneFull, match=r"^the engine is gone; 2 request\(s\) wait"):
        unstarted.check_room(why)
