"""Plays the cases from the field that a processor alone can answer."""

from __future__ import annotations

import itertools

import msgpack
import numpy as np
import pytest

from tests.processor.rig import LANE, Rig, Row
from tokenpipe import _core
from tokenpipe.errors import FrameError
from tokenpipe.types import ErrorCode, RowStatus, make_handle
from tokenpipe.wire import (
    Abort,
    HandleAborted,
    HandleFinished,
    HandleReleased,
    HandleRescheduled,
    Preempt,
    RanksDiffer,
)


@pytest.mark.case("B26")
def test_every_tp_rank_sends_and_exactly_one_copy_counts() -> None:
    rig = Rig(tp_size=4)
    h, g = rig.bind(1), rig.bind(2, slot=1)
    rig.command(Preempt(g))
    for tp in (3, 1, 0, 2):
        rows = [Row(h, [5, 6], k=2, position=0), Row(g, [], RowStatus.DRAINED)]
        rig.processor.feed(0, tp, rig.frame(rows, tp=tp, step=1), rig.now)
    assert rig.stream(1).tokens == [5, 6]
    assert [type(r) for r in rig.reports()] == [HandleRescheduled, HandleReleased]
    assert rig.processor.counters["tp_ignored"] == 3


@pytest.mark.case("B26")
def test_a_second_frame_of_a_step_adds_no_token() -> None:
    rig = Rig()
    h = rig.bind(1)
    rig.feed(Row(h, [5]), step=7)
    rig.feed(Row(h, [5], RowStatus.DRAINED), step=7)
    assert rig.stream(1).tokens == [5]
    assert rig.processor.counters["repeated"] == 1
    rig.command(Preempt(h))  # the drained row was heard all the same
    assert rig.reports() == [
        HandleRescheduled(h, "preempted", (5,)),
        HandleReleased(h, "drained"),
    ]


@pytest.mark.case("B27")
def test_tp_ranks_that_disagree_are_named_and_the_leader_counts() -> None:
    rig = Rig(tp_size=3, tp_policy="verify")
    h, g = rig.bind(1), rig.bind(2, slot=1)
    plan = {1: ([5], [8]), 2: ([6], [9]), 3: ([7], [10])}
    for step, (a, b) in plan.items():
        for tp in (1, 0, 2):
            rows = [
                Row(h, [99 if tp == 1 and step > 1 else a[0]], position=step - 1),
                Row(g, b, position=step - 1),
            ]
            rows = rows[::-1] if tp == 2 else rows  # the order of rows says nothing
            rig.processor.feed(0, tp, rig.frame(rows, tp=tp, step=step), rig.now)
    assert rig.reports() == [RanksDiffer(0, 1, 2, h)]
    assert rig.stream(1).tokens == [5, 6, 7]
    assert rig.stream(2).tokens == [8, 9, 10]
    assert rig.processor.counters["verified"] == 6


@pytest.mark.case("B30")
def test_only_the_drained_row_of_the_handle_hands_back() -> None:
    rig = Rig()
    other = rig.bind(1, slot=3)
    h = rig.bind(2, slot=1)
    rig.feed(Row(h, [5]), Row(other, [5]))
    rig.command(Preempt(h))
    rig.feed(Row(h, []), Row(other, [6]))  # nothing this step: no marker
    rig.feed(Row(other, [7]))  # absent: no marker
    rig.feed(Row(h, [6]))
    rig.feed(Row(other, [], RowStatus.DRAINED), Row(h, [7], RowStatus.DRAINED))
    assert rig.ended() == [HandleRescheduled(h, "preempted", (5, 6, 7))]
    assert rig.stream(2).tokens == [5, 6, 7]


@pytest.mark.case("B31")
@pytest.mark.parametrize("answered", [True, False])
def test_aborting_the_whole_batch_frees_every_slot(answered: bool) -> None:
    rig = Rig()
    handles = [rig.bind(key, slot=key) for key in range(4)]
    rig.feed(*(Row(h, [5]) for h in handles))
    for h in handles:
        rig.command(Abort(h))
    if answered:
        rig.feed(*(Row(h, [], RowStatus.DRAINED) for h in handles))
    else:
        rig.pass_time(10)  # the worker polls, and says nothing
    reports = rig.reports()
    reason = "drained" if answered else "drained_timeout"
    assert [r for r in reports if isinstance(r, HandleAborted)] == [
        HandleAborted(h, 1) for h in handles
    ]
    assert [r for r in reports if isinstance(r, HandleReleased)] == [
        HandleReleased(h, reason) for h in handles
    ]
    rig.flush()
    assert rig.processor.counters["bindings"] == 0


