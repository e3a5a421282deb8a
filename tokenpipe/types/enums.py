"""Name statuses, reasons and kinds. The numbers are those of the wire."""

from __future__ import annotations

from enum import Enum, IntEnum

from tokenpipe import _core


class RowStatus(IntEnum):
    """The status of a row that a worker publishes."""

    OK = _core.ROW_OK
    DRAINED = _core.ROW_DRAINED  # this handle has no more rows
    RECOVERY_STOP = _core.ROW_RECOVERY_STOP  # the result is incomplete; the request ends
    ERROR = _core.ROW_ERROR  # the worker failed on this row
    BAD_TOKEN = _core.ROW_BAD_TOKEN  # `publish` refused a token: negative or too large
    FINISHED = _core.ROW_FINISHED  # the request is complete and ends with "stop"
    REFUSED = _core.ROW_REFUSED  # the executor refuses the request; the row's extras say why


class FinishReason(str, Enum):
    """Why a request ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"

    def __str__(self) -> str:
        return self.value


_BY_CODE = {
    _core.FINISH_NONE: None,
    _core.FINISH_STOP: FinishReason.STOP,
    _core.FINISH_LENGTH: FinishReason.LENGTH,
    _core.FINISH_ABORT: FinishReason.ABORT,
    _core.FINISH_ERROR: FinishReason.ERROR,
}
FINISH_CODES = tuple(_BY_CODE[code] for code in range(len(_BY_CODE)))
"""Finish reasons by their code on the wire. Code 0 is None: the request has not ended."""


class ErrorCode(IntEnum):
    """What kind of error ended a request. The text beside it says what happened."""

    NONE = _core.ERROR_NONE  # no error
    INVALID = _core.ERROR_INVALID  # the request cannot be served: another attempt fails too
    UNAVAILABLE = _core.ERROR_UNAVAILABLE  # nothing can serve it now: try again later
    LOST = _core.ERROR_LOST  # its process died, or its result is incomplete: try again
    SLOW = _core.ERROR_SLOW  # its client was too slow, and its output exceeded a bound
    GAP = _core.ERROR_GAP  # a part of its output did not arrive
    INTERNAL = _core.ERROR_INTERNAL  # the engine, its worker or tokenpipe failed
    CRASHES = _core.ERROR_CRASHES  # its workers died again and again while they ran it


class RequestOutputKind(IntEnum):
    """What each output of a request holds."""

    CUMULATIVE = _core.OUTPUT_CUMULATIVE  # everything so far
    DELTA = _core.OUTPUT_DELTA  # everything since the last output
    FINAL_ONLY = _core.OUTPUT_FINAL_ONLY  # everything, in one output at the end


class RescheduleReason(str, Enum):
    """Why a binding was handed back to the scheduler."""

    PREEMPTED = "preempted"
    UNSOLICITED = "unsolicited"  # the worker drained it without a command
    GAP = "gap"  # rows were lost on the lane and could not be sent again
    RANK_LOST = "rank_lost"  # a worker died or failed, or the bind came too late
    RANK_CLOSED = "rank_closed"  # a worker closed its lane in order
    PARK_LOST = "park_lost"  # rows came long before the bind and were dropped
    DRAINED_TIMEOUT = "drained_timeout"  # it was preempted, and no drained row came in time
    SLOT_BUSY = "slot_busy"

    def __str__(self) -> str:
        return self.value
