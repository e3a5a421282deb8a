"""A refused request has one row, with a status and a reason."""

from __future__ import annotations

import logging

import pytest

from tests.worker.loop_fakes import bind
from tokenpipe.errors import FieldError, RequestRefused
from tokenpipe.extras import RowExtras
from tokenpipe.types import RowStatus
from tokenpipe.worker.refusals import Refusals


def test_each_error_is_a_row_with_its_reason() -> None:
    refusals = Refusals()
    assert not refusals
    errors = [
        KeyError("weights"),
        RequestRefused("the prompt is too long"),
        RequestRefused("there is no 'x'", "lora"),
        FieldError("top_k", "must be 0"),
    ]
    for handle, error in enumerate(errors, 6):
        refusals.add(bind(handle), error)
    assert refusals
    rows = refusals.take()
    assert not refusals and rows.handles.tolist() == [6, 7, 8, 9]
    refused, failed = RowStatus.REFUSED, RowStatus.ERROR
    assert rows.status.tolist() == [failed, refused, refused, refused]
    assert len(rows.tokens) == 0 and rows.counts.tolist() == [0] * 4
    assert rows.extras == {
        0: RowExtras(error="KeyError: 'weights'"),
        1: RowExtras(error="the prompt is too long"),
        2: RowExtras(error="lora: there is no 'x'", error_field="lora"),
        3: RowExtras(error="top_k: must be 0", error_field="top_k"),
    }


def test_refusals_of_dead_handles_are_forgotten() -> None:
    refusals = Refusals()
    refusals.add(bind(6), ValueError("why"))
    refusals.clear()
    assert not refusals


def test_they_are_logged_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    refusals = Refusals(lambda: now[0])
    with caplog.at_level(logging.WARNING, "tokenpipe.worker"):
        for handle in range(5):
            refusals.add(bind(handle, key=0xA), ValueError("why"))
        now[0] = 10.0
        refusals.add(bind(5, key=0xB), ValueError("why"))
    assert [record.message for record in caplog.records] == [
        "request 0xa is refused: ValueError: why",
        "request 0xb is refused: ValueError: why (4 more like this were not logged)",
    ]
