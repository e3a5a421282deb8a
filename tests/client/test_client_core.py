"""Requests begin, end, are given up and get into trouble; no socket anywhere."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.frames import Row, output_frame
from tokenpipe._core import Stream
from tokenpipe.client import ClientCore
from tokenpipe.client.client_core import DEEP, FRAMES_AT_ONCE
from tokenpipe.errors import LaneLost
from tokenpipe.types import ErrorCode, FinishReason, RequestOutputKind, SamplingParams, Usage
from tokenpipe.wire import Cancel

STOP, LENGTH, ABORT, ERROR = range(1, 5)


def make_core(
    stream_bytes: int = 1 << 20, ahead_s: float = 5.0, vocab_size: int | None = None
) -> ClientCore[Stream]:
    return ClientCore(
        incarnation=0xABCD_1234_5678,
        stream_type=Stream,
        stream_bytes=stream_bytes,
        ahead_s=ahead_s,
        vocab_size=vocab_size,
    )


def start(core: ClientCore[Stream], request_id: str | None = None, n: int = 1) -> list[Stream]:
    return core.open(core.expand([1, 2, 3], SamplingParams(n=n, seed=7), request_id))


def drain(stream: Stream) -> list[int]:
    tokens: list[int] = []
    while (item := stream.take()) is not None:
        assert item.offset == len(tokens)
        tokens += item.token_ids
    return tokens


def test_output_is_a_delta_with_all_a_user_asks_for() -> None:
    core = make_core()
    (stream,) = start(core, "r1")
    core.feed(output_frame(Row(stream.key, 0, [5, 6])), 0.0)
    core.feed(output_frame(Row(stream.key, 2, [7])), 0.0)
    item = stream.take()
    assert item is not None and not item.finished
    assert (item.request_id, item.index, item.offset, item.token_ids) == ("r1", 0, 0, [5, 6, 7])
    assert item.usage is None and item.logprobs is None and item.error is None
    core.feed(output_frame(Row(stream.key, 3, [9], STOP, 9)), 0.0)
    last = stream.take()
    assert last is not None and last.finish_reason is FinishReason.STOP and last.stop_reason == 9
    assert last.offset == 3 and last.usage == Usage(3, 4)
    assert stream.take() is None and stream.over and not stream.live
    assert len(core) == 0 and core._ids.names == [] and core.take_outgoing() == []


def test_a_flood_is_fed_a_frame_at_a_time_so_that_items_stay_small() -> None:
    core = make_core()
    (stream,) = start(core)
    known = [core.frames_at_once]
    for offset, size in ((0, DEEP - 1), (DEEP - 1, DEEP), (2 * DEEP - 1, 1)):
        core.feed(output_frame(Row(stream.key, offset, [5] * size)), 0.0)
        known.append(core.frames_at_once)
    core.feed(output_frame(), 0.0)  # of nobody
    assert known == [FRAMES_AT_ONCE, FRAMES_AT_ONCE, 1, FRAMES_AT_ONCE]
    assert core.frames_at_once == FRAMES_AT_ONCE


@given(st.data())
def test_any_rows_in_any_repetition_give_each_token_once(data: st.DataObject) -> None:
    tokens = list(range(100, 100 + data.draw(st.integers(0, 40))))
    core = make_core()
    (stream,) = start(core)
    rows: list[Row] = []
    at = 0
    while at < len(tokens):
        count = data.draw(st.integers(1, 5))
        rows.append(Row(stream.key, at, tokens[at : at + count]))
        at += count
    final = Row(stream.key, len(tokens), [], LENGTH)
    sent: list[Row] = []
    got: list[int] = []
    for row in rows:
        back = data.draw(st.integers(0, len(sent)))
        for again in sent[len(sent) - back :]:
            core.feed(output_frame(again), 0.0)
        wider = max(0, row.offset - data.draw(st.integers(0, 6)))
        core.feed(output_frame(Row(stream.key, wider, tokens[wider : row.offset] + row.tokens)), 0)
        sent.append(row)
        if data.draw(st.booleans()):
            item = stream.take()
            got += item.token_ids if item else []
    core.feed(output_frame(final), 0.0)
    for again in sent:
        core.feed(output_frame(again), 0.0)  # late: nobody is there any more
    last = stream.take()
    assert last is not None and last.finish_reason is FinishReason.LENGTH
    assert got + last.token_ids == tokens
    assert stream.take() is None


@given(st.permutations(range(8)), st.integers(0, 8))
def test_rows_that_come_too_early_wait_for_what_is_before(order: list[int], cut: int) -> None:
    core = make_core()
    (stream,) = start(core)
    for i in order:
        finish = LENGTH if i == 7 else 0
        core.feed(output_frame(Row(stream.key, 3 * i, [10 * i, 1, 2], finish)), 0.0)
        if i == cut:
            core.feed(output_frame(Row(stream.key, 3 * i, [10 * i, 1, 2], finish)), 0.0)
    assert drain(stream) == [token for i in range(8) for token in (10 * i, 1, 2)]
    assert stream.over and core.next_deadline is None


def test_a_missing_piece_ends_that_request_at_the_deadline() -> None:
    core = make_core(ahead_s=5.0)
    first, second = start(core)[0], start(core)[0]
    core.feed(output_frame(Row(first.key, 4, [1]), Row(second.key, 0, [8])), 10.0)
    assert core.next_deadline == 15.0
    core.tick(14.9)
    assert first.take() is None
    core.tick(15.0)
    item = first.take()
    assert item is not None and item.finish_reason is FinishReason.ERROR
    assert item.error == "gap: output tokens 0..3 are missing, 5 s after later output"
    assert item.error_code is ErrorCode.GAP
    assert drain(second) == [8] and second.live
    assert core.take_outgoing() == [Cancel(first.key)]


def test_a_client_that_reads_late_goes_on_waiting_for_a_missing_piece() -> None:
    """As long as what it reads was made before the row that came early."""
    core = make_core(ahead_s=5.0)
    late, other = start(core)[0], start(core)[0]
    core.feed(output_frame(Row(late.key, 2, [], LENGTH)), 10.0)  # over the engine's own lane
    for i, now in enumerate((14.0, 18.0, 22.0)):
        core.feed(output_frame(Row(other.key, i, [i]), made_s=now - 12.5), now)
        core.tick(now)
    assert core.next_deadline == 27.0
    core.feed(output_frame(Row(other.key, 3, [3]), made_s=10.5), 23.0)
    core.feed(output_frame(Row(other.key, 4, [4])), 24.0)  # nobody knows when
    assert core.next_deadline == 27.0
    core.feed(output_frame(Row(late.key, 0, [7, 8]), made_s=9.9), 26.0)
    assert drain(late) == [7, 8] and late.over and core.next_deadline is None


def test_when_its_source_is_dead_an_early_final_row_speaks_soon() -> None:
    core = make_core()
    (stream,) = start(core)
    core.feed(
        output_frame(
            Row(stream.key, 4, [], ERROR, error="it died", error_code=3, error_field="seed")
        ),
        10.0,
    )
    core.source_lost(10.5)
    core.tick(11.5)
    item = stream.take()
    assert item is not None and (item.error, item.error_field) == ("it died", "seed")
    assert item.error_code is ErrorCode.LOST


def test_the_field_that_a_final_row_blames() -> None:
    core = make_core()
    streams = [start(core)[0] for _ in range(3)]
    core.feed(
        output_frame(
            Row(streams[0].key, 0, [5], ERROR, error="größer", error_code=1, error_field="größe"),
            Row(streams[1].key, 0, [], ERROR, error="why", error_code=1),
            Row(streams[2].key, 0, [5]),
        ),
        10.0,
    )
    items = [stream.take() for stream in streams]
    assert [item and (item.error, item.error_field) for item in items] == [
        ("größer", "größe"),
        ("why", None),
        (None, None),
    ]


def test_a_field_longer_than_the_error_is_none() -> None:
    core = make_core()
    (stream,) = start(core)
    frame = output_frame(Row(stream.key, 0, [], ERROR, error="why", error_code=1))
    long = output_frame(Row(stream.key, 0, [], ERROR, error="w", error_code=1, error_field="hy"))
    at = next(i for i, (a, b) in enumerate(zip(frame, long, strict=True)) if a != b)
    assert (frame[at], long[at]) == (0, 2)
    core.feed(frame[:at] + b"\x04" + frame[at + 1 :], 10.0)
    item = stream.take()
    assert item is not None and (item.error, item.error_field) == ("why", None)


@pytest.mark.parametrize(
    ("finish", "said", "code"),
    [
        (ERROR, 1, ErrorCode.INVALID),
        (ERROR, 6, ErrorCode.INTERNAL),
        (ERROR, 0, ErrorCode.INTERNAL),  # of a writer that does not say it
        (ERROR, 200, ErrorCode.INTERNAL),  # of a later one
        (LENGTH, 1, ErrorCode.NONE),
    ],
)
def test_the_error_code_of_a_final_row(finish: int, said: int, code: ErrorCode) -> None:
    core = make_core()
    (stream,) = start(core)
    core.feed(output_frame(Row(stream.key, 0, [5], 0)), 10.0)
    before = stream.take()
    core.feed(output_frame(Row(stream.key, 1, [], finish, error="why", error_code=said)), 10.0)
    item = stream.take()
    assert before is not None and before.error_code is ErrorCode.NONE
    assert item is not None and item.error_code is code


def test_what_is_held_is_bounded() -> None:
    core = make_core(stream_bytes=4000)
    (stream,) = start(core)
    for offset in range(1, 100):
        core.feed(output_frame(Row(stream.key, offset, [1] * 20)), 0.0)
    item = stream.take()
    assert item is not None and item.error is not None and "no room" in item.error
    assert item.error_code is ErrorCode.GAP


@pytest.mark.case("B19")
def test_a_slow_consumer_ends_alone() -> None:
    core = make_core(stream_bytes=400)
    slow, fast = start(core)[0], start(core)[0]
    taken: list[int] = []
    for i in range(200):
        core.feed(output_frame(Row(slow.key, i, [i]), Row(fast.key, i, [i])), 0.0)
        item = fast.take()
        assert item is not None
        taken += item.token_ids
    assert taken == list(range(200))
    item = slow.take()
    assert item is not None and item.finish_reason is FinishReason.ERROR
    assert item.token_ids == list(range(100))
    assert item.error == "slow_consumer: more than 400 bytes were not taken"
    assert item.error_code is ErrorCode.SLOW
    assert core.take_outgoing() == [Cancel(slow.key)]
    assert core.counters["slow_streams"] == 1 and core.counters["late_rows"] == 99


@pytest.mark.case("B38")
def test_abort_is_idempotent_in_every_state() -> None:
    core = make_core()
    assert core.abort("unknown") == 0
    (stream,) = start(core, "r")
    for _ in range(100):
        assert core.abort("r") == 1
    assert core.take_outgoing() == [Cancel(stream.key)]
    core.feed(output_frame(Row(stream.key, 0, [1], ABORT)), 0.0)
    item = stream.take()
    assert item is not None and item.finish_reason is FinishReason.ABORT
    assert core.abort("r") == 0 and core.take_outgoing() == []
    core.feed(output_frame(Row(stream.key, 0, [1], ABORT)), 0.0)
    assert stream.take() is None
    stream.drop()
    assert core.take_outgoing() == []


@pytest.mark.case("B35")
def test_two_live_requests_may_share_an_external_id() -> None:
    core = make_core()
    (first,), (second,) = start(core, "r1"), start(core, "r1")
    (other,) = start(core, "r10")
    core.feed(output_frame(Row(first.key, 0, [1]), Row(second.key, 0, [2], LENGTH)), 0.0)
    assert drain(first) == [1] and drain(second) == [2] and second.over and not first.over
    assert core.abort("r1") == 1
    assert core.take_outgoing() == [Cancel(first.key)]
    assert other.live


@pytest.mark.case("B39")
def test_tables_are_empty_after_ten_thousand_ends_of_all_kinds() -> None:
    core = make_core()
    for i in range(10_000):
        (stream,) = start(core, f"r{i % 7}")
        if i % 3 == 0:
            core.feed(output_frame(Row(stream.key, 0, [1], ABORT)), 0.0)
        elif i % 3 == 1:
            core.abort(f"r{i % 7}")
            stream.drop()
        del stream  # given up by letting it go
    assert len(core) == 0 and core._ids.names == []
    cancelled = [message.key for message in core.take_outgoing()]
    assert len(set(cancelled)) == 6666


def test_failure_reaches_every_open_stream_after_what_it_has() -> None:
    core = make_core()
    (first,), (second,) = start(core), start(core)
    core.feed(output_frame(Row(first.key, 0, [1]), Row(second.key, 0, [2], STOP)), 0.0)
    core.fail(LaneLost("the pipeline is gone"))
    item = first.take()
    assert item is not None and item.token_ids == [1]
    with pytest.raises(LaneLost):
        first.take()
    assert first.over and first.take() is None
    assert drain(second) == [2]  # its end was known
    with pytest.raises(LaneLost):
        start(core)
    assert len(core) == 0


def test_a_failure_is_raised_by_an_exception_of_its_own_each_time() -> None:
    core = make_core()
    streams = [*start(core), *start(core)]
    core.fail(LaneLost("the pipeline is gone"))
    raised: list[LaneLost] = []
    attempts: list[Callable[[], object]] = [stream.take for stream in streams]
    attempts += [lambda: start(core), lambda: start(core)]
    for attempt in attempts:
        with pytest.raises(LaneLost, match=r"^the pipeline is gone$") as caught:
            attempt()
        raised.append(caught.value)
    assert len({id(error) for error in raised}) == 4
    depths = [len(list(traceback.walk_tb(error.__traceback__))) for error in raised]
    assert depths[0] == depths[1] and depths[2] == depths[3]
    assert core.error is not None and core.error.__traceback__ is None


def test_a_gap_ends_every_open_request_by_name() -> None:
    core = make_core()
    (stream,) = start(core)
    core.gap("o0.0")
    item = stream.take()
    assert item is not None and item.error == "gap: output was lost on lane o0.0"


@pytest.mark.case("B50")
def test_a_bad_frame_harms_only_itself() -> None:
    core = make_core()
    (stream,) = start(core)
    good = output_frame(Row(stream.key, 0, [1, 2]))
    for bad in (b"", b"\x94", good[:-1], good + b"\0", b"\x80\x04\x95junk"):
        core.feed(bad, 0.0)
    core.feed(good, 0.0)
    assert drain(stream) == [1, 2]
    assert core.counters["bad_frames"] == 5


@pytest.mark.case("B64")
def test_logprobs_stay_with_their_tokens() -> None:
    core = make_core()
    (stream,) = start(core)
    entry = ([5, 6, 7], [-0.5, math.nan, -math.inf], 1)
    other = ([8, 9], [-1.0, -2.0], 3)
    core.feed(output_frame(Row(stream.key, 0, [4])), 0.0)
    core.feed(output_frame(Row(stream.key, 1, [5, 5], logprobs=[entry, entry])), 0.0)
    core.feed(output_frame(Row(stream.key, 2, [5, 8], logprobs=[other, other])), 0.0)  # one repeat
    first = stream.take(2)
    assert first is not None and first.token_ids == [4, 5] and first.logprobs is not None
    assert first.logprobs[0].token_ids == () and first.logprobs[0].rank == 0
    assert first.logprobs[1].token_ids == (5, 6, 7) and first.logprobs[1].rank == 1
    assert first.logprobs[1].logprobs == (-0.5, None, -math.inf)
    rest = stream.take()
    assert rest is not None and rest.logprobs is not None
    assert [entry.token_ids for entry in rest.logprobs] == [(5, 6, 7), (8, 9)]
    core.feed(output_frame(Row(stream.key, 4, [1])), 0.0)
    plain = stream.take()
    assert plain is not None and plain.logprobs is None


@pytest.mark.case("B64")
def test_a_logprob_of_nan_is_none_and_an_infinite_one_stays() -> None:
    core = make_core()
    (stream,) = start(core)
    top = ([7, 1, 2, 3, 4, 5], [math.nan, -0.5, *[-math.inf] * 4], 2)
    odd = ([8, 9], [math.inf, math.nan], 1)
    core.feed(output_frame(Row(stream.key, 0, [7], logprobs=[top])), 0.0)
    core.feed(output_frame(Row(stream.key, 1, [8], finish=1, logprobs=[odd])), 0.0)
    out = stream.take()
    assert out is not None and out.logprobs is not None
    assert out.logprobs[0].logprobs == (None, -0.5, *[-math.inf] * 4)
    assert out.logprobs[1].logprobs == (math.inf, None)
    assert out.finished


def test_text_comes_with_its_tokens_once_however_often_it_is_sent() -> None:
    core = make_core()
    (stream,) = start(core)
    core.feed(output_frame(Row(stream.key, 0, [1], text="gr", text_offset=0)), 0.0)
    core.feed(output_frame(Row(stream.key, 0, [1, 2], text="gr\u00fcn", text_offset=0)), 0.0)
    core.feed(output_frame(Row(stream.key, 1, [2], text="\u00fcn", text_offset=2)), 0.0)
    out = stream.take()
    assert out is not None
    assert (out.token_ids, out.text) == ([1, 2], "gr\u00fcn")
    core.feed(output_frame(Row(stream.key, 2, [], text="!", text_offset=5)), 0.0)
    out = stream.take()
    assert out is not None and (out.token_ids, out.text, out.offset) == ([], "!", 2)


def test_text_that_is_missing_ends_its_request_by_name() -> None:
    core = make_core()
    (stream,) = start(core)
    core.feed(output_frame(Row(stream.key, 0, [1], text="ab", text_offset=0)), 0.0)
    core.feed(output_frame(Row(stream.key, 1, [2], text="z", text_offset=3)), 0.0)
    out = stream.take()
    assert out is not None and out.finish_reason == FinishReason.ERROR
    assert (out.text, out.token_ids) == ("ab", [1])
    assert "byte 3" in (out.error or "")
    assert core.counters["lost_streams"] == 1


def test_kinds_of_output() -> None:
    core = make_core(stream_bytes=40)
    kinds = {}
    for kind in RequestOutputKind:
        params = SamplingParams(max_tokens=99, output_kind=kind)
        (kinds[kind],) = core.open(core.expand([1], params))
    for i in range(3):
        for stream in kinds.values():
            end = 2 if i == 2 else 0
            row = Row(stream.key, 4 * i, [i] * 4, finish=end, text="abcd", text_offset=4 * i)
            core.feed(output_frame(row), 0.0)
        taken = {kind: stream.take() for kind, stream in kinds.items()}
        delta, grown = taken[RequestOutputKind.DELTA], taken[RequestOutputKind.CUMULATIVE]
        assert delta is not None and grown is not None
        assert (delta.text, delta.offset, len(delta.token_ids)) == ("abcd", 4 * i, 4)
        assert (grown.text, grown.offset) == ("abcd" * (i + 1), 0)
        assert len(grown.token_ids) == 4 * (i + 1)
        assert (taken[RequestOutputKind.FINAL_ONLY] is None) == (i < 2)
        assert (grown.usage is None) == (i < 2)
    last = taken[RequestOutputKind.FINAL_ONLY]
    assert last is not None and last.usage is not None
    assert (last.text, last.usage.completion_tokens) == ("abcd" * 3, 12)
    assert all(stream.take() is None and stream.over for stream in kinds.values())
