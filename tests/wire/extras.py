"""Extras for tests: drawn at random, and wrapped as a processor sends them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.wire.strategies import f32
from tokenpipe.extras import PromptLogprobs, RowExtras
from tokenpipe.wire.extras_format import WRAP

ids = st.integers(-(1 << 31), (1 << 31) - 1)


@st.composite
def scores(draw: st.DrawFn, n: int) -> tuple[Any, Any, Any]:
    """Return logprobs of n tokens."""
    each = draw(st.integers(1, 3))
    token_ids = draw(st.lists(ids, min_size=n * each, max_size=n * each))
    values = draw(st.lists(f32, min_size=n * each, max_size=n * each))
    ranks = draw(st.lists(ids, min_size=n, max_size=n))
    return (
        np.array(token_ids, np.int64).reshape(n, each),
        np.array(values, np.float32).reshape(n, each),
        np.array(ranks, np.int32),
    )


@st.composite
def row_extras(draw: st.DrawFn, count: int) -> RowExtras:
    """Return extras of a row with `count` tokens."""
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    pooled = draw(st.lists(f32, min_size=math.prod(shape), max_size=math.prod(shape)))
    masks = st.lists(st.none() | st.lists(ids, max_size=4), max_size=count)
    drafts = st.lists(st.integers(-1, 1 << 30), max_size=count)
    parts = {
        "prompt_logprobs": st.builds(
            lambda at, found: PromptLogprobs(at, *found), st.integers(0, 5), scores(2)
        ),
        "pooled": st.just(np.array(pooled, np.float32).reshape(shape)),
        "sampling_masks": masks,
        "draft_token_ids": drafts,
        "draft_logprobs": st.integers(0, count).flatmap(scores),
        "reasoning_tokens": st.integers(0, 99),
        "cached_tokens": st.integers(0, 9),
        "custom": st.binary(min_size=1, max_size=5),
        "error": st.text(max_size=5),
        "error_field": st.text(max_size=3),
    }
    given: dict[str, Any] = {n: draw(of) for n, of in parts.items() if draw(st.booleans())}
    return RowExtras(**given)


def wrap(extras: bytes, offset: int = 0, count: int = 1, skip: int = 0) -> bytes:
    """Return extras with the tokens that they came with."""
    return WRAP.pack(offset, count, skip, len(extras)) + extras


def padded(values: Any, count: int) -> list[Any]:
    """Return `count` values; the missing ones are None."""
    return [*(values or []), *[None] * (count - len(values or []))]
