"""A receiver's sender: it comes, is replaced, ends or dies, and each is told once."""

from __future__ import annotations

import pytest

from tokenpipe.transport import PeerDown, PeerEnded, PeerUp, Role, timing
from tokenpipe.transport.lane_messages import LaneMessage
from tokenpipe.transport.sender_state import SenderState

WORKER = Role("worker", "0.0")


def hello(incarnation: int, since_ns: int = 7) -> LaneMessage:
    return LaneMessage(1, incarnation, 0, "hello", {"since_ns": since_ns})


def test_a_new_incarnation_replaces_the_one_before() -> None:
    state = SenderState(WORKER, lambda: True)
    assert state.incarnation == 0 and state.probe_due == timing.NEVER
    state.enter(b"a", hello(4, 7), now=10.1)
    assert (state.incarnation, state.route, state.since_ns) == (4, b"a", 7)
    assert state.probe_due == 10.1  # the first look, which opens the lock's file
    state.enter(b"b", hello(5, 8), now=10.2)
    assert (state.incarnation, state.route, state.since_ns) == (5, b"b", 8)
    assert state.events == [PeerUp(4), PeerDown(4, "worker 0.0 was restarted"), PeerUp(5)]


@pytest.mark.case("F12")
def test_a_start_in_the_future_does_not_shut_out_the_successor() -> None:
    state = SenderState(WORKER, lambda: True)
    state.enter(b"a", hello(4, 1 << 62), now=10.0)
    assert state.since_ns == 10 * 10**9


def test_an_end_is_remembered_with_what_was_applied() -> None:
    state = SenderState(WORKER, lambda: True)
    state.enter(b"a", hello(4), now=0.0)
    state.end(17)
    assert state.ended == (4, 17) and state.incarnation == 0
    assert state.probe_due == state.dead_at == timing.NEVER
    assert state.events == [PeerUp(4), PeerEnded(4)]


def test_the_dead_have_a_moment_for_their_last_frames() -> None:
    living = True
    state = SenderState(WORKER, lambda: living)
    state.enter(b"a", hello(4), now=0.0)
    state.probe(0.5)
    assert state.dead_at == timing.NEVER and state.probe_due == 1.0
    living = False
    state.probe(1.0)
    assert state.dead_at == 1.0 + timing.DEATH_GRACE_S
    state.probe(1.01)
    assert state.dead_at == 1.0 + timing.DEATH_GRACE_S  # it does not move
    state.die()
    assert state.events[-1] == PeerDown(4, "worker 0.0 is dead") and state.incarnation == 0
    assert state.dead_at == timing.NEVER


def test_a_stranger_is_asked_once_in_a_while() -> None:
    state = SenderState(WORKER, lambda: True)
    asked = [state.may_ask_who(now / 1000) for now in range(1000, 1200, 10)]
    assert asked[0] and sum(asked) == 4
