"""The deltas of one request, checked as one."""

from __future__ import annotations

import numpy as np

from tokenpipe.bench.client_results import ClientResults, PlannedRequest
from tokenpipe.bench.oracle import logprobs_of, sequence
from tokenpipe.bench.stream_reader import check
from tokenpipe.types import RequestOutput, TokenLogprobs

KEY = 0xABCD_0000_0001


def outputs(*cuts: int, k: int | None = None) -> list[RequestOutput]:
    """Return the right deltas of a request, cut at these offsets."""
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
    me = ClientResults([PlannedRequest(0.0, 9)], k)
    check(me, KEY, outputs)
    me.ended(KEY, "length", 9, 9, None)
    return me


def test_right_deltas_are_right_however_they_are_cut() -> None:
    for cuts in ((9,), (1, 2, 3, 9), (4, 9)):
        verdict = checked(outputs(*cuts)).checker.verdict()
        assert (verdict.tokens, verdict.wrong) == (9, 0)


def test_a_missing_and_a_repeated_delta_are_counted() -> None:
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


def test_a_request_that_never_said_anything_has_nothing_wrong() -> None:
    me = ClientResults([PlannedRequest(0.0, 9)])
    check(me, KEY, [])
    me.ended(KEY, "left", 0, 9, None)
    assert me.checker.verdict().wrong == 0 and me.short == 0
