"""Say why a request failed, for the one who reads its error."""

from __future__ import annotations

from tokenpipe.types import ErrorCode, split_handle

from .numbers import Cause

RECOVERY_STOP = "result is incomplete (recovery stop)"


_CODES = {Cause.RECOVERY_STOP: ErrorCode.LOST}


def error_code(cause: int) -> ErrorCode:
    """Return what kind of error a row's cause is."""
    return _CODES.get(Cause(cause), ErrorCode.INTERNAL)


def row_error(cause: int, value: int, handle: int, tp: int, step: int) -> str:
    """Return what is wrong with a row, and which row it is."""
    if cause == Cause.RECOVERY_STOP:
        return RECOVERY_STOP
    dp, slot, _ = split_handle(handle)
    return f"step {step}, dp {dp}, tp {tp}, slot {slot}: {_what(cause, value)}"


def _what(cause: int, value: int) -> str:
    match cause:
        case Cause.WORKER:
            return "the worker failed on this row"
        case Cause.REFUSED:
            return "the publisher refused a token of this row"
        case Cause.STATUS:
            return f"unknown row status {value}"
        case Cause.TOKEN:
            return f"token {value} is not in the vocabulary"
        case Cause.ANNEX:
            return f"too much came beside rows without tokens, the last of it {value} bytes"
        case Cause.TEXT:
            return f"the tokenizer failed on token {value}"
        case _:
            return "out of memory"
