"""Name the numbers that csrc/table/table.h speaks in."""

from __future__ import annotations

from enum import IntEnum

from tokenpipe import _core


class State(IntEnum):
    """Where a binding is in its life."""

    GONE = _core.STATE_GONE
    PARKED = _core.STATE_PARKED  # rows came, its bind did not yet
    RUNNING = _core.STATE_RUNNING
    PREEMPTING = _core.STATE_PREEMPTING  # still takes rows
    ABORTING = _core.STATE_ABORTING  # has its outcome, waits to be drained
    LINGERING = _core.STATE_LINGERING  # the same, for any other outcome


class Happened(IntEnum):
    """Kinds of events; what the other values of one mean stands beside."""

    FINISHED = _core.EVENT_FINISHED  # a: code of FINISH_CODES, b: stop reason or -1
    ROW_ERROR = _core.EVENT_ROW_ERROR  # a: Cause, b: the offending value
    DRAINED = _core.EVENT_DRAINED
    GAP = _core.EVENT_GAP  # a: position expected, b: position found
    PREFILLED = _core.EVENT_PREFILLED
    PARKED = _core.EVENT_PARKED
    PARK_LOST = _core.EVENT_PARK_LOST
    CROWDED = _core.EVENT_CROWDED  # handle: the client
    SENT = _core.EVENT_SENT
    SHED = _core.EVENT_SHED  # a: its State before, b: was its outcome held, step: its tokens


class Cause(IntEnum):
    """Why a row ended its request with an error."""

    RECOVERY_STOP = _core.CAUSE_RECOVERY_STOP
    WORKER = _core.CAUSE_WORKER
    REFUSED = _core.CAUSE_REFUSED
    BAD_TOKEN = _core.CAUSE_BAD_TOKEN
    STATUS = _core.CAUSE_STATUS
    TOKEN = _core.CAUSE_TOKEN
    MEMORY = _core.CAUSE_MEMORY
    TEXT = _core.CAUSE_TEXT
    EXTRAS = _core.CAUSE_EXTRAS
