"""A SocketRecv takes frames in order and stops at the first that is not the next one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.transport.rig import frame
from tokenpipe._core import SocketRecv

INSTANCE, SENDER, ME = 5, 1 << 62, 7
NEXT = (INSTANCE, SENDER, ME, 3)


def receiver_of(*parts: bytes) -> SocketRecv:
    waiting: Iterator[bytes] = iter(parts)
    return SocketRecv(lambda flags: next(waiting), 1, StopIteration)


def data(seq: int, sender: int = SENDER, receiver: int = ME, instance: int = INSTANCE) -> bytes:
    return frame(instance, sender, receiver, seq)


def test_takes_what_comes_in_order_and_says_when_nothing_is_left() -> None:
    taken: list[bytes] = []
    rows = receiver_of(b"r", data(3), b"r", data(4), b"r", data(5))
    assert rows.take(2, NEXT, taken) is None and not rows.idle
    assert taken == [data(3), data(4)]
    assert rows.take(9, (*NEXT[:3], 5), taken) is None and rows.idle
    assert taken == [data(3), data(4), data(5)]


@pytest.mark.parametrize(
    "other",
    [
        data(5),  # ahead
        data(3),  # again
        data(4, sender=9),
        data(4, receiver=9),
        data(4, instance=9),
        b"\x90",
        b"\x94\x00" + data(4)[2:],  # a lane's own message
    ],
)
@pytest.mark.case("B73")
def test_stops_at_anything_else(other: bytes) -> None:
    taken: list[bytes] = []
    rows = receiver_of(b"r", data(3), b"route", other, b"r", data(4))
    assert rows.take(9, NEXT, taken) == (b"route", other)
    assert taken == [data(3)] and not rows.idle
    assert rows.take(9, (*NEXT[:3], 4), taken) is None
    assert taken == [data(3), data(4)]


@pytest.mark.case("F10")
@pytest.mark.parametrize(
    ("parts", "malformed"),
    [
        ([data(4), b"rest"], 1),
        ([data(4), b"rest", b""], 1),
        ([b"", data(4)], 1),
        ([b"x", data(4), b"r"], 2),
        ([b"junk"], 1),
        ([b""], 1),
        ([b"x"] * 30, 16),
    ],
)
def test_parts_that_are_no_frames_are_counted_and_harm_no_message(
    parts: list[bytes], malformed: int
) -> None:
    good = [part for part in parts if part == data(4)]
    follow = [data(4 + len(good)), data(5 + len(good))]
    for stops in (1, 2, 99):  # between two calls, too
        taken: list[bytes] = []
        rows = receiver_of(b"a", data(3), b"bad", *parts, b"c", follow[0], b"c", follow[1])
        while not rows.idle:
            assert rows.take(stops, (*NEXT[:3], 3 + len(taken)), taken) is None
        assert taken == [data(3), *good, *follow]
        assert rows.malformed == malformed


@pytest.mark.case("F10")
def test_the_second_frame_of_a_message_is_answered_to_its_sender() -> None:
    rows = receiver_of(b"a", data(9), data(8), b"b", data(7))
    assert rows.take(9, NEXT, []) == (b"a", data(9))
    assert rows.take(9, NEXT, []) == (b"a", data(8))
    assert rows.take(9, NEXT, []) == (b"b", data(7))


@pytest.mark.case("F10")
def test_a_stranger_with_a_route_like_a_frame_gets_no_answer_meant_for_another() -> None:
    taken: list[bytes] = []
    rows = receiver_of(b"a", data(3), b"\x94\x00", data(9), b"a", data(4))
    assert rows.take(9, NEXT, taken) == (b"a", b"\x94\x00")
    assert rows.take(9, (*NEXT[:3], 4), taken) is None
    assert taken == [data(3), data(4)] and rows.malformed == 1


def test_counts_the_bytes_that_were_sent() -> None:
    rows = receiver_of(b"route", data(3), b"route", frame(*NEXT[:3], 4, 1000))
    rows.take(9, NEXT, [])
    assert rows.wire_bytes == len(data(3)) + 2 + len(frame(*NEXT[:3], 4, 1000)) + 9


def test_a_sender_of_0_is_none() -> None:
    taken: list[bytes] = []
    assert receiver_of(b"r", data(3, sender=0)).take(9, (INSTANCE, 0, ME, 3), taken) is not None
    assert taken == []


def test_any_other_error_is_an_error() -> None:
    def broken(flags: int) -> bytes:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        SocketRecv(broken, 0, BlockingIOError).take(1, NEXT, [])
