"""What a child says of itself reaches its supervisor; what it does not say is noticed."""

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
from tests.supervisor.conftest import Program
from tests.supervisor.test_supervisor import gone, state
from tokenpipe.errors import StartupError
from tokenpipe.pulse import BEAT_S, Pulse
from tokenpipe.supervisor import Budget, Child, Supervisor
from tokenpipe.supervisor.pulses import PulseReader

LIVELY = """
import os, select, signal, sys
from tokenpipe.pulse import Pulse
pulse = Pulse.inherited()
assert "TOKENPIPE_PULSE" not in os.environ
pulse.phase("loading weights")
pulse.ready(port=7)
while True:
    select.select([], [], [], 0.05)
    pulse.beat()
"""
BUSY_START = """
import signal, sys, time
from tokenpipe.pulse import Pulse
pulse = Pulse.inherited()
pulse.phase("compiling kernels")
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    pass
pulse.ready()
signal.pause()
"""
BROKEN = """
from tokenpipe.pulse import Pulse
pulse = Pulse.inherited()
pulse.phase("reading the model")
pulse.failed("no file at /models/none")
print("noise")
raise SystemExit(4)
"""


def test_ready_brings_facts_and_then_beats(supervisor: Supervisor, program: Program) -> None:
    child = supervisor.start(program(LIVELY))
    supervisor.wait_ready({child: child.missing}, 30.0)
    assert child.pulse.ready == {child.pid: {"port": 7}}
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
def test_who_is_merely_starting_is_never_stuck(supervisor: Supervisor, program: Program) -> None:
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
def test_own_words_of_a_failed_start_are_the_story(
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


def test_restarts_are_budgeted_by_key(clock: Clock) -> None:
    budget = Budget(2, 60.0)
    assert [budget.take("a", clock()) for _ in range(3)] == [True, True, False]
    assert budget.take("b", clock())
    clock.advance(59.9)
    assert not budget.take("a", clock())
    clock.advance(0.1)
    assert budget.take("a", clock())
    assert str(budget) == "2 restarts within 60 s"


def test_beats_are_rationed_and_nothing_blocks(clock: Clock) -> None:
    reader = PulseReader(clock())
    pulse = Pulse(socket.socket(fileno=os.dup(reader.child_fd)), clock)
    pulse._end.setblocking(False)  # type: ignore[union-attr]
    pulse.ready()
    for _ in range(10):
        pulse.beat()
    for _ in range(20_000):  # nobody reads
        clock.advance(BEAT_S)
        pulse.beat()
    reader.read(clock())
    assert reader.beats == {os.getpid(): clock()}
    pulse.left(os.getpid())
    reader.read(clock())
    assert reader.beats == {} and reader.ready == {}
    pulse.failed("x" * 100_000 + "end")
    reader.read(clock())
    assert reader.story.endswith("xend") and len(reader.story) < 65_536
    reader.close()
    pulse.beat()  # to nobody
    pulse.close()
    pulse.beat()


def test_strange_words_are_passed_over(clock: Clock) -> None:
    reader = PulseReader(clock())
    with socket.socket(fileno=os.dup(reader.child_fd)) as theirs:
        for raw in (b"\xff", b"[]", b"{}", b'{"pid": []}', b'{"pid": 1, "ready": 3}', b"7"):
            theirs.send(raw)
        theirs.send(b'{"pid": 1, "phase": "x"}')
        reader.read(clock())
    assert reader.phase == "x" and reader.ready == {}
    reader.close()


def test_without_a_supervisor_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOKENPIPE_PULSE", raising=False)
    pulse = Pulse.inherited()
    pulse.phase("a")
    pulse.ready()
    pulse.beat()


def test_title_is_what_ps_shows(supervisor: Supervisor, program: Program) -> None:
    source = "from tokenpipe.pulse import set_title\nset_title('tp:worker 0.1')\n" + LIVELY
    child: Child = supervisor.start(program(source))
    supervisor.wait_ready({child: child.missing}, 30.0)
    assert Path(f"/proc/{child.pid}/comm").read_text() == "tp:worker 0.1\n"
