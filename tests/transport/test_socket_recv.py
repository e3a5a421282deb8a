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
        b"no frame",
        b"",
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


def test_a_sender_of_0_is_none() -> None:
    taken: list[bytes] = []
    assert receiver_of(b"r", data(3, sender=0)).take(9, (INSTANCE, 0, ME, 3), taken) is not None
    assert taken == []


def test_any_other_error_is_an_error() -> None:
    def broken(flags: int) -> bytes:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        SocketRecv(broken, 0, BlockingIOError).take(1, NEXT, [])
