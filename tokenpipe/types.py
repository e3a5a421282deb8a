"""The data types that all parts share. No logic.

Each word has one meaning, here, in C, in tests, metrics and docs.
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
"""A pipeline's handles begin at this generation or above. So a small number is never a handle."""
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
    """The status that a worker gives a row. The values are those of the wire."""

    OK = _core.ROW_OK
    DRAINED = _core.ROW_DRAINED  # no more rows for this handle
    RECOVERY_STOP = _core.ROW_RECOVERY_STOP  # the result is incomplete; ends the request
    ERROR = _core.ROW_ERROR  # the runner failed on this row
    BAD_TOKEN = _core.ROW_BAD_TOKEN  # the row had a token that is negative or too large
    FINISHED = _core.ROW_FINISHED  # the request is complete and ends with "stop"
    REFUSED = _core.ROW_REFUSED  # the executor refused the request; the extras have the reason


class FinishReason(str, Enum):
    """The reason why a request ended, for its user."""

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
    """The kind of error that ended a request. The text of the error is in `error`."""

    NONE = _core.ERROR_NONE  # the request goes on, or ended without an error
    INVALID = _core.ERROR_INVALID  # the request itself is wrong: another attempt fails too
    UNAVAILABLE = _core.ERROR_UNAVAILABLE  # nobody can serve the request now: try again later
    LOST = _core.ERROR_LOST  # a process that held it died, or its output is incomplete: try again
    SLOW = _core.ERROR_SLOW  # its output was read too slowly, so more waited than may wait
    GAP = _core.ERROR_GAP  # a part of its output did not arrive
    INTERNAL = _core.ERROR_INTERNAL  # the engine, its worker or tokenpipe failed on this request


class RequestOutputKind(IntEnum):
    """Which part of the result each output of a request holds."""

    CUMULATIVE = _core.OUTPUT_CUMULATIVE  # everything so far
    DELTA = _core.OUTPUT_DELTA  # everything since the last output
    FINAL_ONLY = _core.OUTPUT_FINAL_ONLY  # everything, once, at the end


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to sample a request, when to end it and what to return.

    Names and defaults are those of vLLM. One default differs: `output_kind` is DELTA.

    The pipeline itself applies `max_tokens`, `min_tokens`, `ignore_eos`, `stop_token_ids`, `stop`
    and the parameters for text. The engine gets the others unchanged. `ignore_eos` ignores the
    model's EOS ids. It never ignores the caller's `stop_token_ids`. An EOS or stop id ends the
    request from token number `min_tokens` on. A stop string ends it only if a later token completes
    the string. There is text if the topology has a tokenizer and `detokenize` is True. Each output
    has at least `stream_interval` tokens. Two outputs are at least `stream_interval_ms` apart. The
    first and the last output are exceptions.

    `stop_token_ids` and `stop` may be any iterables; they are stored as tuples. Raises
    `FieldError`; its `field` names the wrong field.
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
            raise FieldError("stop", "a stop string must not be empty")
        if sum(len(text.encode()) for text in self.stop) > MAX_STOP_BYTES:
            raise FieldError("stop", f"must have at most {MAX_STOP_BYTES} bytes of UTF-8 in all")
        if self.stop and not self.detokenize:
            raise FieldError("stop", "stop strings need text, but detokenize is False")
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
    parent: int | None = None  # internal id of the first sample if n > 1
    sample_index: int = 0
    extra: bytes = b""

    @property
    def request_fields(self) -> dict[str, Any]:
        """The fields that an API server put into `extra`; ValueError if it is not a JSON object."""
        return request_fields_of(self.extra)


def request_fields_of(extra: bytes) -> dict[str, Any]:
    """Return the fields that an API server put into a request's `extra`: {} if it is empty.

    `extra` is one JSON object in UTF-8; its keys are names of the model card's `request_fields`.
    Raises ValueError if the bytes are something else.
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
    cached_tokens: int = 0  # prompt tokens that came from a cache, as the engine reported
    reasoning_tokens: int | None = None  # completion tokens; None if not reported


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log probabilities of one output token: the sampled one first, then the top k.

    `token_ids` and `logprobs` have 1 + k entries; a NaN arrives as None. `rank` is the rank of the
    sampled token in the vocabulary (1 is the most likely).
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float | None, ...]
    rank: int


@dataclass(slots=True)
class OutputExtras:
    """Additional data of one `RequestOutput`. A field is None if nothing came for it.

    A logprob that is NaN arrives as None; an infinite one is unchanged. `pooled` is an array and
    keeps both. Lists that belong to `token_ids` have one entry for each token.
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
    """The output of one request since its last output. Nothing is repeated.

    With another `output_kind` than DELTA, `offset` is 0, and the other fields have everything so
    far.
    """

    request_id: str  # the external id
    index: int  # sample index, 0 unless n > 1
    offset: int  # output tokens before this delta
    token_ids: list[int]
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None  # the EOS or stop token id, or stop string, that ended it
    error: str | None = None  # text of the error if finish_reason is "error"
    error_code: ErrorCode = ErrorCode.NONE  # kind of the error; NONE if there is no error
    error_field: str | None = None  # name of the wrong field of the request, if any
    logprobs: list[TokenLogprobs] | None = None  # one per token, if asked for
    usage: Usage | None = None  # with the last output only
    text: str = ""  # "" if no text is made
    extras: OutputExtras | None = None  # additional data; the properties below read it

    @property
    def finished(self) -> bool:
        """Whether this is the request's last output."""
        return self.finish_reason is not None

    @property
    def prompt_logprobs(self) -> list[TokenLogprobs | None] | None:
        """One entry per prompt token, from the first; None for a token without logprobs.

        They come with the first tokens. A later output has only entries of later prompt tokens.
        """
        return (self.extras or _NO_EXTRAS).prompt_logprobs

    @property
    def pooled(self) -> NDArray[np.float32] | None:
        """Pooled output, float32 in the shape that the worker gave it; read-only."""
        return (self.extras or _NO_EXTRAS).pooled

    @property
    def sampling_masks(self) -> list[NDArray[np.int32] | None] | None:
        """One entry for each of `token_ids`: the ids that could have been sampled, int32 [ids]."""
        return (self.extras or _NO_EXTRAS).sampling_masks

    @property
    def draft_token_ids(self) -> list[int | None] | None:
        """One entry for each of `token_ids`: the draft token that was proposed there, or None."""
        return (self.extras or _NO_EXTRAS).draft_token_ids

    @property
    def draft_logprobs(self) -> list[TokenLogprobs | None] | None:
        """One entry for each of `token_ids`: the logprobs of the draft token there, or None."""
        return (self.extras or _NO_EXTRAS).draft_logprobs

    @property
    def custom(self) -> list[tuple[int, bytes]] | None:
        """(output tokens before its row, bytes) of each `RowExtras.custom`, in order."""
        return (self.extras or _NO_EXTRAS).custom


class RescheduleReason(str, Enum):
    """The reason why a binding was handed back to the scheduler."""

    PREEMPTED = "preempted"
    UNSOLICITED = "unsolicited"  # a drained row came, but nobody had asked for it
    GAP = "gap"  # rows were lost on the lane and could not be re-sent
    RANK_LOST = "rank_lost"
    PARK_LOST = "park_lost"  # rows came too long before the bind, so they were not kept
    DRAINED_TIMEOUT = "drained_timeout"  # preempted, but no drained row came by the deadline
    SLOT_BUSY = "slot_busy"

    def __str__(self) -> str:
        return self.value
