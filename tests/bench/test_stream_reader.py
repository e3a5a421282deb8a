"""The outputs of one request are checked as one; tests/bench/test_client.py runs the reader."""

from __future__ import annotations

import numpy as np

from tokenpipe.bench.client_results import ClientResults, PlannedRequest
from tokenpipe.bench.oracle import logprobs_of, sequence
from tokenpipe.bench.stream_reader import check_outputs
from tokenpipe.types import RequestOutput, TokenLogprobs

KEY = 0xABCD_0000_0001


def outputs(*cuts: int, k: int | None = None) -> list[RequestOutput]:
    """Return the right outputs of a request, cut at these offsets."""
    made = []
    for begin, end in zip((0, *cuts), cuts, strict=False):
        ids = sequence(KEY, begin, end - begin)
        out = RequestOutput("a", 0, begin, ids)
        if k is not None:
            columns = (c.tolist() for c in logprobs_of(np.array(ids, dtype=np.int32), k))
            out.logprobs = [
                TokenLogprobs(tuple(i), tuple(v), r) for i, v, r in zip(*columns, strict=True)
            ]
        made.append(out)
    return made


def checked(outputs: list[RequestOutput], k: int | None = None) -> ClientResults:
    results = ClientResults([PlannedRequest(0.0, 9)], k)
    check_outputs(results, KEY, outputs)
    results.ended(KEY, "length", 9, 9, None)
    return results


def test_right_outputs_are_right_however_they_are_cut() -> None:
    for cuts in ((9,), (1, 2, 3, 9), (4, 9)):
        verdict = checked(outputs(*cuts)).checker.verdict()
        assert (verdict.tokens, verdict.wrong) == (9, 0)


def test_a_missing_and_a_repeated_output_are_counted() -> None:
    parts = outputs(3, 6, 9)
    assert checked([parts[0], parts[2]]).checker.verdict().lost == 3
    assert checked([*parts[:2], *parts[1:]]).checker.verdict().duplicated == 3


def test_logprobs_of_each_token_are_its_own() -> None:
    parts = outputs(3, 9, k=2)
    assert checked(parts, 2).checker.verdict().wrong == 0
    assert parts[1].logprobs is not None
    parts[1].logprobs[4] = parts[1].logprobs[3]
    assert checked(parts, 2).checker.verdict().misscored == 1
    assert checked(outputs(9), 2).checker.verdict().misscored == 9
    assert checked(outputs(9, k=1)).checker.verdict().misscored == 9


def test_a_request_without_outputs_has_nothing_wrong() -> None:
    results = ClientResults([PlannedRequest(0.0, 9)])
    check_outputs(results, KEY, [])
    results.ended(KEY, "closed", 0, 9, None)
    assert results.checker.verdict().wrong == 0 and results.short == 0