@pytest.mark.case("B32")
@pytest.mark.parametrize(
    ("depth", "width", "at", "same_slot"),
    list(itertools.product((1, 2, 3), (1, 2, 6), (0, 1, 4), (True, False))),
)
def test_output_in_flight_at_a_preemption_is_kept(
    depth: int, width: int, at: int, same_slot: bool
) -> None:
    """Preempt, resume, and preempt again before the first late rows of the resumed life."""
    rig = Rig()
    tokens = list(range(100, 160))
    have: tuple[int, ...] = ()
    last = 0
    for life in range(3):
        handle = rig.bind(1, slot=0 if same_slot else life, output_token_ids=have)
        rows = [tokens[len(have) + i * width :][:width] for i in range(at + depth)]
        for row in rows[:at]:
            rig.feed(Row(handle, row))
        rig.command(Preempt(handle))
        if life and same_slot:
            rig.feed(Row(last, [9]))  # a late row of the life before
        for row in rows[at:]:
            rig.feed(Row(handle, row))
        rig.drain(handle)
        (outcome,) = rig.ended()
        assert isinstance(outcome, HandleRescheduled)
        have = outcome.output_token_ids
        last = handle
    assert list(have) == tokens[: 3 * (at + depth) * width]
    assert rig.stream(1).tokens == list(have)


@pytest.mark.case("B36")
def test_a_reused_slot_never_mixes_requests() -> None:
    rig = Rig(slots=8)
    a = rig.bind(1, slot=5, max_tokens=2)
    rig.feed(Row(a, [10, 11]))
    b = rig.bind(2, slot=5, max_tokens=2)
    rig.feed(Row(b, [20]), Row(a, [12]))
    rig.feed(Row(a, [13], RowStatus.DRAINED), Row(b, [21]))
    again = rig.bind(3, slot=5)
    rig.feed(Row(a, [14]), Row(b, [22]), Row(again, [30]))
    assert [rig.stream(key).tokens for key in (1, 2, 3)] == [[10, 11], [20, 21], [30]]
    assert rig.processor.counters["overrun"] == 3
    assert rig.processor.counters["stale"] == 1


@pytest.mark.case("B38")
@pytest.mark.parametrize(
    "state", ["running", "preempting", "handed back", "finished", "unknown", "aborted", "drained"]
)
@pytest.mark.parametrize("times", [1, 100])
def test_abort_is_idempotent_in_every_state(state: str, times: int) -> None:
    rig = Rig()
    h = rig.bind(1)
    rig.feed(Row(h, [5]))
    if state in ("preempting", "handed back"):
        rig.command(Preempt(h))
    if state in ("handed back", "drained"):
        rig.drain(h)
    if state == "finished":
        rig.feed(Row(h, [2]))
    if state == "aborted":
        rig.command(Abort(h))
    rig.flush()
    target = make_handle(0, 3, 77) if state == "unknown" else h
    for _ in range(times):
        rig.command(Abort(target))
    rig.drain(h)
    rig.command(Abort(h))
    rig.flush()
    outcomes = [r for r in rig.reports() if not isinstance(r, HandleReleased)]
    assert len(outcomes) == 1
    assert [r for r in rig.reported if isinstance(r, HandleReleased)] == [
        HandleReleased(h, "drained")
    ]
    ended = {"handed back": 0, "finished": 1}.get(state, 3)
    assert rig.stream(1).finish == ended


BAD_ROWS = {
    "negative": Row(0, [6, -7]),
    "above int32": Row(0, [6, 2**31]),  # wraps on its way
    "vocabulary": Row(0, [6, 1000]),
    "publisher": Row(0, [], RowStatus.BAD_TOKEN),
    "worker": Row(0, [], RowStatus.ERROR),
    "status": Row(0, [], 200),
    "recovery": Row(0, [6], RowStatus.RECOVERY_STOP),
}


@pytest.mark.case("B50")
@pytest.mark.parametrize("parked", [False, True])
@pytest.mark.parametrize("kind", BAD_ROWS)
def test_a_bad_row_harms_one_request_once(kind: str, parked: bool) -> None:
    rig = Rig()
    victim, other = rig.new_handle(1), rig.bind(2, slot=2)
    if not parked:
        rig.bind(1, handle=victim)
    bad = BAD_ROWS[kind]
    rig.feed(Row(victim, [5]), Row(other, [10]))
    rig.feed(Row(victim, bad.tokens, bad.status), Row(other, [11]))
    rig.feed(Row(victim, bad.tokens, bad.status), Row(victim, [7]), Row(other, [12]))
    if parked:
        rig.bind(1, handle=victim)
    (outcome,) = rig.reports()
    assert isinstance(outcome, HandleFinished)
    tokens = [5, 6] if bad.tokens else [5]
    assert (outcome.handle, outcome.finish, outcome.output_tokens) == (victim, 4, len(tokens))
    expected = "recovery stop" if kind == "recovery" else "step 2, dp 0, tp 0, slot 1: "
    assert expected in outcome.error
    stream = rig.stream(1)
    assert (stream.tokens, stream.finish, stream.error) == (tokens, 4, outcome.error)
    code = ErrorCode.LOST if kind == "recovery" else ErrorCode.INTERNAL
    assert (stream.error_code, outcome.error_code) == (code, code)
    assert rig.stream(2).tokens == [10, 11, 12]


