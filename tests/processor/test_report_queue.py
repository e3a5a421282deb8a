"""Reports keep their order, and those of a handle wait for its client."""

from __future__ import annotations

from tokenpipe.processor.report_queue import ReportQueue
from tokenpipe.wire import HandleFinished, HandleReleased, HandleRescheduled, RankOpened

OUTCOME, RELEASE = HandleRescheduled(5, "gap", (1, 2)), HandleReleased(5, "drained")
OTHER = HandleReleased(6, "drained")


def test_what_waits_for_nothing_is_taken_once_and_in_order() -> None:
    reports = ReportQueue()
    assert reports.take() == [] and reports.held == 0
    up = RankOpened(0, 1)
    reports.put(up)
    reports.put_for(6, OTHER)
    assert reports.take() == [up, OTHER]
    assert reports.take() == []


def test_what_follows_a_held_outcome_waits_behind_it_and_nobody_elses_does() -> None:
    reports = ReportQueue()
    reports.put_for(5, OUTCOME, hold=True)
    reports.put_for(5, RELEASE)
    reports.put_for(6, OTHER)
    assert reports.take() == [OTHER] and reports.held == 1
    reports.sent(6)
    assert reports.take() == []
    reports.sent(5)
    assert reports.take() == [OUTCOME, RELEASE] and reports.held == 0
    reports.put_for(5, RELEASE)
    assert reports.take() == [RELEASE]


def test_another_outcome_takes_the_place_of_the_held_one() -> None:
    reports = ReportQueue()
    reports.put_for(5, OUTCOME, hold=True)
    reports.put_for(5, RELEASE)
    slow = HandleFinished(5, 4, -1, 2, "slow_client")
    reports.replace(5, slow)
    assert reports.take() == [slow, RELEASE] and reports.held == 0
