"""Starts that work, and starts that do not and say why."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import eventually
from tests.serve.caller import Caller
from tests.serve.running import NotStarted, Running, descendants, gone, sweep, title_of

CHATTY = """
import sys
from tokenpipe.worker import SyntheticEngine
sys.stdout.write("x" * (200 << 10))
for _ in range(424):
    sys.stdout.write("y" * 1023 + "\\n"); sys.stderr.write("z" * 1023 + "\\n")
class Engine(SyntheticEngine):
    def step(self):
        sys.stderr.write("w" * 1023 + "\\n")
        return super().step()
"""
FAULTS = """
import time, signal, os
def late(place):
    if place.dp_rank == 1:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("loading shard 3 of 9", flush=True)
        time.sleep(600)
    from tokenpipe.worker import SyntheticEngine
    return SyntheticEngine(place)
def no_model(place, path):
    open(path)
def silent(place):
    os._exit(9)
def killed(place):
    os.kill(os.getpid(), signal.SIGKILL)
"""


soak = pytest.mark.soak


def engine(directory: Path, source: str, name: str) -> str:
    (directory / "engine_of_test.py").write_text(source)
    return f"engine_of_test:{name}"


def answer(server: Running) -> int:
    body = {"prompt": [1], "max_tokens": 2}
    return server.post("/v1/completions", body).status_code


@pytest.mark.case("B01")
@pytest.mark.case("B05")
@pytest.mark.parametrize(
    ("workers", "starts"),
    [
        (1, 1),
        (4, 1),
        pytest.param(1, 50, marks=[pytest.mark.soak, pytest.mark.timeout(1800)]),
        pytest.param(4, 50, marks=[pytest.mark.soak, pytest.mark.timeout(1800)]),
    ],
)
def test_cold_starts_answer(tmp_path: Path, runtime_dir: Path, workers: int, starts: int) -> None:
    """With 1 MiB of a child's output before ready, 200 KiB of it without a newline."""
    for _ in range(starts):
        arguments = ["--engine", engine(tmp_path, CHATTY, "Engine")]
        keys: dict[str, Any] = {"api": {"workers": workers}, "log": {"format": "json"}}
        with Running(tmp_path, runtime_dir, *arguments, **keys) as server:
            assert answer(server) == 200
            titles = {title_of(pid) for pid in server.pids()}
            assert titles >= {"tp:engine 0", "tp:processor 0", "tp:worker 0.0", "tp:api 0"}
            (api,) = server.pids("tp:api 0")
            below = descendants(api)
            assert len(below) == (0 if workers == 1 else workers)
            if below:  # nothing that cannot be forked stands in the manager
                assert len(os.listdir(f"/proc/{api}/task")) == 1
                fds = [os.readlink(f"/proc/{api}/fd/{fd}") for fd in os.listdir(f"/proc/{api}/fd")]
                assert not any("event" in target for target in fds), fds
        assert server.process.returncode == 0
    assert '"instance": "it", "role": "supervisor"' in server.output()
    assert (tmp_path / "logs" / "worker-0.0.log").stat().st_size > starts << 20


@pytest.mark.case("B08")
@pytest.mark.parametrize(
    ("target", "arguments", "said"),
    [
        pytest.param("no_such_module:make", [], "no module no_such_module", marks=soak),
        ("engine_of_test:no_model", ["--engine-arg", "path=/models/none"], "/models/none"),
        pytest.param("engine_of_test:silent", [], "exit code 9", marks=soak),
        ("engine_of_test:killed", [], "died by SIGKILL"),
    ],
)
def test_engine_that_cannot_be_made_ends_the_start(
    tmp_path: Path, runtime_dir: Path, target: str, arguments: list[str], said: str
) -> None:
    engine(tmp_path, FAULTS, "")
    with pytest.raises(NotStarted) as caught:
        Running(tmp_path, runtime_dir, "--engine", target, *arguments)
    text = str(caught.value)
    assert "exit status 3" in text and "worker 0.0 (pid" in text and said in text, text
    assert "phase:" in text


@pytest.mark.case("B49")
def test_deadline_lists_who_is_missing_and_ends_all(tmp_path: Path, runtime_dir: Path) -> None:
    target = engine(tmp_path, FAULTS, "late")
    with pytest.raises(NotStarted) as caught:
        Running(
            tmp_path,
            runtime_dir,
            "--engine",
            target,
            data_parallel_size=2,
            timeouts={"startup_s": 8.0},
        )
    said = str(caught.value)
    assert "exit status 3" in said and "worker 1.0 (pid" in said and "not ready after" in said
    assert f"making engine {target}" in said and "loading shard 3 of 9" in said
    assert str(tmp_path / "logs" / "worker-1.0.log") in said and "worker 0.0" not in said
    pid = int(said.split("worker 1.0 (pid ")[1].split(")")[0])
    assert eventually(lambda: gone(pid))


