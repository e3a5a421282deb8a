"""A lane through memory: what waits, what is refused, and when its descriptor is readable."""

from __future__ import annotations

import select
from typing import Any

import pytest

from tests.transport.rig import frame
from tokenpipe.errors import LaneBusy
from tokenpipe.transport import MemoryLane
from tokenpipe.transport.port import Port

NEXT = (1, 2, 3, 1)


def rings(port: Port) -> bool:
    return bool(select.select([port.fileno()], [], [], 0)[0])


def test_messages_wait_for_a_receiver_that_comes_later() -> None:
    lane = MemoryLane("w0.0")
    sender = lane.sender("a")
    assert sender.send(frame(1, 2, 3, 1)) and sender.send(frame(1, 2, 3, 2))
    receiver = lane.receiver()
    out: list[Any] = []
    assert rings(receiver) and receiver.recv_run(9, NEXT, out) is None
    assert out == [frame(1, 2, 3, 1), frame(1, 2, 3, 2)]
    assert receiver.idle and not receiver.readable() and not rings(receiver)
    receiver.close()
    sender.close()


def test_a_run_stops_at_its_limit_and_at_any_other_message() -> None:
    lane = MemoryLane("w0.0")
    sender, receiver = lane.sender("a"), lane.receiver()
    for raw in (frame(1, 2, 3, 1), frame(1, 2, 3, 2), b"\x90hello", frame(1, 2, 3, 3)):
        sender.send(raw)
    out: list[Any] = []
    assert receiver.recv_run(1, NEXT, out) is None and len(out) == 1
    assert receiver.readable() and rings(receiver)  # what is left still rings
    assert receiver.recv_run(9, (1, 2, 3, 2), out) == (b"a", b"\x90hello")
    assert receiver.recv_run(9, (1, 2, 3, 3), out) is None
    assert out == [frame(1, 2, 3, seq) for seq in (1, 2, 3)]
    receiver.close()
    sender.close()


def test_an_answer_goes_to_its_route_and_to_nobody_once_that_is_gone() -> None:
    lane = MemoryLane("w0.0")
    one, other, receiver = lane.sender("a"), lane.sender("b"), lane.receiver()
    assert receiver.send(b"b", b"welcome") and not receiver.send(b"c", b"welcome")
    assert rings(other) and not rings(one)
    assert one.recv() is None and one.idle
    assert other.recv() == b"welcome" and not other.idle
    assert other.recv() is None and other.idle and not other.readable()
    one.close()
    assert not receiver.send(b"a", b"welcome")
    for port in (receiver, other, one):
        port.close()
        port.close()


def test_a_route_that_was_taken_again_stays_with_its_taker() -> None:
    lane = MemoryLane("w0.0")
    first, receiver = lane.sender("a"), lane.receiver()
    second = lane.sender("a")
    first.close()
    assert receiver.send(b"a", b"x") and second.recv() == b"x"
    second.close()
    receiver.close()


def test_a_lane_has_one_receiver_at_a_time_and_the_next_gets_what_comes_between() -> None:
    lane = MemoryLane("w0.0")
    sender, first = lane.sender("a"), lane.receiver()
    with pytest.raises(LaneBusy, match=r"lane w0\.0 is already bound"):
        lane.receiver()
    first.close()
    sender.send(frame(1, 2, 3, 1))
    second = lane.receiver()
    out: list[Any] = []
    second.recv_run(9, NEXT, out)
    assert out == [frame(1, 2, 3, 1)]
    second.close()
    sender.close()
