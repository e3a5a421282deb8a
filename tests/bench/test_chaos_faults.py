"""Each kind of fault, done to real processes and files, and undone."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import zmq

from tokenpipe.bench.chaos_faults import begin, slow_turn, target
from tokenpipe.bench.chaos_plan import FaultKind, PlannedFault

PROGRAM = "import sys; print('up', flush=True); sys.stdin.read()"


@dataclass
class Run:
    """The victims of a fault."""

    directory: Path
    workers: list[int] = field(default_factory=list)
    processors: list[int] = field(default_factory=list)
    clients: list[int] = field(default_factory=list)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    yield process
    process.send_signal(signal.SIGCONT)
    process.kill()
    process.communicate()


def fault(kind: FaultKind, seed: int = 0) -> PlannedFault:
    return PlannedFault(0.0, kind, 1.0, seed)


def state(pid: int) -> str:
    """Return the state of a process as /proc shows it: T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def wait_until_stopped(pid: int) -> None:
    """Wait in the kernel until a child is stopped."""
    assert os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT) is not None


@pytest.mark.parametrize(
    ("kind", "role"),
    [
        (FaultKind.KILL_WORKER, "workers"),
        (FaultKind.KILL_ALL_WORKERS, "workers"),
        (FaultKind.KILL_PROCESSOR, "processors"),
    ],
)
def test_kill(kind: FaultKind, role: str, child: subprocess.Popen[str], tmp_path: Path) -> None:
    begin(fault(kind), Run(tmp_path, **{role: [child.pid]}))()
    assert child.wait() == -signal.SIGKILL


@pytest.mark.parametrize(
    ("kind", "role"),
    [
        (FaultKind.STOP_WORKER, "workers"),
        (FaultKind.STOP_PROCESSOR, "processors"),
        (FaultKind.STOP_CLIENT, "clients"),
        (FaultKind.SLOW_WORKER, "workers"),
        (FaultKind.SLOW_PROCESSOR, "processors"),
    ],
)
def test_stop_and_go_on(
    kind: FaultKind, role: str, child: subprocess.Popen[str], tmp_path: Path
) -> None:
    undo = begin(fault(kind), Run(tmp_path, **{role: [child.pid]}))
    wait_until_stopped(child.pid)
    undo()
    os.waitid(os.P_PID, child.pid, os.WCONTINUED | os.WNOWAIT)
    assert state(child.pid) != "T"


def test_slow_process_runs_and_stands_still_by_turns(child: subprocess.Popen[str]) -> None:
    for _ in range(3):
        slow_turn(child.pid, False)
        wait_until_stopped(child.pid)
        slow_turn(child.pid, True)
        os.waitid(os.P_PID, child.pid, os.WCONTINUED)


def test_target_is_the_process_that_the_fault_chooses(tmp_path: Path) -> None:
    run = Run(tmp_path, workers=[1, 2, 3], processors=[7, 8, 9])
    for seed in range(20):
        assert target(fault(FaultKind.SLOW_WORKER, seed), run) in run.workers
        assert target(fault(FaultKind.SLOW_PROCESSOR, seed), run) in run.processors
    assert target(fault(FaultKind.SLOW_WORKER), Run(tmp_path)) is None


def test_files_are_removed(tmp_path: Path) -> None:
    bound = socket.socket(socket.AF_UNIX)
    bound.bind(str(tmp_path / "w0.0"))
    for name in ("engine0.lock", "worker0.0.lock", "instance.json"):
        (tmp_path / name).write_text("x")
    run = Run(tmp_path)
    begin(fault(FaultKind.REMOVE_LOCKS), run)()
    assert {p.name for p in tmp_path.iterdir()} == {"w0.0", "instance.json"}
    begin(fault(FaultKind.REMOVE_SOCKETS), run)()
    assert {p.name for p in tmp_path.iterdir()} == {"instance.json"}
    begin(fault(FaultKind.REMOVE_INSTANCE_FILE), run)()
    begin(fault(FaultKind.REMOVE_INSTANCE_FILE), run)()  # it may be gone already
    assert not list(tmp_path.iterdir())
    begin(fault(FaultKind.REMOVE_DIRECTORY), run)()
    assert not tmp_path.exists()
    bound.close()


@pytest.mark.parametrize(
    ("kind", "which"),
    [
        (FaultKind.NO_DESCRIPTORS, resource.RLIMIT_NOFILE),
        (FaultKind.NO_DISK, resource.RLIMIT_FSIZE),
    ],
)
def test_limits_are_set_and_set_back(
    kind: FaultKind, which: int, child: subprocess.Popen[str], tmp_path: Path
) -> None:
    before = resource.prlimit(child.pid, which)
    undo = begin(fault(kind), Run(tmp_path, workers=[child.pid]))
    within = resource.prlimit(child.pid, which)
    assert within[0] < 64 and within[1] == before[1]
    undo()
    assert resource.prlimit(child.pid, which) == before


@pytest.mark.parametrize(("kind", "parts"), [(FaultKind.BAD_FRAMES, 1), (FaultKind.MORE_PARTS, 3)])
def test_bad_messages_reach_each_socket(kind: FaultKind, parts: int, tmp_path: Path) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.bind(f"ipc://{tmp_path}/w0.0")
        router.set(zmq.RCVTIMEO, 10_000)
        begin(fault(kind), Run(tmp_path))()
        route, *got = router.recv_multipart()
        assert route and len(got) == parts


@pytest.mark.parametrize("kind", list(FaultKind))
def test_nobody_is_there(kind: FaultKind, tmp_path: Path) -> None:
    begin(fault(kind), Run(tmp_path / "gone"))()


def test_process_that_has_ended(child: subprocess.Popen[str], tmp_path: Path) -> None:
    child.kill()
    child.wait()
    run = Run(tmp_path, workers=[child.pid], processors=[child.pid], clients=[child.pid])
    for kind in FaultKind:
        begin(fault(kind), run)()
