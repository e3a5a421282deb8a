"""Hello's rhythm, a receiver's lives, and what ends a link for good."""

from __future__ import annotations

from tokenpipe.transport import Role, timing
from tokenpipe.transport.receiver_state import ReceiverState

TO = Role("processor", "0")


def test_hello_waits_longer_each_time_and_only_for_the_living() -> None:
    living = False
    link = ReceiverState(TO, 0, lambda: living, now=10.0)
    said, now = [], 10.0
    for _ in range(6):
        now = link.hello_due
        said.append((round(now - 10.0, 3), link.hello(now)))
    assert said[0] == (0.0, True)  # it waits in the socket
    assert [due for due, _ in said] == [0.0, 0.05, 0.15, 0.35, 0.75, 1.25]
    assert not any(told for _, told in said[1:])
    living = True
    assert link.hello(now)


def test_death_is_seen_once_and_the_next_life_is_welcome() -> None:
    living = True
    link = ReceiverState(TO, 0, lambda: living, now=0.0)
    assert link.welcome(5, *TO, now=0.1) and link.receiver == 5
    living = False
    link.probe(0.6)
    assert link.lost and not link.ready and link.hello_due == 0.6
    assert link.welcome(6, *TO, now=1.0)
    assert link.ready and not link.lost and link.receiver == 6
    assert not link.welcome(6, *TO, now=1.1)  # the same life again


def test_who_from_a_successor_loses_the_link_at_once() -> None:
    link = ReceiverState(TO, 0, lambda: True, now=0.0)
    link.welcome(5, *TO, now=0.1)
    link.unknown(5, now=0.2)
    assert not link.lost and not link.ready and link.hello_due == 0.2
    link.unknown(6, now=0.3)
    assert link.lost and link.reason == "processor 0 was restarted"


def test_a_pinned_link_has_one_life_and_a_refused_one_none() -> None:
    pinned = ReceiverState(TO, 5, lambda: True, now=0.0)
    assert not pinned.welcome(6, *TO, now=0.1)
    assert pinned.lost and pinned.hello_due == timing.NEVER
    pinned.unknown(5, now=0.2)
    assert pinned.hello_due == timing.NEVER
    wrong = ReceiverState(TO, 0, lambda: True, now=0.0)
    assert not wrong.welcome(5, "processor", "1", now=0.1)
    assert wrong.refused == "role: this lane leads to processor 1"
    assert wrong.hello_due == timing.NEVER
