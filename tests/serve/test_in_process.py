"""A script that serves in its own process: no API server beside it, and its end is the engine's."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import eventually
from tests.serve.caller import Caller, open_streams
from tests.serve.running import NotStarted, Running, descendants, gone
from tests.serve.test_deaths import all_hear_of_it
from tokenpipe import Topology
from tokenpipe.errors import ConfigError
from tokenpipe.serve import run
from tokenpipe.worker import EngineSpec

soak = pytest.mark.soak
SCRIPT = """
import json, os, sys
from tokenpipe import Topology
from tokenpipe.worker import SYNTHETIC, EngineSpec
from tokenpipe.serve import run

def end():
    print("END " + json.dumps([os.getpid(), len(os.listdir(f"/proc/self/task"))]), flush=True)

slow = EngineSpec(SYNTHETIC, {"rate": 50.0})
spec = EngineSpec(sys.argv[2]) if len(sys.argv) > 2 else slow
status = run(Topology.load(sys.argv[1]), spec, close=end)
print("BEHIND " + json.dumps([status, "uvicorn" in sys.modules, "gunicorn" in sys.modules]))
sys.exit(status)
"""
# An embedder's: pipeline, scheduler and a worker's supervision in a thread of the same process.
ATTACHED = """
import sys, threading, time
from tokenpipe import Topology
from tokenpipe.worker import SYNTHETIC, EngineSpec
from tokenpipe.engine.host import EngineHost
from tokenpipe.notify import Notifier
from tokenpipe.serve import run

topology = Topology.load(sys.argv[1])
hosts, up = [], threading.Event()

def serve():
    with EngineHost(topology, EngineSpec(SYNTHETIC, {"rate": 50.0}), Notifier(None)) as host:
        host.start(time.monotonic() + 30)
        hosts.append(host)
        up.set()
        host.serve()

def end():
    hosts[0].stopping = True
    engine.join()
    print("END", flush=True)

engine = threading.Thread(target=serve)
engine.start()
up.wait()
sys.exit(run(topology, endpoint=hosts[0].endpoint, close=end))
"""


def script(directory: Path, text: str = SCRIPT) -> tuple[str, ...]:
    (directory / "script.py").write_text(text)
    return (str(directory / "script.py"),)


def said(server: Running, word: str) -> Any:
    (line,) = [line for line in server.output().splitlines() if line.startswith(f"{word} ")]
    return json.loads(line.removeprefix(f"{word} "))


@pytest.mark.case("B01")
@pytest.mark.case("B52")
def test_this_very_process_serves_and_its_lifespan_ends_the_engine(
    tmp_path: Path, runtime_dir: Path
) -> None:
    api = {"timeout_graceful_shutdown": 3.0}
    command = script(tmp_path)
    with Running(tmp_path, runtime_dir, command=command, api=api) as server:
        assert not server.pids("tp:api") and not server.pids("tp:supervisor")
        (engine,) = server.pids("tp:engine")
        (inode,) = listening(int(server.url.rpartition(":")[2]))
        assert inode in sockets(server.process.pid)
        assert not any(inode in sockets(pid) for pid in descendants(server.process.pid))
        endless, short = Caller(server, 1_000_000), Caller(server, 100)  # of 2 s
        assert eventually(lambda: endless.tokens > 5 and short.tokens > 5)
        below = descendants(server.process.pid)
        server.process.send_signal(signal.SIGTERM)
        assert eventually(
            lambda: server.post("/v1/completions", {"prompt": [1]}).status_code == 503
        )
        assert not gone(engine)
        assert server.process.wait(20) == 0
        for caller in (endless, short):
            caller.join(10)
    assert short.done and short.tokens == 100
    assert endless.error["message"] == "the server is shutting down"
    assert all(gone(pid) for pid in below)
    assert said(server, "END")[0] == server.process.pid
    assert said(server, "BEHIND") == [0, True, False]  # uvicorn is loaded, the other one is not
    assert "Traceback" not in server.output()


def listening(port: int) -> list[str]:
    """Return the inodes of the sockets that listen on a port of the local host."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [line[9] for line in lines if line[1].endswith(f":{port:04X}") and line[3] == "0A"]


