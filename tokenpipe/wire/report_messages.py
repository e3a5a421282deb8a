"""Messages from a processor to the pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tokenpipe._core import FINISH_ERROR, FINISH_STOP, NO_STOP
from tokenpipe.types import ErrorCode

from .fields import U32, U64, Extra, Handle, Int, Numbers, OneOf, TokenIds, TokenOrNone, Words


@dataclass(frozen=True, slots=True)
class HandleFinished:
    """Outcome: the request has ended, and the processor sends its final row to the client."""

    handle: Handle
    finish: Annotated[int, Int(FINISH_STOP, FINISH_ERROR)]  # a code of types.FINISH_CODES
    stop_reason: TokenOrNone
    output_tokens: U32
    error: Words = ""
    stop_string: TokenOrNone = NO_STOP  # index in Bind.stop of the string that ended the request
    error_code: Annotated[ErrorCode, OneOf(ErrorCode)] = ErrorCode.NONE
    error_field: Words = ""


@dataclass(frozen=True, slots=True)
class HandleAborted:
    """Outcome: the request was aborted."""

    handle: Handle
    output_tokens: U32


@dataclass(frozen=True, slots=True)
class HandleRescheduled:
    """Outcome: the binding has ended, the request has not.

    `output_token_ids` are all tokens of the request.
    """

    handle: Handle
    reason: Words
    output_token_ids: TokenIds = ()
    text_offset: U32 = 0  # bytes of text that the client has
    text_tail: Extra = b""  # text that was held back; it is sent if no token follows
    extras_offset: U64 = 0  # bytes of extras that the client has


@dataclass(frozen=True, slots=True)
class HandlePrefilled:
    """Outcome of a prefill-only binding."""

    handle: Handle
    output_token_ids: TokenIds
    text_offset: U32 = 0
    text_tail: Extra = b""
    extras_offset: U64 = 0


@dataclass(frozen=True, slots=True)
class HandleReleased:
    """The slot of a handle may be used again."""

    handle: Handle
    reason: Words


@dataclass(frozen=True, slots=True)
class RankOpened:
    """All TP ranks of a DP rank are connected. Binds must carry this incarnation."""

    dp: U32
    incarnation: U64


@dataclass(frozen=True, slots=True)
class RankClosed:
    """A DP rank is lost. `incarnation` is the one that RankOpened named."""

    dp: U32
    reason: Words
    incarnation: U64 = 0


@dataclass(frozen=True, slots=True)
class ProcessorStarted:
    """The first report of a process. With `why` it begins without requests, for this reason.

    Else it goes on if the process before it was.
    """

    why: Words = ""


@dataclass(frozen=True, slots=True)
class RanksDiffer:
    """A TP rank's tokens differ from the leader's.

    `step` and `handle` name the first difference.
    """

    dp: U32
    tp: U32
    step: U64
    handle: Handle


@dataclass(frozen=True, slots=True)
class Counters:
    """The answer to a Snapshot with the same id."""

    id: U64
    values: Annotated[dict[str, int], Numbers()]
