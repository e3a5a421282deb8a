"""Names for the numbers in csrc/table/table_types.h."""

from __future__ import annotations

from enum import IntEnum

from tokenpipe import _core


class State(IntEnum):
    """The states of a binding; docs/design.md draws them."""

    GONE = _core.STATE_GONE
    PARKED = _core.STATE_PARKED  # has rows, waits for its bind
    RUNNING = _core.STATE_RUNNING
    PREEMPTING = _core.STATE_PREEMPTING  # still takes rows
    ABORTING = _core.STATE_ABORTING  # aborted, waits for its drained row
    LINGERING = _core.STATE_LINGERING  # has another outcome, waits for its drained row


class EventKind(IntEnum):
    """Kinds of events of the table. Each is (kind, handle, a, b, step)."""

    FINISHED = _core.EVENT_FINISHED  # a: code of FINISH_CODES, b: stop reason or -1
    ROW_ERROR = _core.EVENT_ROW_ERROR  # a: Cause, b: the wrong value
    DRAINED = _core.EVENT_DRAINED
    GAP = _core.EVENT_GAP  # a: position expected, b: position found
    PREFILLED = _core.EVENT_PREFILLED
    PARKED = _core.EVENT_PARKED
    PARK_LOST = _core.EVENT_PARK_LOST
    CROWDED = _core.EVENT_CROWDED  # handle: the client with too much unsent output
    SENT = _core.EVENT_SENT  # its client was sent all tokens, so its outcome may be reported
    # The request ended early with an error. a: its State before, b: 1 if its outcome was not
    # reported yet, step: the number of its tokens
    SHED = _core.EVENT_SHED


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
