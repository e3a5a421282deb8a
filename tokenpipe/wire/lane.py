"""What every frame begins with, whatever its kind."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from tokenpipe import _core


class Kind(IntEnum):
    """First element of every frame."""

    LANE = _core.KIND_LANE  # the transport's own: hello, welcome, ack
    STEP = _core.KIND_STEP
    OUTPUT = _core.KIND_OUTPUT
    CONTROL = _core.KIND_CONTROL


class LaneHeader(NamedTuple):
    """The first four integers of every header; the transport reads these and nothing else."""

    instance: int
    sender: int  # incarnation
    receiver: int  # incarnation
    seq: int  # gapless per sender, from 1; 0 in the transport's own messages
