"""The receiving end of a lane, whatever carries it."""

from __future__ import annotations

import time

import pytest

from tests.transport.rig import LANE, Rig, seq_of, turn
from tokenpipe.errors import LaneClosed, LaneError, LaneLost, StartupError
from tokenpipe.transport import (
    LaneReceiver,
    LaneSender,
    MemoryLane,
    Peer,
    PeerDown,
    PeerEnded,
    PeerUp,
    lane_messages,
    new_incarnation,
)


def test_frames_arrive_once_and_in_order(rig: Rig) -> None:
    sender, receiver = rig.pair()
    rig.send(sender, 200)
    got = turn(lambda: sender.unacked_frames == 0, sender, receiver)
    assert [seq_of(f) for f in got] == list(range(1, 201))
    assert sender.next_seq == 201 and sender.unacked_bytes == 0


def test_a_hello_makes_a_peer_and_an_end_unmakes_it(rig: Rig) -> None:
    sender, receiver = rig.sender(), rig.receiver()
    turn(lambda: sender.ready, sender, receiver)
    assert receiver.peer_events() == [PeerUp(rig.worker.incarnation)]
    assert sender.receiver == rig.processor.incarnation
    me, to = rig.worker.incarnation, rig.processor.incarnation
    assert sender.next_header == (rig.instance.id, me, to, 1)
    rig.send(sender, 3)
    assert sender.next_header == (rig.instance.id, me, to, 4)
    sender.end()
    got = turn(lambda: sender.ended, sender, receiver)
    assert len(got) == 3
    assert receiver.peer_events() == [PeerEnded(rig.worker.incarnation)]
    assert receiver.sender == 0
    assert sender.close(0.0) == 0
    with pytest.raises(LaneClosed):
        sender.send(b"")


def vanish(rig: Rig, sender: LaneSender, receiver: LaneReceiver) -> None:
    """Let the receiver's process die without a word. The sender's port connects again."""
    receiver._closed = True
    receiver.port.close()
    if rig.kind == "memory":
        rig.memory = MemoryLane(LANE)
        port = rig.memory.sender(rig.worker.route)
        sender.port = sender._protocol._port = port


def test_a_receiver_goes_on_where_one_with_its_incarnation_was(rig: Rig) -> None:
    sender, receiver = rig.pair()
    rig.send(sender, 5)
    turn(lambda: sender.unacked_frames == 0, sender, receiver)
    at = receiver.position
    assert at[0] == rig.worker.incarnation and at[2] == 6
    vanish(rig, sender, receiver)
    rig.send(sender, 3)
    following = rig.receiver()
    following.resume(*at)
    assert following.position == at and not following.peer_events()
    got = turn(lambda: sender.unacked_frames == 0, sender, following)
    assert [seq_of(f) for f in got] == [6, 7, 8]
    assert sender.ready and not sender.lost and not following.peer_events()
    assert following.counters["gap"] == following.counters["dropped_sender"] == 0


def test_the_answers_follow_a_sender_to_its_new_connection(rig: Rig) -> None:
    sender, receiver = rig.pair()
    _, since_ns, expected, _ = receiver.position
    vanish(rig, sender, receiver)
    following = rig.receiver()
    following.resume(rig.worker.incarnation, since_ns, expected, b"worker:0.0:1:gone")
    sender.doubt()  # it says hello again
    turn(lambda: sender.ready, sender, following)
    rig.send(sender, 1)
    turn(lambda: sender.unacked_frames == 0, sender, following)
    assert not following.peer_events()


def test_nothing_is_acknowledged_before_it_is_applied(rig: Rig) -> None:
    sender, receiver = rig.pair()
    rig.send(sender, 2)
    got: list[object] = []
    deadline = time.monotonic() + 5
    while len(got) < 2 and time.monotonic() < deadline:
        got += receiver.recv()
    receiver.tick(time.monotonic() + 1)
    sender.poll()
    assert sender.unacked_frames == 2
    receiver.applied()
    turn(lambda: sender.unacked_frames == 0, sender, receiver)


def test_a_ping_is_answered_with_what_is_applied_and_not_with_what_came(rig: Rig) -> None:
    sender, receiver = rig.pair()
    rig.send(sender, 3)
    got: list[object] = []
    deadline = time.monotonic() + 5
    while len(got) < 2:
        assert time.monotonic() < deadline
        got += receiver.recv(2 - len(got))
    receiver.applied()
    while len(got) < 3:
        assert time.monotonic() < deadline
        got += receiver.recv()
    heard = receiver.heard
    for later in (1, 2):  # no acknowledgement between two looks: a ping
        sender.tick(time.monotonic() + later)
    while receiver.heard == heard:
        assert time.monotonic() < deadline
        receiver.recv()
    while sender.unacked_frames == 3:
        assert time.monotonic() < deadline
        sender.poll()
    assert sender.unacked_frames == 1


