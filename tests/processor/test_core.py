"""Plays the life of bindings through a processor."""

from __future__ import annotations

import pytest

from tests.processor.rig import Rig, Row
from tokenpipe.errors import FrameError
from tokenpipe.processor.deadlines import NEVER
from tokenpipe.types import ErrorCode, RowStatus, make_handle
from tokenpipe.wire import (
    Abort,
    CloseClient,
    Counters,
    HandleAborted,
    HandleFinished,
    HandlePrefilled,
    HandleReleased,
    HandleRescheduled,
    OpenClient,
    OpenRank,
    Preempt,
    RankClosed,
    RankOpened,
    Snapshot,
)

DRAINED = RowStatus.DRAINED


def test_streams_tokens_until_eos() -> None:
    rig = Rig()
    h = rig.bind(1)
    rig.feed(Row(h, [10]))
    rig.feed(Row(h, [11, 12, 13]))
    assert rig.stream(1).tokens == [10, 11, 12, 13]
    rig.feed(Row(h, [14, 2, 15]))
    assert rig.reports() == [HandleFinished(h, 1, 2, 6)]
    stream = rig.stream(1)
    assert (stream.tokens[-1], stream.finish, stream.stop_reason) == (2, 1, 2)
    rig.feed(Row(h, [16]))
    rig.drain(h)
    assert rig.reports() == [HandleReleased(h, "drained")]
    assert rig.processor.counters["overrun"] == 1
    assert rig.processor.dirty_clients() == []
    assert rig.processor.counters["bindings"] == 0


def test_length_wins_at_max_tokens_and_stop_id_before() -> None:
    rig = Rig()
    h, g = rig.bind(1, max_tokens=2), rig.bind(2, slot=1, max_tokens=2, stop_token_ids=(7,))
    rig.feed(Row(h, [5, 6, 7]), Row(g, [5, 7, 7]))
    assert rig.ended() == [HandleFinished(h, 2, -1, 2), HandleFinished(g, 1, 7, 2)]
    assert rig.stream(1).tokens == [5, 6]


def test_rows_of_one_step_see_each_other() -> None:
    rig = Rig()
    h = rig.bind(1)
    rig.feed(Row(h, [5]), Row(h, [2]), Row(h, [6]), Row(h, [], DRAINED), Row(h, [7]))
    assert rig.reports() == [HandleFinished(h, 1, 2, 2), HandleReleased(h, "drained")]
    assert rig.stream(1).tokens == [5, 2]


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


def test_late_commands_are_counted_and_change_nothing() -> None:
    rig = Rig()
    h = rig.bind(1, max_tokens=1)
    rig.feed(Row(h, [5]))
    rig.reports()
    for command in (
        Preempt(h),
        Abort(h),
        Preempt(make_handle(0, 3, 9)),
        Abort(make_handle(9, 0, 1)),
    ):
        rig.command(command)
    assert rig.reports() == []
    assert rig.processor.counters["late_commands"] == 4
    rig.command(RankClosed(0, "not a command"))
    assert rig.processor.counters["bad_commands"] == 1


def test_rows_before_their_bind_are_parked_and_applied() -> None:
    rig = Rig()
    h = rig.new_handle()
    rig.feed(Row(h, [5, 6]))
    rig.feed(Row(h, [7, 2, 8], DRAINED))
    assert rig.processor.dirty_clients() == []
    rig.bind(1, handle=h)
    assert rig.ended() == [HandleFinished(h, 1, 2, 4)]
    assert isinstance(rig.reported[-1], HandleReleased)
    assert rig.stream(1).tokens == [5, 6, 7, 2]
    assert rig.processor.counters["parked_bytes"] == 0


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


def test_parking_is_bounded_in_bytes_and_in_handles() -> None:
    rig = Rig(park_bytes=40)
    h, g = rig.new_handle(), rig.new_handle(1)
    rig.feed(Row(h, [5] * 8))
    rig.feed(Row(g, [5] * 8, DRAINED))
    assert rig.processor.counters["park_lost"] == 1
    rig.bind(1, handle=h)
    rig.bind(2, handle=g)
    rig.flush()
    assert rig.reports() == [
        HandleRescheduled(g, "park_lost", ()),
        HandleReleased(g, "drained"),
    ]
    rig.feed(*(Row(make_handle(0, 3, generation), [1]) for generation in range(1, 200)))
    assert rig.processor.counters["parked_bindings"] < 100
    assert rig.processor.counters["park_lost"] > 100


def test_position_jump_is_a_gap_and_a_repeated_prefix_is_trimmed() -> None:
    rig = Rig()
    h = rig.bind(1)
    rig.feed(Row(h, [5, 6]))
    rig.feed(Row(h, [5, 6, 7], position=0))
    rig.feed(Row(h, [6], position=1))
    assert rig.stream(1).tokens == [5, 6, 7]
    rig.feed(Row(h, [9], position=4))
    assert rig.reports() == [HandleRescheduled(h, "gap", (5, 6, 7))]
    rig.drain(h)
    assert rig.reports() == [HandleReleased(h, "drained")]


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
        RankClosed(0, "killed"),
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


def test_bind_to_a_running_slot_is_refused_to_a_lingering_one_legal() -> None:
    rig = Rig()
    h = rig.bind(1, max_tokens=2)
    rig.feed(Row(h, [5]))
    g = rig.bind(2)
    assert rig.reports() == [HandleRescheduled(g, "slot_busy", ()), HandleReleased(g, "slot_busy")]
    rig.feed(Row(h, [6]), Row(g, [1]))
    i = rig.bind(3)
    rig.feed(Row(i, [8]), Row(h, [7]))
    rig.drain(h)
    rig.feed(Row(i, [9]), Row(h, [7]))
    assert (rig.stream(1).tokens, rig.stream(3).tokens) == ([5, 6], [8, 9])
    assert rig.processor.counters["stale"] == 2
    assert rig.processor.counters["overrun"] == 1


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


