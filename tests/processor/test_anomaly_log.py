"""Rows that belong to nobody are named in the log, at a limited rate."""

from __future__ import annotations

import pytest

from tests.conftest import Clock
from tokenpipe.processor.anomaly_log import LOOK_S, PERIOD_S, WATCHED, AnomalyLog
from tokenpipe.types import FIRST_GENERATION, make_handle


def test_only_what_has_grown_is_logged(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    log = AnomalyLog(3, clock)
    log.look({"rows": 9, "stale": 0}, clock())
    assert caplog.messages == [] and log.due == clock() + LOOK_S
    log.look({"rows": 99, "bad_frames": 2}, clock.advance(LOOK_S))
    assert caplog.messages == [f"processor 3: 2 {WATCHED['bad_frames']} (bad_frames)"]
    log.look({"rows": 999, "bad_frames": 2}, clock.advance(LOOK_S))
    assert len(caplog.messages) == 1


def test_the_newest_handle_is_named_in_its_parts(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    log = AnomalyLog(0, clock)
    handle = make_handle(2, 5, FIRST_GENERATION)
    log.look({"stale": 1, "stale_handle": handle, "park_lost": 4}, clock())
    assert (
        f"the newest is {handle}: dp 2, slot 5, generation {FIRST_GENERATION}" in caplog.messages[0]
    )
    assert "not a handle" not in caplog.messages[0]
    assert caplog.messages[1].endswith("(park_lost)")


def test_a_number_that_no_pipeline_gave_is_called_so(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    AnomalyLog(0, clock).look({"stale": 1, "stale_handle": 2}, clock())
    assert caplog.messages[0].endswith("a slot's number is not a handle")


def test_a_flood_is_a_line_in_a_while_for_each_kind(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    log = AnomalyLog(0, clock)
    for looks in range(1, 1 + 2 * int(PERIOD_S / LOOK_S)):
        log.look({"stale": looks, "bad_rows": looks}, clock.advance(LOOK_S))
    assert len(caplog.messages) == 4
    assert "more like this were not logged" in caplog.messages[-1]
