"""Name the things that flow. Does nothing.

One word for one thing, the same here, in C, in tests, metrics and docs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, IntEnum
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenpipe import _core
from tokenpipe._core import DP_BITS, GENERATION_BITS, MAX_STOP_BYTES, SLOT_BITS
from tokenpipe.accepts import Accepts, default
from tokenpipe.errors import FieldError

# A handle names one binding of one request to one slot: dp (12 bits), slot (16), generation (35).
MAX_GENERATION = (1 << GENERATION_BITS) - 1
FIRST_GENERATION = 1 << 30
"""A pipeline's handles begin at this generation or above it: none is a small number."""
MAX_SLOTS = 1 << SLOT_BITS
MAX_DP = 1 << DP_BITS


def make_handle(dp_rank: int, slot: int, generation: int) -> int:
    """Return the positive int64 that names generation `generation` (>= 1) of a slot."""
    if not (0 <= dp_rank < MAX_DP and 0 <= slot < MAX_SLOTS and 1 <= generation <= MAX_GENERATION):
        raise ValueError(f"no handle for dp {dp_rank}, slot {slot}, generation {generation}")
    return (dp_rank << (SLOT_BITS + GENERATION_BITS)) | (slot << GENERATION_BITS) | generation


def split_handle(handle: int) -> tuple[int, int, int]:
    """Return (dp rank, slot, generation) of a handle."""
    return (
        handle >> (SLOT_BITS + GENERATION_BITS),
        (handle >> GENERATION_BITS) & (MAX_SLOTS - 1),
        handle & MAX_GENERATION,
    )


class RowStatus(IntEnum):
    """What a worker says of a row beside its tokens; the values are those of the wire."""

    OK = _core.ROW_OK
    DRAINED = _core.ROW_DRAINED  # no more rows for this handle
    RECOVERY_STOP = _core.ROW_RECOVERY_STOP  # the result is incomplete; ends the request
    ERROR = _core.ROW_ERROR  # the runner failed on this row
    BAD_TOKEN = _core.ROW_BAD_TOKEN  # the publisher refused a token: negative or too large
    FINISHED = _core.ROW_FINISHED  # complete: its request ends with "stop"
    REFUSED = _core.ROW_REFUSED  # the executor does not take the request; the row's extras say why


class FinishReason(str, Enum):
    """Why a request ended, as its user reads it."""

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
"""Finish reason by its code on the wire; 0 is "not finished"."""


class ErrorCode(IntEnum):
    """What kind of error ended a request; `error` beside it says in words what happened."""

    NONE = _core.ERROR_NONE  # it goes on, or did not end with an error
    INVALID = _core.ERROR_INVALID  # it cannot be served as it is: another attempt fails too
    UNAVAILABLE = _core.ERROR_UNAVAILABLE  # nobody can serve it now: try again later
    LOST = _core.ERROR_LOST  # a process that held it died, or its result is incomplete: try again
    SLOW = _core.ERROR_SLOW  # its output was not taken in time, and more came than may wait
    GAP = _core.ERROR_GAP  # a part of its output did not arrive
    INTERNAL = _core.ERROR_INTERNAL  # the engine, its worker or tokenpipe failed on this request


