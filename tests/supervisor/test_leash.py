"""A child dies with its supervisor's process, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.supervisor.conftest import IDLE, STUBBORN, Program
from tests.supervisor.test_supervisor import gone

PARENT = """
import os, signal, sys
from pathlib import Path
from tokenpipe.supervisor import ChildSpec, Supervisor
directory, module, end = sys.argv[1:]
supervisor = Supervisor(Path(directory) / "logs")
child = supervisor.start(ChildSpec("worker", "0", module, (), {"PYTHONPATH": directory}))
supervisor.wait_ready({child: lambda: None if "up" in child.log_tail() else "no word"}, 30.0)
if end == "stopped child":
    os.kill(child.pid, signal.SIGSTOP)
if end == "with a fork" and os.fork() == 0:
    print(os.getpid(), flush=True)
    signal.pause()
print(child.pid, flush=True)
if end == "exit":
    os._exit(0)
signal.pause()
"""


@pytest.mark.parametrize("source", [IDLE, STUBBORN, IDLE.replace("signal.pause()", "while 1: 1")])
@pytest.mark.parametrize("end", ["killed", "exit", "stopped child", "with a fork"])
def test_no_child_outlives_its_supervisor(
    tmp_path: Path, program: Program, source: str, end: str
) -> None:
    module = program(source).module
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path), module, end],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert parent.stdout is not None
    with parent, parent.stdout:
        pids = [int(parent.stdout.readline()) for _ in range(1 + (end == "with a fork"))]
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        if end == "with a fork":
            # The order in which the two wrote is open: the fork is the one still alive.
            assert eventually(lambda: sum(gone(pid) for pid in pids) == 1, 2.0)
            (fork,) = [pid for pid in pids if not gone(pid)]
            os.kill(fork, signal.SIGKILL)
        assert eventually(lambda: all(gone(pid) for pid in pids), 2.0)