@pytest.mark.case("B50")
def test_rows_and_frames_that_belong_to_nobody_harm_nobody() -> None:
    rig = Rig()
    h = rig.bind(1)
    nobody = [0, -1, make_handle(1, 0, 1), make_handle(0, 4, 1), make_handle(0, 0, 1) - 1]
    rig.feed(*(Row(x, [9], position=0) for x in nobody), Row(h, [5]))
    assert rig.processor.counters["bad_rows"] == len(nobody)
    good = rig.frame([Row(h, [6], k=1)])
    for size in range(len(good)):
        with pytest.raises(FrameError):
            rig.processor.feed(0, 0, good[:size], rig.now)
    header, columns = _core.unpack_step(good)
    without_handles = {c: v for c, v in columns.items() if c != 1}
    with pytest.raises(FrameError):
        rig.processor.feed(0, 0, _pack_raw(header, without_handles), rig.now)
    nan = {**columns, 8: np.array([np.nan, -np.inf], np.float32).tobytes()}
    rig.processor.feed(0, 0, _core.pack_step(header, nan), rig.now)
    frame = rig.processor.flush(0, LANE)
    assert frame is not None
    _, out = _core.unpack_output(frame)
    assert out[9] == nan[8]  # of what a logprob is, its reader judges


def _pack_raw(header: tuple[int, ...], columns: dict[int, bytes]) -> bytes:
    """Pack without the checks of pack_step."""
    return bytes(msgpack.packb((1, _core.WIRE_VERSION, header, columns)))


@pytest.mark.case("B58")
@pytest.mark.parametrize(
    ("row", "max_tokens", "tokens", "finish", "reason"),
    [
        ([7, 50, 8, 9, 5], 4, [7, 50], 1, 50),
        ([7, 2, 8], 2, [7, 2], 1, 2),
        ([7, 2, 8], 3, [7, 2], 1, 2),
        ([7, 8, 50], 2, [7, 8], 2, -1),
        ([7, 50, 2], 9, [7, 50], 1, 50),
        ([2], 1, [2], 1, 2),
    ],
)
@pytest.mark.parametrize("one_row", [True, False])
def test_the_earliest_end_wins_and_nothing_of_the_tail_appears(
    row: list[int], max_tokens: int, tokens: list[int], finish: int, reason: int, one_row: bool
) -> None:
    rig = Rig()
    h = rig.bind(1, max_tokens=max_tokens, stop_token_ids=(50,))
    for part in [row] if one_row else [[t] for t in row]:
        rig.feed(Row(h, part, k=1))
    assert rig.reports() == [HandleFinished(h, finish, reason, len(tokens))]
    got = rig.stream(1)
    assert (got.tokens, got.ks) == (tokens, [1] * len(tokens))
    assert (got.finish, got.stop_reason) == (finish, reason)


@pytest.mark.case("B61")
@pytest.mark.parametrize("at", range(1, 6))
@pytest.mark.parametrize("token", [2, 66, 50])
@pytest.mark.parametrize("ignore_eos", [False, True])
def test_min_tokens_and_ignore_eos(at: int, token: int, ignore_eos: bool) -> None:
    """`ignore_eos` ignores both EOS ids, never the user's own; neither ends it too early."""
    rig = Rig()
    h = rig.bind(1, max_tokens=6, min_tokens=4, ignore_eos=ignore_eos, stop_token_ids=(50, 114))
    tokens = [token if i + 1 == at else 10 + i for i in range(6)]
    for t in tokens:
        rig.feed(Row(h, [t]))
    ends = at >= 4 and not (ignore_eos and token != 50)
    got = rig.stream(1)
    assert got.tokens == (tokens[:at] if ends else tokens)
    assert (got.finish, got.stop_reason) == ((1, token) if ends else (2, -1))


@pytest.mark.case("B66")
def test_each_slot_has_its_own_logprobs_counts_and_stops() -> None:
    """That an entry is its token's, with as many as asked, the rig's client checks for each."""
    rig = Rig(slots=5)
    ks, stops = [-1, 0, 20, 5, -1], [(), (50,), (51, 52, 53), (), (54,)]
    handles = [
        rig.bind(slot, slot=slot, stop_token_ids=stop, max_tokens=60)
        for slot, stop in enumerate(stops)
    ]
    expected: list[list[int]] = [[] for _ in handles]
    token = itertools.count(100)
    for counts in ((0, 1, 3, 6, 2), (6, 0, 1, 3, 1), (3, 6, 0, 1, 0), (1, 3, 6, 0, 1)):
        rows = [[next(token) for _ in range(n)] for n in counts]
        rig.feed(*(Row(h, row, k=k) for h, row, k in zip(handles, rows, ks, strict=True)))
        for have, row in zip(expected, rows, strict=True):
            have += row
    rig.feed(*(Row(h, [50, 53], k=k) for h, k in zip(handles, ks, strict=True)))
    ends = [[50, 53], [50], [50, 53], [50, 53], [50, 53]]
    for slot, (have, end) in enumerate(zip(expected, ends, strict=True)):
        got = rig.stream(slot)
        assert got.tokens == have + end
        assert got.ks == [ks[slot]] * len(got.tokens)
        assert (got.finish, got.stop_reason) == {1: (1, 50), 2: (1, 53)}.get(slot, (0, -1))
