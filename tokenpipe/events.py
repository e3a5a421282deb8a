"""Name the events that `Pipeline.poll` returns. Does nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from tokenpipe.types import ErrorCode, FinishReason, Request, RescheduleReason


@dataclass(frozen=True, slots=True)
class Submitted:
    """A client submitted this request."""

    request: Request


@dataclass(frozen=True, slots=True)
class AbortRequested:
    """A client cancelled this request, or the client is gone. Answer with `cmd.abort(request)`."""

    request: Request


@dataclass(frozen=True, slots=True)
class Finished:
    """Outcome: the request has ended, and its client gets the final output."""

    request: Request
    handle: int
    finish_reason: FinishReason
    output_tokens: int
    stop_reason: int | str | None = None
    error: str | None = None
    error_code: ErrorCode = ErrorCode.NONE
    error_field: str | None = None  # name of the request's field that is to blame, or None


@dataclass(frozen=True, slots=True)
class Aborted:
    """Outcome: the request was aborted. `handle` is None for a request that was not bound."""

    request: Request
    handle: int | None
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Rescheduled:
    """Outcome: the binding has ended, the request has not.

    A new binding continues after `output_token_ids`, which are all tokens so far. `deaths` is how
    often a worker died while it ran this request. If it exceeds `policies.max_deaths`, the event is
    `Finished` with `ErrorCode.CRASHES` instead.
    """

    request: Request
    handle: int
    reason: RescheduleReason
    output_token_ids: list[int] = field(default_factory=list)
    deaths: int = 0


@dataclass(frozen=True, slots=True)
class PrefillDone:
    """Outcome of a prefill-only binding: the request has its first tokens. Bind it again."""

    request: Request
    handle: int
    output_token_ids: list[int]


@dataclass(frozen=True, slots=True)
class Released:
    """The slot of a handle may be used again. It comes once, and not before the outcome."""

    request: Request
    handle: int
    reason: str  # "drained", "drained_timeout", "rank_lost", "processor_lost", "slot_busy"


@dataclass(frozen=True, slots=True)
class RankUp:
    """All TP ranks of a DP rank are connected. Binds carry this incarnation."""

    dp_rank: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class RankLost:
    """A worker of this DP rank is dead or reported a failure."""

    dp_rank: int
    reason: str


@dataclass(frozen=True, slots=True)
class ProcessorLost:
    """A processor died and could not go on: the requests bound to its ranks end with an error."""

    processor: int
    reason: str


@dataclass(frozen=True, slots=True)
class ProcessorRestarted:
    """A processor died, and its next process goes on with all requests. Nothing is to be done."""

    processor: int
    reason: str


@dataclass(frozen=True, slots=True)
class ProcessorUp:
    """A processor is ready, at the start or after a restart."""

    processor: int


@dataclass(frozen=True, slots=True)
class ClientLost:
    """A client is gone. An AbortRequested follows for each of its live requests."""

    client: int
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Mismatch:
    """TP ranks have different tokens (`tp_policy: verify`). `step` and `handle` are the first."""

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
    | ProcessorRestarted
    | ClientLost
    | Mismatch
)
