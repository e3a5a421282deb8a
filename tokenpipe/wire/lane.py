"""Name the first parts of every frame: its kind and its lane header."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from tokenpipe import _core


class Kind(IntEnum):
    """The first element of every frame."""

    LANE = _core.KIND_LANE  # messages of the transport itself: hello, welcome, ack
    STEP = _core.KIND_STEP
    OUTPUT = _core.KIND_OUTPUT
    CONTROL = _core.KIND_CONTROL


class LaneHeader(NamedTuple):
    """The first four integers of every header. The transport reads no other part of a frame."""

    instance: int
    sender: int  # incarnation
    receiver: int  # incarnation
    seq: int  # from 1 in steps of 1 for each sender; 0 in messages of the transport itself
