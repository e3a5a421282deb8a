"""A request is judged by the bounds before it is sent, and the judge is never too mild."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpipe.client.requests import RequestKeys, expand
from tokenpipe.client.sizes import ROW_BYTES, SUBMIT_BYTES, SizeLimits
from tokenpipe.errors import FieldError
from tokenpipe.types import SamplingParams
from tokenpipe.wire import pack_control

HEADER = ((1 << 64) - 1,) * 4
LARGE = (1 << 31) - 1


def refused(limits: SizeLimits, prompt: int, more: int = 0, **params: Any) -> FieldError | None:
    try:
        limits.check(prompt, SamplingParams(**params), more)
    except FieldError as error:
        return error
    return None


@pytest.mark.case("F07")
@given(
    st.integers(0, 300),
    st.integers(1, 20),
    st.lists(st.text(min_size=1), max_size=20),
    st.lists(st.integers(0, LARGE), max_size=40),
    st.text(max_size=100),
    st.binary(max_size=300),
)
def test_what_is_let_through_fits_into_a_frame(
    prompt: int, n: int, stop: list[str], ids: list[int], name: str, extra: bytes
) -> None:
    limits = SizeLimits(4096)
    params = SamplingParams(
        n=n,
        stop=stop,
        stop_token_ids=ids,
        max_tokens=LARGE,
        seed=1 << 62,
        top_k=LARGE,
        logprobs=1,
        prompt_logprobs=1,
        stream_interval=LARGE,
    )
    try:
        submits = expand(RequestKeys(1), [LARGE] * prompt, params, name, extra, limits)
    except FieldError as error:
        assert error.field in ("prompt_token_ids", "n", "extra", "prompt_logprobs")
        assert prompt + len(extra) + n + len(ids) + len("".join(stop)) > 10
    else:
        assert len(pack_control(HEADER, submits)) <= limits.max_frame_bytes


@pytest.mark.case("F07")
def test_the_field_that_is_too_large_is_named() -> None:
    limits = SizeLimits(1 << 20, 1 << 19)
    for field, error in {
        "prompt_token_ids": refused(limits, (1 << 18) - 100),
        "n": refused(limits, 100_000, n=3),
        "extra": refused(limits, 1, more=1 << 20),
        "logprobs": refused(limits, 1, logprobs=1 << 16),
        "prompt_logprobs": refused(limits, 10_000, prompt_logprobs=20),
    }.items():
        assert error is not None and error.field == field, field
        assert "bounds." in error.problem
    assert refused(limits, (1 << 18) - SUBMIT_BYTES // 4) is None
    assert refused(limits, 100_000, n=2) is None


@pytest.mark.case("F07")
def test_the_stream_is_a_bound_of_one_token_only_where_there_is_one() -> None:
    limits = SizeLimits(1 << 20, 1 << 19)
    k = ((1 << 20) - ROW_BYTES - 12) // 8 - 1
    params = SamplingParams(logprobs=k)
    limits.check(1, params, 0, streamed=False)
    with pytest.raises(FieldError, match=r"logprobs: .* bounds\.stream_bytes is 524288"):
        limits.check(1, params, 0)
    with pytest.raises(FieldError, match=r"logprobs: .* bounds\.max_frame_bytes is 1048576"):
        limits.check(1, SamplingParams(logprobs=k + 1), 0, streamed=False)
    tokens = ((1 << 20) - ROW_BYTES) // (12 + 8 * 21)
    limits.check(tokens, SamplingParams(prompt_logprobs=20), 0)  # they come in pieces
    with pytest.raises(FieldError, match=r"prompt_logprobs: .* bounds\.max_frame_bytes is 1048576"):
        limits.check(tokens + 1, SamplingParams(prompt_logprobs=20), 0)


def test_no_token_has_more_logprobs_than_the_vocabulary_has_ids() -> None:
    assert refused(SizeLimits(1 << 20, 1 << 20, 100), 100, logprobs=LARGE) is None
    assert refused(SizeLimits(1 << 20, 1 << 20), 100, logprobs=LARGE) is not None