@pytest.mark.case("B15")
def test_taken_port_is_named_before_anything_starts(tmp_path: Path, runtime_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        began = time.monotonic()
        with pytest.raises(NotStarted, match=rf"exit status 2(?s:.*)api\.port {port} .*in use"):
            Running(tmp_path, runtime_dir, api={"port": port})
        assert time.monotonic() - began < 20
    assert not (tmp_path / "logs").exists() and not list(runtime_dir.iterdir())


@pytest.mark.case("B15")
@pytest.mark.parametrize("count", [2, pytest.param(8, marks=soak)])
def test_servers_that_start_at_once_get_ports_of_their_own(
    tmp_path: Path, runtime_dir: Path, count: int
) -> None:
    servers: list[Running] = []
    try:
        for i in range(count):
            (tmp_path / str(i)).mkdir()
            servers.append(Running(tmp_path / str(i), runtime_dir, name=None, wait=False))
        for server in servers:
            server.wait_ready()
        assert len({server.url for server in servers}) == count
        assert [answer(server) for server in servers] == [200] * count
        assert [server.stop() for server in servers] == [0] * count
    finally:
        for server in servers:
            server.kill()


@pytest.mark.case("B15")
def test_of_two_that_want_one_port_one_gets_it(tmp_path: Path, runtime_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    servers: list[Running] = []
    try:
        for name in "ab":
            (tmp_path / name).mkdir()
            keys: dict[str, Any] = {"name": name, "wait": False, "api": {"port": port}}
            servers.append(Running(tmp_path / name, runtime_dir, **keys))
        assert eventually(lambda: any(s.process.poll() is not None for s in servers), 30.0)
        loser, winner = sorted(servers, key=lambda server: server.process.poll() is None)
        assert loser.process.poll() == 2 and f"api.port {port} on 127.0.0.1" in loser.output()
        assert not loser.log_dir.exists()  # no child of it was started
        winner.wait_ready()
        assert answer(winner) == 200
        assert winner.stop() == 0
    finally:
        for server in servers:
            server.kill()


def test_second_server_of_a_name_is_refused(tmp_path: Path, runtime_dir: Path) -> None:
    (tmp_path / "b").mkdir()
    with Running(tmp_path, runtime_dir) as first:
        with pytest.raises(NotStarted, match=r"exit status 2(?s:.*)held by process"):
            Running(tmp_path / "b", runtime_dir)
        assert answer(first) == 200


@pytest.mark.case("B46")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize(
    "title",
    [
        pytest.param("tp:engine 0", marks=soak),
        "tp:worker 0.0",
        pytest.param("tp:api 0", marks=soak),
    ],
)
def test_end_in_the_middle_of_the_start(
    tmp_path: Path, runtime_dir: Path, number: signal.Signals, title: str
) -> None:
    server = Running(tmp_path, runtime_dir, wait=False)
    try:
        assert eventually(lambda: server.pids(title), 30.0)
        below = descendants(server.process.pid)
        server.process.send_signal(number)
        assert server.process.wait(30) == (0 if number == signal.SIGTERM else -9)
        assert eventually(lambda: all(gone(pid) for pid in below), 5.0)
    finally:
        server.kill()
    if number == signal.SIGKILL:
        sweep(runtime_dir)


def test_wrong_topology_and_arguments_are_said_at_once(tmp_path: Path, runtime_dir: Path) -> None:
    wrong: list[tuple[tuple[str, ...], dict[str, Any], str]] = [
        ((), {"api": {"workers": 0}}, "api.workers: must be"),
        ((), {"api": {"host": "no such host"}}, "api.host"),
        (("--engine-arg", "rate"), {}, "NAME=VALUE"),
        ((), {"tokenizer": "/nope.json"}, "tokenizer: /nope.json cannot be read"),
        ((), {"api": {"chat_template": "/nope"}}, "api.chat_template: /nope is not a file"),
        (("--engine", "eng"), {}, "engine 'eng': must be module:factory"),
    ]
    for arguments, keys, said in wrong:
        with pytest.raises(NotStarted, match=f"exit status 2(?s:.*){said}"):
            Running(tmp_path, runtime_dir, *arguments, **keys)
        assert not (tmp_path / "logs").exists() and not list(runtime_dir.iterdir())


def test_missing_extra_is_said_at_once(tmp_path: Path, runtime_dir: Path) -> None:
    hidden = 'import sys; sys.modules["uvicorn"] = sys.modules["jinja2"] = None'
    (tmp_path / "sitecustomize.py").write_text(hidden)
    with pytest.raises(NotStarted, match=r"status 2(?s:.*)tokenpipe\[serve\] .*uvicorn, jinja2"):
        Running(tmp_path, runtime_dir)
    assert not (tmp_path / "logs").exists() and not list(runtime_dir.iterdir())


@pytest.mark.case("B47")
@pytest.mark.parametrize("first", [pytest.param(signal.SIGTERM, marks=soak), signal.SIGINT])
def test_second_signal_ends_at_once_and_leaves_nothing(
    tmp_path: Path, runtime_dir: Path, first: signal.Signals
) -> None:
    api = {"workers": 2, "timeout_graceful_shutdown": 60.0}
    with Running(tmp_path, runtime_dir, api=api) as server:
        endless = Caller(server, 1_000_000)
        assert eventually(lambda: endless.tokens)
        below = descendants(server.process.pid)
        server.process.send_signal(first)
        assert eventually(lambda: "the server stops; " in server.output())
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(10) == 128 + signal.SIGINT
        assert eventually(lambda: all(gone(pid) for pid in below), 5.0)
        endless.join(10)
    assert not list(runtime_dir.iterdir())


@pytest.mark.soak
def test_tensor_parallel_ranks_run_in_lockstep(tmp_path: Path, runtime_dir: Path) -> None:
    """Both TP ranks send, and what they send is the same, step for step."""
    keys: dict[str, Any] = {"tensor_parallel_size": 2, "data_parallel_size": 2}
    with Running(tmp_path, runtime_dir, tp_policy="verify", **keys) as server:
        body = {"prompt": [[1], [2], [3], [4]], "n": 2, "max_tokens": 60}
        answer = server.post("/v1/completions", body).json()
        assert answer["usage"]["completion_tokens"] == 8 * 60
        assert eventually(server.idle)
    assert "ranks differ" not in (tmp_path / "logs" / "engine-0.log").read_text()
