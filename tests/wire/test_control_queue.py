"""Messages that wait for their lane go out whole, in order and within its room."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from tokenpipe.wire import ControlQueue, HandleReleased, LaneHeader, Message, unpack_control
from tokenpipe.wire.control_queue import LEAST_ROOM


@dataclass
class Lane:
    """A sender's side with so much room."""

    room: int
    ready: bool = True
    sent: list[bytes] = field(default_factory=list)

    @property
    def next_header(self) -> tuple[int, int, int, int]:
        return 7, 8, 9, len(self.sent) + 1

    @property
    def unacked_frames(self) -> int:
        return len(self.sent)

    def send(self, frame: bytes) -> None:
        assert len(frame) <= self.room
        self.room -= len(frame)
        self.sent.append(frame)

    def read(self) -> list[Message]:
        messages: list[Message] = []
        for seq, frame in enumerate(self.sent, 1):
            header, some = unpack_control(frame)
            assert header == LaneHeader(7, 8, 9, seq)
            messages += some
        return messages


def messages_of(sizes: list[int]) -> list[Message]:
    return [HandleReleased(i + 1, "x" * size) for i, size in enumerate(sizes)]


@given(st.lists(st.integers(0, 300), max_size=40), st.integers(1, 50), st.integers(0, 4000))
def test_what_fits_goes_first_and_nothing_is_lost(sizes: list[int], most: int, room: int) -> None:
    queue, first, second = ControlQueue(most), Lane(room), Lane(1 << 40)
    messages = messages_of(sizes)
    queue.extend(messages)
    queue.send(first)
    assert len(first.read()) + len(queue) == len(messages)
    queue.send(second)
    assert first.read() + second.read() == messages and not queue
    assert all(len(unpack_control(frame)[1]) <= most for frame in second.sent)


def test_a_lane_that_is_not_ready_or_nearly_full_gets_nothing() -> None:
    queue = ControlQueue(4)
    queue.extend(messages_of([1]))
    queue.send(Lane(1 << 40, ready=False))
    behind = Lane(LEAST_ROOM - 1, sent=[b"unread"])
    queue.send(behind)
    assert behind.sent == [b"unread"] and len(queue) == 1
    behind.room += 1
    queue.send(behind)
    assert len(behind.sent) == 2 and not queue
    queue.extend(messages_of([1]))
    queue.clear()
    assert not queue
