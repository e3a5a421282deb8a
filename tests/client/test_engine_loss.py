"""A client's core when its engine dies: who ends, who waits, what the next engine is sent."""

from __future__ import annotations

import pytest

from tests.client.frames import Row, output_frame
from tokenpipe._core import Stream
from tokenpipe.client import ClientCore
from tokenpipe.errors import LaneFull, LaneLost
from tokenpipe.types import ErrorCode, FinishReason, RequestOutput, SamplingParams
from tokenpipe.wire import Cancel, Submit

GONE = LaneLost("the engine is gone")


def make_core(restarts: bool, most_waiting: int = 100) -> ClientCore[Stream]:
    return ClientCore(
        incarnation=0xABCD_1234_5678,
        stream_type=Stream,
        stream_bytes=1 << 20,
        ahead_s=5.0,
        restarts=restarts,
        most_waiting=most_waiting,
    )


def start(core: ClientCore[Stream], name: str | None = None) -> tuple[Stream, Submit]:
    submits = core.expand([1, 2, 3], SamplingParams(), name)
    (stream,) = core.open(submits)
    return stream, submits[0]


def last(stream: Stream) -> RequestOutput:
    item: RequestOutput | None = stream.take()
    assert item is not None and item.finished and stream.take() is None
    return item


def test_without_a_restart_every_request_ends_as_lost() -> None:
    core = make_core(False)
    (begun, _), (waiting, _) = start(core), start(core)
    core.feed(output_frame(Row(begun.key, 0, [5])), 0.0)
    core.engine_lost(GONE)
    for stream, tokens in ((begun, [5]), (waiting, [])):
        item = last(stream)
        assert item.token_ids == tokens and item.finish_reason is FinishReason.ERROR
        assert (item.error_code, item.error) == (ErrorCode.LOST, "the engine is gone")
    with pytest.raises(LaneLost):
        start(core)
    assert len(core) == 0 and core.away is None and isinstance(core.error, LaneLost)
    assert core.take_outgoing() == [] and core.counters["lost_streams"] == 2


def test_what_has_no_output_goes_to_the_next_engine_in_order() -> None:
    core = make_core(True)
    started = [start(core) for _ in range(5)]
    core.feed(output_frame(Row(started[1][0].key, 0, [5])), 0.0)
    started[2][0].drop()
    core.engine_lost(GONE)
    core.engine_lost(LaneLost("again"))
    assert last(started[1][0]).error_code is ErrorCode.LOST
    assert isinstance(core.away, LaneLost) and core.error is None
    late = start(core)  # nobody is there, so it waits
    started[3][0].drop()
    assert core.take_outgoing() == []
    core.engine_back()
    assert core.take_outgoing() == [started[0][1], started[4][1], late[1]]
    assert core.away is None
    core.feed(output_frame(Row(late[0].key, 0, [7], 2)), 0.0)
    assert last(late[0]).token_ids == [7]


def test_an_abort_while_nobody_is_there_ends_the_request_at_once() -> None:
    core = make_core(True)
    (asked, _), (waiting, _), (begun, _) = start(core, "a"), start(core, "b"), start(core, "c")
    core.feed(output_frame(Row(begun.key, 0, [5])), 0.0)
    assert core.abort("a") == core.abort("c") == 1
    core.engine_lost(GONE)  # the engine may not have heard of these aborts
    assert last(asked).finish_reason is last(begun).finish_reason is FinishReason.ABORT
    assert core.abort("b") == 1 and core.abort("b") == 0
    assert last(waiting).finish_reason is FinishReason.ABORT
    core.engine_back()
    assert core.take_outgoing() == [] and len(core) == 0


def test_so_many_requests_wait_and_no_more() -> None:
    core = make_core(True, most_waiting=2)
    first = start(core)
    core.engine_lost(GONE)
    second, _ = start(core)
    with pytest.raises(LaneFull, match="2 request"):
        start(core)
    second.drop()
    third = start(core)
    core.engine_back()
    assert core.take_outgoing() == [first[1], third[1]]


def test_at_the_deadline_all_end() -> None:
    core = make_core(True)
    waiting, _ = start(core)
    core.engine_lost(GONE)
    core.give_up(LaneLost("no engine came"))
    core.give_up(LaneLost("again"))
    item = last(waiting)
    assert (item.error_code, item.error) == (ErrorCode.LOST, "no engine came")
    with pytest.raises(LaneLost, match="no engine came"):
        start(core)


def test_a_request_that_the_next_engine_cannot_take_ends() -> None:
    core = make_core(True)
    waiting, submit = start(core)
    core.refuse([submit, Cancel(99)], "it is too large")
    item = last(waiting)
    assert (item.error_code, item.error) == (ErrorCode.INVALID, "it is too large")
