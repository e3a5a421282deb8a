"""The sending end of a lane, whatever carries it."""

from __future__ import annotations

import time

import pytest

from tests.transport.rig import Rig, frame, seq_of, turn
from tokenpipe.errors import FrameTooLarge, LaneError, LaneFull, LaneLost, StartupError
from tokenpipe.transport import Peer, PeerUp, new_incarnation


def test_an_idle_sender_gives_signs_of_life(rig: Rig) -> None:
    sender, receiver = rig.pair()
    before = receiver.heard
    sender.tick(time.monotonic() + 2)
    turn(lambda: receiver.heard > before, sender, receiver)


def test_a_full_lane_says_so_and_numbers_nothing(rig: Rig) -> None:
    sender, receiver = rig.sender(bound=1000), rig.receiver()
    turn(lambda: sender.ready, sender, receiver)
    receiver.peer_events()
    while sender.room >= 200:
        rig.send(sender, size=100)
    before = sender.next_seq
    with pytest.raises(LaneFull, match="not acknowledged"):
        rig.send(sender, size=sender.room)
    with pytest.raises(FrameTooLarge, match="exceeds the bound"):
        rig.send(sender, size=2000)
    assert sender.next_seq == before
    turn(lambda: sender.unacked_frames == 0, sender, receiver)
    rig.send(sender, size=100)


def test_send_waits_for_room_as_long_as_it_is_told(rig: Rig) -> None:
    sender, receiver = rig.sender(bound=400), rig.receiver()
    turn(lambda: sender.ready, sender, receiver)
    rig.send(sender, size=200)
    began = time.monotonic()
    me, to = rig.worker.incarnation, sender.receiver
    with pytest.raises(LaneFull):
        sender.send(frame(rig.instance.id, me, to, sender.next_seq, 200), timeout_s=0.1)
    assert 0.1 <= time.monotonic() - began < 2


def test_a_blocked_send_ends_at_once_when_the_receiver_dies(rig: Rig) -> None:
    sender, receiver = rig.sender(bound=400), rig.receiver()
    turn(lambda: sender.ready, sender, receiver)
    rig.send(sender, size=200)
    rig.living.discard("processor")
    began = time.monotonic()
    me, to = rig.worker.incarnation, sender.receiver
    with pytest.raises(LaneLost, match="processor 0 is dead"):
        sender.send(frame(rig.instance.id, me, to, sender.next_seq, 200), timeout_s=30)
    assert time.monotonic() - began < 2
    assert sender.lost and sender.close(5) == 1  # and closing does not wait either
    assert time.monotonic() - began < 2


def test_a_frame_for_another_life_or_number_is_refused(rig: Rig) -> None:
    sender, _receiver = rig.pair()
    with pytest.raises(ValueError, match="seq 7"):
        sender.send(frame(rig.instance.id, rig.worker.incarnation, sender.receiver, 7))
    with pytest.raises(LaneLost, match="which is gone"):
        sender.send(frame(rig.instance.id, rig.worker.incarnation, 5, sender.next_seq))
    assert sender.next_seq == 1


def test_before_the_welcome_nothing_can_be_sent(rig: Rig) -> None:
    sender = rig.sender()
    with pytest.raises(LaneLost):
        rig.send(sender)
    assert sender.close(5) == 0


@pytest.mark.case("B17")
def test_waiting_for_a_peer_that_is_not_there_names_it(rig: Rig) -> None:
    rig.living.discard("processor")
    with pytest.raises(StartupError, match="processor 0 is not running"):
        rig.sender().wait_ready(0.1)
    rig.living.add("processor")
    with pytest.raises(StartupError, match="runs but does not answer"):
        rig.sender().wait_ready(0.1)


def test_a_pinned_lane_sends_before_the_welcome(rig: Rig) -> None:
    sender = rig.sender(pin=rig.processor.incarnation)
    rig.send(sender, 5)
    receiver = rig.receiver()
    turn(lambda: bool(receiver.sender), sender, receiver)
    assert receiver.peer_events() == [PeerUp(rig.worker.incarnation)]
    got = turn(lambda: not sender.unacked_frames, sender, receiver)
    assert [seq_of(f) for f in got] == [1, 2, 3, 4, 5]
    assert receiver.counters["resend"] == 0


def test_a_pinned_lane_is_lost_to_another_life(rig: Rig) -> None:
    sender = rig.sender(pin=rig.processor.incarnation + 2)
    rig.send(sender, 2)
    receiver = rig.receiver()
    turn(lambda: sender.lost, sender, receiver)
    with pytest.raises(LaneError, match="was restarted"):
        sender.wait_ready(1)
    assert receiver.peer_events() == [] and sender.close(1) == 2


def test_a_restarted_receiver_starts_where_the_sender_is(rig: Rig) -> None:
    sender, receiver = rig.pair()
    rig.send(sender, 3)
    turn(lambda: not sender.unacked_frames, sender, receiver)
    rig.send(sender, 2)  # the old one never applies these
    receiver.port.close()
    receiver._closed = True  # killed: no bye
    again = rig.receiver(Peer("processor", "0", new_incarnation()))
    turn(lambda: sender.ready and sender.receiver == again._me.incarnation, sender, again)
    assert again.peer_events() == [PeerUp(rig.worker.incarnation)]
    assert sender.counters["dropped_receiver"] == 2 and not sender.unacked_frames
    rig.send(sender, 2)
    got = turn(lambda: not sender.unacked_frames, sender, again)
    assert [seq_of(f) for f in got] == [6, 7]
    assert again.counters["gap"] == 0


@pytest.mark.case("B23")
def test_closing_is_bounded_and_counts_what_is_abandoned(rig: Rig) -> None:
    sender, _receiver = rig.pair()
    rig.send(sender, 1000)
    began = time.monotonic()
    assert sender.close(0.2) == 1000
    assert time.monotonic() - began < 1


def test_a_doubted_receiver_must_welcome_anew(rig: Rig) -> None:
    sender, receiver = rig.pair()
    rig.send(sender, 1)
    sender.doubt()
    assert not sender.ready and not sender.lost
    got = turn(lambda: sender.ready and sender.unacked_frames == 0, sender, receiver)
    assert [seq_of(f) for f in got] == [1]  # the same life: nothing is lost or repeated
    assert receiver.peer_events() == []
