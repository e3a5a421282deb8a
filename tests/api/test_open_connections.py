"""Connections without a request make room; late requests are given up; nothing is walked."""

from __future__ import annotations

import logging

import pytest

from tokenpipe.api.descriptors import SPARE
from tokenpipe.api.event_log import EventLog
from tokenpipe.api.open_connections import CLOSED, REFUSED, OpenConnections
from tokenpipe.api.problems import Problem

LATE_S = 10.0


class Played:
    """A connection that notes what is done to it."""

    def __init__(self) -> None:
        self.done = ""
        self.looks = 0

    def drop(self) -> None:
        self.done = "dropped"

    def refuse(self, problem: Problem) -> None:
        self.done = f"refused {problem.status}"

    def look(self) -> bool:
        self.looks += 1
        return self.looks < 3

    def overdue(self, receive_s: float) -> None:
        assert receive_s == LATE_S
        self.done = "overdue"


def opened(most: int, count: int) -> tuple[OpenConnections, list[Played]]:
    connections = OpenConnections(most, LATE_S, EventLog(logging.getLogger("it")))
    played = [Played() for _ in range(count)]
    for connection in played:
        connections.add(connection, 0.0)
    return connections, played


@pytest.mark.case("F02")
def test_the_oldest_without_a_request_makes_room_and_then_the_longest_idle(
    caplog: pytest.LogCaptureFixture,
) -> None:
    connections, (busy, idle, idle_later, fresh, fresh_later) = opened(5, 5)
    for connection in (busy, idle, idle_later):
        connections.asks(connection)
    connections.answered(idle)
    connections.answered(idle_later)
    order = [fresh, fresh_later]
    for victim in (*order, idle, idle_later):
        new = Played()
        connections.add(new, 1.0)
        assert (victim.done, new.done) == ("dropped", "")
        connections.remove(victim)
        connections.asks(new)
    for nth in range(SPARE + 1):
        new = Played()
        connections.add(new, 2.0)
        assert new.done == ("refused 503" if nth < SPARE else "dropped")
    assert busy.done == ""
    connections.look(2.0)
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [f"{CLOSED}: 4", f"{REFUSED}: {SPARE + 1}"]


@pytest.mark.case("F02")
def test_a_head_has_one_deadline_and_each_piece_of_a_body_its_own() -> None:
    connections, (silent, slow_head, body, whole) = opened(9, 4)
    connections.waits(slow_head, 8.0)
    connections.waits_again(body, 9.0)
    connections.has_all(whole)
    connections.look(LATE_S)
    assert [each.done for each in (silent, slow_head, body, whole)] == [""] * 4
    connections.look(LATE_S + 0.1)
    assert [each.done for each in (silent, slow_head, body, whole)] == ["overdue"] * 2 + [""] * 2
    connections.waits(whole, 15.0)
    connections.look(19.1)
    assert (body.done, whole.done) == ("overdue", "")
    connections.remove(whole)
    connections.look(1e9)
    assert whole.done == ""


def test_only_watched_connections_are_looked_at_and_no_longer_than_they_ask() -> None:
    connections, (watched, other) = opened(9, 2)
    connections.watch(watched)
    for _ in range(9):
        connections.look(0.0)
    assert (watched.looks, other.looks) == (3, 0)
