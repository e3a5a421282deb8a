"""What a request ends with where its worker refused it or failed on it."""

from __future__ import annotations

import pytest

from tests.processor.rig import Rig, Row
from tokenpipe._core import MAX_ERROR
from tokenpipe.extras import RowExtras
from tokenpipe.processor.codes import Cause
from tokenpipe.processor.row_errors import REFUSED, row_error
from tokenpipe.types import ErrorCode, RowStatus, make_handle
from tokenpipe.wire import Abort, HandleFinished, pack_extras
from tokenpipe.wire.extras_format import ERROR, RECORD

HANDLE = make_handle(3, 2, 1)
WHERE = "step 7, dp 3, tp 0, slot 2: the worker failed on this row"


def extras(error: str = "", field: str = "") -> bytes:
    return pack_extras(RowExtras(error=error, error_field=field), 0)


def test_every_cause_has_a_code_and_a_text() -> None:
    for cause in Cause:
        error = row_error(cause, 5, HANDLE, 7)
        assert error.text and error.code is not ErrorCode.NONE
    assert row_error(Cause.WORKER, 3, HANDLE, 7) == (ErrorCode.INTERNAL, WHERE, "")
    assert row_error(Cause.REFUSED, 6, HANDLE, 7) == (ErrorCode.INVALID, REFUSED, "")


def test_a_reason_is_the_whole_text_of_a_refusal_and_the_end_of_a_failure() -> None:
    refused = row_error(Cause.REFUSED, 6, HANDLE, 7, extras("lora: no such adapter", "lora"))
    assert refused == (ErrorCode.INVALID, "lora: no such adapter", "lora")
    failed = row_error(Cause.WORKER, 3, HANDLE, 7, extras("KeyError: 'x'"))
    assert failed == (ErrorCode.INTERNAL, f"{WHERE}: KeyError: 'x'", "")
    malformed = RECORD.pack(ERROR, 0)
    assert row_error(Cause.WORKER, 3, HANDLE, 7, malformed) == (ErrorCode.INTERNAL, WHERE, "")


@pytest.mark.parametrize("parked", [False, True])
def test_a_refused_row_ends_its_request_with_text_and_field(parked: bool) -> None:
    rig = Rig()
    h = rig.new_handle() if parked else rig.bind(1)
    other = rig.bind(2, slot=1)
    rig.feed(Row(h, (), RowStatus.REFUSED, extras=extras("n: one is enough", "n")), Row(other, [5]))
    if parked:
        assert rig.reports() == []
        rig.bind(1, handle=h)
    outcome = HandleFinished(
        h, 4, -1, 0, "n: one is enough", error_code=ErrorCode.INVALID, error_field="n"
    )
    assert rig.ended() == [outcome]
    stream = rig.stream(1)
    assert (stream.error, stream.error_field) == ("n: one is enough", "n")
    assert (stream.finish, stream.error_code, stream.extras) == (4, ErrorCode.INVALID, b"")
    assert rig.stream(2).tokens == [5] and not rig.stream(2).finish
    rig.drain(h)
    assert rig.processor.counters["bindings"] == 1


def test_the_reason_of_an_error_row_reaches_the_client() -> None:
    rig = Rig()
    h = rig.bind(1)
    rig.feed(Row(h, [5]))
    rig.feed(Row(h, (), RowStatus.ERROR, extras=extras("out of blocks")))
    (outcome,) = rig.ended()
    text = "step 2, dp 0, tp 0, slot 0: the worker failed on this row: out of blocks"
    assert outcome == HandleFinished(h, 4, -1, 1, text, error_code=ErrorCode.INTERNAL)
    assert rig.stream(1).error == text and rig.stream(1).tokens == [5]


def test_a_long_text_is_cut_at_a_character_and_keeps_its_field() -> None:
    rig = Rig()
    h = rig.bind(1)
    rig.feed(Row(h, (), RowStatus.REFUSED, extras=extras("ä" * 2000, "größe")))
    stream = rig.stream(1)
    room = MAX_ERROR - len("größe".encode())
    assert (stream.error, stream.error_field) == ("ä" * (room // 2), "größe")


def test_a_failures_text_is_cut_with_its_place_in_front() -> None:
    rig = Rig()
    h = rig.bind(1)
    rig.feed(Row(h, (), RowStatus.ERROR, extras=extras("€" * 500)))
    error = rig.stream(1).error
    assert error.startswith("step 1") and set(error.split(": ")[-1]) == {"€"}
    assert MAX_ERROR - 3 < len(error.encode()) <= MAX_ERROR


@pytest.mark.parametrize("raw", [b"\x09", extras("x") + RECORD.pack(99, 4000) + bytes(4000)])
def test_extras_that_cannot_be_read_leave_the_status(raw: bytes) -> None:
    """Malformed records, and more bytes than are kept."""
    rig = Rig()
    h = rig.bind(1)
    rig.feed(Row(h, (), RowStatus.REFUSED, extras=raw))
    assert rig.stream(1).error == REFUSED
    assert rig.stream(1).error_code == ErrorCode.INVALID


def test_parked_reasons_count_as_parked_bytes() -> None:
    rig = Rig(park_bytes=3000)
    first, second = rig.new_handle(0), rig.new_handle(1)
    long = extras("x" * MAX_ERROR)
    rig.feed(*(Row(h, (), RowStatus.REFUSED, extras=long + RECORD.pack(99, 900) + bytes(900))
               for h in (first, second)))  # fmt: skip
    rig.bind(1, handle=first)
    rig.bind(2, handle=second)
    assert rig.stream(1).error_code == ErrorCode.INVALID
    assert rig.processor.counters["park_lost"] == 1  # the second is handed back


def test_a_refusal_behind_the_end_changes_nothing() -> None:
    rig = Rig()
    h = rig.bind(1)
    rig.command(Abort(h))
    rig.feed(Row(h, (), RowStatus.REFUSED, extras=extras("too late")))
    assert rig.stream(1).finish == 3 and rig.stream(1).error == ""
