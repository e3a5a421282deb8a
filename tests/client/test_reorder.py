"""How long a row that came too early waits for what lies before it."""

from __future__ import annotations

import pytest

from tokenpipe.client.reorder import LATE_S, ReorderBuffer


def test_a_frame_waits_until_what_lies_before_it_has_come() -> None:
    held = ReorderBuffer(100, 5.0)
    assert held.add(b"x" * 60, {1: 4, 2: 9}, 10.0) and held.next_deadline == 15.0
    assert not held.add(b"x" * 60, {1: 4}, 11.0)  # no room
    received = {1: 3, 2: 3}
    assert held.pop_due(received.get) is None
    received[1] = 4
    one = held.pop_due(received.get)
    assert one is not None and not len(held)
    assert held.put_back(one, {2: 9}) and held.next_deadline == 15.0  # it has waited before
    assert not list(held.pop_expired(14.9))
    assert [frame.waits for frame in held.pop_expired(15.0)] == [{2: 9}]
    assert held.next_deadline is None


def test_who_is_late_in_reading_waits_longer() -> None:
    held = ReorderBuffer(1 << 20, 5.0)
    held.add(b"final", {1: 4}, 10.0)
    held.extend_deadlines(9.0, 14.0)  # made before the held frame came
    assert held.next_deadline == 19.0
    held.extend_deadlines(10.5, 18.0)
    assert held.next_deadline == 19.0


@pytest.mark.case("F12")
def test_a_time_that_another_process_wrote_lets_nothing_wait_for_ever() -> None:
    held = ReorderBuffer(1 << 20, 5.0)
    held.add(b"final", {1: 4}, 10.0)
    for now in range(11, 500):
        held.extend_deadlines(1e-9, float(now))
    assert held.next_deadline == 10.0 + LATE_S + 5.0
    assert list(held.pop_expired(100.0))


def test_nothing_waits_long_for_the_dead_but_what_they_sent_is_read_first() -> None:
    held = ReorderBuffer(1 << 20, 5.0)
    held.add(b"final", {1: 4}, 10.0)
    held.shorten_deadlines(1.0, 11.0)
    assert held.next_deadline == 12.0
    held.extend_deadlines(9.0, 11.5)
    assert held.next_deadline == 12.5
    held.shorten_deadlines(1.0, 13.0)
    assert held.next_deadline == 12.5
