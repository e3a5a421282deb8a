"""The control messages: who says what to whom. The schema of each is its declaration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from tokenpipe._core import FINISH_ERROR, FINISH_STOP, MAX_STOP_BYTES, NO_STOP
from tokenpipe.types import ErrorCode, RequestOutputKind, SamplingParams, request_fields_of

from .fields import (
    U32,
    U64,
    Extra,
    Flag,
    Handle,
    Int,
    Ints,
    Name,
    Numbers,
    OneOf,
    Real,
    Stops,
    Strings,
    TokenIds,
    TokenOrNone,
    Wide,
    Words,
    Yes,
)
from .schema import Many, Record, record

_POSITIVE = Int(1, (1 << 31) - 1)
_COUNT = Int(0, (1 << 31) - 1)

# SamplingParams belongs to the user's vocabulary, so its specs stand here and not on its fields.
PARAMS = Record(
    SamplingParams,
    {
        "n": _POSITIVE,
        "max_tokens": _POSITIVE,
        "min_tokens": _COUNT,
        "stop_token_ids": Ints("i", 1 << 16),
        "ignore_eos": Flag(),
        "temperature": Real(),
        "top_p": Real(),
        "top_k": Int(-(1 << 31), (1 << 31) - 1),
        "min_p": Real(),
        "seed": Int(-(1 << 63), (1 << 64) - 1, optional=True),
        "logprobs": Int(0, (1 << 31) - 1, optional=True),
        "prompt_logprobs": Int(0, (1 << 31) - 1, optional=True),
        "stop": Strings(MAX_STOP_BYTES, MAX_STOP_BYTES),
        "include_stop_str_in_output": Flag(),
        "detokenize": Flag(),
        "skip_special_tokens": Flag(),
        "spaces_between_special_tokens": Flag(),
        "stream_interval": _POSITIVE,
        "stream_interval_ms": _COUNT,
        "output_kind": OneOf(RequestOutputKind),
    },
)

_DEFAULTS = SamplingParams()

# --- pipeline to processor ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bind:
    """Give a request a slot of a rank; `output_token_ids` are those it has already."""

    handle: Handle
    rank_incarnation: U64
    key: U64
    client: U32
    max_tokens: U32
    min_tokens: U32 = 0
    ignore_eos: Yes = False
    stop_token_ids: TokenIds = ()
    output_token_ids: TokenIds = ()
    prefill: Yes = False  # ends with HandlePrefilled after its first tokens
    stream_interval: U32 = 1
    stream_interval_ms: U32 = 0
    cached_tokens: U32 = 0  # of the prompt, for its usage
    text: Yes = False  # what follows is for text
    stop: Stops = ()
    include_stop_str_in_output: Yes = False
    skip_special_tokens: Yes = True
    spaces_between_special_tokens: Yes = True
    prompt_tail: TokenIds = ()
    prompt_cut: Yes = False  # the prompt has more than its tail
    extras_offset: U64 = 0  # bytes of extras that its client was sent


@dataclass(frozen=True, slots=True)
class Preempt:
    """Take a binding out of its slot; it is handed back once drained."""

    handle: Handle


@dataclass(frozen=True, slots=True)
class Abort:
    """End a binding's request now; its slot is released once drained."""

    handle: Handle


@dataclass(frozen=True, slots=True)
class OpenRank:
    """Serve this rank's lanes. `floors`: highest dead generation per slot, none if empty."""

    dp: U32
    floors: Wide = ()


@dataclass(frozen=True, slots=True)
class OpenClient:
    """Send this client its output under this incarnation."""

    client: U32
    incarnation: U64


@dataclass(frozen=True, slots=True)
class CloseClient:
    """Forget this client; its output is dropped."""

    client: U32


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Ask for Counters with the same id."""

    id: U64


# --- processor to pipeline ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HandleFinished:
    """Outcome: the request ended and its final row went to its client."""

    handle: Handle
    finish: Annotated[int, Int(FINISH_STOP, FINISH_ERROR)]  # a code of types.FINISH_CODES
    stop_reason: TokenOrNone
    output_tokens: U32
    error: Words = ""
    stop_string: TokenOrNone = NO_STOP  # which of Bind.stop ended it
    error_code: Annotated[ErrorCode, OneOf(ErrorCode)] = ErrorCode.NONE
    error_field: Words = ""


@dataclass(frozen=True, slots=True)
class HandleAborted:
    """Outcome: the request was aborted."""

    handle: Handle
    output_tokens: U32


@dataclass(frozen=True, slots=True)
class HandleRescheduled:
    """Outcome: the binding is over, the request is not; `output_token_ids` are all it has."""

    handle: Handle
    reason: Words
    output_token_ids: TokenIds = ()
    text_offset: U32 = 0  # bytes of text that its client has
    text_tail: Extra = b""  # what was held back, in case that nothing follows
    extras_offset: U64 = 0  # bytes of extras that its client has


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
    """The slot's memory may be reused."""

    handle: Handle
    reason: Words


@dataclass(frozen=True, slots=True)
class RankOpened:
    """All TP ranks of a DP rank said hello; binds carry this incarnation."""

    dp: U32
    incarnation: U64


@dataclass(frozen=True, slots=True)
class RankClosed:
    """A DP rank is lost."""

    dp: U32
    reason: Words


@dataclass(frozen=True, slots=True)
class RanksDiffer:
    """A TP rank's tokens are not the leader's: the first such step and handle."""

    dp: U32
    tp: U32
    step: U64
    handle: Handle


@dataclass(frozen=True, slots=True)
class Counters:
    """Answers Snapshot."""

    id: U64
    values: Annotated[dict[str, int], Numbers()]


# --- client to pipeline -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Submit:
    """Ask for one sequence."""

    key: U64
    external_id: Name
    prompt_token_ids: TokenIds
    params: Annotated[SamplingParams, PARAMS]
    parent: U64 = 0  # key of the first sample where n > 1, else 0
    sample_index: U32 = 0
    extra: Extra = b""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Say that nobody waits for this request any more."""

    key: U64


# --- engine to worker ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StepBind:
    """One new binding of a StepPlan."""

    handle: Handle
    key: U64
    output_tokens: U32  # tokens the request has at bind
    prompt_token_ids: TokenIds = ()
    output_token_ids: TokenIds = ()
    max_tokens: U32 = 0
    extra: Extra = b""
    params: Annotated[SamplingParams, PARAMS] = _DEFAULTS

    @property
    def request_fields(self) -> dict[str, Any]:
        """What an API server put into `extra`; ValueError where that is no JSON object."""
        return request_fields_of(self.extra)


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What changes in a rank's batch from this step on: new bindings, handles to let go.

    With `reset` everything before it is void: the rank was lost, all its handles are dead, and
    the worker, which lives, drops its batch without a word before it takes the rest of the plan.
    """

    number: U64
    binds: Annotated[tuple[StepBind, ...], Many(record(StepBind))] = ()
    frees: Wide = ()  # answer each with a drained row
    steps: U32 = 0  # that a lockstep worker runs before it takes the next plan
    extra: Extra = b""
    reset: Yes = False


# --- worker to processor ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RankFailed:
    """The worker gives up, and says why."""

    dp: U32
    tp: U32
    message: Words


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
    32: Submit,
    33: Cancel,
    48: StepPlan,
    64: RankFailed,
}
"""First element of a message on the wire. A number is never used again for another meaning."""
