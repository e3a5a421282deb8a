"""Name the numbers that csrc/table/table.h speaks in."""

from __future__ import annotations

from enum import IntEnum


class State(IntEnum):
    """Where a binding is in its life."""

    GONE = 0
    PARKED = 1  # rows came, its bind did not yet
    RUNNING = 2
    PREEMPTING = 3  # still takes rows
    ABORTING = 4  # has its outcome, waits to be drained
    LINGERING = 5  # the same, for any other outcome


class Happened(IntEnum):
    """Kinds of events; what the other values of one mean stands beside."""

    FINISHED = 1  # a: code of FINISH_CODES, b: stop reason or -1
    ROW_ERROR = 2  # a: Cause, b: the offending value
    DRAINED = 3
    GAP = 4  # a: position expected, b: position found
    PREFILLED = 5
    PARKED = 6
    PARK_LOST = 7
    CROWDED = 8  # handle: the client
    SENT = 9
    SHED = 10  # a: its State before, b: whether its outcome was held, step: its tokens


class Cause(IntEnum):
    """Why a row ended its request with an error."""

    RECOVERY_STOP = 1
    WORKER = 2
    REFUSED = 3
    STATUS = 4
    TOKEN = 5
    MEMORY = 6
    TEXT = 8
    ANNEX = 9


FINISH_LENGTH, FINISH_ABORT, FINISH_ERROR = 2, 3, 4
NO_STOP = -1
