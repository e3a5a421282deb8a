"""A child's notifications reach its supervisor."""

from __future__ import annotations

import os
import socket

from tests.conftest import Clock
from tests.supervisor.conftest import LIVELY, Program
from tokenpipe.supervisor import Supervisor
from tokenpipe.supervisor.notify_reader import NotifyReader


def test_ready_brings_facts_and_signs_of_life(supervisor: Supervisor, program: Program) -> None:
    child = supervisor.start(program(LIVELY))
    supervisor.wait_ready({child: child.missing}, 30.0)
    assert child.notify.ready == {child.pid: {"port": 7}}
    assert list(child.notify.last_sign) == [child.pid]


def test_foreign_bytes_are_ignored(clock: Clock) -> None:
    reader = NotifyReader(clock())
    with socket.socket(fileno=os.dup(reader.child_fd)) as theirs:
        for raw in (b"\xff", b"[]", b"{}", b'{"pid": []}', b'{"pid": 1, "ready": 3}', b"7"):
            theirs.send(raw)
        theirs.send(b'{"pid": 1, "phase": "x"}')
        reader.read(clock())
    assert reader.phase == "x" and reader.ready == {}
    reader.close()


def test_a_fork_that_left_is_waited_for_no_more(clock: Clock) -> None:
    reader = NotifyReader(clock())
    with socket.socket(fileno=os.dup(reader.child_fd)) as theirs:
        for raw in (
            b'{"pid": 1, "ready": {}}',
            b'{"pid": 2, "ready": {}}',
            b'{"pid": 1, "left": 2}',
        ):
            theirs.send(raw)
        reader.read(clock())
        assert reader.ready == {1: {}} and reader.last_sign == {1: clock()}
        theirs.send(b'{"pid": 2, "watchdog": 1}')  # it was under way
        theirs.send(b'{"pid": 1, "watchdog": 1}')
        reader.read(clock.advance(3.0))
    assert reader.last_sign == {1: clock()}
    reader.close()
