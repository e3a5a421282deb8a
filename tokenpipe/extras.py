"""Name what a worker may give beside a row's tokens. Imports nothing of ours and does nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class PromptLogprobs(NamedTuple):
    """Log probabilities of prompt tokens, as a worker gives them.

    Args:
        position: where in the prompt the first of them stands. A prompt's first token has none.
        token_ids: int32 or int64 [tokens, 1 + k], the prompt's own token first.
        logprobs: float32, as token_ids.
        ranks: int32 or int64 [tokens], the prompt token's rank in the vocabulary, 1 the best.
    """

    position: int
    token_ids: Any
    logprobs: Any
    ranks: Any


@dataclass(frozen=True, slots=True)
class RowExtras:
    """What a worker gives beside the tokens of one row; every part may be absent.

    What is said per token has at most as many entries as the row has tokens, the first first. A
    value that does not fit its type or shape is a `RowError` of `publish`.

    Args:
        prompt_logprobs: a `PromptLogprobs`; of all the prompt, or a part (chunked prefill).
        pooled: float32 of any shape, at most 8 dimensions.
        sampling_masks: for each token the ids that could have been sampled, int32 or int64 [ids];
            None for a token without.
        draft_token_ids: the token that was proposed where each of the row's now stands, int32 or
            int64 [tokens]; -1 for none. A proposal behind the row's last token has no place.
        draft_logprobs: (token_ids [tokens, 1 + k], logprobs, ranks [tokens]) of these proposals,
            the proposed token first; for as many tokens as `draft_token_ids` has.
        reasoning_tokens: how many tokens of the request's output are reasoning, as far as is
            known; more than there are means that it still reasons. The latest word counts.
        cached_tokens: how many tokens of the prompt a cache had; counts before what `bind` said.
        custom: whatever the engine wants to tell its client.
        error: why the row's status is ERROR or REFUSED, for the request's final output. With
            `error_field` at most 1,024 bytes of UTF-8; the rest is cut off.
        error_field: name of the request's field that is to blame, at most 255 bytes of UTF-8; a
            longer name is left out.
    """

    prompt_logprobs: PromptLogprobs | None = None
    pooled: Any = None
    sampling_masks: Any = None
    draft_token_ids: Any = None
    draft_logprobs: tuple[Any, Any, Any] | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    custom: bytes = b""
    error: str = ""
    error_field: str = ""
