"""Each binding has one outcome and then one release, whatever happens to it."""

from __future__ import annotations

from tests.processor.rig import Rig, Row
from tokenpipe.processor.deadlines import NEVER
from tokenpipe.types import ErrorCode, RowStatus
from tokenpipe.wire import (
    Abort,
    HandleAborted,
    HandleFinished,
    HandlePrefilled,
    HandleReleased,
    HandleRescheduled,
    Preempt,
    RankClosed,
    RankOpened,
)

DRAINED = RowStatus.DRAINED


def test_preempted_binding_is_handed_back_once_drained_and_flushed() -> None:
    rig = Rig()
    h = rig.bind(1)
    rig.feed(Row(h, [5]))
    rig.command(Preempt(h))
    rig.feed(Row(h, [6, 7]))
    assert rig.reports() == []
    rig.drain(h)
    assert rig.reports() == []  # its client lacks tokens
    assert rig.processor.urgent(0)
    assert rig.stream(1).tokens == [5, 6, 7]
    assert rig.reports() == [
        HandleRescheduled(h, "preempted", (5, 6, 7)),
        HandleReleased(h, "drained"),
    ]
    again = rig.bind(1, slot=2, output_token_ids=(5, 6, 7), max_tokens=5)
    rig.feed(Row(again, [8, 9]))
    assert rig.ended() == [HandleFinished(again, 2, -1, 5)]
    assert rig.stream(1).tokens == [5, 6, 7, 8, 9]


def test_abort_ends_at_once_and_releases_once_drained() -> None:
    rig = Rig()
    h = rig.bind(1)
    rig.feed(Row(h, [5]))
    rig.command(Abort(h))
    assert rig.reports() == [HandleAborted(h, 1)]
    rig.feed(Row(h, [6]))
    assert rig.stream(1).tokens == [5]
    assert rig.stream(1).finish == 3
    rig.drain(h)
    assert rig.reports() == [HandleReleased(h, "drained")]


def test_unsolicited_drain_waits_for_a_command() -> None:
    rig = Rig()
    h, g, i = rig.bind(1), rig.bind(2, slot=1), rig.bind(3, slot=2)
    rig.feed(*(Row(x, [5], DRAINED) for x in (h, g, i)))
    assert rig.ended() == []
    rig.command(Preempt(h))
    rig.command(Abort(g))
    assert rig.reports() == [
        HandleRescheduled(h, "preempted", (5,)),
        HandleReleased(h, "drained"),
        HandleAborted(g, 1),
        HandleReleased(g, "drained"),
    ]
    rig.pass_time(10)
    assert rig.reports() == [
        HandleRescheduled(i, "unsolicited", (5,)),
        HandleReleased(i, "drained"),
    ]


def test_expired_parking_ends_the_bind_as_park_lost() -> None:
    rig = Rig()
    h = rig.new_handle()
    rig.feed(Row(h, [5]))
    rig.pass_time(5)
    rig.feed(Row(h, [6]))
    rig.bind(1, handle=h, output_token_ids=(3, 4))
    assert rig.reports() == [HandleRescheduled(h, "park_lost", (3, 4))]
    rig.drain(h)
    assert rig.reports() == [HandleReleased(h, "drained")]
    assert rig.stream(1).tokens == []


def test_lane_gap_hands_back_every_live_binding() -> None:
    rig = Rig(ranks=2)
    h, g, other = rig.bind(1), rig.bind(2, slot=1, max_tokens=1), rig.bind(3, dp=1)
    parked = rig.new_handle(2)
    rig.feed(Row(h, [5]), Row(g, [5]), Row(parked, [5]))
    rig.flush()
    rig.reports()
    rig.processor.gap(0, 0, rig.now)
    assert rig.reports() == [HandleRescheduled(h, "gap", (5,))]
    rig.bind(4, handle=parked)
    assert rig.reports() == [HandleRescheduled(parked, "park_lost", ())]
    rig.feed(Row(other, [5]), dp=1)
    assert rig.stream(3).tokens == [5]


def test_bind_whose_rows_a_gap_took_is_handed_back_unless_another_row_comes() -> None:
    rig = Rig()
    rig.processor.gap(0, 0, rig.now)
    silent = rig.bind(1, slot=1, output_token_ids=(5, 6))
    heard, preempted = rig.bind(2, slot=2), rig.bind(3, slot=3)
    rig.feed(Row(heard, [5]))
    rig.command(Preempt(preempted))
    rig.drain(preempted)
    rig.reports()
    rig.pass_time(9.0)
    later = rig.bind(4)  # its rows cannot have come before the gap
    assert rig.reports() == []
    rig.pass_time(1.5)
    assert rig.reports() == [HandleRescheduled(silent, "gap", (5, 6))]
    rig.pass_time(20.0)
    assert rig.reports() == [HandleReleased(silent, "drained_timeout")]
    rig.feed(Row(heard, [6]), Row(later, [7]))
    assert (rig.stream(2).tokens, rig.stream(4).tokens) == ([5, 6], [7])


def test_silent_or_lost_rank_misses_no_deadline_of_a_gap() -> None:
    rig = Rig()
    rig.processor.gap(0, 0, rig.now)
    handle = rig.bind(1, slot=1)
    rig.pass_time(60.0, alive=False)  # it may be in a long prefill
    assert rig.reports() == []
    rig.processor.rank_lost(0, "killed", rig.now)
    rig.processor.rank_up(0, 9, rig.now)
    rig.reports()
    again = rig.bind(1, slot=1, rank_incarnation=9)
    rig.pass_time(30.0)
    assert rig.reports() == [] and again != handle


