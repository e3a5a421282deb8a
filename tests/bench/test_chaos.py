"""Faults begin and end at their times; a short run with real kills loses no token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tokenpipe.bench import chaos
from tokenpipe.bench.chaos import Chaos
from tokenpipe.bench.chaos_plan import FaultKind, PlannedFault
from tokenpipe.bench.options import Options
from tokenpipe.bench.run import run


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 10.0

    def __call__(self) -> float:
        return self.now


class Nobody:
    """A run without processes."""

    workers = (1,)
    processors = clients = ()
    directory = Path("/nowhere")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, float | str | bool]]]:
    """Return what is begun and undone; no process is touched."""
    log: list[tuple[str, float | str | bool]] = []

    def begin(fault: PlannedFault, victims: object) -> object:
        log.append(("begin", fault.kind.value))
        return lambda: log.append(("undo", fault.kind.value))

    monkeypatch.setattr(chaos, "begin", begin)
    monkeypatch.setattr(chaos, "slow_turn", lambda pid, running: log.append(("slow", running)))
    yield log


def test_fault_that_lasts_is_undone_at_its_time(told: list[object]) -> None:
    clock = Clock()
    plan = [
        PlannedFault(1.0, FaultKind.KILL_WORKER, 0.0, 0),
        PlannedFault(2.0, FaultKind.STOP_CLIENT, 1.5, 0),
    ]
    runner = Chaos(plan, Nobody(), clock)
    assert runner.wait_s == 1.0
    for clock.now in (10.9, 11.0, 12.0, 13.4):
        runner.turn()
    assert told == [("begin", "kill-worker"), ("begin", "stop-client")]
    assert runner.wait_s == pytest.approx(0.1)
    clock.now = 13.5
    runner.turn()
    assert told[-1] == ("undo", "stop-client")
    assert runner.wait_s == float("inf")
    assert runner.done == {"kill-worker": 1, "stop-client": 1}


def test_slow_process_changes_at_each_turn(told: list[object]) -> None:
    clock = Clock()
    runner = Chaos([PlannedFault(0.0, FaultKind.SLOW_WORKER, 1.0, 0)], Nobody(), clock)
    for clock.now in (10.0, 10.01, 10.02, 10.04, 10.06, 11.0):
        runner.turn()
    slow = ("slow", True), ("slow", False), ("slow", True)
    assert told == [("begin", "slow-worker"), *slow, ("undo", "slow-worker")]


def test_end_undoes_what_lasts_and_begins_nothing(told: list[object]) -> None:
    clock = Clock()
    plan = [
        PlannedFault(0.0, FaultKind.STOP_WORKER, 9.0, 0),
        PlannedFault(1.0, FaultKind.KILL_WORKER, 0.0, 0),
    ]
    runner = Chaos(plan, Nobody(), clock)
    runner.turn()
    runner.end()
    clock.now = 20.0
    runner.turn()
    assert told == [("begin", "stop-worker"), ("undo", "stop-worker")]


def test_killed_and_stopped_workers_lose_no_token() -> None:
    options = Options(
        chaos="kill-worker,kill-all-workers,stop-worker,stop-client,bad-frames",
        minutes=0.3,
        tp=1,
        consume="streams",
        logprobs=1,
        seed=3,
    )
    report = run(options)
    assert report["ok"], {
        key: report[key] for key in ("reasons", "errors", "error_codes", "faults")
    }
    assert sum(report["faults"].values()) >= 3
    assert report["ended"] == report["requests"] and not report["reasons"].get("error")
    assert report["left_behind"] == 0
