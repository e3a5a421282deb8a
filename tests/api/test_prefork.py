"""Forked workers: they die, and others take their place."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import eventually
from tests.serve.caller import open_streams
from tests.serve.running import Running, gone

soak = pytest.mark.soak
USED_UP = "it is not started again: all 1 restart(s) within 60 s are used up"
RESTART: dict[str, Any] = {"engine": "restart", "restarts": 1000}
NOISY = """
import logging, os, socket, sys, threading, time
from tokenpipe import Topology
from tokenpipe.serve import launch

noise = logging.getLogger("noise")
noise.addHandler(logging.StreamHandler(open(os.devnull, "w")))
ours, theirs = socket.socketpair()

def log():
    while theirs.recv(1):
        for _ in range(100):
            noise.error("the lock of a handler is held here")

def send():
    while ours.send(b"x"):
        time.sleep(0.005)

for work in (log, send):
    threading.Thread(target=work, daemon=True).start()
sys.exit(launch(Topology.load(sys.argv[1])))
"""


def serves(pid: int) -> bool:
    """Whether a process has a connection of a caller."""
    connections = psutil.Process(pid).net_connections("tcp")
    return any(connection.status == psutil.CONN_ESTABLISHED for connection in connections)


@soak
def test_api_workers_that_die_again_and_again_end_the_api_server(
    tmp_path: Path, runtime_dir: Path
) -> None:
    policies = {"restarts": 1}
    with Running(tmp_path, runtime_dir, policies=policies, api={"workers": 2}) as server:
        while server.process.poll() is None:
            for pid in server.pids("tp:api")[1:]:
                os.kill(pid, signal.SIGKILL)
                assert eventually(lambda pid=pid: gone(pid))  # type: ignore[misc]
        assert server.process.returncode == 1
    assert "it is not started again: all 2 restart(s) within 60 s are used up" in server.output()
    assert USED_UP in server.output()


@soak
@pytest.mark.case("B03")
@pytest.mark.timeout(1800)
def test_api_workers_come_back_200_times_while_a_thread_logs(
    tmp_path: Path, runtime_dir: Path
) -> None:
    (tmp_path / "noisy.py").write_text(NOISY)
    command = (str(tmp_path / "noisy.py"),)
    chance = random.Random(3)
    keys: dict[str, Any] = {"api": {"workers": 8}, "policies": RESTART}
    with Running(tmp_path, runtime_dir, command=command, **keys) as server:
        manager = server.pid("tp:api 0")

        def all_serve() -> bool:
            """Whether eight of them live and each has said that it serves."""
            workers = set(server.pids("tp:api")) - {manager}
            posts = {path.name for path in (runtime_dir / "it").glob("a[0-9a-f]*")}
            return len(workers) == 8 and {f"a{pid}" for pid in workers} <= posts

        for _ in range(200):
            assert eventually(all_serve, 60.0), server.pids()
            victim = chance.choice([pid for pid in server.pids("tp:api") if pid != manager])
            os.kill(victim, signal.SIGKILL)
            assert eventually(lambda pid=victim: gone(pid))  # type: ignore[misc]
        assert eventually(all_serve, 60.0) and eventually(server.is_ready)
        assert server.pid("tp:api 0") == manager
        assert server.post("/v1/completions", {"prompt": [1]}).status_code == 200
    assert server.process.returncode == 0


def test_killed_api_worker_leaves_the_others_alone(tmp_path: Path, runtime_dir: Path) -> None:
    with Running(tmp_path, runtime_dir, api={"workers": 2}) as server:
        engine, victim = server.pid("tp:engine 0"), server.pid("tp:api 1")
        callers = open_streams(server, 2)
        while not all(serves(server.pid(f"tp:api {rank}")) for rank in (1, 2)):
            callers += open_streams(server, 1)  # who accepts is the kernel's choice
        os.kill(victim, signal.SIGKILL)
        assert eventually(lambda: len(server.pids("tp:api")) == 3 and server.pids("tp:api 3"))
        assert eventually(lambda: not all(caller.is_alive() for caller in callers))
        alive = [caller for caller in callers if caller.is_alive()]
        before = [caller.tokens for caller in alive]
        assert alive  # those that the other worker serves
        assert eventually(lambda: all(c.tokens > b for c, b in zip(alive, before, strict=True)))
        assert server.pid("tp:engine 0") == engine
        assert eventually(lambda: server.ready()["running"] == len(alive))
        server.process.send_signal(signal.SIGTERM)
        for caller in callers:
            caller.join(20)


@soak
def test_killed_api_process_is_replaced_and_nothing_else(tmp_path: Path, runtime_dir: Path) -> None:
    with Running(tmp_path, runtime_dir) as server:
        others = set(server.pids()) - {server.pid("tp:api 0")}
        os.kill(server.pid("tp:api 0"), signal.SIGKILL)
        # The port stays open meanwhile: the call waits instead of being refused.
        assert server.post("/v1/completions", {"prompt": [1]}).status_code == 200
        assert set(server.pids()) - {server.pid("tp:api 0")} == others
