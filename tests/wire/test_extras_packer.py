"""What is refused when extras are packed, and the bound of an error."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tokenpipe._core import MAX_ERROR
from tokenpipe.errors import RowError
from tokenpipe.extras import PromptLogprobs, RowExtras
from tokenpipe.wire import pack_extras, unpack_error
from tokenpipe.wire.extras_format import MOST_FIELD, RECORD


@pytest.mark.parametrize(
    ("extras", "why"),
    [
        (RowExtras(sampling_masks=[[1], [2]]), "sampling_masks: 2 entries for a row of 1 tokens"),
        (RowExtras(draft_token_ids=[1, 2]), "draft_token_ids: 2 entries"),
        (RowExtras(draft_token_ids=[1 << 31]), "does not fit int32"),
        (RowExtras(sampling_masks=[[1 << 31]]), "sampling_masks: a value does not fit int32"),
        (RowExtras(sampling_masks=[[0.5]]), "sampling_masks: int32 or int64"),
        (RowExtras(sampling_masks=[[[1]]]), "sampling_masks: int32 or int64"),
        (RowExtras(draft_token_ids=[1.5]), "int32 or int64"),
        (RowExtras(draft_token_ids=[[1]]), "int32 or int64"),
        (RowExtras(draft_logprobs=([[1]], [[0.0]])), "ranks are needed"),  # type: ignore[arg-type]
        (RowExtras(draft_logprobs=([1], [0.0], [1])), r"must be [tokens, 1 + k]"),
        (RowExtras(draft_logprobs=([[1]], [[0.0, 0.0]], [1])), "do not fit"),
        (RowExtras(draft_logprobs=([[1]], [[0.0]], [1, 2])), "do not fit"),
        (RowExtras(draft_logprobs=([[1]] * 2, [[0.0]] * 2, [1, 2])), "draft_logprobs: 2 entries"),
        (RowExtras(prompt_logprobs=PromptLogprobs(-1, [[1]], [[0.0]], [1])), "no position -1"),
        (RowExtras(pooled=np.zeros((1,) * 9)), "9 dimensions"),
        (RowExtras(pooled=["x"]), "float32 is needed"),
        (RowExtras(reasoning_tokens=-1), "reasoning_tokens: -1 is negative"),
        (RowExtras(cached_tokens=-1), "cached_tokens: -1 is negative"),
    ],
)
def test_what_does_not_fit_is_a_row_error(extras: RowExtras, why: str) -> None:
    with pytest.raises(RowError, match=re.escape(why)):
        pack_extras(extras, 1)


def test_an_error_has_a_bound_and_no_half_character() -> None:
    error, field = unpack_error(pack_extras(RowExtras(error="x" + "€" * 500, error_field="n"), 0))
    assert error == "x" + "€" * ((MAX_ERROR - 2) // 3) and field == "n"
    too_long = RowExtras(error="x", error_field="n" * (MOST_FIELD + 1))
    assert unpack_error(pack_extras(too_long, 0)) == ("x", "")
    assert unpack_error(pack_extras(RowExtras(error="\udc80"), 0)) == ("?", "")
    assert unpack_error(RECORD.pack(9, 2) + b"\0\xff") == ("\ufffd", "")
    assert unpack_error(pack_extras(RowExtras(custom=b"x"), 0)) == unpack_error(b"") == ("", "")
