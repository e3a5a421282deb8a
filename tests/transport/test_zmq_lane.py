"""Both ends of a lane of an instance, opened over ZeroMQ."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.transport.rig import LANE, frame, seq_of, turn
from tokenpipe.errors import FrameTooLarge, LaneBusy
from tokenpipe.instance import Instance, RoleLock
from tokenpipe.transport import (
    LaneReceiver,
    LaneSender,
    Peer,
    PeerDown,
    PeerUp,
    Role,
    new_incarnation,
    open_receiver,
    open_sender,
)

WORKER = Peer("worker", "0.0", new_incarnation())
PROCESSOR = Peer("processor", "0", new_incarnation())


@pytest.fixture
def instance(base: Path) -> Iterator[Instance]:
    owner = Instance.create(base, None, {})
    yield owner
    owner.close()


@pytest.fixture
def roles(instance: Instance) -> Iterator[tuple[RoleLock, RoleLock]]:
    """Let both ends live: the locks of the worker and of the processor."""
    locks = instance.claim("worker", "0.0"), instance.claim("processor", "0")
    yield locks
    for lock in locks:
        lock.release()


def sender_of(instance: Instance, most: int = 1 << 20) -> LaneSender:
    to = Role("processor", "0")
    return open_sender(instance, LANE, me=WORKER, to=to, bound_bytes=1 << 20, max_frame_bytes=most)


def receiver_of(instance: Instance) -> LaneReceiver:
    return open_receiver(
        instance,
        LANE,
        me=PROCESSOR,
        expects=Role("worker", "0.0"),
        max_frame_bytes=1 << 20,
        hold_bytes=1 << 20,
    )


@pytest.mark.usefixtures("roles")
def test_both_ends_meet_by_the_name_of_the_lane(instance: Instance) -> None:
    sender, receiver = sender_of(instance), receiver_of(instance)
    turn(lambda: sender.ready, sender, receiver)
    assert sender.receiver == PROCESSOR.incarnation
    assert receiver.peer_events() == [PeerUp(WORKER.incarnation)]
    sender.send(frame(*sender.next_header))
    assert [seq_of(f) for f in turn(lambda: not sender.unacked_frames, sender, receiver)] == [1]
    sender.close(0.0)
    receiver.close()


def test_a_peer_lives_as_long_as_it_holds_its_role(
    instance: Instance, roles: tuple[RoleLock, RoleLock]
) -> None:
    worker, processor = roles
    sender, receiver = sender_of(instance), receiver_of(instance)
    turn(lambda: sender.ready, sender, receiver)
    receiver.peer_events()
    worker.release()
    told: list[object] = []

    def down() -> bool:
        told.extend(receiver.peer_events())
        return bool(told)

    turn(down, sender, receiver)
    assert told == [PeerDown(WORKER.incarnation, "worker 0.0 is dead")]
    processor.release()
    turn(lambda: sender.lost, sender, receiver)
    assert sender.lost_reason == "processor 0 is dead"
    sender.close(0.0)
    receiver.close()


def test_a_lane_is_bound_once(instance: Instance) -> None:
    receiver = receiver_of(instance)
    with pytest.raises(LaneBusy, match=LANE):
        receiver_of(instance)
    receiver.close()
    receiver_of(instance).close()


@pytest.mark.usefixtures("roles")
def test_a_sender_refuses_what_its_receiver_would_not_take(instance: Instance) -> None:
    sender, receiver = sender_of(instance, most=200), receiver_of(instance)
    turn(lambda: sender.ready, sender, receiver)
    receiver.peer_events()
    with pytest.raises(FrameTooLarge):
        sender.send(frame(*sender.next_header, 200))
    sender.send(frame(*sender.next_header, 50))
    turn(lambda: not sender.unacked_frames, sender, receiver)
    sender.close(0.0)
    receiver.close()
