"""A child's notifications reach its supervisor, and their absence is noticed."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import Clock, eventually
from tests.supervisor.conftest import LIVELY, Program
from tests.supervisor.test_supervisor import gone, state
from tokenpipe.errors import StartupError
from tokenpipe.supervisor import Supervisor
from tokenpipe.supervisor.notify_reader import NotifyReader

BUSY_START = """
import signal, sys, time
from tokenpipe.notify import Notifier
notifier = Notifier.inherited()
notifier.phase("compiling kernels")
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    pass
notifier.ready()
signal.pause()
"""
BROKEN = """
from tokenpipe.notify import Notifier
notifier = Notifier.inherited()
notifier.phase("reading the model")
notifier.failed("no file at /models/none")
print("noise")
raise SystemExit(4)
"""


def test_ready_brings_facts_and_signs_of_life(supervisor: Supervisor, program: Program) -> None:
    child = supervisor.start(program(LIVELY))
    supervisor.wait_ready({child: child.missing}, 30.0)
    assert child.notify.ready == {child.pid: {"port": 7}}
    assert supervisor.stuck(10.0) == []


@pytest.mark.case("B45")
def test_stuck_is_told_from_dead(supervisor: Supervisor, program: Program) -> None:
    spec = program(LIVELY)
    stuck, well = (supervisor.start(replace(spec, rank=rank)) for rank in "01")
    supervisor.wait_ready({c: c.missing for c in (stuck, well)}, 30.0)
    os.kill(stuck.pid, signal.SIGSTOP)
    assert eventually(lambda: [c for c, _ in supervisor.stuck(1.0)] == [stuck])
    assert supervisor.poll() == [] and state(stuck.pid) == "T"
    os.kill(stuck.pid, signal.SIGCONT)
    assert eventually(lambda: supervisor.stuck(1.0) == [])


@pytest.mark.case("B07")
def test_a_starting_child_is_never_stuck(supervisor: Supervisor, program: Program) -> None:
    spec = program(BUSY_START, "0.5")
    children = [supervisor.start(replace(spec, rank=str(i))) for i in range(8)]
    seen: list[bool] = []

    def pump(seconds: float) -> None:
        seen.append(any(child.missing() for child, _ in supervisor.stuck(0.001)))
        supervisor.poll(seconds)

    supervisor.wait_ready({c: c.missing for c in children}, 60.0, pump)
    assert seen and not any(seen)


@pytest.mark.case("B49")
def test_deadline_says_phase_and_for_how_long(supervisor: Supervisor, program: Program) -> None:
    late = supervisor.start(program(BUSY_START, "60", rank="2"))
    well = supervisor.start(program(LIVELY))
    assert eventually(lambda: supervisor.stuck(9.0) == [] and "kernels" in str(late.missing()))
    with pytest.raises(StartupError) as caught:
        supervisor.wait_ready({late: late.missing, well: well.missing}, 1.0)
    said = str(caught.value)
    assert f"worker 2 (pid {late.pid}): not ready after 1 s" in said
    assert "phase: compiling kernels" in said and "log " in said
    assert f"pid {well.pid}" not in said
    supervisor.close()  # what had started, and had no signal handler, is stopped
    assert gone(late.pid) and gone(well.pid)


@pytest.mark.case("B08")
def test_a_failed_start_is_told_in_the_childs_own_words(
    supervisor: Supervisor, program: Program
) -> None:
    child = supervisor.start(program(BROKEN))
    with pytest.raises(StartupError, match="no file at /models/none") as caught:
        supervisor.wait_ready({child: child.missing}, 30.0)
    said = str(caught.value)
    assert "exit code 4" in said and "phase: reading the model" in said and "noise" not in said


@pytest.mark.case("B03")
@pytest.mark.parametrize("respawns", [10, pytest.param(200, marks=pytest.mark.soak)])
@pytest.mark.timeout(600)
def test_respawns_beside_threads_that_hold_locks(
    supervisor: Supervisor, program: Program, tmp_path: Path, respawns: int
) -> None:
    """A child made by exec inherits no lock that a thread of ours holds at that moment."""
    over = threading.Event()
    left, right = socket.socketpair()

    def log() -> None:
        with open(tmp_path / "noise", "w") as noise:
            while not over.wait(0.0001):
                print(json.dumps({"noise": list(range(50))}), file=noise, flush=True)

    def talk() -> None:
        while not over.wait(0.0001):
            left.send(b"x")
            right.recv(1)

    threads = [threading.Thread(target=target) for target in (log, talk)]
    for thread in threads:
        thread.start()
    try:
        spec = program(LIVELY)
        children = [supervisor.start(replace(spec, rank=str(i))) for i in range(8)]
        supervisor.wait_ready({c: c.missing for c in children}, 60.0)
        for _ in range(respawns):
            children[3].signal(signal.SIGKILL)
            (died,) = supervisor.poll(30.0)
            assert died.child is children[3]
            children[3] = supervisor.start(died.child.spec)
            supervisor.wait_ready({children[3]: children[3].missing}, 60.0)
    finally:
        over.set()
        for thread in threads:
            thread.join()
        left.close()
        right.close()


def test_foreign_bytes_are_ignored(clock: Clock) -> None:
    reader = NotifyReader(clock())
    with socket.socket(fileno=os.dup(reader.child_fd)) as theirs:
        for raw in (b"\xff", b"[]", b"{}", b'{"pid": []}', b'{"pid": 1, "ready": 3}', b"7"):
            theirs.send(raw)
        theirs.send(b'{"pid": 1, "phase": "x"}')
        reader.read(clock())
    assert reader.phase == "x" and reader.ready == {}
    reader.close()
