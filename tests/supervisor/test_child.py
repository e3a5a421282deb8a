"""One child: how its end is told, whom a kill hits, and a start beside busy threads."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.supervisor.conftest import IDLE, LIVELY, Program
from tests.supervisor.test_supervisor import gone, wait_up
from tokenpipe.supervisor import Died, Supervisor

FAILING = """
from tokenpipe.notify import Notifier
Notifier.inherited().failed("no file at /models/none")
raise SystemExit(4)
"""
PARENT = (
    f"""
import subprocess, sys
print(subprocess.Popen([sys.executable, "-c", {IDLE!r}]).pid, flush=True)
"""
    + IDLE
)


def end_of(supervisor: Supervisor) -> Died:
    assert select.select([supervisor], [], [], 30.0)[0] == [supervisor]
    (died,) = supervisor.poll()
    return died


def test_an_end_is_told_with_the_childs_explanation(
    supervisor: Supervisor, program: Program
) -> None:
    child = supervisor.start(program("print('noise'); raise SystemExit(3)", rank="1"))
    said = f"worker 1 (pid {child.pid}) ended with exit code 3; its log ends:\nnoise"
    assert str(end_of(supervisor)) == said
    child = supervisor.start(program(FAILING))
    how = f"worker 0 (pid {child.pid}) ended with exit code 4"
    said = f"{how}; it reported:\nno file at /models/none"
    assert str(end_of(supervisor)) == said
    child = supervisor.start(
        program("import os; os.abort()", rank="2"),
    )
    died = end_of(supervisor)
    assert died.how == "died by SIGABRT" and "Fatal Python error" in died.explanation
    child = supervisor.start(program("", rank="3"))
    assert str(end_of(supervisor)).endswith("ended with exit code 0; its log is empty")


def test_a_kill_has_a_reason_and_a_strangers_kill_has_none(
    supervisor: Supervisor, program: Program
) -> None:
    child = supervisor.start(program(IDLE))
    child.kill("it was late")
    child.kill("a second reason")
    assert end_of(supervisor).how == "was killed, because it was late"
    child = supervisor.start(program(IDLE))
    wait_up(supervisor, child)
    os.kill(child.pid, signal.SIGKILL)
    assert end_of(supervisor).how == "died by SIGKILL"
    child.kill("it is dead already")  # hits nobody


def test_a_kill_that_comes_too_late_is_not_the_reason(
    supervisor: Supervisor, program: Program
) -> None:
    child = supervisor.start(program(IDLE))
    wait_up(supervisor, child)
    os.kill(child.pid, signal.SIGTERM)
    assert select.select([supervisor], [], [], 30.0)[0]  # it is dead, and nobody has looked
    child.kill("it was late")
    assert end_of(supervisor).how == "died by SIGTERM"


def test_only_a_process_of_its_own_session_is_killed_for_a_child(
    supervisor: Supervisor, program: Program
) -> None:
    child = supervisor.start(program(PARENT))
    wait_up(supervisor, child)
    fork = int(child.log_tail().split()[0])
    with subprocess.Popen([sys.executable, "-c", IDLE], stdout=subprocess.DEVNULL) as stranger:
        try:
            child.kill_fork(stranger.pid)
            child.kill_fork(fork)
            assert eventually(lambda: gone(fork))
            assert not gone(stranger.pid) and not gone(child.pid)
        finally:
            stranger.kill()
    child.kill_fork(stranger.pid)  # nobody has this number


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
