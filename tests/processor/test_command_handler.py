"""What the engine says is done, refused, or comes too late and is counted."""

from __future__ import annotations

from tests.processor.rig import LANE, Rig, Row
from tokenpipe.types import RowStatus, make_handle
from tokenpipe.wire import (
    Abort,
    Bind,
    CloseClient,
    HandleFinished,
    HandleReleased,
    HandleRescheduled,
    OpenClient,
    OpenRank,
    Preempt,
    RankClosed,
)

DRAINED = RowStatus.DRAINED


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


def test_a_bind_to_what_there_is_not_is_refused_and_counted() -> None:
    rig = Rig(ranks=1)
    for handle in (make_handle(3, 0, 1), make_handle(0, 77, 1)):  # no such rank, no such slot
        rig.command(Bind(handle, 1, 9, 0, 5, output_token_ids=(4,), extras_offset=6))
        assert rig.reports() == [
            HandleRescheduled(handle, "rank_lost", (4,), extras_offset=6),
            HandleReleased(handle, "rank_lost"),
        ]
    assert rig.processor.counters["bad_commands"] == 2


def test_a_bind_for_another_life_of_its_rank_is_handed_back_and_its_handle_is_dead() -> None:
    rig = Rig()
    handle = rig.new_handle()
    rig.command(Bind(handle, 12345, 9, 0, 5))
    assert [type(report) for report in rig.reports()] == [HandleRescheduled, HandleReleased]
    rig.feed(Row(handle, [5]))
    assert rig.processor.counters["stale"] == 1
    rig.command(Bind(handle, 12345, 9, 0, 5))
    assert rig.reports() == [] and rig.processor.counters["late_commands"] == 1


def test_floors_of_slots_that_there_are_not_are_counted() -> None:
    rig = Rig()
    rig.command(OpenRank(0, (0, 7, 0, 0, 9, 9)))  # four slots there are
    assert rig.processor.counters["bad_commands"] == 2
    rig.feed(Row(make_handle(0, 1, 7), [5]))
    assert rig.processor.counters["stale"] == 1


def test_a_client_that_is_opened_twice_keeps_what_waits_for_it() -> None:
    rig = Rig()
    handle = rig.bind(9)
    rig.feed(Row(handle, [5, 6]))
    rig.command(OpenClient(0, 500))  # as it is open already
    assert rig.stream(9).tokens == [5, 6]
    rig.feed(Row(handle, [7]))
    rig.command(OpenClient(0, 501))  # another life: what waited was for the first
    assert rig.processor.flush(0, LANE) is None
    rig.command(OpenClient(0xFFFFFFFF, 1))
    assert rig.processor.counters["bad_commands"] == 1
