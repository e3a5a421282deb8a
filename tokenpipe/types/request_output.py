"""The output of a request, as its client gets it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .enums import ErrorCode, FinishReason


@dataclass(frozen=True, slots=True)
class Usage:
    """Counts the tokens of one finished request."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0  # prompt tokens from a cache, as the engine says
    reasoning_tokens: int | None = None  # completion tokens, None if the engine does not say


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log probabilities at one token: of the token itself, then of the top k.

    `token_ids` and `logprobs` have 1 + k entries. A NaN is None. `rank` is the token's own rank in
    the vocabulary; 1 is the most likely.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float | None, ...]
    rank: int


@dataclass(slots=True)
class OutputExtras:
    """The extras of one `RequestOutput`. A field is None if nothing came.

    A logprob that is NaN is None here; `pooled` keeps NaN. The three lists about output tokens have
    one entry for each of `token_ids`. `RequestOutput` describes the fields.
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
    """The output of one request since its last output: each token comes once.

    With another `output_kind` than DELTA `offset` is 0, and the output holds everything so far.
    """

    request_id: str  # the external id
    index: int  # index of the sample, 0 unless n > 1
    offset: int  # number of output tokens before `token_ids`
    token_ids: list[int]
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None  # the token id or the stop string that ended the request
    error: str | None = None  # what happened, if finish_reason is "error"
    error_code: ErrorCode = ErrorCode.NONE
    error_field: str | None = None  # name of the request's field that is to blame, or None
    logprobs: list[TokenLogprobs] | None = None  # one for each token, if the request asked for them
    usage: Usage | None = None  # in the last output only
    text: str = ""  # "" if requests have no text
    extras: OutputExtras | None = None  # what came beside the tokens; the properties below read it

    @property
    def finished(self) -> bool:
        """Whether this is the last output of the request."""
        return self.finish_reason is not None

    @property
    def prompt_logprobs(self) -> list[TokenLogprobs | None] | None:
        """One entry per prompt token, from the first; None for a token without logprobs.

        They come with the first output tokens. A later output has entries of later prompt tokens.
        """
        return (self.extras or _NO_EXTRAS).prompt_logprobs

    @property
    def pooled(self) -> NDArray[np.float32] | None:
        """Pooled output: a read-only float32 array of the shape that the worker published."""
        return (self.extras or _NO_EXTRAS).pooled

    @property
    def sampling_masks(self) -> list[NDArray[np.int32] | None] | None:
        """For each of `token_ids`: the ids that could have been sampled, int32 [ids], or None."""
        return (self.extras or _NO_EXTRAS).sampling_masks

    @property
    def draft_token_ids(self) -> list[int | None] | None:
        """For each of `token_ids`: the draft token that was proposed for its place, or None."""
        return (self.extras or _NO_EXTRAS).draft_token_ids

    @property
    def draft_logprobs(self) -> list[TokenLogprobs | None] | None:
        """For each of `token_ids`: the logprobs of the proposed draft token, or None."""
        return (self.extras or _NO_EXTRAS).draft_logprobs

    @property
    def custom(self) -> list[tuple[int, bytes]] | None:
        """(number of output tokens before the row, bytes) for each `RowExtras.custom`, in order."""
        return (self.extras or _NO_EXTRAS).custom
