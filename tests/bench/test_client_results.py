"""A client's results: what a request asks for, how its end counts, what the report has."""

from __future__ import annotations

import pytest

from tokenpipe.bench.client_results import ClientResults, PlannedRequest, quantiles
from tokenpipe.bench.oracle import sequence

KEY = 0xABCD_0000_0001


def results(**options: object) -> ClientResults:
    made = ClientResults([PlannedRequest(0.0, 4)], **options)  # type: ignore[arg-type]
    made.checker.add(KEY)
    made.checker.stream(KEY, 0, sequence(KEY, 0, 4))
    return made


def test_only_its_length_ends_a_request() -> None:
    params = results(logprobs=3).params(PlannedRequest(0.0, 7))
    assert (params.max_tokens, params.ignore_eos, params.logprobs) == (7, True, 3)
    assert not params.detokenize
    assert results(text=True).params(PlannedRequest(0.0, 7)).detokenize


@pytest.mark.parametrize(
    ("reason", "wanted", "short"),
    [("length", 4, 0), ("length", 5, 1), ("stop", 5, 1)]
    + [(reason, 5, 0) for reason in ("abort", "closed", "error")],
)
def test_a_request_is_short_where_nobody_ended_it_early(
    reason: str, wanted: int, short: int
) -> None:
    made = results()
    made.ended(KEY, reason, 4, wanted, None)
    report = made.report()
    assert (report["short"], report["reasons"]) == (short, {reason: 1})
    assert (report["tokens"], report["lost"]) == (4, 0)


def test_tokens_that_did_not_come_before_the_end_are_lost() -> None:
    made = results()
    made.ended(KEY, "length", 6, 6, None)
    assert made.report()["lost"] == 2


def test_the_report_has_the_first_errors_and_the_span_of_the_output() -> None:
    made = results()
    for number in range(12):
        made.ended(KEY, "error", 4, 4, f"error {number}")
    for now in (5.0, 6.5, 9.0):
        made.received(now)
    report = made.report()
    assert report["errors"] == [f"error {number}" for number in range(10)]
    assert (report["first"], report["last"]) == (5.0, 9.0)


def test_text_is_checked_only_where_it_was_asked_for() -> None:
    assert results().report()["misspelled"] == 0
    made = results(text=True)
    assert made.text is not None
    made.text.stream(KEY, sequence(KEY, 0, 4), "nonsense")
    assert made.report()["misspelled"] == 1


def test_quantiles_count_each_value_as_often_as_it_came() -> None:
    assert quantiles([]) == {}
    assert quantiles([(1, 98), (2, 1), (7, 1)]) == {"p50": 1, "p99": 2, "max": 7}
    assert quantiles([(3, 1)]) == {"p50": 3, "p99": 3, "max": 3}
