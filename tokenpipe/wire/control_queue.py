"""Control messages that wait for room on their lane."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Protocol

from .control import pack_control_within
from .lane import LaneHeader
from .messages import Message

LEAST_ROOM = 1 << 23
"""What is packed and does not fit is packed again: not while there is less room than this."""


class ControlLane(Protocol):
    """What a queue asks of a lane's sender."""

    @property
    def ready(self) -> bool: ...
    @property
    def receiver(self) -> int: ...
    @property
    def next_seq(self) -> int: ...
    @property
    def room(self) -> int: ...
    @property
    def unacked_frames(self) -> int: ...
    def send(self, frame: bytes) -> None: ...


class ControlQueue:
    """Messages of one sender on one lane, in order; `most` of them in a frame."""

    def __init__(self, instance: int, incarnation: int, most: int) -> None:
        self._instance = instance
        self._incarnation = incarnation
        self._most = most
        self._waiting: deque[Message] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def extend(self, messages: Iterable[Message]) -> None:
        """Append messages; `send` sends them."""
        self._waiting.extend(messages)

    def clear(self) -> None:
        """Forget what waits."""
        self._waiting.clear()

    def send(self, lane: ControlLane) -> None:
        """Send what fits, never more than the lane has room for."""
        while self._waiting and lane.ready:
            if lane.unacked_frames and lane.room < LEAST_ROOM:
                return  # the other side has stopped reading
            messages = list(islice(self._waiting, self._most))
            header = LaneHeader(self._instance, self._incarnation, lane.receiver, lane.next_seq)
            frame, sent = pack_control_within(header, messages, lane.room)
            if not sent:
                return
            lane.send(frame)
            for _ in range(sent):
                self._waiting.popleft()
