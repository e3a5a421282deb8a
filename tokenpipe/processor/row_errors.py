"""Write the error of a request that a worker's row ended."""

from __future__ import annotations

from typing import NamedTuple

from tokenpipe import _core
from tokenpipe.errors import FrameError
from tokenpipe.types import ErrorCode, split_handle
from tokenpipe.wire import unpack_error

from .codes import Cause

RECOVERY_STOP = "result is incomplete (recovery stop)"
REFUSED = "the worker refused the request"
_CODES = {Cause.RECOVERY_STOP: ErrorCode.LOST, Cause.REFUSED: ErrorCode.INVALID}


class RequestError(NamedTuple):
    """The error of a request. `field` names the wrong field of the request, or is empty."""

    code: ErrorCode
    text: str
    field: str = ""


def row_error(cause: int, value: int, handle: int, step: int, extras: bytes = b"") -> RequestError:
    """Return the error that a row of TP rank 0 ends its request with.

    `cause` is a Cause, `value` the wrong value of the row, and `extras` are the row's.
    """
    code = _CODES.get(Cause(cause), ErrorCode.INTERNAL)
    if cause == Cause.RECOVERY_STOP:
        return RequestError(code, RECOVERY_STOP)
    reason, field = _reason(extras)
    if cause == Cause.REFUSED:
        return RequestError(code, reason or REFUSED, field)
    dp, slot, _ = split_handle(handle)
    if cause == Cause.TEXT and value == _core.NO_TOKEN:
        return RequestError(code, f"dp {dp}, slot {slot}: the tokenizer failed at the bind")
    text = f"step {step}, dp {dp}, tp 0, slot {slot}: {_description(cause, value)}"
    return RequestError(code, f"{text}: {reason}" if reason else text, field)


def _reason(extras: bytes) -> tuple[str, str]:
    try:
        return unpack_error(extras)
    except FrameError:  # without a reason the request ends all the same
        return "", ""


def _description(cause: int, value: int) -> str:
    match cause:
        case Cause.WORKER:
            return "the worker failed on this row"
        case Cause.BAD_TOKEN:
            return "the publisher refused a token of this row"
        case Cause.STATUS:
            return f"unknown row status {value}"
        case Cause.TOKEN:
            return f"token {value} is not in the vocabulary"
        case Cause.EXTRAS:
            return f"rows without tokens brought too many bytes of extras, the last one {value}"
        case Cause.TEXT:
            return f"the tokenizer failed on token {value}"
        case _:
            return "out of memory"