def test_marker_deadline_runs_while_the_rank_shows_life() -> None:
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


def test_restarted_processor_knows_dead_generations() -> None:
    rig = Rig()
    rig.feed(Row(make_handle(0, 1, 4), [5]))
    rig.command(OpenRank(0, (0, 5, 0, 0)))
    rig.feed(Row(make_handle(0, 1, 5), [5]), Row(make_handle(0, 1, 6), [5]))
    assert rig.processor.counters["stale"] == 2
    rig.bind(1, handle=make_handle(0, 1, 6))
    assert rig.stream(1).tokens == [5]
    rig.command(OpenRank(7, (1,)))
    rig.command(OpenRank(0, (0, 0, 0, 0, 0, 9)))
    assert rig.processor.counters["bad_commands"] == 2


def test_gone_clients_output_is_dropped_and_frees_held_outcomes() -> None:
    rig = Rig()
    h, g = rig.bind(1), rig.bind(2, slot=1)
    rig.feed(Row(h, [5], k=2), Row(g, [5]))
    rig.command(Preempt(h))
    rig.drain(h)
    assert rig.reports() == []
    rig.command(CloseClient(0))
    assert rig.reports() == [HandleRescheduled(h, "preempted", (5,)), HandleReleased(h, "drained")]
    rig.feed(Row(g, [6], k=1))
    assert rig.processor.dirty_clients() == []
    rig.command(OpenClient(0, 9))
    rig.feed(Row(g, [7, 2]))
    assert rig.reports() == [HandleFinished(g, 1, 2, 4)]
    assert rig.processor.dirty_clients() == []


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


def test_a_flush_is_bounded_and_urgent_rows_can_go_alone() -> None:
    rig = Rig()
    h, g = rig.bind(1), rig.bind(2, slot=1, max_tokens=3)
    rig.feed(Row(h, range(70, 150), k=1), Row(g, [5, 6]))
    assert not rig.processor.urgent(0)
    assert rig.processor.flush(0, (1, 2, 3, 4), urgent_only=True) is None
    rig.feed(Row(g, [7]))
    assert rig.processor.urgent(0)
    frame = rig.processor.flush(0, (1, 2, 3, 4), urgent_only=True)
    assert frame is not None
    rig.clients[0].apply(frame)
    assert (rig.clients[0].streams[2].tokens, list(rig.clients[0].streams)) == ([5, 6, 7], [2])
    while (frame := rig.processor.flush(0, (1, 2, 3, 4), max_bytes=100)) is not None:
        assert len(frame) < 160
        rig.clients[0].apply(frame)
    assert rig.stream(1).tokens == list(range(70, 150))


def test_malformed_frames_and_wrong_lanes_raise_and_are_counted() -> None:
    rig = Rig(ranks=2, tp_size=2)
    h = rig.bind(1)
    frame = rig.frame([Row(h, [5])])
    for dp, tp, bad in (
        (0, 0, b"\xc1"),
        (0, 0, frame[:-1]),
        (1, 0, frame),
        (5, 0, frame),
        (0, 2, frame),
    ):
        with pytest.raises(FrameError):
            rig.processor.feed(dp, tp, bad, rig.now)
    assert rig.processor.counters["bad_frames"] == 5
    rig.processor.feed(0, 0, frame, rig.now)
    assert rig.stream(1).tokens == [5]


def test_snapshot_reports_counters() -> None:
    rig = Rig()
    rig.feed(Row(rig.bind(1), [5, 6]))
    rig.command(Snapshot(7))
    (counters,) = rig.reports()
    assert isinstance(counters, Counters)
    assert (counters.id, counters.values["tokens"], counters.values["frames"]) == (7, 2, 1)


def test_a_run_of_frames_stops_at_whatever_is_none() -> None:
    """The same as frame by frame, with an end in the middle and strangers between."""
    one, many = Rig(), Rig()
    for rig in (one, many):
        rig.bind(1, max_tokens=3)
        rig.bind(2, slot=1)
    first, second = make_handle(0, 0, 1), make_handle(0, 1, 1)
    frames: list[object] = [
        many.frame([Row(first, [5]), Row(second, [6 + at])], 0, 0) for at in range(6)
    ]
    frames[4:4] = [b"no frame", None]
    for frame in frames:
        if isinstance(frame, bytes) and frame != b"no frame":
            one.processor.feed(0, 0, frame, 100.0)
    at, stops = 0, []
    while at < len(frames):
        at = many.processor.feed_run(0, 0, frames, at, 100.0)
        stops.append(at)
        at += 1
    assert stops == [4, 5, 8]
    assert one.reports() == many.reports()
    assert [one.stream(key).tokens for key in (1, 2)] == [[5] * 3, [6, 7, 8, 9, 10, 11]]
    assert [many.stream(key).tokens for key in (1, 2)] == [[5] * 3, [6, 7, 8, 9, 10, 11]]
    assert one.processor.counters["tokens"] == many.processor.counters["tokens"] == 9
    assert many.processor.feed_run(7, 0, frames, 0, 100.0) == 0
    assert many.processor.feed_run(0, 1, frames, 0, 100.0) == 0