class RequestOutputKind(IntEnum):
    """What each output of a request holds."""

    CUMULATIVE = _core.OUTPUT_CUMULATIVE  # everything so far
    DELTA = _core.OUTPUT_DELTA  # what is new
    FINAL_ONLY = _core.OUTPUT_FINAL_ONLY  # everything, once, at the end


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to sample, when to end and what to return; names are vLLM's, and its defaults but one:
    `output_kind` is DELTA.

    The pipeline itself applies `max_tokens`, `min_tokens`, `ignore_eos`, `stop_token_ids`, `stop`
    and all that is about text; the rest travels to the engine untouched. `ignore_eos` ignores the
    model's EOS ids, never the caller's own `stop_token_ids`. Of the first `min_tokens` tokens none
    ends the request: an EOS or stop id counts from the last of them on, a stop string when the
    token that completes it lies behind them. There is text where the topology has a tokenizer,
    unless `detokenize` is False. `stream_interval` tokens are in each output at least, and
    `stream_interval_ms` lie between two of them, the first and the last excepted.

    `stop_token_ids` and `stop` may be given as lists, or whatever else is gone through once; they
    are tuples from then on. Raises `FieldError`, whose `field` is to blame.
    """

    n: int = 1
    max_tokens: int = 16
    min_tokens: int = 0
    stop_token_ids: Accepts[tuple[int, ...], Iterable[int]] = default(())
    ignore_eos: bool = False
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    stop: Accepts[tuple[str, ...], Iterable[str]] = default(())
    include_stop_str_in_output: bool = False
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    stream_interval: int = 1
    stream_interval_ms: int = 0
    output_kind: RequestOutputKind = RequestOutputKind.DELTA

    def __post_init__(self) -> None:
        if self.n < 1:
            raise FieldError("n", f"must be at least 1, not {self.n}")
        if self.max_tokens < 1:
            raise FieldError("max_tokens", f"must be at least 1, not {self.max_tokens}")
        if not 0 <= self.min_tokens <= self.max_tokens:
            raise FieldError(
                "min_tokens", f"must be in 0..max_tokens ({self.max_tokens}), not {self.min_tokens}"
            )
        for name in ("logprobs", "prompt_logprobs"):
            if (value := getattr(self, name)) is not None and value < 0:
                raise FieldError(name, f"must be None or >= 0, not {value}")
        if type(self.stop_token_ids) is not tuple or self.stop_token_ids:
            object.__setattr__(self, "stop_token_ids", _token_ids(self.stop_token_ids))
        if type(self.stop) is not tuple or self.stop:
            object.__setattr__(self, "stop", _texts(self.stop))
        if not all(self.stop):
            raise FieldError("stop", "an empty string ends nothing")
        if sum(len(text.encode()) for text in self.stop) > MAX_STOP_BYTES:
            raise FieldError("stop", f"more than {MAX_STOP_BYTES} bytes of UTF-8 in all")
        if self.stop and not self.detokenize:
            raise FieldError("stop", "stop strings are found in text, and detokenize is False")
        if self.stream_interval < 1:
            raise FieldError("stream_interval", f"must be at least 1, not {self.stream_interval}")
        if self.stream_interval_ms < 0:
            raise FieldError("stream_interval_ms", f"must be >= 0, not {self.stream_interval_ms}")


def _token_ids(ids: Iterable[int]) -> tuple[int, ...]:
    try:
        tokens = tuple(map(index, ids))  # ints of numpy too
    except TypeError as error:
        raise FieldError("stop_token_ids", f"must be token ids, not {ids!r}: {error}") from None
    for token in tokens:
        if not 0 <= token < 1 << 31:
            raise FieldError("stop_token_ids", f"{token} is not a token id")
    return tokens


def _texts(texts: Iterable[str]) -> tuple[str, ...]:
    if isinstance(texts, str):
        raise FieldError("stop", "must be a tuple of strings; write (text,) for one")
    try:
        all_texts = tuple(texts)
    except TypeError:
        raise FieldError("stop", f"must be a tuple of strings, not {texts!r}") from None
    for text in all_texts:
        if not isinstance(text, str):
            raise FieldError("stop", f"{text!r} is not a string")
    return all_texts


@dataclass(frozen=True, slots=True)
class Request:
    """One sequence to generate. `internal_id` is unique for ever, `external_id` is the caller's."""

    internal_id: int  # u64: 32 random bits of the client's incarnation, then a counter
    external_id: str
    client: int  # index of the client that owns the output
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    parent: int | None = None  # internal id of the first sample where n > 1
    sample_index: int = 0
    extra: bytes = b""

    @property
    def request_fields(self) -> dict[str, Any]:
        """What an API server put into `extra`; ValueError where that is no JSON object."""
        return request_fields_of(self.extra)


