"""What any caller can cause is one line in ten seconds."""

from __future__ import annotations

import logging

import pytest

from tokenpipe.api.event_log import PERIOD_S, EventLog


@pytest.mark.case("F02")
def test_a_kind_is_one_line_in_a_period(caplog: pytest.LogCaptureFixture) -> None:
    events = EventLog(logging.getLogger("it"))
    events.flush(0.0)
    for _ in range(1000):
        events.count("callers")
    events.flush(5.0)
    events.count("callers")
    events.count("others")
    events.flush(6.0)
    events.flush(5.0 + PERIOD_S)
    events.flush(100.0)
    assert [record.getMessage() for record in caplog.records] == [
        "callers: 1000",
        "others: 1",
        "callers: 1",
    ]
