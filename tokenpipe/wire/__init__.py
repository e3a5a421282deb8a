"""Bytes to values and back. Reads no clock, logs nothing, blocks never.

The format is written down in docs/wire.md; its only implementation is in csrc/.
"""

from .columns import OutputColumn, StepColumn
from .control import pack_control, unpack_control
from .control_queue import ControlQueue
from .extras_codec import pack_extras, unpack_error
from .extras_reader import ExtrasReader
from .frames import OutputFrame, StepFrame
from .lane import Kind, LaneHeader
from .messages import (
    Abort,
    Bind,
    Cancel,
    CloseClient,
    Counters,
    HandleAborted,
    HandleFinished,
    HandlePrefilled,
    HandleReleased,
    HandleRescheduled,
    Message,
    OpenClient,
    OpenRank,
    Preempt,
    RankClosed,
    RankFailed,
    RankOpened,
    RanksDiffer,
    Snapshot,
    StepBind,
    StepPlan,
    Submit,
)

__all__ = [
    "Abort",
    "Bind",
    "Cancel",
    "CloseClient",
    "ControlQueue",
    "Counters",
    "ExtrasReader",
    "HandleAborted",
    "HandleFinished",
    "HandlePrefilled",
    "HandleReleased",
    "HandleRescheduled",
    "Kind",
    "LaneHeader",
    "Message",
    "OpenClient",
    "OpenRank",
    "OutputColumn",
    "OutputFrame",
    "Preempt",
    "RankClosed",
    "RankFailed",
    "RankOpened",
    "RanksDiffer",
    "Snapshot",
    "StepBind",
    "StepColumn",
    "StepFrame",
    "StepPlan",
    "Submit",
    "pack_control",
    "pack_extras",
    "unpack_control",
    "unpack_error",
]
