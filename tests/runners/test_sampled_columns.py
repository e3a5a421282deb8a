"""What models return becomes the columns of a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tokenpipe.errors import RowError
from tokenpipe.extras import RowExtras
from tokenpipe.runners.sampled_columns import SampledColumns


def columns(tokens: Any, **rest: Any) -> SampledColumns:
    return SampledColumns({"tokens": np.array(tokens), **{k: np.array(v) for k, v in rest.items()}})


def test_one_id_a_row_needs_no_counts() -> None:
    got = columns([5, 6])
    assert got.tokens.tolist() == [5, 6] and got.counts is None and got.rows == 2


def test_only_as_many_tokens_as_a_row_has_are_taken() -> None:
    got = columns([[5, 6, 7], [8, -1, -1], [-1, -1, -1]], counts=[3, 1, 0])
    assert got.tokens.tolist() == [5, 6, 7, 8] and got.counts is not None
    assert got.counts.tolist() == [3, 1, 0]
    assert columns([5, -1, 7], counts=[1, 0, 1]).tokens.tolist() == [5, 7]


@pytest.mark.parametrize("tokens", [[[5, 6]], [[[5]]], 5])
def test_other_shapes_are_refused(tokens: Any) -> None:
    with pytest.raises(RowError, match="tokens: shape"):
        columns(tokens)


def test_parts_follow_one_another() -> None:
    first = columns([5, 6], ids=[[5, 1], [6, 2]], values=[[-1.0, -2.0]] * 2, ranks=[1, 3], k=[1, 0])
    second = columns([[7, 8]], counts=[2])
    second.extras = {0: RowExtras(custom=b"x")}
    got = SampledColumns.joined([first, second])
    assert got.tokens.tolist() == [5, 6, 7, 8] and got.rows == 3
    assert got.counts is not None and got.counts.tolist() == [1, 1, 2]
    assert got.extras == {2: RowExtras(custom=b"x")}
    assert got.logprobs is not None
    assert got.logprobs.token_ids.tolist() == [5, 1, 6] and got.logprobs.ranks.tolist() == [1, 3]
    assert got.logprobs.k.tolist() == [1, 0, -1]
    assert SampledColumns.joined([]).rows == 0


def test_rows_that_failed_have_no_token_and_a_reason() -> None:
    got = SampledColumns.empty(["too long", "no adapter"])
    assert got.rows == 2 and len(got.tokens) == 0
    assert got.counts is not None and got.counts.tolist() == [0, 0]
    assert got.extras == {0: RowExtras(error="too long"), 1: RowExtras(error="no adapter")}
