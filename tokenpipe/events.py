"""Name what happens: the events that `Pipeline.poll` returns. Does nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from tokenpipe.types import ErrorCode, FinishReason, Request, RescheduleReason


@dataclass(frozen=True, slots=True)
class Submitted:
    """A client wants this request served."""

    request: Request


@dataclass(frozen=True, slots=True)
class AbortRequested:
    """A client gave this request up (or is gone). Answer with `cmd.abort(request)`."""

    request: Request


@dataclass(frozen=True, slots=True)
class Finished:
    """Outcome: the request ended; its client has the final output."""

    request: Request
    handle: int
    finish_reason: FinishReason
    output_tokens: int
    stop_reason: int | str | None = None
    error: str | None = None
    error_code: ErrorCode = ErrorCode.NONE
    error_field: str | None = None  # name of the request's field that is to blame, if one is


@dataclass(frozen=True, slots=True)
class Aborted:
    """Outcome: the request was aborted. `handle` is None where it was not bound."""

    request: Request
    handle: int | None
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Rescheduled:
    """Outcome: the binding is over, the request is not; its ids so far are what to go on from."""

    request: Request
    handle: int
    reason: RescheduleReason
    output_token_ids: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PrefillDone:
    """Outcome of a prefill-only binding: its first token(s), to be bound again elsewhere."""

    request: Request
    handle: int
    output_token_ids: list[int]


@dataclass(frozen=True, slots=True)
class Released:
    """The slot's memory may be reused. Comes once per handle, never before its outcome."""

    request: Request
    handle: int
    reason: str  # "drained", "drained_timeout", "rank_lost", "processor_lost", "slot_busy"


@dataclass(frozen=True, slots=True)
class RankUp:
    """All TP ranks of a DP rank said hello; binds carry this incarnation."""

    dp_rank: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class RankLost:
    """A worker of this DP rank is gone or gave up."""

    dp_rank: int
    reason: str


@dataclass(frozen=True, slots=True)
class ProcessorLost:
    """A processor died; the requests bound through it ended with an error."""

    processor: int
    reason: str


@dataclass(frozen=True, slots=True)
class ProcessorUp:
    """A processor came (back) up."""

    processor: int


@dataclass(frozen=True, slots=True)
class ClientLost:
    """A client is gone; an AbortRequested follows for each of its live requests."""

    client: int
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Mismatch:
    """TP ranks disagree (policy "verify"): the first step and handle where they do."""

    dp_rank: int
    tp_rank: int
    step: int
    handle: int


Event = (
    Submitted
    | AbortRequested
    | Finished
    | Aborted
    | Rescheduled
    | PrefillDone
    | Released
    | RankUp
    | RankLost
    | ProcessorUp
    | ProcessorLost
    | ClientLost
    | Mismatch
)
