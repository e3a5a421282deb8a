"""Reports in handles become events about requests; final rows for what no processor holds."""

from __future__ import annotations

import pytest

from tests.pipeline.test_bindings import table_with
from tokenpipe._core import OFFSET_UNKNOWN
from tokenpipe.events import (
    Aborted,
    Event,
    Finished,
    Mismatch,
    PrefillDone,
    Released,
    Rescheduled,
)
from tokenpipe.pipeline.bindings import BindingTable
from tokenpipe.pipeline.final_rows import FinalRow
from tokenpipe.pipeline.outcomes import Outcomes
from tokenpipe.types import ErrorCode, FinishReason, Request, RescheduleReason
from tokenpipe.wire import (
    Counters,
    HandleAborted,
    HandleFinished,
    HandlePrefilled,
    HandleReleased,
    HandleRescheduled,
    RanksDiffer,
)


def test_each_report_becomes_its_event_once() -> None:
    bindings, (one, two) = table_with(1, 2)
    outcomes = Outcomes(bindings)
    first, _ = bindings.bind(one, 0, 0)
    second, _ = bindings.bind(two, 0, 1)
    finished = HandleFinished(first, 1, 66, 9)
    assert outcomes.apply(finished) == Finished(one, first, FinishReason.STOP, 9, 66)
    assert outcomes.apply(finished) is None
    assert outcomes.apply(HandleAborted(second, 3)) == Aborted(two, second, 3)
    assert outcomes.apply(HandleReleased(first, "drained")) == Released(one, first, "drained")
    assert outcomes.apply(HandleReleased(first, "drained")) is None
    assert outcomes.apply(RanksDiffer(0, 1, 7, second)) == Mismatch(0, 1, 7, second)
    assert outcomes.apply(Counters(1, {})) is None
    assert outcomes.late_reports == 3
    assert outcomes.take_final_rows() == []  # the processor sent them


def test_an_error_is_named() -> None:
    bindings, (one,) = table_with(1)
    handle, _ = bindings.bind(one, 0, 0)
    event = Outcomes(bindings).apply(
        HandleFinished(handle, 4, -1, 2, "bad token", error_code=ErrorCode.INTERNAL)
    )
    assert event == Finished(
        one, handle, FinishReason.ERROR, 2, None, "bad token", ErrorCode.INTERNAL
    )


@pytest.mark.parametrize("report", [HandleRescheduled, HandlePrefilled])
def test_what_is_handed_back_can_be_bound_again(report: type) -> None:
    bindings, (one,) = table_with(1)
    outcomes = Outcomes(bindings)
    handle, _ = bindings.bind(one, 0, 0)
    if report is HandleRescheduled:
        event = outcomes.apply(HandleRescheduled(handle, "preempted", (5, 6)))
        assert event == Rescheduled(one, handle, RescheduleReason.PREEMPTED, [5, 6])
    else:
        assert outcomes.apply(HandlePrefilled(handle, (5, 6))) == PrefillDone(one, handle, [5, 6])
    _, entry = bindings.bind(one, 1, 0)
    assert entry.output_token_ids == (5, 6)


@pytest.mark.case("B38")
@pytest.mark.parametrize(
    "crossing",
    [lambda h: HandleRescheduled(h, "preempted", (5, 6)), lambda h: HandlePrefilled(h, (5, 6))],
)
def test_an_abort_that_crosses_the_hand_back_ends_the_request(crossing: object) -> None:
    bindings, (one,) = table_with(1)
    outcomes = Outcomes(bindings)
    handle, _ = bindings.bind(one, 0, 0)
    bindings.bindings[handle].aborting = True
    assert outcomes.apply(crossing(handle)) == Aborted(one, handle, 2)  # type: ignore[operator]
    assert bindings.entry(one) is None
    assert outcomes.take_final_rows() == [FinalRow(0, 1, 2, FinishReason.ABORT)]
    assert outcomes.apply(HandleReleased(handle, "drained")) == Released(one, handle, "drained")


def lost(bindings: BindingTable, one: Request, at: int, outcomes: Outcomes) -> Event | None:
    """Bind a request to slot `at` and report that its rank was lost."""
    handle, _ = bindings.bind(one, 0, at)
    return outcomes.apply(HandleRescheduled(handle, "rank_lost", (5, 6), 3, b"xy"))


