"""Name the extras of a row: data that a worker publishes beside its tokens. Does nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class PromptLogprobs(NamedTuple):
    """Log probabilities of prompt tokens, as a worker publishes them.

    Args:
        position: index in the prompt of the first of these tokens. Index 0 has no logprobs.
        token_ids: int32 or int64 [tokens, 1 + k], the prompt's own token first.
        logprobs: float32 [tokens, 1 + k].
        ranks: int32 or int64 [tokens], the prompt token's rank in the vocabulary, 1 for the best.
    """

    position: int
    token_ids: Any
    logprobs: Any
    ranks: Any


@dataclass(frozen=True, slots=True)
class RowExtras:
    """Data beside the tokens of one row. Each part is optional.

    A list about tokens begins with the row's first token and may be shorter than the row.
    `publish` raises `RowError` for a value of a wrong type or shape.

    Args:
        prompt_logprobs: a `PromptLogprobs` of the whole prompt, or of a chunk of it.
        pooled: float32 of any shape with at most 8 dimensions.
        sampling_masks: for each token the ids that could have been sampled, int32 or int64 [ids],
            or None.
        draft_token_ids: for each token the draft token that was proposed in its place, int32 or
            int64 [tokens]; -1 for none. A proposal after the row's last token is not carried.
        draft_logprobs: (token_ids [tokens, 1 + k], logprobs [tokens, 1 + k], ranks [tokens]) of the
            draft tokens, the proposed token first; as many tokens as in `draft_token_ids`.
        reasoning_tokens: how many of the request's output tokens are reasoning so far. A number
            larger than the output means that all of it is reasoning. The latest number counts.
        cached_tokens: number of prompt tokens from a cache. It overrides the number of `bind`.
        custom: bytes of the engine's own for the client.
        error: why the row's status is ERROR or REFUSED, for the request's final output. `error` and
            `error_field` have at most 1,024 bytes of UTF-8 together; the rest is cut off.
        error_field: name of the request's field that is to blame, at most 255 bytes of UTF-8. A
            longer name is dropped.
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