def sockets(pid: int) -> set[str]:
    """Return the inodes of the sockets that a process has."""
    found = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            found.add(target[8:-1])
    return found


@pytest.mark.case("B45")
@pytest.mark.parametrize("policy", [pytest.param("restart", marks=soak), "fail"])
def test_engine_that_dies_is_started_again_or_ends_the_script(
    tmp_path: Path, runtime_dir: Path, policy: str
) -> None:
    command = script(tmp_path)
    with Running(tmp_path, runtime_dir, command=command, policies={"engine": policy}) as server:
        callers = open_streams(server, 4)
        engine = server.pid("tp:engine 0")
        died = time.monotonic()
        os.kill(engine, signal.SIGKILL)
        all_hear_of_it(callers, died)
        if policy == "restart":
            assert eventually(lambda: server.pids("tp:worker") and server.is_ready(), 30.0)
            assert eventually(lambda: server.post("/v1/completions", {"prompt": [1]}).is_success)
            assert server.pid("tp:engine 0") != engine
        else:
            assert server.process.wait(15) == 1
            assert "ServerFailed: engine 0 (pid" in server.output()
            assert "died by SIGKILL" in server.output()
            assert "policies.engine is fail" in server.output()
    assert said(server, "END")[0] == server.process.pid


@soak
def test_second_signal_ends_all_at_once(tmp_path: Path, runtime_dir: Path) -> None:
    api = {"timeout_graceful_shutdown": 60.0}
    with Running(tmp_path, runtime_dir, command=script(tmp_path), api=api) as server:
        endless = Caller(server, 1_000_000)
        assert eventually(lambda: endless.tokens)
        below = descendants(server.process.pid)
        server.process.send_signal(signal.SIGTERM)
        assert eventually(lambda: not server.is_ready())
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(10) == 128 + signal.SIGINT
        assert eventually(lambda: all(gone(pid) for pid in below), 5.0)
        endless.join(10)
    assert "Traceback" not in server.output()


def test_engine_of_the_callers_own(tmp_path: Path, runtime_dir: Path) -> None:
    """A pipeline in a thread of the script; `close` ends it behind the last answer."""
    with Running(tmp_path, runtime_dir, command=script(tmp_path, ATTACHED)) as server:
        assert {pid for pid in server.pids("tp:")} == {
            server.pid("tp:processor 0"),
            server.pid("tp:worker 0.0"),
        }
        short = Caller(server, 50)
        assert eventually(lambda: short.tokens)
        assert server.stop() == 0
        short.join(10)
    assert short.done and short.tokens == 50
    output = server.output()
    assert output.index("closed its client") < output.index("END") < output.index("Finished server")
    assert "Traceback" not in output


def test_start_that_fails_says_why_and_leaves_nothing(tmp_path: Path, runtime_dir: Path) -> None:
    with pytest.raises(
        NotStarted, match=r"exit status 1(?s:.*)StartupError: engine 0(?s:.*)nowhere"
    ):
        Running(tmp_path, runtime_dir, "nowhere:make", command=script(tmp_path))


@soak
def test_signal_in_the_middle_of_the_start(tmp_path: Path, runtime_dir: Path) -> None:
    server = Running(tmp_path, runtime_dir, command=script(tmp_path), wait=False)
    try:
        assert eventually(lambda: server.pids("tp:processor"), 30.0)
        below = descendants(server.process.pid)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0
        assert eventually(lambda: all(gone(pid) for pid in below), 5.0)
    finally:
        server.kill()


def test_what_it_cannot_do_is_said_at_once() -> None:
    with pytest.raises(ConfigError, match=r"api\.workers: run\(\) serves with one"):
        run(Topology(api={"workers": 2}))
    with pytest.raises(ConfigError, match="not both"):
        run(Topology(), EngineSpec("a:b"), endpoint="/nowhere")
