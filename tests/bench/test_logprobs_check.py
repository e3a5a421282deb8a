"""Logprobs are right where they are the oracle's, for each token alone."""

from __future__ import annotations

import numpy as np
import pytest

from tests.client.frames import Row, output_frame
from tokenpipe.bench.logprobs_check import misscored_in_frame, misscored_in_output
from tokenpipe.bench.oracle import logprobs_of, sequence
from tokenpipe.types import TokenLogprobs
from tokenpipe.wire import OutputFrame

KEY = 0xABCD_0000_0001
TOKENS = sequence(KEY, 0, 4)


def right(k: int) -> list[TokenLogprobs]:
    columns = logprobs_of(np.array(TOKENS, dtype=np.int32), k)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [TokenLogprobs(tuple(ids), tuple(values), rank) for ids, values, rank in rows]


def frame(logprobs: list[TokenLogprobs] | None) -> OutputFrame:
    entries = None
    if logprobs is not None:
        values = ([value for value in e.logprobs if value is not None] for e in logprobs)
        entries = [(list(e.token_ids), v, e.rank) for e, v in zip(logprobs, values, strict=True)]
    return OutputFrame.unpack(output_frame(Row(KEY, 0, TOKENS, logprobs=entries)))


@pytest.mark.parametrize("k", [0, 1, 5])
def test_the_oracles_logprobs_are_right(k: int) -> None:
    assert misscored_in_frame(frame(right(k)), k) == 0
    assert misscored_in_output(TOKENS, right(k), k) == 0


@pytest.mark.parametrize("wrong", ["ids", "values", "rank"])
def test_one_wrong_entry_is_one_wrong_token(wrong: str) -> None:
    entries = right(2)
    ids, values, rank = entries[1].token_ids, entries[1].logprobs, entries[1].rank
    entries[1] = {
        "ids": TokenLogprobs((ids[1], ids[0], ids[2]), values, rank),
        "values": TokenLogprobs(ids, (*values[:2], 0.5), rank),
        "rank": TokenLogprobs(ids, values, rank + 1),
    }[wrong]
    assert misscored_in_frame(frame(entries), 2) == 1
    assert misscored_in_output(TOKENS, entries, 2) == 1


def test_missing_and_unwanted_logprobs_are_wrong_for_each_token() -> None:
    for have, asked in ((None, 2), (right(2), None), (right(2), 1)):
        assert misscored_in_frame(frame(have), asked) == 4
        assert misscored_in_output(TOKENS, have, asked) == 4
