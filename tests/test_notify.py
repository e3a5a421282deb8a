"""A child's notifications: few, never blocking, and none without a supervisor."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from tests.conftest import Clock
from tokenpipe.notify import WATCHDOG_S, Notifier
from tokenpipe.supervisor.notify_reader import NotifyReader


def test_signs_of_life_are_rationed_and_nothing_blocks(clock: Clock) -> None:
    reader = NotifyReader(clock())
    notifier = Notifier(socket.socket(fileno=os.dup(reader.child_fd)), clock)
    notifier._end.setblocking(False)  # type: ignore[union-attr]
    notifier.ready()
    for _ in range(10):
        notifier.watchdog()
    for _ in range(20_000):  # nobody reads
        clock.advance(WATCHDOG_S)
        notifier.watchdog()
    reader.read(clock())
    assert reader.last_sign == {os.getpid(): clock()}
    notifier.left(os.getpid())
    reader.read(clock())
    assert reader.last_sign == {} and reader.ready == {}
    notifier.failed("x" * 100_000 + "end")
    reader.read(clock())
    assert reader.failure.endswith("xend") and len(reader.failure) < 65_536
    reader.close()
    notifier.watchdog()  # to nobody
    notifier.close()
    notifier.watchdog()


def test_facts_are_kept_by_name_also_before_ready(clock: Clock) -> None:
    reader = NotifyReader(clock())
    notifier = Notifier(socket.socket(fileno=os.dup(reader.child_fd)), clock)
    notifier.facts(card={"a": 1}, other=2)
    notifier.facts(card={"b": 2})
    reader.read(clock())
    assert reader.facts == {"card": {"b": 2}, "other": 2} and reader.ready == {}
    reader.close()
    notifier.close()


def test_without_a_supervisor_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOKENPIPE_NOTIFY", raising=False)
    notifier = Notifier.inherited()
    notifier.phase("a")
    notifier.ready()
    notifier.watchdog()


def test_title_is_what_ps_shows() -> None:
    source = """
from tokenpipe.notify import set_title
set_title("tp:worker 0.1")
print(open("/proc/self/comm").read(), end="")
"""
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-c", source]
    assert subprocess.check_output(command, text=True, env=environment) == "tp:worker 0.1\n"