def request_fields_of(extra: bytes) -> dict[str, Any]:
    """Return the fields that an API server put into a request's `extra`: {} where it is empty.

    `extra` is one JSON object in UTF-8; its keys are names of the model card's `request_fields`.
    Raises ValueError where the bytes are something else.
    """
    fields = json.loads(extra) if extra else {}
    if not isinstance(fields, dict):
        raise ValueError(f"extra: must be a JSON object, not a {type(fields).__name__}")
    return fields


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one finished request."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0  # of the prompt, as the engine said
    reasoning_tokens: int | None = None  # of the completion, where the engine said so


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log probabilities of one output token: the sampled one first, then the top k.

    `token_ids` and `logprobs` have 1 + k entries; a NaN arrives as None. `rank` is the sampled
    token's rank in the vocabulary (1 is the most likely).
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float | None, ...]
    rank: int


@dataclass(slots=True)
class OutputExtras:
    """What came beside the tokens of one `RequestOutput`; None is what did not come.

    A logprob that is NaN arrives as None, an infinite one as it is; `pooled` is an array and keeps
    both. Lists that go with `token_ids` have an entry for each of them.
    """

    prompt_logprobs: list[TokenLogprobs | None] | None = None
    pooled: NDArray[np.float32] | None = None
    sampling_masks: list[NDArray[np.int32] | None] | None = None
    draft_token_ids: list[int | None] | None = None
    draft_logprobs: list[TokenLogprobs | None] | None = None
    custom: list[tuple[int, bytes]] | None = None


_NO_EXTRAS = OutputExtras()


@dataclass(slots=True)
class RequestOutput:
    """What one request got since its last output: a delta, never a repeat.

    Unless its `output_kind` says otherwise; then `offset` is 0 and the rest is all so far.
    """

    request_id: str  # the external id
    index: int  # sample index, 0 unless n > 1
    offset: int  # output tokens before this delta
    token_ids: list[int]
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None  # the EOS or stop token id, or stop string, that ended it
    error: str | None = None  # says who and why where finish_reason is "error"
    error_code: ErrorCode = ErrorCode.NONE  # what kind of error it is; NONE where there is none
    error_field: str | None = None  # name of the request's field that is to blame, if one is
    logprobs: list[TokenLogprobs] | None = None  # one per token where asked for
    usage: Usage | None = None  # with the last output only
    text: str = ""  # "" where no text is made
    extras: OutputExtras | None = None  # what came beside the tokens; the properties below read it

    @property
    def finished(self) -> bool:
        """Whether this is the request's last output."""
        return self.finish_reason is not None

    @property
    def prompt_logprobs(self) -> list[TokenLogprobs | None] | None:
        """One per prompt token from the first on, None where there are none.

        They come with the first tokens; a later output has those of later prompt tokens only.
        """
        return (self.extras or _NO_EXTRAS).prompt_logprobs

    @property
    def pooled(self) -> NDArray[np.float32] | None:
        """Pooled output, float32 in the shape that the worker gave it; read-only."""
        return (self.extras or _NO_EXTRAS).pooled

    @property
    def sampling_masks(self) -> list[NDArray[np.int32] | None] | None:
        """For each of `token_ids` the ids that could have been sampled, int32 [ids], or None."""
        return (self.extras or _NO_EXTRAS).sampling_masks

    @property
    def draft_token_ids(self) -> list[int | None] | None:
        """For each of `token_ids` what was proposed in its place, or None."""
        return (self.extras or _NO_EXTRAS).draft_token_ids

    @property
    def draft_logprobs(self) -> list[TokenLogprobs | None] | None:
        """For each of `token_ids` the logprobs of what was proposed in its place, or None."""
        return (self.extras or _NO_EXTRAS).draft_logprobs

    @property
    def custom(self) -> list[tuple[int, bytes]] | None:
        """(output tokens before its row, bytes) of each `RowExtras.custom`, in order."""
        return (self.extras or _NO_EXTRAS).custom


class RescheduleReason(str, Enum):
    """Why a binding was handed back to the scheduler."""

    PREEMPTED = "preempted"
    UNSOLICITED = "unsolicited"  # drained, though nobody asked
    GAP = "gap"  # rows were lost on the lane and could not be re-sent
    RANK_LOST = "rank_lost"
    PARK_LOST = "park_lost"  # rows came long before the bind and were not kept
    DRAINED_TIMEOUT = "drained_timeout"  # preempted, but no drained row within the deadline
    SLOT_BUSY = "slot_busy"

    def __str__(self) -> str:
        return self.value
