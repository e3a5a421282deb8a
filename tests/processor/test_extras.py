"""Extras in the table: what they count for, what they wait for; an end without tokens."""

from __future__ import annotations

import pytest

from tests.processor import beside
from tests.processor.rig import LANE, Rig, Row
from tokenpipe.extras import RowExtras
from tokenpipe.types import RowStatus
from tokenpipe.wire import (
    CloseClient,
    HandleFinished,
    HandleReleased,
    HandleRescheduled,
    Preempt,
    pack_extras,
)
from tokenpipe.wire.extras_format import WRAP

STOP, ERROR = 1, 4


def extra(size: int, byte: bytes = b"x") -> bytes:
    return pack_extras(RowExtras(custom=byte * size), 0)


@pytest.mark.parametrize("parked", [False, True])
@pytest.mark.parametrize("tokens", [(), (5, 6)])
def test_a_worker_may_say_that_a_request_is_complete(parked: bool, tokens: tuple[int, ...]) -> None:
    rig = Rig()
    handle = rig.new_handle()
    if not parked:
        rig.bind(9, handle=handle)
    rig.feed(Row(handle, (), extras=extra(1, b"a")))
    rig.feed(Row(handle, tokens, RowStatus.FINISHED, extras=extra(1, b"b")))
    rig.feed(Row(handle, (7,), extras=extra(1, b"c")))  # an overrun
    if parked:
        rig.bind(9, handle=handle)
    got = rig.stream(9)
    assert (got.tokens, got.finish, got.stop_reason) == (list(tokens), STOP, -1)
    assert beside.read(got.extras, len(tokens), last=True).custom == [(0, b"a"), (0, b"b")]
    assert rig.reports() == [HandleFinished(handle, STOP, -1, len(tokens))]
    rig.drain(handle)
    assert rig.reports() == [HandleReleased(handle, "drained")]
    assert rig.processor.counters["overrun"] == 1


def test_a_stop_in_the_row_comes_before_its_status() -> None:
    rig = Rig()
    handle = rig.bind(9, stop_token_ids=(6,))
    rig.feed(Row(handle, (5, 6, 7), RowStatus.FINISHED))
    assert rig.reports() == [HandleFinished(handle, STOP, 6, 2)]


def test_what_came_beside_no_token_waits_for_one() -> None:
    rig = Rig()
    handle = rig.bind(9)
    rig.feed(Row(handle, (), extras=extra(100)))
    assert rig.processor.unsent_bytes(0) == 0
    assert rig.processor.flush(0, LANE) is None
    rig.feed(Row(handle, (5,)))
    got = rig.stream(9)
    assert (got.tokens, got.extras[: WRAP.size]) == ([5], WRAP.pack(0, 0, 0, 105))


def test_too_much_beside_no_token_ends_that_request() -> None:
    rig = Rig(merge_bytes=2000)
    handle, other = rig.bind(9), rig.bind(8, slot=1)
    rig.feed(Row(handle, (), extras=extra(1100)), Row(other, (), extras=extra(300)))
    rig.feed(Row(handle, (), extras=extra(1100)), Row(other, (5,)))
    (error,) = (r for r in rig.ended() if isinstance(r, HandleFinished))
    assert error.handle == handle and error.finish == ERROR
    assert error.error.endswith(
        "slot 0: rows without tokens brought too many bytes of extras, the last one 1105"
    )
    assert rig.stream(9).finish == ERROR and rig.stream(8).tokens == [5]


@pytest.mark.case("B19")
def test_extras_count_for_what_a_client_lacks() -> None:
    rig = Rig(merge_bytes=1000)
    slow, other = rig.bind(1), rig.bind(2, slot=1, client=1)
    rig.feed(Row(slow, (5,), extras=extra(500)), Row(other, (5,)))
    assert rig.processor.unsent_bytes(0) > 500
    rig.feed(Row(slow, (6,), extras=extra(600)), Row(other, (6,)))
    (ended,) = (r for r in rig.reports() if isinstance(r, HandleFinished))
    assert ended.handle == slow and ended.error.startswith("slow_client")
    got = rig.stream(1)
    assert got.finish == ERROR and not got.extras and rig.processor.unsent_bytes(0) == 0
    assert rig.stream(2, client=1).tokens == [5, 6]


def test_nothing_is_kept_for_a_client_that_is_gone() -> None:
    rig = Rig()
    handle = rig.bind(1)
    rig.feed(Row(handle, (5,), extras=extra(100)))
    rig.command(CloseClient(0))
    rig.feed(Row(handle, (), extras=extra(100)), Row(handle, (6,), extras=extra(100)))
    assert rig.processor.unsent_bytes(0) == 0
    rig.command(Preempt(handle))
    rig.drain(handle)
    outcome = rig.reports()[0]
    assert isinstance(outcome, HandleRescheduled) and outcome.output_token_ids == (5, 6)


def test_parked_extras_count_as_parked() -> None:
    rig = Rig(park_bytes=1000)
    handle = rig.new_handle()
    rig.feed(Row(handle, (5,), extras=extra(400)))
    assert rig.processor.counters["parked_bytes"] == 4 + 405 + WRAP.size
    rig.feed(Row(handle, (), extras=extra(700)))
    assert rig.processor.counters["park_lost"] == 1
    assert rig.processor.counters["parked_bytes"] == 0
    rig.bind(9, handle=handle)
    (outcome,) = rig.reports()
    assert isinstance(outcome, HandleRescheduled) and outcome.reason == "park_lost"


def test_an_interval_holds_extras_with_their_tokens_until_they_are_many() -> None:
    rig = Rig(merge_bytes=1 << 22)
    handle = rig.bind(9, stream_interval=5)
    rig.feed(Row(handle, (5,), extras=extra(10)))
    assert rig.stream(9).tokens == [5]
    rig.feed(Row(handle, (6,), extras=extra(10)))
    got = rig.stream(9)
    assert (got.tokens, len(got.extras)) == ([5], 31)
    rig.feed(Row(handle, (7,), extras=extra(1 << 20)))
    got = rig.stream(9)
    assert got.tokens == [5, 6, 7] and len(got.extras) > 1 << 20
