"""What every frame begins with, whatever its kind."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Kind(IntEnum):
    """First element of every frame."""

    LANE = 0  # the transport's own: hello, welcome, ack
    STEP = 1
    OUTPUT = 2
    CONTROL = 3


class LaneHeader(NamedTuple):
    """The first four integers of every header; the transport reads these and nothing else."""

    instance: int
    sender: int  # incarnation
    receiver: int  # incarnation
    seq: int  # gapless per sender, from 1; 0 in the transport's own messages