def test_lost_rank_ends_all_its_bindings_and_can_return() -> None:
    rig = Rig()
    run, gone, late = rig.bind(1), rig.bind(2, slot=1), rig.new_handle(2)
    rig.feed(Row(run, [5]), Row(gone, [6]), Row(late, [7]))
    rig.command(Abort(gone))
    rig.flush()
    rig.reports()
    rig.processor.rank_lost(0, "killed", rig.now)
    rig.processor.rank_lost(0, "killed", rig.now)
    assert rig.reports() == [
        HandleRescheduled(run, "rank_lost", (5,)),
        HandleReleased(run, "rank_lost"),
        HandleReleased(gone, "rank_lost"),
        RankClosed(0, "killed", rig.incarnations[0]),
    ]
    rig.bind(3, handle=late, output_token_ids=(9,))
    assert rig.reports() == [
        HandleRescheduled(late, "rank_lost", (9,)),
        HandleReleased(late, "rank_lost"),
    ]
    rig.feed(Row(run, [5]))
    assert rig.processor.counters["stale_frames"] == 1
    rig.processor.rank_up(0, 123, rig.now)
    assert rig.reports() == [RankOpened(0, 123)]
    rig.bind(1, slot=3, output_token_ids=(5,))  # with the old incarnation
    assert [type(r) for r in rig.reports()] == [HandleRescheduled, HandleReleased]
    rig.steps[0] = 0
    again = rig.bind(1, slot=3, output_token_ids=(5,), rank_incarnation=123)
    rig.feed(Row(again, [6]))
    assert rig.stream(1).tokens == [5, 6]
    rig.processor.rank_up(0, 124, rig.now)
    assert [type(r) for r in rig.reports()] == [
        HandleRescheduled, HandleReleased, RankClosed, RankOpened
    ]  # fmt: skip


def test_prefill_binding_ends_with_its_first_row() -> None:
    rig = Rig()
    h, g = rig.bind(1, prefill=True), rig.bind(2, slot=1, prefill=True)
    rig.feed(Row(h, []), Row(g, [2]))
    rig.feed(Row(h, [5, 6]))
    rig.feed(Row(h, [7]))
    assert rig.reports() == [HandleFinished(g, 1, 2, 1)]
    assert rig.stream(1).tokens == [5, 6]
    assert rig.reports() == [HandlePrefilled(h, (5, 6))]
    parked = rig.new_handle(2)
    rig.feed(Row(parked, [5, 6]))
    rig.feed(Row(parked, [7], DRAINED))
    rig.bind(3, handle=parked, prefill=True)
    assert rig.ended() == [HandlePrefilled(parked, (5, 6))]


def test_the_deadline_of_a_drained_row_runs_while_the_rank_shows_life() -> None:
    rig = Rig()
    preempted, aborted, finished = (
        rig.bind(1),
        rig.bind(2, slot=1),
        rig.bind(3, slot=2, max_tokens=1),
    )
    rig.feed(Row(preempted, [5]), Row(finished, [5]))
    rig.command(Preempt(preempted))
    rig.command(Abort(aborted))
    rig.flush()
    rig.reports()
    rig.pass_time(60, alive=False)
    assert rig.reports() == []
    rig.pass_time(7)
    assert rig.reports() == []
    rig.pass_time(2)
    assert rig.reports() == [
        HandleReleased(finished, "drained_timeout"),
        HandleRescheduled(preempted, "drained_timeout", (5,)),
        HandleReleased(preempted, "drained_timeout"),
        HandleReleased(aborted, "drained_timeout"),
    ]
    rig.feed(Row(preempted, [6]))
    rig.drain(aborted)
    assert rig.processor.counters["stale"] == 2
    assert rig.processor.next_deadline == NEVER


def test_slow_client_loses_its_requests_and_no_other() -> None:
    rig = Rig(merge_bytes=2000)
    slow, held, done = rig.bind(1), rig.bind(2, slot=1), rig.bind(3, slot=2, max_tokens=1)
    fast = rig.bind(4, slot=3, client=1)
    rig.feed(Row(slow, [5]), Row(held, [5]), Row(done, [5]), Row(fast, [5]))
    rig.command(Preempt(held))
    rig.drain(held)
    rig.reports()
    rig.feed(Row(slow, [5] * 90, k=3), Row(fast, [6]))
    error = [r for r in rig.reports() if isinstance(r, HandleFinished)]
    assert [(r.handle, r.finish, r.output_tokens) for r in error] == [(slow, 4, 0), (held, 4, 0)]
    assert all(r.error.startswith("slow_client: client 0") for r in error)
    assert all(r.error_code is ErrorCode.SLOW for r in error)
    assert rig.processor.unsent_bytes(0) < 600
    for key in (1, 2, 3):
        assert rig.stream(key).finish == 4
        assert rig.stream(key).error_code == ErrorCode.SLOW
        assert rig.stream(key).tokens == []
    assert rig.stream(4, client=1).tokens == [5, 6]
    rig.drain(slow)
    assert rig.reports() == [HandleReleased(slow, "drained")]
    assert rig.processor.unsent_bytes(0) == 0
