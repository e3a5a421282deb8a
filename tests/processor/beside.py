"""Extras that follow from their tokens: whoever has the tokens knows what must be there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tokenpipe.extras import PromptLogprobs, RowExtras
from tokenpipe.types import OutputExtras, TokenLogprobs
from tokenpipe.wire import ExtrasReader, pack_extras
from tokenpipe.wire.extras_format import WRAP


def mask_of(token: int) -> list[int] | None:
    return None if token % 5 == 0 else list(range(token, token + token % 4))


def draft_of(token: int) -> int | None:
    return None if token % 3 == 0 else token + token % 2


def draft_logprobs_of(token: int) -> TokenLogprobs:
    return TokenLogprobs((token, token + 9), (-token / 8, None), token % 7 + 1)


def row_extras(
    tokens: Sequence[int], custom: bytes = b"", prompt: int = 0, at: int = 0
) -> RowExtras:
    """Return what a row with these tokens carries; `prompt` tokens' logprobs from `at` on."""
    scores = [draft_logprobs_of(t) for t in tokens]
    drafts = [draft_of(t) for t in tokens]
    return RowExtras(
        prompt_logprobs=prompt_logprobs(at, prompt) if prompt else None,
        sampling_masks=[mask_of(t) for t in tokens] if tokens else None,
        draft_token_ids=[-1 if d is None else d for d in drafts] if tokens else None,
        draft_logprobs=(
            [s.token_ids for s in scores],
            [[np.nan if v is None else v for v in s.logprobs] for s in scores],
            [s.rank for s in scores],
        )
        if tokens
        else None,
        custom=custom,
    )


def prompt_logprobs(at: int, count: int) -> PromptLogprobs:
    ids = np.arange(at, at + count)
    return PromptLogprobs(at, ids[:, None], -ids[:, None].astype(np.float32), ids + 1)


def prompt_of(end: int, first: int = 1) -> list[TokenLogprobs | None]:
    """Return the logprobs of a prompt's tokens up to `end`; those before `first` have none."""
    return [TokenLogprobs((i,), (-float(i),), i + 1) if i >= first else None for i in range(end)]


def packed(tokens: Sequence[int], custom: bytes = b"", prompt: int = 0, at: int = 0) -> bytes:
    return pack_extras(row_extras(tokens, custom, prompt, at), len(tokens))


def read(extras: bytes, tokens: int, last: bool = False) -> OutputExtras:
    """Return all that a client may know, having so many tokens of a request and these bytes."""
    at = 0
    while last and at < len(extras):  # nothing is said of a token behind the end
        offset, count, _, size = WRAP.unpack_from(extras, at)
        assert offset + count <= tokens
        at += WRAP.size + size
    return ExtrasReader(keep=True).take(bytes(extras), 0, tokens, last) or OutputExtras()


def check(extras: OutputExtras, tokens: Sequence[int], carried: Sequence[bool]) -> None:
    """Each token has what follows from it, where its row carried it; nothing else is there."""

    def column(of: Any) -> list[Any]:
        return [of(t) if c else None for t, c in zip(tokens, carried, strict=True)]

    n = len(tokens)
    masks = [None if m is None else m.tolist() for m in extras.sampling_masks or [None] * n]
    assert masks == column(mask_of)
    assert (extras.draft_token_ids or [None] * n) == column(draft_of)
    assert (extras.draft_logprobs or [None] * n) == column(draft_logprobs_of)