def test_an_end_waits_for_what_is_not_applied(rig: Rig) -> None:
    sender, receiver = rig.pair()
    rig.send(sender, 1)
    sender.end()
    deadline = time.monotonic() + 5
    while not receiver.recv() and time.monotonic() < deadline:
        pass
    receiver.recv()
    assert receiver.peer_events() == []
    assert sender.close(0.05) == 1  # said, not hidden


@pytest.mark.case("B17")
def test_a_receiver_that_binds_late_gets_the_first_frame(rig: Rig) -> None:
    sender = rig.sender()
    with pytest.raises(StartupError):
        sender.wait_ready(0.2)
    receiver = rig.receiver()
    turn(lambda: sender.ready, sender, receiver)
    receiver.peer_events()
    rig.send(sender)
    assert [seq_of(f) for f in turn(lambda: not sender.unacked_frames, sender, receiver)] == [1]


@pytest.mark.parametrize("what", ["role", "instance"])
def test_a_hello_at_the_wrong_door_is_refused_with_a_word(rig: Rig, what: str) -> None:
    receiver = rig.receiver(expects=Peer("worker", "3.0", 0) if what == "role" else None)
    sender = rig.sender(instance=rig.instance.id + 2 if what == "instance" else 0)
    turn(lambda: sender.lost, sender, receiver)
    with pytest.raises(LaneError, match=f"refused by processor 0: {what}"):
        sender.wait_ready(1)
    assert receiver.counters["refused"] >= 1


def test_another_version_is_refused_and_named(rig: Rig) -> None:
    sender, receiver = rig.pair()
    hello = bytearray(lane_messages.pack(rig.instance.id, 1, 0, "hello"))
    hello[2] = 9
    assert sender.port.send(bytes(hello))
    turn(lambda: sender.lost, sender, receiver)
    assert "version: this receiver uses 1, not 9" in sender.lost_reason


def test_a_restarted_sender_starts_at_one(rig: Rig) -> None:
    sender, receiver = rig.pair()
    rig.send(sender, 3)
    turn(lambda: not sender.unacked_frames, sender, receiver)
    sender.port.close()
    sender._closed = True
    old = rig.worker.incarnation
    rig.worker = Peer("worker", "0.0", new_incarnation())
    again = rig.sender()
    turn(lambda: again.ready, again, receiver)
    assert receiver.peer_events() == [
        PeerDown(old, "worker 0.0 was restarted"),
        PeerUp(rig.worker.incarnation),
    ]
    rig.send(again, 2)
    got = turn(lambda: not again.unacked_frames, again, receiver)
    assert [seq_of(f) for f in got] == [1, 2]


def test_recv_stops_at_a_change(rig: Rig) -> None:
    sender, receiver = rig.pair()
    rig.send(sender, 3)
    rig.worker = Peer("worker", "0.0", new_incarnation())
    again = rig.sender()
    turn(lambda: receiver.next_deadline == 0.0, sender, receiver)
    assert receiver.recv() == []
    assert receiver.next_deadline == 0.0
    assert [type(change) for change in receiver.peer_events()] == [PeerDown, PeerUp]
    turn(lambda: again.ready, again, receiver)


def test_a_round_is_due_when_something_came_or_its_time_has(rig: Rig) -> None:
    sender, receiver = rig.pair()
    now = time.monotonic()
    deadline = time.monotonic() + 10
    while receiver.is_due(now):  # what is left of the greeting
        assert receiver.recv() == [] and receiver.peer_events() == []
        receiver.applied()
        receiver.tick(now)
        assert time.monotonic() < deadline
    assert receiver.is_due(receiver.next_deadline)
    rig.send(sender, 1)
    while not receiver.is_due(now):
        assert time.monotonic() < deadline
    assert len(receiver.recv()) == 1
    receiver.applied()
    assert not receiver.is_due(now) and receiver.is_due(now + 1)  # the acknowledgement
    receiver.close()
    assert not receiver.is_due(now + 1000)