def test_a_request_whose_workers_die_again_and_again_ends_as_such() -> None:
    bindings, (one,) = table_with(1)
    bindings.incarnations[0] = 9
    outcomes = Outcomes(bindings, max_deaths=2)
    for deaths in (1, 2):
        event = lost(bindings, one, deaths, outcomes)
        assert isinstance(event, Rescheduled) and event.deaths == deaths
    event = lost(bindings, one, 3, outcomes)
    said = "its worker died 3 time(s) while it ran the request; policies.max_deaths is 2"
    assert isinstance(event, Finished)
    assert (event.finish_reason, event.output_tokens) == (FinishReason.ERROR, 2)
    assert (event.error, event.error_code) == (said, ErrorCode.CRASHES)
    (row,) = outcomes.take_final_rows()
    assert (row.offset, row.error, row.error_code) == (2, said, ErrorCode.CRASHES)
    assert (row.text_offset, row.text) == (3, b"xy")  # text that its last worker held back
    assert bindings.entry(one) is None
    assert isinstance(outcomes.apply(HandleReleased(event.handle, "rank_lost")), Released)


def test_only_a_death_while_it_was_bound_there_counts() -> None:
    bindings, (one,) = table_with(1)
    outcomes = Outcomes(bindings, max_deaths=0)
    assert isinstance(lost(bindings, one, 0, outcomes), Rescheduled)  # the rank was down
    bindings.incarnations[0] = 9
    handle, _ = bindings.bind(one, 0, 1)
    bindings.incarnations[0] = 0  # the bind was on its way when the rank closed
    assert isinstance(outcomes.apply(HandleRescheduled(handle, "rank_lost")), Rescheduled)
    bindings.incarnations[0] = 9
    handle, _ = bindings.bind(one, 0, 2)
    bindings.incarnations[0] = 10  # the same, and the rank is up again
    assert isinstance(outcomes.apply(HandleRescheduled(handle, "rank_lost")), Rescheduled)
    for at, reason in enumerate(set(RescheduleReason) - {RescheduleReason.RANK_LOST}, 3):
        handle, _ = bindings.bind(one, 0, at % bindings.slots)
        event = outcomes.apply(HandleRescheduled(handle, str(reason)))
        assert event == Rescheduled(one, handle, reason, [], 0)
    assert isinstance(lost(bindings, one, 0, outcomes), Finished)


def test_an_abort_that_crosses_the_last_death_is_an_abort() -> None:
    bindings, (one,) = table_with(1)
    bindings.incarnations[0] = 9
    outcomes = Outcomes(bindings, max_deaths=0)
    handle, _ = bindings.bind(one, 0, 0)
    bindings.bindings[handle].aborting = True
    assert outcomes.apply(HandleRescheduled(handle, "rank_lost")) == Aborted(one, handle, 0)


def test_an_unknown_reason_changes_nothing() -> None:
    bindings, (one,) = table_with(1)
    handle, _ = bindings.bind(one, 0, 0)
    with pytest.raises(ValueError, match="whim"):
        Outcomes(bindings).apply(HandleRescheduled(handle, "whim"))
    assert bindings.find(one) is not None


def test_unbound_requests_end_with_a_final_row() -> None:
    bindings, (one, two) = table_with(1, 2)
    outcomes = Outcomes(bindings)
    assert outcomes.end_unbound(bindings.requests[1]) == Aborted(one, None, 0)
    outcomes.reject(bindings.requests[2], ErrorCode.INVALID, "too long")
    assert outcomes.take_final_rows() == [
        FinalRow(0, 1, 0, FinishReason.ABORT),
        FinalRow(0, 2, 0, FinishReason.ERROR, ErrorCode.INVALID, "too long"),
    ]
    assert outcomes.take_final_rows() == []
    assert bindings.entry(two) is None


def test_a_dead_processor_ends_what_it_held_and_what_it_may_not_have_delivered() -> None:
    bindings, (one, two, three, four) = table_with(1, 2, 3, 4)
    outcomes = Outcomes(bindings)
    ended, _ = bindings.bind(one, 0, 0)
    running, _ = bindings.bind(two, 0, 1)
    lingering, _ = bindings.bind(three, 0, 2)
    elsewhere, _ = bindings.bind(four, 1, 0)
    outcomes.apply(HandleFinished(ended, 2, -1, 5))
    outcomes.apply(HandleReleased(ended, "drained"))
    outcomes.apply(HandleFinished(lingering, 2, -1, 5))
    assert list(outcomes.processor_lost([0], "gone")) == [
        Finished(two, running, FinishReason.ERROR, 0, None, "gone", ErrorCode.LOST),
        Released(two, running, "processor_lost"),
        Released(three, lingering, "processor_lost"),
    ]
    rows = outcomes.take_final_rows()
    assert [row.key for row in rows] == [2, 1, 3]  # a kill may have eaten the rows of 1 and 3
    assert {(row.offset, row.finish_reason) for row in rows} == {
        (OFFSET_UNKNOWN, FinishReason.ERROR)
    }
    assert bindings.find(elsewhere) is not None
    assert list(outcomes.processor_lost([0], "gone")) == []
    assert outcomes.take_final_rows() == []
