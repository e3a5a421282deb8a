"""All control messages, and the tag of each on the wire."""

from __future__ import annotations

from .bind_messages import Abort, Bind, CloseClient, OpenClient, OpenRank, Preempt, Snapshot
from .plan_messages import RankFailed, StepPlan
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
from .submit_messages import Cancel, Submit

Message = (
    Bind
    | Preempt
    | Abort
    | OpenRank
    | OpenClient
    | CloseClient
    | Snapshot
    | HandleFinished
    | HandleAborted
    | HandleRescheduled
    | HandlePrefilled
    | HandleReleased
    | RankOpened
    | RankClosed
    | RanksDiffer
    | Counters
    | ProcessorStarted
    | Submit
    | Cancel
    | StepPlan
    | RankFailed
)

TAGS: dict[int, type[Message]] = {
    1: Bind,
    2: Preempt,
    3: Abort,
    4: OpenRank,
    5: OpenClient,
    6: CloseClient,
    7: Snapshot,
    16: HandleFinished,
    17: HandleAborted,
    18: HandleRescheduled,
    19: HandlePrefilled,
    20: HandleReleased,
    21: RankOpened,
    22: RankClosed,
    23: RanksDiffer,
    24: Counters,
    25: ProcessorStarted,
    32: Submit,
    33: Cancel,
    48: StepPlan,
    64: RankFailed,
}
"""Message classes by tag, the first element of a message. A tag never gets another meaning."""