def test_a_dead_sender_is_called_down_after_its_last_words(rig: Rig) -> None:
    sender, receiver = rig.pair()
    rig.send(sender, 5)
    rig.living.discard("worker")
    began = time.monotonic()
    got: list[object] = []
    while receiver.next_deadline > 0.0:
        got += receiver.recv()
        receiver.tick(time.monotonic())
        assert time.monotonic() - began < 2
    assert len(got) == 5
    assert receiver.peer_events() == [PeerDown(rig.worker.incarnation, "worker 0.0 is dead")]
    assert receiver.sender == 0


def test_a_closed_receiver_says_bye(rig: Rig) -> None:
    sender, receiver = rig.pair()
    rig.send(sender, 1)
    receiver.close()
    turn(lambda: sender.lost, sender)
    assert sender.lost_reason == "its receiver closed it"
    with pytest.raises(LaneLost):
        rig.send(sender)
    assert sender.close(5) == 1


@pytest.mark.case("B73")
@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"\x80\x04\x95",  # a pickle
        b"\x94\x01\x01\x94\xcf",
        b"\x91" * 5000,
        b"\xdd\xff\xff\xff\xff",  # an array of 2**32 - 1
        b"\x94\x00\x01\x94\x01\x01\x00\x00" + b"\x91" * 4000,
        lane_messages.pack(1, 1, 1, "hello", role=7),
        lane_messages.pack(1, 1, 1, "x" * 5000),
    ],
)
def test_bytes_that_are_no_frame_are_dropped_and_counted(rig: Rig, bad: bytes) -> None:
    sender, receiver = rig.pair()
    rig.send(sender, 1)
    assert sender.port.send(bad)
    rig.send(sender, 1)
    got = turn(lambda: not sender.unacked_frames, sender, receiver)
    assert [seq_of(f) for f in got] == [1, 2]
    assert receiver.counters["bad_frames"] == 1
    assert receiver.port.send(receiver._protocol.sender_state.route, bad)
    turn(lambda: sender.counters["bad_frames"] == 1, sender, receiver)
    assert sender.ready


def test_a_stranger_is_asked_who_it_is(rig: Rig) -> None:
    """A receiver that forgot its sender gets it back without a clock's help."""
    sender, receiver = rig.pair()
    receiver._protocol.sender_state.incarnation = 0
    rig.send(sender, 2)
    got = turn(lambda: bool(receiver.peer_events()), sender, receiver)
    got += turn(lambda: not sender.unacked_frames, sender, receiver)
    assert [seq_of(f) for f in got] == [1, 2]


def test_a_doubted_sender_that_is_dead_is_down_after_its_last_words(rig: Rig) -> None:
    sender, receiver = rig.pair()
    rig.send(sender, 3)
    rig.living.discard("worker")
    receiver.doubt(time.monotonic())
    got: list[object] = []
    deadline = time.monotonic() + 5
    while receiver.sender and time.monotonic() < deadline:
        got += receiver.recv()
        receiver.tick(time.monotonic())
    assert len(got) == 3
    (change,) = receiver.peer_events()
    assert isinstance(change, PeerDown)


def test_a_doubted_sender_that_lives_stays(rig: Rig) -> None:
    sender, receiver = rig.pair()
    receiver.doubt(time.monotonic())
    rig.send(sender, 1)
    assert len(turn(lambda: sender.unacked_frames == 0, sender, receiver)) == 1
    assert receiver.peer_events() == [] and receiver.sender == rig.worker.incarnation


def test_a_ping_is_answered_only_where_something_is_kept(rig: Rig) -> None:
    """Else each idle lane would wake both its ends for nothing."""
    sender, receiver = rig.pair()
    rig.send(sender)
    turn(lambda: not sender.unacked_frames, sender, receiver)
    heard = receiver.heard
    said: list[str] = []
    answer = receiver.port.send

    def listen(route: bytes, message: bytes) -> bool:
        said.append(lane_messages.unpack(message).type)
        return answer(route, message)

    receiver.port.send = listen  # type: ignore[method-assign, assignment]
    sender.tick(time.monotonic() + 2)
    turn(lambda: receiver.heard > heard, sender, receiver)
    assert said == []
    rig.send(sender)
    deadline = time.monotonic() + 5
    while not receiver.recv():  # taken, not yet applied
        assert time.monotonic() < deadline
    sender.tick(time.monotonic() + 2)  # notes what it waits for
    sender.tick(time.monotonic() + 4)
    while not said:
        receiver.recv()
        assert time.monotonic() < deadline
    assert set(said) == {"ack"}
