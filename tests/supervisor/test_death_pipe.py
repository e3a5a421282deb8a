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
fork = os.fork() if end == "with a fork" else 0
if end == "with a fork" and fork == 0:
    signal.pause()
print(child.pid, fork, flush=True)
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
        try:
            child, fork = map(int, parent.stdout.readline().split())
        finally:
            parent.kill()
        try:
            assert eventually(lambda: gone(child), 2.0)
            assert not fork or not gone(fork)
        finally:
            for pid in filter(None, (child, fork)):
                if not gone(pid):
                    os.kill(pid, signal.SIGKILL)
