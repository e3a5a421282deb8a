"""Queue control messages until their lane has room."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Protocol

from .control import pack_control_within
from .messages import Message

LEAST_ROOM = 1 << 23
"""Bytes of room that a lane must have before messages are packed.

Messages that do not fit are packed again later. This bound keeps that rare.
"""


class ControlLane(Protocol):
    """The part of a lane's sender that a queue uses."""

    @property
    def ready(self) -> bool: ...
    @property
    def next_header(self) -> tuple[int, int, int, int]: ...
    @property
    def room(self) -> int: ...
    @property
    def unacked_frames(self) -> int: ...
    def send(self, frame: bytes) -> None: ...


class ControlQueue:
    """Messages for one lane, in order. A frame has at most `most` of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: deque[Message] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._waiting)

    def extend(self, messages: Iterable[Message]) -> None:
        """Append messages. `send` sends them."""
        self._waiting.extend(messages)

    def clear(self) -> None:
        """Drop all messages."""
        self._waiting.clear()

    def send(self, lane: ControlLane) -> None:
        """Send the messages for which the lane has room."""
        while self._waiting and lane.ready:
            if lane.unacked_frames and lane.room < LEAST_ROOM:
                return  # the receiver does not read now
            messages = list(islice(self._waiting, self._most))
            frame, sent = pack_control_within(lane.next_header, messages, lane.room)
            if not sent:
                return
            lane.send(frame)
            for _ in range(sent):
                self._waiting.popleft()
