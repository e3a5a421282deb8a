"""Plays the life of bindings through a processor."""

from __future__ import annotations

import pytest

from tests.processor.rig import Rig, Row
from tokenpipe.errors import FrameError
from tokenpipe.types import RowStatus, make_handle
from tokenpipe.wire import (
    Counters,
    HandleFinished,
    HandleReleased,
    HandleRescheduled,
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
