"""Turn frames into values and back. Reads no clock, logs nothing, never blocks.

docs/wire.md describes the format. csrc/wire/ packs and unpacks the frames of columns.
"""

from .bind_messages import Abort, Bind, CloseClient, OpenClient, OpenRank, Preempt, Snapshot
from .columns import OutputColumn, StepColumn
from .control import join_messages, pack_control, pack_message, unpack_control
from .control_queue import ControlQueue
from .extras_packer import pack_extras
from .extras_parser import unpack_error
from .extras_reader import ExtrasReader
from .lane import Kind, LaneHeader
from .messages import Message
from .output_frame import OutputFrame
from .plan_messages import RankFailed, StepBind, StepPlan
from .readdress import readdressed
from .report_messages import (
    Counters,
    HandleAborted,
    HandleFinished,
    HandlePrefilled,
    HandleReleased,
    HandleRescheduled,
    ProcessorStarted,
    RankClosed,
    RankOpened,
    RanksDiffer,
)
from .step_frame import StepFrame
from .submit_messages import Cancel, Submit

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
    "ProcessorStarted",
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
    "join_messages",
    "pack_control",
    "pack_extras",
    "pack_message",
    "readdressed",
    "unpack_control",
    "unpack_error",
]
